"""Whether a model treats the examples of a batch independently, as every measurement assumes.

A mean over the batch, BatchNorm in training mode, dropout, or a branch on the number of examples
make an example's output depend on the rest of its batch. Measurements put edits of one example, and
several examples, into one batch: what they would find then is no property of the model.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsens.core import runtime
from jaxsens.core.jaxprs import equations
from jaxsens.measurement.jobs import Work
from jaxsens.measurement.whole_passes import batch_of, disagreement, outputs_of

#: Operations that come and go with axes of length 1.
_SHAPING = {"broadcast_in_dim", "expand_dims", "reshape", "squeeze"}


class _Traced(NamedTuple):
    """A model's operations on a batch of some size, and the shape of what it gives."""

    names: tuple[str, ...]
    shape: tuple[int, ...]
    rounding: float


def check_independence(work: Work) -> None:
    """Raises ValueError if the model's output for an example depends on the rest of its batch.

    Some draws are made twice, at other places of a batch and in other company. What a model does
    with a batch of another size shows in its trace: where that differs, a draw is made alone too.
    A model that has passed is not asked again.
    """
    shapes = jax.tree.map(jax.typeof, (work.params, (work.x[:1], *_first(work.context))))
    leaves, treedef = jax.tree.flatten(shapes)
    passed = _passed(work.question.apply_fn, tuple(leaves), treedef)
    if passed:
        return
    one, two, three = (
        _traced(work.question.apply_fn, tuple(leaves), treedef, batch) for batch in (1, 2, 3)
    )
    if one.shape != (1, *two.shape[1:]):
        raise ValueError(
            f"apply_fn gives {one.shape} for a batch of one example and {two.shape} for two; "
            f"expected {(1, *two.shape[1:])}: squeeze axes by their number, never the batch's"
        )
    rounding = max(one.rounding, float(np.finfo(np.float32).eps))
    # Company takes two, also where a measurement would take one at a time.
    work = dataclasses.replace(work, rows=max(2, work.rows))
    apart = [_in_other_company(work, rounding)]
    _refuse(apart[0], "the others in its batch")
    if not one.names == two.names == three.names:
        apart.append(_alone(work, rounding))
        _refuse(apart[1], "the number of examples in its batch")
    if None not in apart:
        passed.append(True)


def _first(context: Any) -> Any:
    return jax.tree.map(lambda values: values[:1], context)


@functools.lru_cache(maxsize=256)
def _passed(apply_fn: Callable, leaves: tuple, treedef: Any) -> list[bool]:
    """Not empty if the model has passed."""
    return []


@functools.lru_cache(maxsize=256)
def _traced(apply_fn: Callable, leaves: tuple, treedef: Any, batch: int) -> _Traced:
    params, inputs = jax.tree.unflatten(treedef, leaves)
    inputs = jax.tree.map(lambda a: jax.ShapeDtypeStruct((batch, *a.shape[1:]), a.dtype), inputs)
    closed = jax.make_jaxpr(apply_fn)(params, *inputs)
    found = list(equations(closed.jaxpr))
    dtypes = {
        out.aval.dtype for each in found for out in each.outvars if hasattr(out.aval, "dtype")
    }
    floats = [dtype for dtype in dtypes if jnp.issubdtype(dtype, jnp.inexact)]
    rounding = max((float(jnp.finfo(dtype).eps) for dtype in floats), default=0.0)
    names = tuple(each.primitive.name for each in found if each.primitive.name not in _SHAPING)
    return _Traced(names, closed.out_avals[0].shape, rounding)


def _in_other_company(work: Work, rounding: float) -> float | None:
    """How far the same draws are apart at other places, beside other draws; 1 is the most."""
    num = batch_of(work) // 2
    # Side by side, so that each device's share of the batch has some of both.
    draws = _some_draws(work, 3 * num)
    kept, company, others = draws[::3], draws[1::3], draws[2::3]
    one = outputs_of(work, np.stack([kept, company], axis=1).reshape(-1, 3))[::2]
    other = outputs_of(work, np.stack([others, kept[::-1]], axis=1).reshape(-1, 3))[1::2]
    return _apart(one, other[::-1], rounding)


def _alone(work: Work, rounding: float) -> float | None:
    """How far a draw is from itself in a larger batch; 1 is the most."""
    draws = _some_draws(work, batch_of(work))
    mesh = runtime.local_mesh(list(work.mesh.devices.flat[:1]))
    place = functools.partial(runtime.place, mesh=mesh, spec=runtime.SAME)
    alone = dataclasses.replace(
        work, rows=1, mesh=mesh, params=place(work.params), key=place(work.key)
    )
    return _apart(outputs_of(alone, draws[:1]), outputs_of(work, draws)[:1], rounding)


def _some_draws(work: Work, num: int) -> np.ndarray:
    """Draws spread over examples and positions."""
    number, lengths = np.arange(num), work.mask.sum(axis=1)
    examples = np.flatnonzero(lengths)
    examples = examples[number * len(examples) // num]
    positions = work.unmasked[examples, number % lengths[examples]]
    samples = number % work.question.num_samples if work.question.exact else number
    return np.stack([examples, positions, samples], axis=1)


def _apart(found: np.ndarray, expected: np.ndarray, rounding: float) -> float | None:
    """How far outputs are apart; None if none is finite, which the measurement will find."""
    axes = tuple(range(1, found.ndim))
    finite = np.isfinite(found).all(axis=axes) & np.isfinite(expected).all(axis=axes)
    if not finite.any():
        return None
    return float(disagreement(found[finite], expected[finite], rounding).max())


def _refuse(apart: float | None, on_what: str) -> None:
    if apart is not None and apart > 1:
        raise ValueError(
            f"apply_fn's output for an example depends on {on_what}: switch dropout off, let "
            "BatchNorm use its running statistics, and take no mean over the batch; "
            "check=False measures it as it is"
        )
