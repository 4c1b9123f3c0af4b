"""The exhaustive measurement: every position × sample of every example.

One jitted program takes a chunk of examples. Its static shapes depend on the model and the byte
budget alone: a remainder is padded and the padding skipped, by a loop with a traced length, so that
a model is compiled once whatever the number of examples. (Where work is reused and there are fewer
than 64 examples, they are grouped evenly and more edits of each are checked, so there the program
depends on their number.)

Whole passes have the last word. A total is nan where rounding may decide a draw or reuse cannot
tell; these cells are measured again by whole passes. And some edits of every measurement by reuse
are made by whole passes too: if they differ by more than rounding, the whole measurement is.
"""

import collections
import functools
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from jaxsens import incremental
from jaxsens.core import runtime
from jaxsens.core.runtime import SAME, SPLIT
from jaxsens.measurement.batching import Plan
from jaxsens.measurement.jobs import Context, Measurement, Question, Reuse, Work, check_finite
from jaxsens.measurement.whole_passes import (
    disagreement,
    entries_of,
    outputs_of,
    probes_of,
    totals_of,
)

#: Edits that are compared with whole passes, the most of them of one example, and how many draws
#: are measured for each of them.
_PROBES, _PROBES_OF_ONE, _DRAWS_OF_A_PROBE = 64, 8, 100
#: Where more cells than this share are for whole passes to decide, these measure all.
_MANY_CELLS = 0.2


def measure_all(work: Work) -> Measurement:
    """Every position and sample of every example."""
    if work.reuse is None:
        return _measure_whole(work)
    try:
        return _measure_by_reuse(work, work.reuse)
    except _ManyCellsError:
        return _measure_whole(replace(work, reuse=None))
    except _RefutedError as error:
        warnings.warn(
            f"{error}; every edit takes a whole forward pass instead. This is a fault of jaxsens: "
            "please report it with the model (incremental=False avoids this warning)",
            stacklevel=3,
        )
        return replace(_measure_whole(replace(work, reuse=None)), self_check="failed")


class _ManyCellsError(Exception):
    """Whole passes would have to decide too many cells."""


class _RefutedError(Exception):
    """Reuse and whole passes disagree."""


def trace_reuse(work: Work) -> None:
    """Traces the program that reuses, which maps the model's own operations over edits.

    Raises what they raise if they cannot be mapped. JAX keeps the trace for the measurement.
    """
    split = NamedSharding(work.mesh, SPLIT)

    def of_rows(array: Any) -> jax.ShapeDtypeStruct:
        shape = (work.plan.chunk * work.mesh.size, *array.shape[1:])
        return jax.ShapeDtypeStruct(shape, array.dtype, sharding=split)

    probes = np.zeros((1, _num_probes(work)), np.int32)
    x, context, names, probes = jax.tree.map(of_rows, (work.x, work.context, work.names, probes))
    num_valid = jax.ShapeDtypeStruct((work.mesh.size,), np.int32, sharding=split)
    _chunk_totals.eval_shape(
        work.question, work.plan, work.mesh, work.params, x, context, names, probes, num_valid,
        work.key, work.pool,
    )  # fmt: skip


def _measure_whole(work: Work) -> Measurement:
    n = len(work.mask)
    totals, _ = _totals_of_host(work)
    totals = runtime.gather_hosts(totals, n)
    # A host that raised alone would leave the others waiting for its share.
    check_finite(totals, np.arange(n))
    return Measurement(totals, work.counts, work.exhaustive_passes, "all")


def _measure_by_reuse(work: Work, reuse: Reuse) -> Measurement:
    """By reuse; raises for all hosts alike where whole passes had better measure all."""
    n = len(work.mask)
    share = runtime.host_share(n)
    totals, probed = _totals_of_host(work)
    cells = np.argwhere(np.isnan(totals))
    num_cells = max(1, int(work.mask[share].sum()))
    if runtime.largest_of_hosts(len(cells) / num_cells) > _MANY_CELLS:
        raise _ManyCellsError
    wrong = _compare(work, totals, probed, share.start, reuse.rounding)
    wrong = runtime.largest_of_hosts(wrong)
    if wrong > 1:
        raise _RefutedError(
            f"reuse gave another output than a whole pass, by up to {wrong:.1f} times what "
            "rounding explains"
        )
    if len(cells):
        totals[tuple(cells.T)] = totals_of(work, cells + np.array([share.start, 0]))
    totals = runtime.gather_hosts(totals, n)
    check_finite(totals, np.arange(n))
    return Measurement(totals, work.counts, work.exhaustive_passes, "all", True, "passed")


def _num_probes(work: Work) -> int:
    """Positions of each example to probe: one where there are many examples, or no reuse."""
    return 1 if work.reuse is None else max(1, min(_PROBES_OF_ONE, _PROBES // len(work.x)))


def _compare(
    work: Work, totals: np.ndarray, probed: dict[int, tuple], first: int, rounding: float
) -> float:
    """How far the outputs of some edits are from those of whole passes; 1 is the most allowed."""
    draws, found = [], []
    for example, (positions, outputs) in probed.items():
        for position, output in zip(positions, outputs, strict=True):
            # What is in doubt is measured again in any case.
            if np.isfinite(totals[example - first, position]):
                draws.append((example, position, 0))
                found.append(output)
    if not draws:
        return 0.0
    most = max(_PROBES_OF_ONE, int(work.counts.sum()) // _DRAWS_OF_A_PROBE)
    _, unique = np.unique(draws, axis=0, return_index=True)
    some = unique[np.linspace(0, len(unique) - 1, min(most, len(unique))).astype(int)]
    expected = entries_of(jnp.asarray(outputs_of(work, np.array(draws)[some])))
    # Entries are kept in float32, whatever the model's own numbers are.
    rounding = max(rounding, float(jnp.finfo(jnp.float32).eps))
    return float(disagreement(np.stack(found)[some], np.asarray(expected), rounding).max())


def _totals_of_host(work: Work) -> tuple[Float[np.ndarray, "m T"], dict[int, tuple]]:
    """This host's totals and, by reuse, the outputs of some edits of some of its examples."""
    n, num_positions = work.mask.shape
    plan = work.plan
    share = runtime.host_share(n)
    totals = np.zeros((share.stop - share.start, num_positions))
    probed: dict[int, tuple] = {}
    wanted = set(np.linspace(share.start, share.stop - 1, _PROBES).astype(int).tolist())

    def receive(examples: np.ndarray, kept: np.ndarray, probes: np.ndarray, results: Any) -> None:
        changes, *outputs = results
        measured = np.where(work.mask[examples], np.asarray(changes)[kept], 0)
        if work.reuse is None and jax.process_count() == 1:
            check_finite(measured, examples)
        for row, example in zip(kept, examples.tolist(), strict=True):
            if outputs and example in wanted and work.mask[example].any():
                probed[example] = probes[row], np.asarray(outputs[0][row])
        totals[examples - share.start] = measured
        done = int(examples[-1]) + 1 - share.start
        drawn = int(work.counts[share][:done].sum())
        work.report(done, len(totals), float(np.nansum(totals[:done])) / max(drawn, 1))

    # Some calls are under way on the devices while the results of those before are received.
    streams = runtime.num_streams(work.mesh)
    pending: collections.deque = collections.deque()
    pieces = _pieces(np.arange(share.start, share.stop), plan, work.mesh.size, streams)
    for number, examples in enumerate(pieces):
        rows, num_valid, kept = _deal(examples, work.mesh.size, plan.chunk)
        probes = probes_of(work.mask, rows, _num_probes(work))
        with runtime.stream(number, streams):
            of_rows = (*work.inputs(rows), work.names[rows], probes, num_valid)
            results = _chunk_totals(
                work.question, plan, work.mesh, work.params,
                *runtime.place(of_rows, work.mesh, SPLIT), work.key, work.pool,
            )  # fmt: skip
        pending.append((examples, kept, probes, results))
        if len(pending) > streams:
            receive(*pending.popleft())
    for call in pending:
        receive(*call)
    return totals, probed


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _chunk_totals(
    question: Question,
    plan: Plan,
    mesh: Mesh,
    params: Any,
    x: Shaped[Array, "c ..."],
    context: Context,
    examples: Int[Array, " c"],
    probes: Int[Array, "c P"],
    num_valid: Int[Array, " devices"],
    key: PRNGKeyArray,
    pool: Array | None,
) -> tuple[Array, ...]:
    """Sum of changes over samples at every position; nan where a logit was not finite.

    By reuse also the outputs of the first sample at the positions to probe.
    """
    totals = functools.partial(_device_totals, question, plan, runtime.platform(mesh))
    in_specs = (SAME, SPLIT, SPLIT, SPLIT, SPLIT, SPLIT, SAME, SAME)
    return runtime.over_devices(totals, mesh, in_specs)(
        params, x, context, examples, probes, num_valid, key, pool
    )


def _device_totals(
    question, plan, platform, params, x, context, examples, probes, num_valid, key, pool
):
    group_totals: Callable = functools.partial(_group_totals, question, plan.block)
    if plan.buckets:
        group_totals = functools.partial(_incremental_totals, question, plan, platform)

    def of_group(index):
        rows = jax.tree.map(
            lambda a: lax.dynamic_slice_in_dim(a, index * plan.group, plan.group),
            (x, context, examples, probes),
        )
        return group_totals(params, *rows, key, pool)

    def add_group(index, results):
        return jax.tree.map(
            lambda all_of, new: lax.dynamic_update_slice_in_dim(
                all_of, new, index * plan.group, axis=0
            ),
            results,
            of_group(index),
        )

    num_groups = (num_valid[0] + plan.group - 1) // plan.group
    num_positions = question.perturbation.num_positions(x.shape[1:])
    nothing = [jnp.zeros((plan.chunk, num_positions), jnp.float32)]
    if plan.buckets:
        output = jax.eval_shape(question.apply_fn, params, x, *context)
        entries = jax.eval_shape(entries_of, output).shape[1:]
        nothing.append(jnp.zeros((plan.chunk, probes.shape[1], *entries), jnp.float32))
    return lax.fori_loop(0, num_groups, add_group, tuple(nothing))


def _group_totals(question, block, params, x, context, examples, _, key, pool):
    """Totals of a few examples: the clean outputs once, then the edits block by block."""
    g, samples = x.shape[0], question.num_samples
    num_positions = question.perturbation.num_positions(x.shape[1:])
    num_pairs = num_positions * samples
    num_blocks = -(-num_pairs // block)
    pairs = jnp.minimum(jnp.arange(num_blocks * block), num_pairs - 1).reshape(num_blocks, block)
    clean = question.apply_fn(params, x, *context)
    repeated = jax.tree.map(lambda values: jnp.repeat(values, block, axis=0), context)

    def block_changes(pairs):
        def edited(x_i, i):
            return jax.vmap(
                lambda j: question.edited(key, x_i, i, j // samples, j % samples, pool)
            )(pairs)

        inputs = jax.vmap(edited)(x, examples)
        outputs = question.apply_fn(params, inputs.reshape(g * block, *x.shape[1:]), *repeated)
        outputs = outputs.reshape(g, block, *clean.shape[1:])
        return jax.vmap(jax.vmap(question.change, (None, 0)))(clean, outputs)

    changes = jnp.moveaxis(lax.map(block_changes, pairs), 0, 1)
    changes = changes.reshape(g, num_blocks * block)[:, :num_pairs]
    return (changes.reshape(g, num_positions, samples).sum(axis=2),)


def _incremental_totals(question, plan, platform, params, x, context, examples, probes, key, pool):
    """The same totals, with all that an edit cannot reach computed once per example."""
    one, around = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), (x, context))
    program = incremental.make_program(
        question.apply_fn, params, one, around, question.perturbation.grid, platform, plan.buckets
    )
    samples, is_sample = _cut(question.num_samples, plan.samples)

    def of_example(x_i, context_i, i, probes_i):
        clean = program.clean(params, x_i, context_i)

        def of_position(bucket, position, index):
            def change(sample):
                window = question.window(key, x_i, i, position, sample, pool)
                edited, doubt = program.edit(clean, bucket, index, window)
                unedited = program.output(clean)
                return question.decided_change(unedited, edited, doubt, program.rounding), edited

            def of_some(some, is_one):
                changes, outputs = jax.vmap(change)(some)
                return jnp.where(is_one, changes, 0.0).sum(), outputs[0]

            if len(samples) == 1:
                changes, outputs = jax.vmap(change)(samples[0])
                return changes.sum(), outputs[0]
            totals, outputs = lax.map(lambda some: of_some(*some), (samples, is_sample))
            return totals.sum(), outputs[0]

        def of_bucket(bucket, positions):
            index, is_index = _cut(len(positions), plan.block)
            places = jnp.asarray(positions)[index]

            def of_block(places, index, is_index):
                totals, outputs = jax.vmap(functools.partial(of_position, bucket))(places, index)
                return totals, _picked(
                    outputs, (probes_i[:, None] == places[None]) & is_index[None]
                )

            totals, picked = lax.map(lambda block: of_block(*block), (places, index, is_index))
            return totals.reshape(-1)[: len(positions)], picked.sum(axis=0)

        parts = [
            of_bucket(b, positions) for b, (positions, _) in enumerate(program.position_groups)
        ]
        totals, picked = zip(*parts, strict=True)
        return jnp.concatenate(totals), functools.reduce(jnp.add, picked)

    return jax.vmap(of_example)(x, context, examples, probes)


def _picked(outputs: Shaped[Array, "b ..."], hits: Bool[Array, "P b"]) -> Float[Array, "P _"]:
    """Entries of the output of each hit, 0 where there is none."""
    return jnp.where(hits[:, :, None], entries_of(outputs)[None], 0.0).sum(axis=1)


def _cut(num: int, size: int) -> tuple[Int[Array, "k s"], Bool[Array, "k s"]]:
    """0 … num-1 in blocks of one size, the last one padded, and what is no padding."""
    size = min(size, num)
    index = np.arange(-(-num // size) * size, dtype=np.int32).reshape(-1, size)
    return jnp.asarray(np.minimum(index, num - 1)), jnp.asarray(index < num)


def _pieces(indices: np.ndarray, plan: Plan, num_devices: int, streams: int) -> list[np.ndarray]:
    """Examples of each call: whole groups, as many to all of the calls under way at a time."""
    if not len(indices):
        return []
    together = plan.group * num_devices
    groups = np.arange(-(-len(indices) // together))
    calls = -(-len(groups) // (plan.chunk // plan.group))
    calls = -(-calls // streams) * streams
    shares = np.array_split(groups, max(1, min(calls, len(groups))))
    return np.split(indices, [share[0] * together for share in shares[1:]])


def _deal(
    examples: np.ndarray, num_devices: int, chunk: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Deals examples out evenly: padded rows (devices·chunk), valid ones a device, rows to keep."""
    shares = np.array_split(examples, num_devices)
    num_valid = np.array([len(share) for share in shares], np.int32)
    slots = np.arange(chunk)[None, :]
    starts = np.cumsum(num_valid) - num_valid
    rows = examples[np.minimum(starts[:, None] + slots, len(examples) - 1)]
    return rows.ravel(), num_valid, np.flatnonzero((slots < num_valid[:, None]).ravel())
