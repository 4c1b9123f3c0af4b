"""A worst-case search over all cells: one ascent program, dealt out to calls, devices and hosts.

A cell is one position of one example, and cells do not know of each other: any number of them goes
into a call. Reuse may cut positions into groups; each group is a program of its own.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jaxtyping import Float, Int, Shaped

from jaxsens.core import call_log, runtime
from jaxsens.core.call_log import Arrays
from jaxsens.core.notices import warn_user
from jaxsens.core.runtime import SPLIT
from jaxsens.measurement.ascent import Found, Search, ascend
from jaxsens.measurement.batching import BatchPlan, make_search_plan
from jaxsens.measurement.dispatch import run_calls
from jaxsens.measurement.jobs import MeasurementJob, NonFiniteError
from jaxsens.measurement.reuse import refuse_reuse
from jaxsens.measurement.whole_passes import disagreement

#: How far normalised gradients by reuse and by a whole pass may be apart, in √ε of the model's
#: coarsest numbers. Where a derivative is wrong they are apart by about 1.
_SLOPE_ERRORS = 30.0


@dataclass(frozen=True)
class SearchJob:
    """A job whose every cell is searched.

    Attributes:
      job: model, examples, devices and keys.
      num_starts: S.
      num_steps: of each ascent.
      max_batch: the most windows that fit through the model and back, on one device.
    """

    job: MeasurementJob
    num_starts: int
    num_steps: int
    max_batch: int

    @property
    def cells(self) -> Int[np.ndarray, "k 2"]:
        """(example, position) of every cell, the example by its index."""
        return np.argwhere(self.job.mask).astype(np.int32)

    @property
    def plan(self) -> BatchPlan:
        """How many cells go into a call."""
        job, reuse = self.job, self.job.reuse
        num_concurrent = runtime.num_concurrent_calls(job.mesh)
        at_once = job.mesh.size * jax.process_count() * num_concurrent
        num_cells = -(-int(job.mask.sum()) // at_once)
        if reuse is None:
            return make_search_plan(self.max_batch, self.num_starts, num_cells)
        num_cells = -(-num_cells // reuse.num_position_groups)
        max_batch = min(
            reuse.max_gradient_batch, self.num_starts * max(1, min(reuse.max_examples, num_cells))
        )
        return make_search_plan(max_batch, self.num_starts, num_cells)

    def search(self, position_group: int) -> Search:
        """What the cells of one group of positions are searched for."""
        num = 0 if self.job.reuse is None else self.job.reuse.num_position_groups
        return Search(self.job.spec, self.num_starts, num, position_group)

    @property
    def position_groups(self) -> list[Int[np.ndarray, " _"]]:
        """The positions of each group, as `incremental.make_program` cuts them."""
        num = 1 if self.job.reuse is None else self.job.reuse.num_position_groups
        return np.array_split(np.arange(self.job.mask.shape[1]), num)


@dataclass(frozen=True)
class SearchResult:
    """What was found in k cells; fields as in `ascent.Found`.

    Attributes:
      incremental: whether clean values were reused.
      self_check: "passed", "failed" or "none", as in `Measurement`.
    """

    windows: Shaped[np.ndarray, "k ..."]
    changes: Float[np.ndarray, " k"]
    heights: Float[np.ndarray, " k"]
    start_changes: Float[np.ndarray, "k S"]
    start_heights: Float[np.ndarray, "k S"]
    incremental: bool
    self_check: Literal["passed", "failed", "none"] = "none"


class _RefutedError(Exception):
    """Reuse and whole passes disagree by more than rounding explains."""


class _DoubtfulError(Exception):
    """Reuse gives numbers that are not finite, which whole passes may or may not."""


def search_all(search: SearchJob) -> SearchResult:
    """Searches every cell, by reuse if the job says so.

    Raises:
      NonFiniteError: outputs or gradients of the model are not finite.
      ValueError: the gradient is 0 everywhere, though the output changes.
    """
    if search.job.reuse is None:
        return _search(search)
    whole = replace(search, job=replace(search.job, reuse=None))
    try:
        _trace(search)
    except Exception as error:
        refuse_reuse(error, is_required=search.job.reuse.is_required)
        return _search(whole)
    try:
        return replace(_search(search), self_check="passed")
    except _DoubtfulError:
        return _search(whole)
    except _RefutedError as error:
        warn_user(f"{error}; every step takes a whole pass (incremental=False does so silently)")
        return replace(_search(whole), self_check="failed")


def _trace(search: SearchJob) -> None:
    """Traces the programs by reuse, by shapes alone: they raise if the model cannot be mapped."""
    job, plan = search.job, search.plan
    split = NamedSharding(job.mesh, SPLIT)

    def of_call(array: Any) -> jax.ShapeDtypeStruct:
        shape = (plan.chunk * job.mesh.size, *array.shape[1:])
        return jax.ShapeDtypeStruct(shape, array.dtype, sharding=split)

    cells = jax.tree.map(of_call, (job.x, job.context, job.example_ids, search.cells[:, 1]))
    for number in range(len(search.position_groups)):
        ascend.eval_shape(
            search.search(number), plan, job.mesh, job.params, *cells,
            np.int32(search.num_steps), job.key,
        )  # fmt: skip


def _search(search: SearchJob) -> SearchResult:
    job, cells = search.job, search.cells
    share = runtime.host_share(len(cells))
    tables = _empty_tables(search, share.stop - share.start)
    done, is_alone = 0, jax.process_count() == 1
    wrong = 0.0
    for items, found in _calls(search, cells[share], share):
        for name, table in tables.items():
            table[items] = found[name]
        wrong = max(wrong, float(found["wrong"]))
        done += len(items)
        job.report(done, len(tables["moves"]), float(tables["changes"].sum()) / done)
        # A host that raised alone would leave the others waiting: several look at the end.
        if is_alone:
            _check({name: table[items] for name, table in tables.items()}, search, cells[items])
            _check_reuse(wrong)
    tables = {name: runtime.gather_hosts(table, len(cells)) for name, table in tables.items()}
    _check(tables, search, cells)
    _check_reuse(runtime.largest_of_hosts(wrong))
    _check_moves(tables)
    return SearchResult(
        windows=tables["windows"],
        changes=tables["changes"],
        heights=tables["heights"],
        start_changes=tables["start_changes"],
        start_heights=tables["start_heights"],
        incremental=job.reuse is not None,
    )


#: The fields of `Found` that are kept for every cell: results first, then what is checked.
_RESULTS = ("windows", "changes", "heights", "start_changes", "start_heights")
_CHECKED = ("is_finite", "has_gradient", "moves")


def _empty_tables(search: SearchJob, num: int) -> dict[str, np.ndarray]:
    x, grid = search.job.x, search.job.spec.perturbation.grid
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys((*_RESULTS, *_CHECKED), ())
    shapes["windows"] = grid.window_shape(x.shape[1:])
    shapes["start_changes"] = shapes["start_heights"] = (search.num_starts,)
    dtypes = dict.fromkeys(_CHECKED, np.dtype(bool)) | {"windows": x.dtype}
    return {
        name: np.zeros((num, *shape), dtypes.get(name, np.float32))
        for name, shape in shapes.items()
    }


def _calls(
    search: SearchJob, cells: Int[np.ndarray, "k 2"], share: slice
) -> Iterator[tuple[np.ndarray, Arrays]]:
    """What is found for some cells: their numbers and, by name, the results."""
    job, plan = search.job, search.plan
    calls = call_log.begin(
        lambda: ("worst case", job.identity, plan, search.num_steps, share.start, share.stop)
    )

    def receive(_: np.ndarray, slots: np.ndarray, found: Found) -> Arrays:
        kept = {name: np.asarray(getattr(found, name))[slots] for name in (*_RESULTS, *_CHECKED)}
        return kept | {"wrong": np.array(_disagreement(search, found, slots))}

    for number, positions in enumerate(search.position_groups):
        of_group = search.search(number)

        def send(items: np.ndarray, _: np.ndarray, of_group: Search = of_group) -> Found:
            examples, positions = cells[items].T
            of_call = (*job.inputs(examples), job.example_ids[examples], positions)
            return ascend(
                of_group, plan, job.mesh, job.params,
                *runtime.place(of_call, job.mesh, SPLIT), np.int32(search.num_steps), job.key,
            )  # fmt: skip

        mine = np.flatnonzero(np.isin(cells[:, 1], positions))
        yield from run_calls(mine, plan, job.mesh, send, receive, calls)


def _disagreement(search: SearchJob, found: Found, slots: np.ndarray) -> float:
    """How far reuse is from whole passes in a call; 1 is the most allowed, 0 without reuse."""
    if search.job.reuse is None:
        return 0.0
    assert found.slope_errors is not None
    rounding = max(search.job.reuse.rounding, float(jnp.finfo(jnp.float32).eps))
    slope = float(np.max(found.slope_errors)) / (_SLOPE_ERRORS * math.sqrt(rounding))
    trusted = slots[~np.asarray(found.doubts)[slots]]
    if not len(trusted):
        return slope
    by_reuse, expected = np.moveaxis(np.asarray(found.outputs)[trusted], 1, 0)
    return max(slope, float(disagreement(by_reuse, expected, rounding).max()))


def _check_reuse(wrong: float) -> None:
    if wrong > 1:
        raise _RefutedError(
            "reuse gave another output, or another gradient, than a whole pass, by up to "
            f"{wrong:.1f} times what rounding explains: a function with a derivative of its own, "
            "such as a straight-through estimator, or a fault of jaxsens"
        )


def _check(tables: dict[str, np.ndarray], search: SearchJob, cells: Int[np.ndarray, "k 2"]) -> None:
    """Raises an error that names the first cell whose numbers are not finite."""
    finite = tables["is_finite"] & np.isfinite(tables["changes"])
    for what, is_fine, advice in (
        ("model's outputs, or the metric of them, are", finite, "check the scale of the inputs"),
        ("gradient of the metric in the window is", tables["has_gradient"],
         "the root or norm of 0 has none; Metric(ascent=) takes something smoother to follow"),
    ):  # fmt: skip
        if is_fine.all():
            continue
        if search.job.reuse is not None:
            raise _DoubtfulError
        example, position = cells[np.argmin(is_fine)].tolist()
        raise NonFiniteError(
            f"the {what} not finite for example {search.job.example_ids[example]} with a move of "
            f"position {position}; {advice}"
        )


def _check_moves(tables: dict[str, np.ndarray]) -> None:
    """Raises ValueError if nothing could be followed, so that the starts are all that was tried."""
    if tables["moves"].any() or not tables["start_changes"].any():
        return
    raise ValueError(
        "the gradient of the model in its input is 0 at every start, though the output changes: "
        "something on the way (rounding, argmax, ids) has no slope, and worst_case needs one; "
        "sensitivity with the same Ball needs none"
    )
