"""The jitted programs behind `jaxsens.sensitivity`, and the host loops that feed them.

Two programs: `_chunk_totals` runs every position × sample of a chunk of examples, `_draw_changes`
one (position, sample) for each row of a batch. Both have static shapes that depend on the model and
the byte budget alone: a remainder is padded, and the padding is skipped (a loop with a traced
length) or thrown away, so that a model is compiled once whatever the number of examples.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from jaxsens import runtime
from jaxsens.chunking import Plan, make_plan
from jaxsens.estimate import confidence_interval
from jaxsens.metrics import Metric
from jaxsens.perturbation import Perturbation, Position
from jaxsens.runtime import SAME, SPLIT

ApplyFn = Callable[[Any, Array], Array]
#: Called now and then with (examples or draws done, all of them, running mean).
Progress = Callable[[int, int, float], None]

#: Draws before the first look at the interval: a look after a handful of them could stop on luck.
PILOT_DRAWS = 1000


@dataclass(frozen=True)
class Question:
    """What is asked of the model: the static, hashable half of a measurement."""

    apply_fn: ApplyFn
    perturbation: Perturbation
    metric: Metric
    num_samples: int
    exact: bool

    def edited(
        self, key: PRNGKeyArray, x: Array, example: Position, position: Position, sample: Position,
        pool: Array | None,
    ) -> Array:  # fmt: skip
        """Draw (example, position, sample) of the perturbed input."""
        if self.exact:
            return self.perturbation.replace(sample, x, position)
        for index in (example, position, sample):
            key = jax.random.fold_in(key, index)
        return self.perturbation(key, x, position, pool=pool, example=example)


@dataclass(frozen=True)
class Work:
    """A question, and all that it is asked about."""

    question: Question
    params: Any
    x: Shaped[np.ndarray, "n ..."]
    mask: Bool[np.ndarray, "n T"]
    key: PRNGKeyArray
    mesh: Mesh
    rows: int
    progress: Progress | None

    @functools.cached_property
    def pool(self) -> Array | None:
        """All examples on every device, for edits that borrow from another example."""
        if not self.question.perturbation.needs_pool:
            return None
        return runtime.place(self.x, self.mesh, SAME)

    def report(self, done: int, total: int, mean: float) -> None:
        """Tells the caller how far it is."""
        if self.progress is not None:
            self.progress(done, total, mean)


def measure_all(work: Work) -> tuple[Float[np.ndarray, "n T"], Int[np.ndarray, "n T"]]:
    """Totals and counts over every position and sample of every example."""
    n, num_positions = work.mask.shape
    plan = make_plan(work.rows, num_positions * work.question.num_samples)
    share = runtime.host_share(n)
    totals = np.zeros((share.stop - share.start, num_positions))
    counts = work.mask * work.question.num_samples

    def receive(examples: np.ndarray, kept: np.ndarray, outputs: tuple[Array, Array]) -> None:
        changes, finite = (np.asarray(output)[kept] for output in outputs)
        _check_finite(finite | ~work.mask[examples], examples)
        totals[examples - share.start] = np.where(work.mask[examples], changes, 0)
        done = int(examples[-1]) + 1 - share.start
        measured = counts[share][:done].sum()
        work.report(done, len(totals), float(totals[:done].sum()) / max(int(measured), 1))

    # One call is under way on the devices while the results of the one before are received.
    pending = None
    for examples in _pieces(np.arange(share.start, share.stop), plan.chunk * work.mesh.size):
        rows, num_valid, kept = _deal(examples, work.mesh.size, plan.chunk)
        outputs = _chunk_totals(
            work.question, plan, work.mesh, work.params,
            *runtime.place((work.x[rows], rows.astype(np.int32), num_valid), work.mesh, SPLIT),
            work.key, work.pool,
        )  # fmt: skip
        if pending is not None:
            receive(*pending)
        pending = (examples, kept, outputs)
    if pending is not None:
        receive(*pending)
    return runtime.gather_hosts(totals, n), counts


def measure_random(
    work: Work, tolerance: float | None
) -> tuple[Float[np.ndarray, "n T"], Int[np.ndarray, "n T"]]:
    """Totals and counts over random positions: S for each example, or until `tolerance` is met."""
    n, _ = work.mask.shape
    measurable = int(work.mask.any(axis=1).sum())
    totals, counts = np.zeros(work.mask.shape), np.zeros(work.mask.shape, np.int64)
    batch = work.rows * work.mesh.size * jax.process_count()
    if tolerance is None:
        limit = target = measurable * work.question.num_samples
    else:
        limit = int(work.mask.sum()) * work.question.num_samples
        target = min(limit, PILOT_DRAWS)
    metric, stream, done = work.question.metric, _random_draws(work), 0
    while True:
        while done < target:
            draws = np.stack([next(stream) for _ in range(min(batch, target - done))])
            np.add.at(totals, (draws[:, 0], draws[:, 1]), _changes_of(work, draws, batch))
            np.add.at(counts, (draws[:, 0], draws[:, 1]), 1)
            done += len(draws)
            work.report(done, target, float(totals.sum()) / done)
        if tolerance is None or done >= limit:
            return totals, counts
        drawn = counts.any(axis=1)
        v = totals[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
        low, high = confidence_interval(v, (metric.lower, metric.upper), 0.95)
        half_width = (high - low) / 2
        if half_width <= tolerance:
            return totals, counts
        # Few looks, each about where the interval should be narrow enough: looking after every batch
        # would stop on lucky draws and bias the estimate down.
        needed = done * min((half_width / tolerance) ** 2, 100.0)
        target = min(limit, int(max(needed * 1.02, done * 1.1)))


def _random_draws(work: Work) -> Iterator[tuple[int, int, int]]:
    """Endless (example, position, sample): each round visits every example once, in random order.

    A round without replacement spreads the draws over as many examples as there are, which makes the
    error as small as it can be; within an example, positions are uniform over the unmasked ones.
    """
    lengths = work.mask.sum(axis=1)
    examples = np.flatnonzero(lengths)
    unmasked = np.argsort(~work.mask, axis=1, kind="stable")
    seed = [int(word) for word in np.ravel(jax.random.key_data(work.key))]
    visit = 0
    while True:
        rng = np.random.default_rng([*seed, visit])
        order = rng.permutation(examples)
        positions = unmasked[order, rng.integers(0, lengths[order])]
        samples = np.full(len(order), visit)
        if work.question.exact:
            samples = rng.integers(0, work.question.num_samples, len(order))
        yield from zip(order.tolist(), positions.tolist(), samples.tolist(), strict=True)
        visit += 1


def _changes_of(work: Work, draws: Int[np.ndarray, "B 3"], batch: int) -> Float[np.ndarray, " B"]:
    """The change of each draw, computed in one padded batch over all hosts and devices."""
    padded = draws[np.minimum(np.arange(batch), len(draws) - 1)]
    local = padded[runtime.host_share(batch)].astype(np.int32)
    changes, finite = _draw_changes(
        work.question, work.mesh, work.params,
        *runtime.place((work.x[local[:, 0]], local), work.mesh, SPLIT), work.key, work.pool,
    )  # fmt: skip
    _check_finite(np.asarray(finite)[:, None], local[:, 0])
    return runtime.gather_hosts(np.asarray(changes), batch)[: len(draws)]


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _chunk_totals(
    question: Question,
    plan: Plan,
    mesh: Mesh,
    params: Any,
    x: Shaped[Array, "c ..."],
    examples: Int[Array, " c"],
    num_valid: Int[Array, " devices"],
    key: PRNGKeyArray,
    pool: Array | None,
) -> tuple[Float[Array, "c T"], Bool[Array, "c T"]]:
    """Sum of changes over samples, and whether all logits were finite, at every position."""
    totals = functools.partial(_device_totals, question, plan)
    in_specs = (SAME, SPLIT, SPLIT, SPLIT, SAME, SAME)
    return runtime.over_devices(totals, mesh, in_specs)(params, x, examples, num_valid, key, pool)


def _device_totals(question, plan, params, x, examples, num_valid, key, pool):
    shape = (plan.chunk, question.perturbation.num_positions(x.shape[1:]))

    def add_group(index, results):
        at = index * plan.group
        group = (lax.dynamic_slice_in_dim(array, at, plan.group) for array in (x, examples))
        new = _group_totals(question, plan.block, params, *group, key, pool)
        return tuple(
            lax.dynamic_update_slice_in_dim(result, part, at, axis=0)
            for result, part in zip(results, new, strict=True)
        )

    num_groups = (num_valid[0] + plan.group - 1) // plan.group
    start = jnp.zeros(shape, jnp.float32), jnp.ones(shape, bool)
    return lax.fori_loop(0, num_groups, add_group, start)


def _group_totals(question, block, params, x, examples, key, pool):
    """Totals of a few examples: the clean outputs once, then the edits block by block."""
    g, samples = x.shape[0], question.num_samples
    num_positions = question.perturbation.num_positions(x.shape[1:])
    num_pairs = num_positions * samples
    num_blocks = -(-num_pairs // block)
    pairs = jnp.minimum(jnp.arange(num_blocks * block), num_pairs - 1).reshape(num_blocks, block)
    clean = question.apply_fn(params, x)

    def block_changes(pairs):
        def edited(x_i, i):
            return jax.vmap(
                lambda j: question.edited(key, x_i, i, j // samples, j % samples, pool)
            )(pairs)

        inputs = jax.vmap(edited)(x, examples)
        outputs = question.apply_fn(params, inputs.reshape(g * block, *x.shape[1:]))
        outputs = outputs.reshape(g, block, *clean.shape[1:])
        changes = jax.vmap(jax.vmap(question.metric, (None, 0)))(clean, outputs)
        return changes, _finite(outputs, axes=2)

    def by_position(blocks):
        flat = jnp.moveaxis(blocks, 0, 1).reshape(g, num_blocks * block)[:, :num_pairs]
        return flat.reshape(g, num_positions, samples)

    changes, finite = lax.map(block_changes, pairs)
    finite = by_position(finite).all(axis=2) & _finite(clean, axes=1)[:, None]
    return by_position(changes).sum(axis=2), finite


@functools.partial(jax.jit, static_argnums=(0, 1))
def _draw_changes(
    question: Question,
    mesh: Mesh,
    params: Any,
    x: Shaped[Array, "B ..."],
    draws: Int[Array, "B 3"],
    key: PRNGKeyArray,
    pool: Array | None,
) -> tuple[Float[Array, " B"], Bool[Array, " B"]]:
    """Change, and whether the logits were finite, of one (example, position, sample) a row."""

    def changes(params, x, draws, key, pool):
        inputs = jax.vmap(lambda x_i, draw: question.edited(key, x_i, *draw, pool))(x, draws)
        clean, outputs = question.apply_fn(params, x), question.apply_fn(params, inputs)
        finite = _finite(clean, axes=1) & _finite(outputs, axes=1)
        return jax.vmap(question.metric)(clean, outputs), finite

    in_specs = (SAME, SPLIT, SPLIT, SAME, SAME)
    return runtime.over_devices(changes, mesh, in_specs)(params, x, draws, key, pool)


def _finite(outputs: Array, axes: int) -> Array:
    """Whether all outputs are finite, for each index of the leading `axes` axes."""
    return jnp.isfinite(outputs).all(axis=tuple(range(axes, outputs.ndim)))


def _check_finite(finite: Bool[np.ndarray, "n *T"], examples: np.ndarray) -> None:
    if finite.all():
        return
    row = int(np.argmin(finite.reshape(len(finite), -1).all(axis=1)))
    raise ValueError(
        f"the model's logits are not finite for example {int(examples[row])} or an edit of it; "
        "check the parameters and the scale of the inputs"
    )


def _pieces(indices: np.ndarray, size: int) -> Iterator[np.ndarray]:
    for start in range(0, len(indices), size):
        yield indices[start : start + size]


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
