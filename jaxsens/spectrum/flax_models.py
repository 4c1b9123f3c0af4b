"""Empirical kernels of any Flax model, averaged over seeds, at initialisation or after training.

    CK  = ⟨h(x), h(y)⟩/m          h: the m inputs of the model's last Dense layer
    NTK = (1/C) Σ_c ⟨∂_θ f_c(x), ∂_θ f_c(y)⟩

Derivatives are with respect to the collection "params" alone: running statistics are not weights.
The division by m gives the CK a limit for models in Flax's usual parametrisation, whose last
weights have a variance of order 1/m.

Assumption: called without further arguments, the model is in eval mode (no dropout, BatchNorm with
running statistics), and the last `nn.Dense` it calls is its readout.
"""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jaxsens.spectrum.architectures import KernelKind
from jaxsens.spectrum.empirical import (
    ApplyFn,
    SeedAverage,
    average_over_seeds,
    empirical_ck,
    empirical_ntk,
)

#: (variables, key) → variables after training.
Train = Callable[[Any, PRNGKeyArray], Any]


def flax_kernels(
    model: nn.Module,
    x: Float[Array, "n ..."],
    *,
    key: PRNGKeyArray | Array,
    num_seeds: int = 8,
    train: Train | None = None,
    feature_fn: ApplyFn | None = None,
    kinds: tuple[KernelKind, ...] = ("ck", "ntk"),
) -> dict[KernelKind, SeedAverage]:
    """Both kernels of a Flax model, averaged over differently initialised copies.

    Args:
      model: any linen module; `model.apply(variables, x)` gives (n,) or (n, C) outputs.
      x: inputs: points of the cube (`jaxsens.boolean.cube(d)`) or anything else.
      key: a JAX random key; seed s has `fold_in(key, s)`.
      num_seeds: how many copies; at least 2, or there is no interval.
      train: (variables, key) → variables, to measure after training. Default: at initialisation.
      feature_fn: (variables, x) → features (n, m) with their scale, for the CK. Default:
        `readout_features` of the model.
      kinds: which kernels to measure.

    Returns:
      For each kind the average, its standard error and intervals: see `SeedAverage`.

    Raises:
      ValueError: there are fewer than 2 seeds, or the CK is asked for, no `feature_fn` is given
        and the model calls no `nn.Dense`.

    >>> from jaxsens import boolean
    >>> model = nn.Sequential([nn.Dense(32), nn.relu, nn.Dense(1)])
    >>> found = flax_kernels(model, boolean.cube(3), key=jax.random.key(0), num_seeds=3)
    >>> found["ntk"].mean.shape, found["ck"].num_seeds, len(found["ck"].ci(0.95))
    ((8, 8), 3, 2)
    """
    if num_seeds < 2:
        raise ValueError(f"num_seeds must be at least 2 for an interval; got {num_seeds}")
    feature_fn = readout_features(model) if feature_fn is None else feature_fn
    initialise, features = jax.jit(model.init), jax.jit(feature_fn)
    kernels: dict[KernelKind, list[Array]] = {kind: [] for kind in kinds}
    apply_fn: ApplyFn = model.apply  # type: ignore[assignment]
    for seed in range(num_seeds):
        init_key, train_key = jax.random.split(jax.random.fold_in(key, seed))
        variables = initialise(init_key, x)
        if train is not None:
            variables = train(variables, train_key)
        weights = {name: name == "params" for name in variables}
        for kind in kinds:
            kernels[kind].append(
                empirical_ck(features, variables, x)
                if kind == "ck"
                else empirical_ntk(apply_fn, variables, x, mask=weights)
            )
    return {kind: average_over_seeds(found) for kind, found in kernels.items()}


def readout_features(model: nn.Module) -> ApplyFn:
    """The inputs of a model's last Dense layer, divided by the square root of their number.

    Args:
      model: any linen module.

    Returns:
      (variables, x) → (n, m).

    >>> model = nn.Dense(2)
    >>> x = jnp.full((3, 4), 2.0)
    >>> readout_features(model)(model.init(jax.random.key(0), x), x)[0].tolist()
    [1.0, 1.0, 1.0, 1.0]
    """

    def features(variables: Any, x: Float[Array, "n ..."]) -> Float[Array, "n m"]:
        seen: list[Array] = []

        def note(next_fun: Any, args: Any, kwargs: Any, context: Any) -> Any:
            if isinstance(context.module, nn.Dense) and context.method_name == "__call__":
                seen.append(args[0])
            return next_fun(*args, **kwargs)

        with nn.intercept_methods(note):
            model.apply(variables, x)
        if not seen:
            raise ValueError(
                f"{type(model).__name__} calls no nn.Dense, so its readout is not known; give "
                "feature_fn"
            )
        last = seen[-1].reshape(len(x), -1)
        return last / jnp.sqrt(jnp.asarray(last.shape[1], last.dtype))

    return features
