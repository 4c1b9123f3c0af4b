"""Whether a model treats the examples of a batch independently, as every measurement assumes.

A mean over the batch, BatchNorm in training mode, dropout, or a branch on the number of examples
make an example's output depend on the rest of its batch. A measurement puts edits of one example,
and several examples, into one batch: of such a model it would measure the batches it happened to
make. Refused for the same reason is a model that draws random numbers by itself, when it is traced
or, by a callback, whenever it runs.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, PRNGKeyArray, Shaped

from jaxsens.core import runtime
from jaxsens.core.jaxprs import coarsest_rounding, equations
from jaxsens.core.tracing import as_shapes
from jaxsens.measurement.jobs import ApplyFn, MeasurementJob, MeasurementSpec
from jaxsens.measurement.metrics import label_flip
from jaxsens.measurement.whole_passes import batch_of, batch_outputs, disagreement, outputs_of
from jaxsens.perturbations.grids import Whole
from jaxsens.perturbations.perturbation import Perturbation

#: Operations that come and go with axes of length 1.
_SHAPING = {"broadcast_in_dim", "expand_dims", "reshape", "squeeze"}


class _Traced(NamedTuple):
    """A model's operations on a batch of some size, single numbers among them, and its rounding.

    Attributes:
      operations: their names, and single numbers that they take.
      rounding: the relative rounding error of its coarsest numbers, ε.
      arrays: those that the model holds beside its parameters.
    """

    operations: tuple[str, ...]
    rounding: float
    arrays: tuple[Any, ...]


def rounding_of(job: MeasurementJob) -> float:
    """The relative rounding error of the model's coarsest numbers, ε; 0 if it has only integers."""
    leaves, treedef = _shapes(job)
    return _traced(job.spec.apply_fn, leaves, treedef, 1).rounding


def check_independence(job: MeasurementJob) -> None:
    """Raises ValueError if the model's output for an example depends on the rest of its batch.

    Some draws are made twice, at different places of a batch and beside different draws. Whether a
    model treats batches of different sizes differently shows in its traces, for one, two, and as
    many examples as the measurement takes together: where another operation or number stands in
    them, one draw is also made by itself and in a batch of that size. A model that has passed is
    not checked again.
    """
    leaves, treedef = _shapes(job)
    sizes = _batch_sizes(job)
    passed = _passed(job.spec.apply_fn, leaves, treedef, sizes)
    if passed:
        return
    traces = {size: _traced(job.spec.apply_fn, leaves, treedef, size) for size in sizes}
    of_products = runtime.product_rounding(runtime.platform(job.mesh))
    rounding = max(traces[1].rounding, float(np.finfo(np.float32).eps), of_products)
    # Draws beside each other need a batch of two, even where the measurement has batches of one.
    beside = _beside_others(dataclasses.replace(job, max_batch=max(2, job.max_batch)), rounding)
    _refuse(beside, "the others in its batch")
    others = [size for size in sizes if traces[size].operations != traces[1].operations]
    apart = _by_itself(job, others, rounding) if others else 0.0
    _refuse(apart, "the number of examples in its batch")
    _refuse(_by_chance(job, traces[1], leaves, treedef, rounding), "chance")
    if None not in (beside, apart):
        passed.append(True)


def _batch_sizes(job: MeasurementJob) -> tuple[int, ...]:
    """One, two, and how many examples or edits the measurement takes together on a device."""
    group, block = job.plan.group, 1 if job.reuse else job.plan.block
    return tuple(sorted({1, 2, group, group * block, batch_of(job) // job.mesh.size}))


def check_examples_independence(
    apply_fn: ApplyFn,
    params: Any,
    x: Shaped[np.ndarray, "n ..."],
    *,
    key: PRNGKeyArray,
    mesh: Mesh,
    max_batch: int,
) -> None:
    """As `check_independence`, on the examples as they are: for measurements that do not edit them.

    Of a single example nothing can be told, and there is nothing that it could depend on.

    Args:
      apply_fn: the model.
      params: its parameters, on every device.
      x: the examples.
      key: any key, on every device.
      mesh: the devices.
      max_batch: the most inputs that fit through the model at once, on one device.
    """
    unedited = Perturbation(Whole(), _unchanged)
    check_independence(
        MeasurementJob(
            spec=MeasurementSpec(apply_fn, unedited, label_flip, num_samples=1, exact=False),
            params=params,
            x=x,
            context=(),
            mask=np.ones((len(x), 1), bool),
            example_ids=np.arange(len(x)),
            key=key,
            mesh=mesh,
            max_batch=max_batch,
            reuse=None,
            progress=None,
        )
    )


def _unchanged(_: PRNGKeyArray, window: Array) -> Array:
    return window


def _shapes(job: MeasurementJob) -> tuple[tuple[Any, ...], Any]:
    """The shapes of parameters and of one example, as leaves and tree."""
    one = jax.tree.map(lambda values: values[:1], (job.x, *job.context))
    leaves, treedef = jax.tree.flatten(as_shapes((job.params, one)))
    return tuple(leaves), treedef


@functools.lru_cache(maxsize=256)
def _passed(apply_fn: Callable, leaves: tuple, treedef: Any, sizes: tuple) -> list[bool]:
    """A list, the same one for the same model, that is not empty if the model has passed."""
    return []


@functools.lru_cache(maxsize=256)
def _traced(apply_fn: Callable, leaves: tuple, treedef: Any, batch: int) -> _Traced:
    closed = _jaxpr(apply_fn, leaves, treedef, batch)
    found = list(equations(closed.jaxpr))
    operations = [
        (each.primitive.name, *map(_number, each.invars))
        for each in found
        if each.primitive.name not in _SHAPING
    ]
    constants = [("constant", _number(each)) for each in closed.consts]
    arrays = tuple(each for each in closed.consts if np.ndim(each))
    rounding = coarsest_rounding(closed.jaxpr)
    return _Traced(tuple(map(str, operations + constants)), rounding, arrays)


def _jaxpr(apply_fn: Callable, leaves: tuple, treedef: Any, batch: int) -> Any:
    params, inputs = jax.tree.unflatten(treedef, leaves)
    inputs = jax.tree.map(lambda a: jax.ShapeDtypeStruct((batch, *a.shape[1:]), a.dtype), inputs)
    return jax.make_jaxpr(apply_fn)(params, *inputs)


def _number(value: Any) -> str:
    """A single number that stands in a trace; nothing for arrays and for what is computed."""
    number = getattr(value, "val", value)
    is_one = not isinstance(number, jax.core.Tracer) and np.ndim(number) == 0
    return str(number) if is_one and hasattr(number, "dtype") else ""


def _beside_others(job: MeasurementJob, rounding: float) -> float | None:
    """How much draws change with their place and the draws beside them; 1 is the most allowed."""
    num = batch_of(job) // 2
    # Side by side, so that each device's share of the batch has some of both.
    draws = some_draws(job, 3 * num)
    repeated, some, others = draws[::3], draws[1::3], draws[2::3]
    first = outputs_of(job, np.stack([repeated, some], axis=1).reshape(-1, 3))[::2]
    second = outputs_of(job, np.stack([others, repeated[::-1]], axis=1).reshape(-1, 3))[1::2]
    return _apart(first, second[::-1], rounding)


def _by_itself(job: MeasurementJob, sizes: Sequence[int], rounding: float) -> float | None:
    """How much a draw changes from a batch of one to larger ones; 1 is the most allowed."""
    mesh = runtime.local_mesh(list(job.mesh.devices.flat[:1]))
    place = functools.partial(runtime.place, mesh=mesh, partition=runtime.REPLICATED)
    one = dataclasses.replace(job, mesh=mesh, params=place(job.params), key=place(job.key))
    alone = batch_outputs(one, some_draws(job, 1), 1)
    apart = [
        _apart(batch_outputs(one, some_draws(job, size), size)[:1], alone, rounding)
        for size in sizes
    ]
    known = [each for each in apart if each is not None]
    return max(known) if known else None


def _by_chance(
    job: MeasurementJob, traced: _Traced, leaves: tuple, treedef: Any, rounding: float
) -> float | None:
    """How much outputs change from one time to the next; 1 is the most allowed.

    A compiled program gives the same outputs again, unless it calls Python. A second trace has the
    same arrays in it, unless they are drawn with NumPy on the way.
    """
    if traced.arrays:
        model = job.spec.apply_fn
        again = _jaxpr(lambda *arguments: model(*arguments), leaves, treedef, 1).consts
        pairs = zip(traced.arrays, [each for each in again if np.ndim(each)], strict=False)
        if not all(a is b or np.array_equal(a, b) for a, b in pairs):
            return math.inf
    if not any("callback" in operation for operation in traced.operations):
        return 0.0
    draws = some_draws(job, batch_of(job))
    return _apart(outputs_of(job, draws), outputs_of(job, draws), rounding)


def some_draws(job: MeasurementJob, num: int) -> np.ndarray:
    """Draws (example, position, sample), spread over examples and positions."""
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
