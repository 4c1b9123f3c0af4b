"""The jitted programs behind `jaxsens.sensitivity`, and the host loops that feed them.

Two programs: `_chunk_totals` runs every position × sample of a chunk of examples, `_draw_changes`
one (position, sample) for each row of a batch. Both have static shapes that depend on the model and
the byte budget alone: a remainder is padded, and the padding is skipped (a loop with a traced
length) or thrown away, so that a model is compiled once whatever the number of examples.
"""

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

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

#: `apply_fn(params, x) -> logits`. Flax's own `apply` is typed to return anything.
ApplyFn = Callable[[Any, Array], Any]
#: Called now and then with (examples or draws done, all of them, running mean).
Progress = Callable[[int, int, float], None]

#: Random draws that only say how many will be needed; also the fewest that an estimate is made of.
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

    def change(self, clean: Array, perturbed: Array) -> Float[Array, ""]:
        """The metric; nan where an output is not finite, which the host looks for."""
        finite = jnp.isfinite(clean).all() & jnp.isfinite(perturbed).all()
        return jnp.where(finite, self.metric(clean, perturbed), jnp.nan)


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

    @functools.cached_property
    def seed(self) -> tuple[int, ...]:
        """The words of the key."""
        return tuple(int(word) for word in np.ravel(jax.random.key_data(self.key)))

    @functools.cached_property
    def unmasked(self) -> Int[np.ndarray, "n T"]:
        """The positions of each example, those to measure first."""
        return np.argsort(~self.mask, axis=1, kind="stable")

    @property
    def exhaustive_passes(self) -> int:
        """Forward passes of the exhaustive mode: every edit, and each clean example once."""
        return int(self.mask.sum()) * self.question.num_samples + len(self.x)

    def report(self, done: int, total: int, mean: float) -> None:
        """Tells the caller how far it is."""
        if self.progress is not None:
            self.progress(done, total, mean)


@dataclass(frozen=True)
class Measurement:
    """Totals and counts of the draws, what they cost, and which positions they are of."""

    totals: Float[np.ndarray, "n T"]
    counts: Int[np.ndarray, "n T"]
    num_passes: int
    positions: Literal["all", "random"]


def measure_all(work: Work) -> Measurement:
    """Every position and sample of every example."""
    n, num_positions = work.mask.shape
    plan = make_plan(work.rows, num_positions * work.question.num_samples)
    share = runtime.host_share(n)
    totals = np.zeros((share.stop - share.start, num_positions))
    counts = work.mask * work.question.num_samples

    def receive(examples: np.ndarray, kept: np.ndarray, changes: Array) -> None:
        measured = np.where(work.mask[examples], np.asarray(changes)[kept], 0)
        if jax.process_count() == 1:
            _check_finite(measured, examples)
        totals[examples - share.start] = measured
        done = int(examples[-1]) + 1 - share.start
        drawn = int(counts[share][:done].sum())
        work.report(done, len(totals), float(totals[:done].sum()) / max(drawn, 1))

    # One call is under way on the devices while the results of the one before are received.
    pending = None
    for examples in _pieces(np.arange(share.start, share.stop), plan.chunk * work.mesh.size):
        rows, num_valid, kept = _deal(examples, work.mesh.size, plan.chunk)
        changes = _chunk_totals(
            work.question, plan, work.mesh, work.params,
            *runtime.place((work.x[rows], rows.astype(np.int32), num_valid), work.mesh, SPLIT),
            work.key, work.pool,
        )  # fmt: skip
        if pending is not None:
            receive(*pending)
        pending = (examples, kept, changes)
    if pending is not None:
        receive(*pending)
    totals = runtime.gather_hosts(totals, n)
    # A host that raised alone would leave the others waiting for its share.
    _check_finite(totals, np.arange(n))
    return Measurement(totals, counts, work.exhaustive_passes, "all")


def measure_random(work: Work) -> Measurement:
    """S draws of every example, each at a random position."""
    sample = _Sample(work)
    sample.extend(int(work.mask.any(axis=1).sum()) * work.question.num_samples)
    return sample.measurement()


def measure_within(work: Work, tolerance: float) -> Measurement:
    """Random draws until half of the 95 % interval is within `tolerance`, or all of them.

    Stopping at the first look that satisfies would favour lucky draws: for a rare flip they are the
    low ones, and the estimate would come out up to 15 % too small. So a pilot says how many draws
    should be enough, with a margin for its own error, and is then thrown away. Draws are added only
    in the few cases where the margin was too small, or where the draws of one example turn out to
    be much alike; what bias that leaves is below 0.15 standard errors.

    A draw costs two passes, clean and edited: where more than half of the exhaustive passes would
    be needed, the exhaustive measurement is the better one, and is made instead.
    """
    affordable = work.exhaustive_passes // 2
    if affordable < 2 * PILOT_DRAWS:
        return measure_all(work)
    pilot = _Sample(work)
    pilot.extend(PILOT_DRAWS)
    sample = _Sample(work, first_round=pilot.num_rounds)
    target = max(pilot.enough(tolerance), PILOT_DRAWS)
    while target <= affordable:
        sample.extend(math.ceil(target))
        if sample.half_width <= tolerance:
            return sample.measurement(spent=pilot.num_draws)
        target = max(sample.enough(tolerance), 1.1 * sample.num_draws)
    whole = measure_all(work)
    wasted = 2 * (pilot.num_draws + sample.num_draws)
    return replace(whole, num_passes=whole.num_passes + wasted)


class _Sample:
    """Draws of random (example, position, sample) triples, added up as they come.

    Each round visits every example once, in random order: draws spread over as many examples as
    there are, which makes the error as small as it can be. Within an example, positions are uniform
    over the unmasked ones. No two samples share a round, so their noise is independent.
    """

    def __init__(self, work: Work, first_round: int = 0):
        self.work = work
        self.totals = np.zeros(work.mask.shape)
        self.counts = np.zeros(work.mask.shape, np.int64)
        self.squares = np.zeros(len(work.x))
        self.num_draws, self.sum = 0, 0.0
        self.num_rounds = first_round
        self._queue = np.zeros((0, 3), np.int64)

    def extend(self, target: int) -> None:
        """Draws until there are `target` draws."""
        # A batch larger than the pilot would be mostly padding.
        rows = min(self.work.rows, PILOT_DRAWS)
        batch = rows * self.work.mesh.size * jax.process_count()
        while self.num_draws < target:
            draws = self._next(min(batch, target - self.num_draws))
            changes = _changes_of(self.work, draws, batch).astype(np.float64)
            np.add.at(self.totals, (draws[:, 0], draws[:, 1]), changes)
            np.add.at(self.counts, (draws[:, 0], draws[:, 1]), 1)
            np.add.at(self.squares, draws[:, 0], changes**2)
            self.num_draws += len(draws)
            self.sum += float(changes.sum())
            self.work.report(self.num_draws, target, self.sum / self.num_draws)

    def _next(self, num: int) -> Int[np.ndarray, "num 3"]:
        while len(self._queue) < num:
            self._queue = np.concatenate([self._queue, self._laps()])
        draws, self._queue = np.split(self._queue, [num])
        return draws

    def _laps(self) -> Int[np.ndarray, "B 3"]:
        """One round over the examples, or as many as make a pilot if the examples are few."""
        work = self.work
        lengths = work.mask.sum(axis=1)
        examples = np.flatnonzero(lengths)
        rounds = self.num_rounds + np.arange(-(-PILOT_DRAWS // len(examples)))
        rng = np.random.default_rng([*work.seed, self.num_rounds])
        order = rng.permuted(np.tile(examples, (len(rounds), 1)), axis=1).ravel()
        positions = work.unmasked[order, rng.integers(0, lengths[order])]
        samples = np.repeat(rounds, len(examples))
        if work.question.exact:
            samples = rng.integers(0, work.question.num_samples, len(order))
        self.num_rounds += len(rounds)
        return np.stack([order, positions, samples], axis=1)

    @property
    def per_example(self) -> Float[np.ndarray, " m"]:
        """Mean change of each example that was drawn."""
        counts = self.counts.sum(axis=1)
        return self.totals.sum(axis=1)[counts > 0] / counts[counts > 0]

    @property
    def half_width(self) -> float:
        """Half the length of the 95 % interval."""
        metric = self.work.question.metric
        low, high = confidence_interval(self.per_example, (metric.lower, metric.upper), 0.95)
        return (high - low) / 2

    def enough(self, tolerance: float) -> float:
        """Draws that should make the half-width `tolerance`; inf where no number of draws would.

        The variance of the per-example means is noise, which shrinks as draws are added, plus the
        difference between examples, which does not. It is itself an estimate, with relative error
        √((kurtosis - 1)/n), large for rare flips; the margin is 1.5 of that error.
        """
        v, counts = self.per_example, self.counts.sum(axis=1)
        counts, squares = counts[counts > 0], self.squares[counts > 0]
        ratio, deviations = (self.half_width / tolerance) ** 2, np.square(v - v.mean())
        if not deviations.any():
            # No flip yet: there is no variance to go by, and no reason to expect much.
            return 2.5 * self.num_draws * min(ratio, 100.0)
        variance = float(deviations.mean())
        error = float(deviations.std()) / variance / math.sqrt(len(v))
        noise, again = variance, counts > 1
        if again.mean() > 0.5:
            per_draw = (squares - counts * v**2)[again] / (counts[again] - 1)
            noise = min(max(float(per_draw.mean() * (1 / counts).mean()), 0.0), variance)
        needed = noise - variance * (1 - 1 / ratio)
        if needed + 2 * error * math.sqrt(noise * variance) <= 0:
            return math.inf
        # Fourfold at a time where it is unclear how much of the variance is noise.
        most = 4.0 if again.any() else 100.0
        growth = min(noise / needed, most) if needed > 0 else most
        return self.num_draws * growth * (1 + 1.5 * error)

    def measurement(self, spent: int = 0) -> Measurement:
        """The result; `spent` draws before it count as cost."""
        num_passes = 2 * (self.num_draws + spent)
        return Measurement(self.totals, self.counts, num_passes, "random")


def _changes_of(work: Work, draws: Int[np.ndarray, "B 3"], batch: int) -> Float[np.ndarray, " B"]:
    """The change of each draw, computed in one padded batch over all hosts and devices."""
    padded = draws[np.minimum(np.arange(batch), len(draws) - 1)]
    local = padded[runtime.host_share(batch)].astype(np.int32)
    changes = _draw_changes(
        work.question, work.mesh, work.params,
        *runtime.place((work.x[local[:, 0]], local), work.mesh, SPLIT), work.key, work.pool,
    )  # fmt: skip
    changes = runtime.gather_hosts(np.asarray(changes), batch)[: len(draws)]
    _check_finite(changes[:, None], draws[:, 0])
    return changes


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
) -> Float[Array, "c T"]:
    """Sum of changes over samples at every position; nan where a logit was not finite."""
    totals = functools.partial(_device_totals, question, plan)
    in_specs = (SAME, SPLIT, SPLIT, SPLIT, SAME, SAME)
    return runtime.over_devices(totals, mesh, in_specs)(params, x, examples, num_valid, key, pool)


def _device_totals(question, plan, params, x, examples, num_valid, key, pool):
    shape = (plan.chunk, question.perturbation.num_positions(x.shape[1:]))

    def add_group(index, totals):
        at = index * plan.group
        x_g, examples_g = (lax.dynamic_slice_in_dim(a, at, plan.group) for a in (x, examples))
        new = _group_totals(question, plan.block, params, x_g, examples_g, key, pool)
        return lax.dynamic_update_slice_in_dim(totals, new, at, axis=0)

    num_groups = (num_valid[0] + plan.group - 1) // plan.group
    return lax.fori_loop(0, num_groups, add_group, jnp.zeros(shape, jnp.float32))


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
        return jax.vmap(jax.vmap(question.change, (None, 0)))(clean, outputs)

    changes = jnp.moveaxis(lax.map(block_changes, pairs), 0, 1)
    changes = changes.reshape(g, num_blocks * block)[:, :num_pairs]
    return changes.reshape(g, num_positions, samples).sum(axis=2)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _draw_changes(
    question: Question,
    mesh: Mesh,
    params: Any,
    x: Shaped[Array, "B ..."],
    draws: Int[Array, "B 3"],
    key: PRNGKeyArray,
    pool: Array | None,
) -> Float[Array, " B"]:
    """Change of one (example, position, sample) a row; nan where a logit was not finite."""

    def changes(params, x, draws, key, pool):
        def edited(x_i, draw):
            example, position, sample = draw
            return question.edited(key, x_i, example, position, sample, pool)

        inputs = jax.vmap(edited)(x, draws)
        clean, outputs = question.apply_fn(params, x), question.apply_fn(params, inputs)
        return jax.vmap(question.change)(clean, outputs)

    in_specs = (SAME, SPLIT, SPLIT, SAME, SAME)
    return runtime.over_devices(changes, mesh, in_specs)(params, x, draws, key, pool)


def _check_finite(changes: Float[np.ndarray, "n T"], examples: np.ndarray) -> None:
    finite = np.isfinite(changes).all(axis=1)
    if finite.all():
        return
    raise ValueError(
        "the model's logits, or the metric of them, are not finite for example "
        f"{int(examples[np.argmin(finite)])} or an edit of it; check the parameters and the scale "
        "of the inputs"
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
