"""Checks of what users pass to a measurement, before anything is computed.

Every error says in one line what was expected, what came, and what to do. `checked_…` functions
return the value in its proper type, `check_…` functions only raise. Arguments are typed `Any`,
since a user may pass anything.
"""

import functools
import math
import operator
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int, PRNGKeyArray, Shaped

from jaxsens.core.keys import batch_invariant
from jaxsens.core.scalars import MAX_INT32, as_real, as_whole, check_hashable, one_line
from jaxsens.core.user_code import described, first_line, user_call
from jaxsens.measurement import metrics
from jaxsens.measurement.packing import first_out_of_bounds
from jaxsens.measurement.stored import StoredExamples, check_finite_inputs, is_stored
from jaxsens.perturbations.perturbation import Perturbation, is_edit, is_grid


def checked_perturbation(perturbation: Any) -> Perturbation:
    """A grid with an edit, and not one of them alone."""
    if isinstance(perturbation, Perturbation):
        return perturbation
    missing = "Perturbation(Patches(4), Gaussian(sigma=1.0))"
    if is_grid(perturbation):
        missing = f"Perturbation({one_line(perturbation)}, Gaussian(sigma=1.0))"
    elif not isinstance(perturbation, str) and is_edit(perturbation):
        missing = f"Perturbation(Tokens(), {one_line(perturbation)})"
    raise ValueError(
        f"perturbation must be a grid with an edit, such as {missing}; got {one_line(perturbation)}"
    )


def check_function(name: str, function: Any, *, optional: bool = False) -> None:
    """Raises ValueError unless this is a hashable function."""
    if optional and function is None:
        return
    if not callable(function):
        advice = ": give its method call" if callable(getattr(function, "call", None)) else ""
        raise ValueError(f"{name} must be a function; got {one_line(function)}{advice}")
    check_hashable(name, function)


def check_progress(progress: Any) -> None:
    """Raises ValueError unless this is a function or None."""
    if progress is not None and not callable(progress):
        raise ValueError(
            f"progress must be a function (done, all, mean) or None; got {one_line(progress)}"
        )


def typed_key(key: Any) -> PRNGKeyArray:
    """A typed key (`jax.random.key`), also from an old one (`PRNGKey`); ValueError otherwise."""
    if not hasattr(key, "dtype"):
        raise ValueError(f"key must be a JAX random key, jax.random.key(seed); got {one_line(key)}")
    check_known("key", key)
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        try:
            key = jax.random.wrap_key_data(key)
        except (TypeError, ValueError):
            raise ValueError(
                "key must be a JAX random key, jax.random.key(seed); got an array of "
                f"{key.dtype} and shape {key.shape}"
            ) from None
    if key.shape != ():
        raise ValueError(f"key must be one key; got keys of shape {key.shape}")
    return batch_invariant(key)


def check_known(name: str, value: Any) -> None:
    """Raises ValueError inside jit, grad and vmap, where arrays have no values."""
    if isinstance(value, jax.core.Tracer):
        raise ValueError(
            f"{name} has no values yet, since JAX is tracing this call: measure outside of "
            f"jax.jit, jax.grad and jax.vmap; got {described(value)}"
        )


def as_numbers(name: str, value: Any) -> Shaped[np.ndarray, "..."]:
    """An array of numbers or bools."""
    check_known(name, value)
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError(
            f"{name} is a NumPy masked array, whose mask would be ignored; fill it with "
            f"{name}.filled(value), and say what to measure with mask="
        )
    try:
        array = np.asarray(value)
    except Exception as error:
        raise ValueError(
            f"{name} must be an array of numbers or bools; got {type(value).__name__} "
            f"({first_line(error)})"
        ) from error
    if not (jnp.issubdtype(array.dtype, jnp.number) or array.dtype == bool):
        raise ValueError(
            f"{name} must be an array of numbers or bools; got {array.dtype} of shape {array.shape}"
        )
    return array


def as_array(name: str, value: Any) -> Shaped[np.ndarray, "..."]:
    """An array in the dtype that JAX would give it; ValueError if whole numbers do not fit.

    JAX works in 32 bits: an id of 2³² would become 0 without a word.
    """
    array = as_numbers(name, value)
    dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    if jnp.issubdtype(dtype, jnp.integer) and dtype != array.dtype and array.size:
        low, high = int(array.min()), int(array.max())
        if low < np.iinfo(dtype).min or high > np.iinfo(dtype).max:
            raise ValueError(
                f"{name} must hold numbers that fit into {dtype}, in which JAX computes; got "
                f"numbers from {low} to {high}"
            )
    with np.errstate(over="ignore"):
        return array.astype(dtype, copy=False)


def checked_examples(x: Any) -> Shaped[np.ndarray, "n ..."]:
    """(n, …) at least one example; ValueError for none."""
    x = as_array("x", x)
    if x.ndim == 0 or len(x) == 0:
        raise ValueError(f"x has no examples: its shape is {x.shape}")
    return x


def checked_inputs(
    x: Any, perturbation: Perturbation
) -> Shaped[np.ndarray, "n ..."] | StoredExamples:
    """(n, …) at least one example, all finite and with a position to edit; else ValueError."""
    is_file = is_stored(x)
    x = StoredExamples(x, functools.partial(as_array, "x")) if is_file else checked_examples(x)
    if perturbation.needs_pool and len(x) < 2:
        raise ValueError(f"{perturbation.edit!r} needs at least 2 examples; got {len(x)}")
    check_grid(perturbation, x.shape[1:])
    if not is_file:
        check_finite_inputs(x, None, len(x))
    return x


def check_grid(perturbation: Perturbation, shape: tuple[int, ...]) -> None:
    """Raises ValueError unless the grid has windows for examples of this shape.

    A ValueError of the grid itself is passed on, since it says best what is wrong.
    """
    grid = perturbation.grid
    try:
        num_positions, window = perturbation.num_positions(shape), grid.window_shape(shape)
        fits = len(window) == len(shape) and all(map(operator.le, window, shape))
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(
            f"perturbation.grid {one_line(grid)} fails for examples of shape {shape}: "
            f"{type(error).__name__}: {first_line(error)}"
        ) from error
    if not num_positions:
        raise ValueError(f"examples of shape {shape} have no position to edit")
    if not fits:
        raise ValueError(
            f"perturbation.grid {one_line(grid)} has windows of shape {window}, which do not fit "
            f"into examples of shape {shape}"
        )


def checked_mask(mask: Any, n: int, num_positions: int) -> Bool[np.ndarray, "n T"]:
    """(n, T), true at the positions to measure; ValueError if there is none."""
    if mask is None:
        return np.ones((n, num_positions), bool)
    mask = as_array("mask", mask)
    if mask.shape != (n, num_positions):
        raise ValueError(f"mask must have shape (n, T) = {(n, num_positions)}; got {mask.shape}")
    strange = (mask != 0) & (mask != 1)
    if strange.any():
        raise ValueError(f"mask must hold bools, or 0 and 1; got {mask[strange][0]}")
    mask = mask.astype(bool)
    if not mask.any():
        raise ValueError("mask leaves no position to measure: it is false everywhere")
    return mask


def checked_example_ids(ids: Any, n: int, perturbation: Perturbation) -> Int[np.ndarray, " n"]:
    """The numbers that stand for the examples in the keys of their draws; default 0 … n-1."""
    if ids is None:
        return np.arange(n, dtype=np.int32)
    if perturbation.needs_pool:
        raise ValueError(
            f"{perturbation.edit!r} finds other examples by their index in x: leave example_ids out"
        )
    ids = as_array("example_ids", ids)
    if ids.shape != (n,) or not np.issubdtype(ids.dtype, np.integer) or ids.min() < 0:
        raise ValueError(
            f"example_ids must be n = {n} whole numbers >= 0; got {ids.dtype} of shape {ids.shape}"
        )
    if ids.max() > MAX_INT32:
        raise ValueError(
            f"example_ids must be at most {MAX_INT32}, which 32 bits hold; got {ids.max()}"
        )
    values, counts = np.unique(ids, return_counts=True)
    if len(values) < n:
        raise ValueError(
            "example_ids must differ, since examples with the same id get the same noise; "
            f"got {values[counts > 1][0]} more than once"
        )
    return ids.astype(np.int32)


def checked_context(context: Any, n: int) -> tuple[Any, ...]:
    """() without a context, else a tuple with the pytree of (n, …) arrays."""
    if context is None:
        return ()
    context = jax.tree.map(lambda leaf: as_array("context", leaf), context)
    for values in jax.tree.leaves(context):
        if values.shape[:1] != (n,):
            raise ValueError(
                f"context must hold arrays with n = {n} examples; got one of shape {values.shape}"
            )
    return (context,)


def shapes(inputs: Any, *leading: int) -> Any:
    """The shapes of one example of (n, …) arrays or, with a leading axis given, of a batch."""
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct((*leading, *a.shape[1:]), a.dtype), inputs)


def checked_samples(num_samples: Any, perturbation: Perturbation, shape: tuple[int, ...]) -> int:
    """S, or the number of all replacements."""
    if isinstance(num_samples, str) and num_samples == "all":
        samples = as_whole(given := perturbation.num_replacements(shape)) or 0
        if samples < 1:
            raise ValueError(
                f"perturbation.edit {one_line(perturbation.edit)} must have a whole number of "
                f"replacements; got {one_line(given)}"
            )
    else:
        whole = as_whole(num_samples)
        if whole is None or whole < 1:
            raise ValueError(
                f"num_samples must be a whole number >= 1, or 'all'; got {one_line(num_samples)}"
            )
        samples = whole
    num_positions = perturbation.num_positions(shape)
    if samples * num_positions > MAX_INT32:
        raise ValueError(
            f"num_samples must leave at most {MAX_INT32} draws per example; got {samples} at each "
            f"of {num_positions} positions"
        )
    return samples


def checked_tolerance(tolerance: Any) -> float | None:
    """The tolerance as a number, or None; ValueError unless it is positive and finite."""
    if tolerance is None:
        return None
    number = as_real(tolerance)
    if number is None:
        raise ValueError(f"tolerance must be a number, such as 0.01; got {one_line(tolerance)}")
    if not 0 < number < math.inf:
        raise ValueError(f"tolerance must be positive; got {number} (a finite number is expected)")
    return number


def checked_positions(positions: Any, tolerance: float | None) -> Literal["all", "random"]:
    """Which positions are measured: with a tolerance random ones, by default all."""
    if positions is not None and not (
        isinstance(positions, str) and positions in ("all", "random")
    ):
        raise ValueError(f"positions must be 'all' or 'random'; got {one_line(positions)}")
    if tolerance is None:
        return "random" if positions == "random" else "all"
    if positions == "all":
        raise ValueError(
            "tolerance draws positions at random: use positions='random' or leave it out"
        )
    return "random"


def checked_check(check: Any) -> bool:
    """A bool of Python or NumPy; 0 and 1 are numbers, and refused as such."""
    if isinstance(check, bool | np.bool_):
        return bool(check)
    raise ValueError(f"check must be True or False; got {one_line(check)}")


def checked_incremental(incremental: Any) -> bool | Literal["auto"]:
    """A bool of Python or NumPy, or "auto"; 0 and 1 are numbers, and refused as such."""
    if isinstance(incremental, bool | np.bool_):
        return bool(incremental)
    if isinstance(incremental, str) and incremental == "auto":
        return "auto"
    raise ValueError(f"incremental must be True, False or 'auto'; got {one_line(incremental)}")


def check_edit(perturbation: Perturbation, x: Any, key: PRNGKeyArray, *, exact: bool) -> None:
    """Traces the edit by shapes alone, so that it can refuse windows before the model is traced."""
    pool = jax.ShapeDtypeStruct(x.shape, x.dtype)
    first = jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
    with user_call(f"perturbation.edit {one_line(perturbation.edit)}", x=first):
        jax.eval_shape(perturbation, key, first, 0, pool=pool, example=0)
        if exact:
            jax.eval_shape(perturbation.replacement, 0, first, 0)


def check_bounds(metric: metrics.Metric, totals: np.ndarray, counts: np.ndarray) -> None:
    """Raises ValueError if what was measured lies outside the metric's own bounds."""
    found = first_out_of_bounds(totals, counts, (metric.lower, metric.upper))
    if found is None:
        return
    example, position = found
    raise ValueError(
        f"metric {metric.name!r} has bounds [{metric.lower:g}, {metric.upper:g}], but its mean is "
        f"{totals[found] / counts[found]:g} at position {position} of example {example}: declare "
        "its range with Metric(name, change, lower, upper)"
    )
