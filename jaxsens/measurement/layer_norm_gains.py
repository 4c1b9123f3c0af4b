"""Gains of the layer norms of a model, as pure functions for `jit` and `vmap`; see `blowup`."""

from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

#: By the definition, or as the code released with the paper has it.
Kind = Literal["definition", "released"]
KINDS: tuple[Kind, ...] = get_args(Kind)


def gains_of(
    model: Any, variables: Any, x: Any, *args: Any, kind: Kind = "definition", **kwargs: Any
) -> dict[str, Float[Array, "n _"]]:
    """N_i of every layer norm, or 1/std_i, by the norm's name."""
    return outputs_and_gains(model, variables, x, *args, kinds=(kind,), **kwargs)[1][kind]


def outputs_and_gains(
    model: Any, variables: Any, x: Any, *args: Any, kinds: tuple[Kind, ...] = KINDS, **kwargs: Any
) -> tuple[Any, dict[Kind, dict[str, Float[Array, "n _"]]]]:
    """What the model gives, and gains of every layer norm by kind and name, all from one pass."""
    # Here, because a measurement of other frameworks' models needs no Flax.
    import flax.linen as nn

    gains: dict[Kind, dict[str, Array]] = {kind: {} for kind in kinds}

    def watch(call: Any, call_args: Any, call_kwargs: Any, context: Any) -> Any:
        norm = context.module
        if isinstance(norm, nn.LayerNorm) and context.method_name == "__call__":
            # A norm that is called twice is two factors.
            name = "/".join(norm.path) or type(norm).__name__
            for kind, known in gains.items():
                repeated = sum(each.partition(" ")[0] == name for each in known)
                unique = f"{name} ({repeated + 1})" if repeated else name
                known[unique] = _gain(call_args[0], norm.epsilon, kind)
        return call(*call_args, **call_kwargs)

    with nn.intercept_methods(watch):
        outputs = model.apply(variables, x, *args, **kwargs)
    return outputs, gains


def factor_of(gain: Any, kind: Kind) -> Any:
    """τ_k of every example, (n,), from the gains (n, T_k) of a layer norm: NumPy's or JAX's."""
    return gain.max(axis=1) + (1.0 if kind == "definition" else 0.0)


def _gain(y: Float[Array, "n *T d"], epsilon: float, kind: Kind) -> Float[Array, "n _"]:
    if kind == "released":
        gain = 1 / jnp.std(y, axis=-1, ddof=1)
    else:
        gain = jax.lax.rsqrt(jnp.var(y, axis=-1) + jnp.asarray(epsilon, y.dtype))
    return gain.reshape(y.shape[0], -1)
