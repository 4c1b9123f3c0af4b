"""The exhaustive measurement: every position × sample of every example.

One jitted program takes a chunk of examples. Its static shapes depend on the model and the byte
budget alone: a remainder is padded and the padding skipped, by a loop with a traced length, so that
a model is compiled once whatever the number of examples. (Where clean values are reused and there
are fewer than 64 examples, they are grouped evenly and more edits of each are checked, so there the
program depends on their number.)

Whole passes have the last word over reuse. A cell is one position of one example; its total is nan
where rounding may decide a draw, or where reuse cannot tell, and such a cell is measured again by
whole passes. Some edits of every measurement by reuse (the probes) are made by whole passes too: if
the outputs differ by more than rounding explains, whole passes measure everything again.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jaxtyping import Float

from jaxsens.core import call_log, runtime
from jaxsens.core.call_log import Arrays
from jaxsens.core.notices import warn_user
from jaxsens.core.runtime import SPLIT
from jaxsens.measurement.chunk_program import chunk_totals
from jaxsens.measurement.dispatch import run_calls
from jaxsens.measurement.jobs import Measurement, MeasurementJob, Reuse, check_finite
from jaxsens.measurement.reuse import refuse_reuse
from jaxsens.measurement.whole_passes import (
    disagreement,
    entries_of,
    outputs_of,
    probes_of,
    totals_of,
)

#: How many edits are compared with whole passes, and how many of them at most of one example.
_NUM_PROBES, _MAX_PROBES_PER_EXAMPLE = 64, 8
#: A small measurement is checked by fewer probes: one per so many draws.
_DRAWS_PER_PROBE = 100
#: Where more than this share of the cells is left to whole passes, whole passes measure all.
_MAX_DOUBTFUL = 0.2


def measure_all(job: MeasurementJob) -> Measurement:
    """Measures every position and sample of every example."""
    if job.reuse is None:
        return _measure_whole(job)
    try:
        _trace_reuse(job)
    except Exception as error:
        refuse_reuse(error, is_required=job.reuse.is_required)
        return _measure_whole(replace(job, reuse=None))
    try:
        return _measure_by_reuse(job, job.reuse)
    except _DoubtfulError:
        return _measure_whole(replace(job, reuse=None))
    except _RefutedError as error:
        warn_user(
            f"{error}; every edit takes a whole forward pass instead. This is a fault of jaxsens: "
            "please report it with the model (incremental=False avoids this warning)"
        )
        return replace(_measure_whole(replace(job, reuse=None)), self_check="failed")


class _DoubtfulError(Exception):
    """Reuse leaves so many cells to whole passes that these had better measure all."""


class _RefutedError(Exception):
    """Reuse and whole passes disagree by more than rounding explains."""


def _trace_reuse(job: MeasurementJob) -> None:
    """Traces the program that reuses clean values, by shapes alone: the same on every host.

    It maps the model's own operations over edits, and raises if they cannot be mapped. JAX keeps
    the trace for the measurement.
    """
    split = NamedSharding(job.mesh, SPLIT)

    def of_chunk(array: Any) -> jax.ShapeDtypeStruct:
        shape = (job.plan.chunk * job.mesh.size, *array.shape[1:])
        return jax.ShapeDtypeStruct(shape, array.dtype, sharding=split)

    probes = np.zeros((1, _num_probes(job)), np.int32)
    x, context, ids, probes = jax.tree.map(of_chunk, (job.x, job.context, job.example_ids, probes))
    num_valid = jax.ShapeDtypeStruct((job.mesh.size,), np.int32, sharding=split)
    chunk_totals.eval_shape(
        job.spec, job.plan, job.mesh, job.params, x, context, ids, probes, num_valid,
        job.key, job.pool,
    )  # fmt: skip


def _measure_whole(job: MeasurementJob) -> Measurement:
    """By whole forward passes."""
    n = len(job.mask)
    totals, _ = _totals_of_host(job)
    totals = runtime.gather_hosts(totals, n)
    # A host that raised alone would leave the others waiting for its share.
    check_finite(totals, job.example_ids)
    return Measurement(totals, job.counts, job.exhaustive_passes, "all")


def _measure_by_reuse(job: MeasurementJob, reuse: Reuse) -> Measurement:
    """By reuse; where whole passes had better measure all, every host raises the same error."""
    n = len(job.mask)
    share = runtime.host_share(n)
    totals, probed = _totals_of_host(job)
    _check_doubtful(job, totals)
    cells = np.argwhere(np.isnan(totals))
    wrong = _compare(job, totals, probed, share.start, reuse.rounding)
    wrong = runtime.largest_of_hosts(wrong)
    if wrong > 1:
        raise _RefutedError(
            f"reuse gave another output than a whole pass, by up to {wrong:.1f} times what "
            "rounding explains"
        )
    # On every host if on one of them: what is kept of an interrupted measurement is read together.
    if runtime.largest_of_hosts(float(len(cells))):
        totals[tuple(cells.T)] = totals_of(job, cells + np.array([share.start, 0]))
    totals = runtime.gather_hosts(totals, n)
    check_finite(totals, job.example_ids)
    return Measurement(totals, job.counts, job.exhaustive_passes, "all", True, "passed")


def _check_doubtful(job: MeasurementJob, totals: Float[np.ndarray, "m T"]) -> None:
    """Raises if too many of this host's cells are left to whole passes; totals may be unfinished.

    Cells that are still 0 count as decided: what is raised early would be raised at the end too.
    """
    num_cells = max(1, int(job.mask[runtime.host_share(len(job.mask))].sum()))
    doubtful = np.count_nonzero(np.isnan(totals)) / num_cells
    if job.reuse is not None and runtime.largest_of_hosts(doubtful) > _MAX_DOUBTFUL:
        raise _DoubtfulError


def _num_probes(job: MeasurementJob) -> int:
    """Positions of each example to probe: one where there are many examples, or no reuse."""
    if job.reuse is None:
        return 1
    return max(1, min(_MAX_PROBES_PER_EXAMPLE, _NUM_PROBES // len(job.x)))


def _compare(
    job: MeasurementJob, totals: np.ndarray, probed: dict[int, tuple], first: int, rounding: float
) -> float:
    """How far the outputs of the probes are from those of whole passes; 1 is the most allowed.

    Args:
      job: what is measured.
      totals: (m, T) this host's totals.
      probed: positions and outputs of the probes, by example.
      first: this host's first example.
      rounding: the relative rounding error of the model's coarsest numbers.
    """
    draws, found = [], []
    for example, (positions, outputs) in probed.items():
        for position, output in zip(positions, outputs, strict=True):
            # What is in doubt is measured again in any case.
            if np.isfinite(totals[example - first, position]):
                draws.append((example, position, 0))
                found.append(output)
    if not draws:
        return 0.0
    most = max(_MAX_PROBES_PER_EXAMPLE, int(job.counts.sum()) // _DRAWS_PER_PROBE)
    _, unique = np.unique(draws, axis=0, return_index=True)
    some = unique[np.linspace(0, len(unique) - 1, min(most, len(unique))).astype(int)]
    expected = entries_of(jnp.asarray(outputs_of(job, np.array(draws)[some])))
    # Entries are kept in float32, whatever the model's own numbers are.
    rounding = max(rounding, float(jnp.finfo(jnp.float32).eps))
    return float(disagreement(np.stack(found)[some], np.asarray(expected), rounding).max())


def _totals_of_host(job: MeasurementJob) -> tuple[Float[np.ndarray, "m T"], dict[int, tuple]]:
    """This host's totals and, by reuse, positions and outputs of its probes by example."""
    n, num_positions = job.mask.shape
    plan = job.plan
    share = runtime.host_share(n)
    totals = np.zeros((share.stop - share.start, num_positions))
    probed: dict[int, tuple] = {}
    to_probe = set(np.linspace(share.start, share.stop - 1, _NUM_PROBES).astype(int).tolist())

    def receive(examples: np.ndarray, slots: np.ndarray, sent: Any) -> Arrays:
        probes, (changes, *outputs) = sent
        found = {"totals": np.where(job.mask[examples], np.asarray(changes)[slots], 0)}
        some = [i for i, e in enumerate(examples.tolist()) if e in to_probe and job.mask[e].any()]
        if outputs and some:
            found |= {"probed": examples[some], "probes": probes[slots[some]]}
            found["outputs"] = np.stack([np.asarray(outputs[0][slot]) for slot in slots[some]])
        return found

    def use(examples: np.ndarray, found: Arrays) -> None:
        measured = found["totals"]
        if job.reuse is None and jax.process_count() == 1:
            check_finite(measured, job.example_ids[examples])
        if "probed" in found:
            of_probes = zip(found["probes"], found["outputs"], strict=True)
            probed.update(zip(found["probed"].tolist(), of_probes, strict=True))
        totals[examples - share.start] = measured
        done = int(examples[-1]) + 1 - share.start
        drawn = int(job.counts[share][:done].sum())
        job.report(done, len(totals), float(np.nansum(totals[:done])) / max(drawn, 1))
        # A host that raised alone would leave the others waiting: several look at the end.
        if jax.process_count() == 1:
            _check_doubtful(job, totals)

    def send(dealt: np.ndarray, num_valid: np.ndarray) -> tuple[np.ndarray, Any]:
        probes = probes_of(job.mask, dealt, _num_probes(job))
        of_chunk = (*job.inputs(dealt), job.example_ids[dealt], probes, num_valid)
        return probes, chunk_totals(
            job.spec, plan, job.mesh, job.params,
            *runtime.place(of_chunk, job.mesh, SPLIT), job.key, job.pool,
        )  # fmt: skip

    calls = call_log.begin(lambda: ("all", job.identity, plan, share.start, share.stop))
    examples = np.arange(share.start, share.stop)
    for call in run_calls(examples, plan, job.mesh, send, receive, calls):
        use(*call)
    return totals, probed
