"""What a measurement is made of, and the exhaustive one: every position × sample of every example.

One jitted program takes a chunk of examples. Its static shapes depend on the model and the byte
budget alone: a remainder is padded and the padding skipped, by a loop with a traced length, so that
a model is compiled once whatever the number of examples. (Where work is reused and a call has fewer
than 64 examples, they are grouped evenly, so there the program depends on their number.)
"""

import collections
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from jaxsens import incremental, runtime
from jaxsens.chunking import Plan, make_plan, make_reuse_plan
from jaxsens.grids import Position
from jaxsens.metrics import Metric
from jaxsens.perturbation import Perturbation
from jaxsens.runtime import SAME, SPLIT

#: `apply_fn(params, x) -> logits`, or `apply_fn(params, x, context)`; Flax's own `apply` is typed
#: to return anything.
ApplyFn = Callable[..., Any]
#: What the model needs beside `x` and no edit touches: nothing, or one pytree of (n, …) arrays.
Context = tuple[Any, ...]
#: Called now and then with (examples or draws done, all of them, running mean).
Progress = Callable[[int, int, float], None]


@dataclass(frozen=True)
class Question:
    """What is asked of the model: the static, hashable half of a measurement."""

    apply_fn: ApplyFn
    perturbation: Perturbation
    metric: Metric
    num_samples: int
    exact: bool

    def window(
        self, key: PRNGKeyArray, x: Array, example: Position, position: Position, sample: Position,
        pool: Array | None,
    ) -> Array:  # fmt: skip
        """Draw (example, position, sample): the new entries of the window."""
        if self.exact:
            return self.perturbation.replacement(sample, x, position)
        for index in (example, position, sample):
            key = jax.random.fold_in(key, index)
        return self.perturbation.window(key, x, position, pool=pool, example=example)

    def edited(
        self, key: PRNGKeyArray, x: Array, example: Position, position: Position, sample: Position,
        pool: Array | None,
    ) -> Array:  # fmt: skip
        """Draw (example, position, sample) of the perturbed input."""
        window = self.window(key, x, example, position, sample, pool)
        return self.perturbation.put(x, window, position)

    def change(self, clean: Array, perturbed: Array) -> Float[Array, ""]:
        """The metric; nan where an output is not finite, which the host looks for."""
        finite = jnp.isfinite(clean).all() & jnp.isfinite(perturbed).all()
        return jnp.where(finite, self.metric(clean, perturbed), jnp.nan)


@dataclass(frozen=True)
class Reuse:
    """How what an edit cannot reach is reused: `jaxsens.incremental`.

    Attributes:
      buckets: into how many buckets positions are cut.
      rows: edits that fit through the model at once.
      examples: examples whose clean values fit into memory at once.
      cost: operations of an edit as a share of those of a whole pass.
    """

    buckets: int
    rows: int
    examples: int
    cost: float


@dataclass(frozen=True)
class Work:
    """A question, and all that it is asked about."""

    question: Question
    params: Any
    x: Shaped[np.ndarray, "n ..."]
    context: Context
    mask: Bool[np.ndarray, "n T"]
    names: Int[np.ndarray, " n"]
    key: PRNGKeyArray
    mesh: Mesh
    rows: int
    reuse: "Reuse | None"
    progress: Progress | None

    @functools.cached_property
    def pool(self) -> Array | None:
        """All examples on every device, for edits that borrow from another example."""
        if not self.question.perturbation.needs_pool:
            return None
        return runtime.place(self.x, self.mesh, SAME)

    @functools.cached_property
    def seed(self) -> tuple[int, ...]:
        """The words of the key."""
        return tuple(int(word) for word in np.ravel(jax.random.key_data(self.key)))

    @functools.cached_property
    def unmasked(self) -> Int[np.ndarray, "n T"]:
        """The positions of each example, those to measure first."""
        return np.argsort(~self.mask, axis=1, kind="stable")

    @property
    def plan(self) -> Plan:
        """How the exhaustive measurement is cut."""
        num_positions, samples = self.mask.shape[1], self.question.num_samples
        if self.reuse is None:
            return make_plan(self.rows, num_positions * samples)
        at_once = self.mesh.size * jax.process_count() * runtime.num_streams(self.mesh)
        return make_reuse_plan(
            self.reuse.rows,
            num_positions,
            samples,
            self.reuse.buckets,
            -(-len(self.x) // at_once),
            self.reuse.examples,
        )

    def inputs(self, rows: np.ndarray) -> tuple[np.ndarray, Context]:
        """These examples and their context."""
        return self.x[rows], jax.tree.map(lambda values: values[rows], self.context)

    @property
    def exhaustive_passes(self) -> int:
        """Forward passes of the exhaustive mode: every edit, and each clean example once."""
        return int(self.mask.sum()) * self.question.num_samples + len(self.x)

    @property
    def exhaustive_cost(self) -> int:
        """What the exhaustive mode costs, in whole forward passes."""
        return math.ceil(self.exhaustive_passes * (self.reuse.cost if self.reuse else 1.0))

    def report(self, done: int, total: int, mean: float) -> None:
        """Tells the caller how far it is."""
        if self.progress is not None:
            self.progress(done, total, mean)


@dataclass(frozen=True)
class Measurement:
    """Totals and counts of the draws, what they cost, which positions, and whether by reuse."""

    totals: Float[np.ndarray, "n T"]
    counts: Int[np.ndarray, "n T"]
    num_passes: int
    positions: Literal["all", "random"]
    incremental: bool = False


class NonFiniteError(ValueError):
    """An output of the model, or the metric of it, is not a number."""


def measure_all(work: Work) -> Measurement:
    """Every position and sample of every example.

    Whole passes have the last word where reuse gives a number that is not finite: a change from
    infinity to infinity has none.
    """
    if work.reuse is None:
        return _measure_all(work)
    try:
        return _measure_all(work)
    except NonFiniteError:
        return _measure_all(replace(work, reuse=None))


def trace_reuse(work: Work) -> None:
    """Traces the program that reuses, which maps the model's own operations over edits.

    Raises what they raise if they cannot be mapped. JAX keeps the trace for the measurement.
    """
    split = NamedSharding(work.mesh, SPLIT)

    def of_rows(array: Any) -> jax.ShapeDtypeStruct:
        shape = (work.plan.chunk * work.mesh.size, *array.shape[1:])
        return jax.ShapeDtypeStruct(shape, array.dtype, sharding=split)

    x, context, names = jax.tree.map(of_rows, (work.x, work.context, work.names))
    num_valid = jax.ShapeDtypeStruct((work.mesh.size,), np.int32, sharding=split)
    _chunk_totals.eval_shape(
        work.question, work.plan, work.mesh, work.params, x, context, names, num_valid, work.key,
        work.pool,
    )  # fmt: skip


def _measure_all(work: Work) -> Measurement:
    n, num_positions = work.mask.shape
    plan = work.plan
    share = runtime.host_share(n)
    totals = np.zeros((share.stop - share.start, num_positions))
    counts = work.mask * work.question.num_samples

    def receive(examples: np.ndarray, kept: np.ndarray, changes: Array) -> None:
        measured = np.where(work.mask[examples], np.asarray(changes)[kept], 0)
        if jax.process_count() == 1:
            check_finite(measured, examples)
        totals[examples - share.start] = measured
        done = int(examples[-1]) + 1 - share.start
        drawn = int(counts[share][:done].sum())
        work.report(done, len(totals), float(totals[:done].sum()) / max(drawn, 1))

    # Some calls are under way on the devices while the results of those before are received.
    streams = runtime.num_streams(work.mesh)
    pending: collections.deque = collections.deque()
    pieces = _pieces(np.arange(share.start, share.stop), plan, work.mesh.size, streams)
    for number, examples in enumerate(pieces):
        rows, num_valid, kept = _deal(examples, work.mesh.size, plan.chunk)
        with runtime.stream(number, streams):
            changes = _chunk_totals(
                work.question, plan, work.mesh, work.params,
                *runtime.place((*work.inputs(rows), work.names[rows], num_valid), work.mesh, SPLIT),
                work.key, work.pool,
            )  # fmt: skip
        pending.append((examples, kept, changes))
        if len(pending) > streams:
            receive(*pending.popleft())
    for call in pending:
        receive(*call)
    totals = runtime.gather_hosts(totals, n)
    # A host that raised alone would leave the others waiting for its share.
    check_finite(totals, np.arange(n))
    return Measurement(totals, counts, work.exhaustive_passes, "all", work.reuse is not None)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _chunk_totals(
    question: Question,
    plan: Plan,
    mesh: Mesh,
    params: Any,
    x: Shaped[Array, "c ..."],
    context: Context,
    examples: Int[Array, " c"],
    num_valid: Int[Array, " devices"],
    key: PRNGKeyArray,
    pool: Array | None,
) -> Float[Array, "c T"]:
    """Sum of changes over samples at every position; nan where a logit was not finite."""
    totals = functools.partial(_device_totals, question, plan, runtime.platform(mesh))
    in_specs = (SAME, SPLIT, SPLIT, SPLIT, SPLIT, SAME, SAME)
    return runtime.over_devices(totals, mesh, in_specs)(
        params, x, context, examples, num_valid, key, pool
    )


def _device_totals(question, plan, platform, params, x, context, examples, num_valid, key, pool):
    shape = (plan.chunk, question.perturbation.num_positions(x.shape[1:]))
    group_totals = functools.partial(_group_totals, question, plan.block)
    if plan.buckets:
        group_totals = functools.partial(_incremental_totals, question, plan, platform)

    def add_group(index, totals):
        at = index * plan.group
        x_g, context_g, examples_g = jax.tree.map(
            lambda a: lax.dynamic_slice_in_dim(a, at, plan.group), (x, context, examples)
        )
        new = group_totals(params, x_g, context_g, examples_g, key, pool)
        return lax.dynamic_update_slice_in_dim(totals, new, at, axis=0)

    num_groups = (num_valid[0] + plan.group - 1) // plan.group
    return lax.fori_loop(0, num_groups, add_group, jnp.zeros(shape, jnp.float32))


def _group_totals(question, block, params, x, context, examples, key, pool):
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
    return changes.reshape(g, num_positions, samples).sum(axis=2)


def _incremental_totals(question, plan, platform, params, x, context, examples, key, pool):
    """The same totals, with all that an edit cannot reach computed once an example."""
    one, around = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), (x, context))
    program = incremental.make_program(
        question.apply_fn, params, one, around, question.perturbation.grid, platform, plan.buckets
    )
    samples, is_sample = _cut(question.num_samples, plan.samples)

    def of_example(x_i, context_i, i):
        clean = program.clean(params, x_i, context_i)

        def of_position(bucket, position, index):
            def change(sample):
                window = question.window(key, x_i, i, position, sample, pool)
                edited = program.edit(clean, bucket, index, window)
                return question.change(program.output(clean), edited)

            def of_some(some, is_one):
                return jnp.where(is_one, jax.vmap(change)(some), 0.0).sum()

            if len(samples) == 1:
                return jax.vmap(change)(samples[0]).sum()
            return lax.map(lambda some: of_some(*some), (samples, is_sample)).sum()

        def of_bucket(bucket, positions):
            index, _ = _cut(len(positions), plan.block)
            places = jnp.asarray(positions)[index], index
            totals = lax.map(
                lambda pair: jax.vmap(functools.partial(of_position, bucket))(*pair), places
            )
            return totals.reshape(-1)[: len(positions)]

        parts = [of_bucket(b, positions) for b, (positions, _) in enumerate(program.buckets)]
        return jnp.concatenate(parts)

    return jax.vmap(of_example)(x, context, examples)


def _cut(num: int, size: int) -> tuple[Int[Array, "k s"], Bool[Array, "k s"]]:
    """0 … num-1 in blocks of one size, the last one padded, and what is no padding."""
    size = min(size, num)
    index = np.arange(-(-num // size) * size, dtype=np.int32).reshape(-1, size)
    return jnp.asarray(np.minimum(index, num - 1)), jnp.asarray(index < num)


def check_finite(changes: Float[np.ndarray, "n T"], examples: np.ndarray) -> None:
    """Raises ValueError, naming the example, if a change is not a number."""
    finite = np.isfinite(changes).all(axis=1)
    if finite.all():
        return
    raise NonFiniteError(
        "the model's logits, or the metric of them, are not finite for example "
        f"{int(examples[np.argmin(finite)])} or an edit of it; check the parameters and the scale "
        "of the inputs"
    )


def _pieces(indices: np.ndarray, plan: Plan, num_devices: int, streams: int) -> list[np.ndarray]:
    """Examples of each call: whole groups, as many to all of the calls under way at a time."""
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
