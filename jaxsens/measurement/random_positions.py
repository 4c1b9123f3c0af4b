"""Random positions instead of all: the same quantity, unbiased, for a fraction of the passes.

The average over all (position, noise) of an example is the expectation over a random one, so random
(example, position, noise) triples estimate the exhaustive mean without bias; more examples with
fewer draws each make the smallest error. One jitted program computes one triple a row.
"""

import functools
import math
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from jaxsens.core import runtime
from jaxsens.core.intervals import mean_interval
from jaxsens.core.runtime import REPLICATED, SPLIT
from jaxsens.measurement.exhaustive import measure_all
from jaxsens.measurement.jobs import (
    Context,
    Measurement,
    MeasurementJob,
    MeasurementSpec,
    check_finite,
)

#: Random draws that only say how many will be needed; also the fewest that an estimate is made of.
PILOT_DRAWS = 1000


def measure_random(job: MeasurementJob) -> Measurement:
    """S draws of every example, each at a random position."""
    sample = _Sample(job)
    sample.extend(int(job.mask.any(axis=1).sum()) * job.spec.num_samples)
    return sample.measurement()


def measure_within(job: MeasurementJob, tolerance: float) -> Measurement:
    """Random draws until half of the 95 % interval is within `tolerance`, or all of them.

    Stopping at the first look that satisfies would favour lucky draws: for a rare flip they are the
    low ones, and the estimate would come out up to 15 % too small. So a pilot says how many draws
    should be enough, with a margin for its own error, and is then thrown away. Draws are added only
    in the few cases where the margin was too small, or where the draws of one example turn out to
    be much alike; what bias that leaves is below 0.15 standard errors. The interval that decides is
    the one that is reported, and stays wide while few examples make the mean: where few of few
    examples flip, no number of draws is enough, and all are made.

    A draw costs two whole passes, clean and edited: where draws would cost more than the exhaustive
    measurement, which reuses work where it can, that is the better one, and is made instead.
    """
    affordable = job.exhaustive_cost // 2
    if affordable < 2 * PILOT_DRAWS:
        return measure_all(job)
    pilot = _Sample(job)
    pilot.extend(PILOT_DRAWS)
    sample = _Sample(job, first_round=pilot.num_rounds)
    target = max(pilot.enough(tolerance), PILOT_DRAWS)
    while target <= affordable:
        sample.extend(math.ceil(target))
        if sample.half_width <= tolerance:
            return sample.measurement(spent=pilot.num_draws)
        target = max(sample.enough(tolerance), 1.1 * sample.num_draws)
    whole = measure_all(job)
    wasted = 2 * (pilot.num_draws + sample.num_draws)
    return replace(whole, num_passes=whole.num_passes + wasted)


class _Sample:
    """Draws of random (example, position, sample) triples, added up as they come.

    Each round visits every example once, in random order: draws spread over as many examples as
    there are, which makes the error as small as it can be. Within an example, positions are uniform
    over the unmasked ones. No two samples share a round, so their noise is independent.
    """

    def __init__(self, job: MeasurementJob, first_round: int = 0):
        self.job = job
        self.totals = np.zeros(job.mask.shape)
        self.counts = np.zeros(job.mask.shape, np.int64)
        self.squares = np.zeros(len(job.x))
        self.num_draws, self.sum = 0, 0.0
        self.num_rounds = first_round
        self._queue = np.zeros((0, 3), np.int64)

    def extend(self, target: int) -> None:
        """Draws until there are `target` draws."""
        # A batch larger than the pilot would be mostly padding.
        on_device = min(self.job.max_batch, PILOT_DRAWS)
        batch = on_device * self.job.mesh.size * jax.process_count()
        while self.num_draws < target:
            draws = self._next(min(batch, target - self.num_draws))
            changes = _changes_of(self.job, draws, batch).astype(np.float64)
            np.add.at(self.totals, (draws[:, 0], draws[:, 1]), changes)
            np.add.at(self.counts, (draws[:, 0], draws[:, 1]), 1)
            np.add.at(self.squares, draws[:, 0], changes**2)
            self.num_draws += len(draws)
            self.sum += float(changes.sum())
            self.job.report(self.num_draws, target, self.sum / self.num_draws)

    def _next(self, num: int) -> Int[np.ndarray, "num 3"]:
        while len(self._queue) < num:
            self._queue = np.concatenate([self._queue, self._laps()])
        draws, self._queue = np.split(self._queue, [num])
        return draws

    def _laps(self) -> Int[np.ndarray, "B 3"]:
        """One round over the examples, or as many as make a pilot if the examples are few."""
        job = self.job
        lengths = job.mask.sum(axis=1)
        examples = np.flatnonzero(lengths)
        rounds = self.num_rounds + np.arange(-(-PILOT_DRAWS // len(examples)))
        rng = np.random.default_rng([*job.seed, self.num_rounds])
        order = rng.permuted(np.tile(examples, (len(rounds), 1)), axis=1).ravel()
        positions = job.unmasked[order, rng.integers(0, lengths[order])]
        samples = np.repeat(rounds, len(examples))
        if job.spec.exact:
            samples = rng.integers(0, job.spec.num_samples, len(order))
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
        return self._half_width_of(self.per_example)

    def _half_width_of(self, values: Float[np.ndarray, " m"]) -> float:
        metric = self.job.spec.metric
        return mean_interval(values, (metric.lower, metric.upper)).half_width

    def enough(self, tolerance: float) -> float:
        """Draws that should make the half-width `tolerance`; inf where no number of draws would.

        The variance of the per-example means is noise, which shrinks as draws are added, plus the
        difference between examples, which does not. It is itself an estimate, with relative error
        √((kurtosis - 1)/n), large for rare flips; the margin is twice that error. Where few
        examples make the mean, it is their number that keeps the interval wide, with any number of
        draws: so it is looked at with the noise taken out.
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
            between = max(1 - (1 + 2 * error) * noise / variance, 0.0)
            if self._half_width_of(v.mean() + math.sqrt(between) * (v - v.mean())) > tolerance:
                return math.inf
        needed = noise - variance * (1 - 1 / ratio)
        if needed + 2 * error * math.sqrt(noise * variance) <= 0:
            return math.inf
        # Fourfold at a time where it is unclear how much of the variance is noise.
        most = 4.0 if again.any() else 100.0
        growth = min(noise / needed, most) if needed > 0 else most
        return self.num_draws * growth * (1 + 2 * error)

    def measurement(self, spent: int = 0) -> Measurement:
        """The result; `spent` draws before it count as cost."""
        num_passes = 2 * (self.num_draws + spent)
        return Measurement(self.totals, self.counts, num_passes, "random")


def _changes_of(
    job: MeasurementJob, draws: Int[np.ndarray, "B 3"], batch: int
) -> Float[np.ndarray, " B"]:
    """The change of each draw, computed in one padded batch over all hosts and devices."""
    padded = draws[np.minimum(np.arange(batch), len(draws) - 1)]
    local = padded[runtime.host_share(batch)].astype(np.int32)
    examples, local[:, 0] = local[:, 0].copy(), job.example_ids[local[:, 0]]
    changes = _draw_changes(
        job.spec, job.mesh, job.params,
        *runtime.place((*job.inputs(examples), local), job.mesh, SPLIT), job.key, job.pool,
    )  # fmt: skip
    changes = runtime.gather_hosts(np.asarray(changes), batch)[: len(draws)]
    check_finite(changes[:, None], draws[:, 0])
    return changes


@functools.partial(jax.jit, static_argnums=(0, 1))
def _draw_changes(
    spec: MeasurementSpec,
    mesh: Mesh,
    params: Any,
    x: Shaped[Array, "B ..."],
    context: Context,
    draws: Int[Array, "B 3"],
    key: PRNGKeyArray,
    pool: Array | None,
) -> Float[Array, " B"]:
    """Change of one (example, position, sample) a row; nan where a logit was not finite."""

    def changes(params, x, context, draws, key, pool):
        def edited(x_i, draw):
            example, position, sample = draw
            return spec.edited_input(key, x_i, example, position, sample, pool)

        inputs = jax.vmap(edited)(x, draws)
        clean, outputs = (spec.apply_fn(params, v, *context) for v in (x, inputs))
        return jax.vmap(spec.change)(clean, outputs)

    in_specs = (REPLICATED, SPLIT, SPLIT, SPLIT, REPLICATED, REPLICATED)
    return runtime.over_devices(changes, mesh, in_specs)(params, x, context, draws, key, pool)
