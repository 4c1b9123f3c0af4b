"""Whether a model treats the examples of a batch independently, as every measurement assumes.

A mean over the batch, BatchNorm in training mode, dropout, or a branch on the number of examples
make an example's output depend on the rest of its batch. A measurement puts edits of one example,
and several examples, into one batch: of such a model it would measure the batches it happened to
make.
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
from jaxsens.measurement.jobs import MeasurementJob
from jaxsens.measurement.whole_passes import batch_of, disagreement, outputs_of

#: Operations that come and go with axes of length 1.
_SHAPING = {"broadcast_in_dim", "expand_dims", "reshape", "squeeze"}


class _Traced(NamedTuple):
    """A model's operations on a batch of some size, the shape of its output, and its rounding."""

    primitives: tuple[str, ...]
    shape: tuple[int, ...]
    rounding: float


def check_independence(job: MeasurementJob) -> None:
    """Raises ValueError if the model's output for an example depends on the rest of its batch.

    Some draws are made twice, at different places of a batch and beside different draws. Whether a
    model treats batches of different sizes differently shows in its trace: if so, one draw is also
    made in a batch of one. A model that has passed is not checked again.
    """
    shapes = jax.tree.map(jax.typeof, (job.params, (job.x[:1], *_first(job.context))))
    leaves, treedef = jax.tree.flatten(shapes)
    passed = _passed(job.spec.apply_fn, tuple(leaves), treedef)
    if passed:
        return
    one, two, three = (
        _traced(job.spec.apply_fn, tuple(leaves), treedef, batch) for batch in (1, 2, 3)
    )
    if one.shape != (1, *two.shape[1:]):
        raise ValueError(
            f"apply_fn gives {one.shape} for a batch of one example and {two.shape} for two; "
            f"expected {(1, *two.shape[1:])}: squeeze axes by their number, never the batch's"
        )
    rounding = max(one.rounding, float(np.finfo(np.float32).eps))
    # Draws beside each other need a batch of two, even where the measurement has batches of one.
    job = dataclasses.replace(job, max_batch=max(2, job.max_batch))
    apart = [_beside_others(job, rounding)]
    _refuse(apart[0], "the others in its batch")
    if not one.primitives == two.primitives == three.primitives:
        apart.append(_by_itself(job, rounding))
        _refuse(apart[1], "the number of examples in its batch")
    if None not in apart:
        passed.append(True)


def _first(context: Any) -> Any:
    return jax.tree.map(lambda values: values[:1], context)


@functools.lru_cache(maxsize=256)
def _passed(apply_fn: Callable, leaves: tuple, treedef: Any) -> list[bool]:
    """A list, the same one for the same model, that is not empty if the model has passed."""
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
    names = (each.primitive.name for each in found)
    primitives = tuple(name for name in names if name not in _SHAPING)
    return _Traced(primitives, closed.out_avals[0].shape, rounding)


def _beside_others(job: MeasurementJob, rounding: float) -> float | None:
    """How much draws change with their place and the draws beside them; 1 is the most allowed."""
    num = batch_of(job) // 2
    # Side by side, so that each device's share of the batch has some of both.
    draws = _some_draws(job, 3 * num)
    repeated, some, others = draws[::3], draws[1::3], draws[2::3]
    first = outputs_of(job, np.stack([repeated, some], axis=1).reshape(-1, 3))[::2]
    second = outputs_of(job, np.stack([others, repeated[::-1]], axis=1).reshape(-1, 3))[1::2]
    return _apart(first, second[::-1], rounding)


def _by_itself(job: MeasurementJob, rounding: float) -> float | None:
    """How much a draw changes from a batch of one to a larger batch; 1 is the most allowed."""
    draws = _some_draws(job, batch_of(job))
    mesh = runtime.local_mesh(list(job.mesh.devices.flat[:1]))
    place = functools.partial(runtime.place, mesh=mesh, partition=runtime.REPLICATED)
    alone = dataclasses.replace(
        job, max_batch=1, mesh=mesh, params=place(job.params), key=place(job.key)
    )
    return _apart(outputs_of(alone, draws[:1]), outputs_of(job, draws)[:1], rounding)


def _some_draws(job: MeasurementJob, num: int) -> np.ndarray:
    """Draws spread over examples and positions."""
    number, lengths = np.arange(num), job.mask.sum(axis=1)
    examples = np.flatnonzero(lengths)
    examples = examples[number * len(examples) // num]
    positions = job.unmasked[examples, number % lengths[examples]]
    samples = number % job.spec.num_samples if job.spec.exact else number
    return np.stack([examples, positions, samples], axis=1)


def _apart(found: np.ndarray, expected: np.ndarray, rounding: float) -> float | None:
    """How far outputs are apart; None if none is finite, which the measurement will report."""
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
