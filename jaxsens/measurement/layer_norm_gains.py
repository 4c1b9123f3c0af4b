"""Gains of the layer norms of a model, as pure functions for `jit` and `vmap`; see `blowup`."""

from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

#: By the definition, or as the code released with the paper has it.
Kind = Literal["definition", "released"]


def gains_of(
    model: Any, variables: Any, x: Any, *args: Any, kind: Kind = "definition", **kwargs: Any
) -> dict[str, Float[Array, "n _"]]:
    """N_i of every layer norm, or 1/std_i; a pure function for `jit` and `vmap`."""
    # Here, because a measurement of other frameworks' models needs no Flax.
    import flax.linen as nn

    gains: dict[str, Array] = {}

    def watch(call: Any, call_args: Any, call_kwargs: Any, context: Any) -> Any:
        norm = context.module
        if isinstance(norm, nn.LayerNorm) and context.method_name == "__call__":
            # A norm that is called twice is two factors.
            name = "/".join(norm.path) or type(norm).__name__
            repeated = sum(known.partition(" ")[0] == name for known in gains)
            name = f"{name} ({repeated + 1})" if repeated else name
            gains[name] = _gain(call_args[0], norm.epsilon, kind)
        return call(*call_args, **call_kwargs)

    with nn.intercept_methods(watch):
        model.apply(variables, x, *args, **kwargs)
    return gains


def factor_of(gain: Any, kind: Kind) -> Any:
    """τ_k of every example, (n,), from the gains (n, T_k) of a layer norm: NumPy's or JAX's."""
    return gain.max(axis=1) + (1.0 if kind == "definition" else 0.0)


def _gain(y: Float[Array, "n *T d"], epsilon: float, kind: Kind) -> Float[Array, "n _"]:
    if kind == "released":
        gain = 1 / jnp.std(y, axis=-1, ddof=1)
    else:
        gain = jax.lax.rsqrt(jnp.var(y, axis=-1) + jnp.asarray(epsilon, y.dtype))
    return gain.reshape(y.shape[0], -1)
