"""What a measurement is asked about, checked before anything is computed.

Every check says in one line what was expected, what came, and what to do.
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Int, PRNGKeyArray, Shaped

from jaxsens import engine, metrics
from jaxsens.perturbation import Perturbation


def typed_key(key: PRNGKeyArray | Array) -> PRNGKeyArray:
    """One key of the new kind, from a key of either kind; ValueError for anything else."""
    if not hasattr(key, "dtype"):
        raise ValueError(f"key must be a JAX random key, jax.random.key(seed); got {key!r}")
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        key = jax.random.wrap_key_data(key)
    if key.shape != ():
        raise ValueError(f"key must be one key; got keys of shape {key.shape}")
    return key


def checked_inputs(x: ArrayLike, perturbation: Perturbation) -> Shaped[np.ndarray, "n ..."]:
    """The examples as an array that JAX would make of them: at least one, finite, with a position."""
    x = np.asarray(x)
    x = x.astype(jax.dtypes.canonicalize_dtype(x.dtype), copy=False)
    if x.ndim == 0 or len(x) == 0:
        raise ValueError(f"x has no examples: its shape is {x.shape}")
    if perturbation.needs_pool and len(x) < 2:
        raise ValueError(f"{perturbation.edit!r} needs at least 2 examples; got {len(x)}")
    if perturbation.num_positions(x.shape[1:]) == 0:
        raise ValueError(f"examples of shape {x.shape[1:]} have no position to edit")
    if jnp.issubdtype(x.dtype, jnp.floating):
        finite = np.isfinite(x).reshape(len(x), -1).all(axis=1)
        if not finite.all():
            raise ValueError(
                f"x has non-finite values in {(~finite).sum()} of {len(x)} examples, "
                f"first in example {int(np.argmin(finite))}"
            )
    return x


def checked_mask(mask: ArrayLike | None, n: int, num_positions: int) -> Bool[np.ndarray, "n T"]:
    """Which positions to measure; at least one."""
    if mask is None:
        return np.ones((n, num_positions), bool)
    mask = np.asarray(mask).astype(bool)
    if mask.shape != (n, num_positions):
        raise ValueError(f"mask must have shape (n, T) = {(n, num_positions)}; got {mask.shape}")
    if not mask.any():
        raise ValueError("mask leaves no position to measure: it is false everywhere")
    return mask


def checked_names(
    names: ArrayLike | None, n: int, perturbation: Perturbation
) -> Int[np.ndarray, " n"]:
    """The numbers that stand for the examples in their keys."""
    if names is None:
        return np.arange(n, dtype=np.int32)
    if perturbation.needs_pool:
        raise ValueError(f"{perturbation.edit!r} looks at all examples: it takes no names")
    names = np.asarray(names)
    if names.shape != (n,) or not np.issubdtype(names.dtype, np.integer) or names.min() < 0:
        raise ValueError(f"names must be n = {n} whole numbers >= 0; got shape {names.shape}")
    return names.astype(np.int32)


def checked_context(context: Any, n: int) -> engine.Context:
    """Nothing, or what belongs to each example."""
    if context is None:
        return ()
    context = jax.tree.map(np.asarray, context)
    for values in jax.tree.leaves(context):
        if values.shape[:1] != (n,):
            raise ValueError(f"context must have n = {n} rows; got an array of {values.shape}")
    return (context,)


def shapes(inputs: Any, *leading: int) -> Any:
    """The shapes of one example, or of a batch of as many as the leading axis says."""
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct((*leading, *a.shape[1:]), a.dtype), inputs)


def checked_samples(
    num_samples: int | str, perturbation: Perturbation, shape: tuple[int, ...]
) -> int:
    """S, or the number of all replacements."""
    if num_samples == "all":
        return perturbation.num_replacements(shape)
    if not isinstance(num_samples, int | np.integer) or num_samples < 1:
        raise ValueError(f"num_samples must be a whole number >= 1, or 'all'; got {num_samples!r}")
    return int(num_samples)


def checked_positions(positions: str | None, tolerance: float | None) -> Literal["all", "random"]:
    """Which positions are drawn; a tolerance draws them at random."""
    if positions not in (None, "all", "random"):
        raise ValueError(f"positions must be 'all' or 'random'; got {positions!r}")
    if tolerance is None:
        return "random" if positions == "random" else "all"
    if not tolerance > 0:
        raise ValueError(f"tolerance must be positive; got {tolerance}")
    if positions == "all":
        raise ValueError(
            "tolerance draws positions at random: use positions='random' or leave it out"
        )
    return "random"


def check_edit(perturbation: Perturbation, x: np.ndarray, key: PRNGKeyArray) -> None:
    """Lets the edit refuse these windows before the model is looked at."""
    pool = jax.ShapeDtypeStruct(x.shape, x.dtype)
    first = jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
    jax.eval_shape(perturbation, key, first, 0, pool=pool, example=0)


def check_outputs(apply_fn: engine.ApplyFn, params: Any, inputs: Any, metric: Any) -> None:
    """Lets the model be traced by shapes alone: logits, or for other metrics any array a row."""
    two = shapes(inputs, 2)
    out = jax.eval_shape(apply_fn, params, *two)
    shape = getattr(out, "shape", None)
    ranks = (1, 2) if metric == metrics.label_flip else range(1, 9)
    if shape is None or len(shape) not in ranks or shape[0] != 2:
        got = type(out).__name__ if shape is None else shape
        raise ValueError(
            f"apply_fn must map a batch {two[0].shape} to logits (2, C) or scores (2,); got {got}"
        )
