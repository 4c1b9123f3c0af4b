"""Random positions instead of all: the same quantity, unbiased, for a fraction of the passes.

The mean over all positions and noises of an example is the expectation over a random one of them.
So random (example, position, noise) triples estimate the exhaustive mean without bias, and draws
spread over many examples have the smallest error.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from jaxsens.core import call_log, runtime
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

#: Draws of the pilot, which only says how many will be needed; also the fewest of an estimate.
PILOT_DRAWS = 1000
#: About how many draws are listed on the host at the same time, at 24 bytes each.
_LISTED_DRAWS = 1 << 20


def measure_random(jobs: Sequence[MeasurementJob]) -> list[Measurement]:
    """Measures S draws of every example of all jobs, each at a random position."""
    sample = _Sample(jobs)
    sample.extend(sum(int(job.mask.any(axis=1).sum()) * job.spec.num_samples for job in jobs))
    return sample.measurements()


def measure_within(jobs: Sequence[MeasurementJob], tolerance: float) -> list[Measurement]:
    """Draws until half of the 95 % interval of all jobs together is within `tolerance`.

    Stopping at the first look that satisfies would favour lucky draws: for a rare flip they are the
    low ones, and the estimate would come out up to 15 % too small. So a pilot says how many draws
    should be enough, with a margin for its own error, and is then thrown away. Draws are added only
    in the few cases where the margin was too small, or where the draws of one example turn out to
    be much alike; the bias that this leaves is below 0.15 standard errors. The interval that
    decides is the one that is reported. It stays wide while few examples make the mean: where few
    of few examples flip, no number of draws is enough, and every position is measured.

    A draw costs two whole passes, clean and edited. Where draws would cost more than the exhaustive
    measurement, which reuses clean values where it can, every position is measured instead.

    Args:
      jobs: parts of one dataset, such as texts in buckets of different lengths, that share key,
        perturbation, metric and number of samples. A draw picks its example from all of them alike,
        so that the mean over the examples that were drawn is unbiased for the mean over all: a part
        that was sampled more densely than the others would weigh too much in it.
      tolerance: half the length of the interval to reach.

    Returns:
      The measurement of each job: of all of them at random positions, or of all at every position.
    """
    affordable = sum(job.exhaustive_cost for job in jobs) // 2
    if affordable < 2 * PILOT_DRAWS:
        return [measure_all(job) for job in jobs]
    pilot = _Sample(jobs)
    pilot.extend(PILOT_DRAWS)
    sample = _Sample(jobs, first_round=pilot.num_rounds)
    target = max(pilot.enough(tolerance), PILOT_DRAWS)
    while target <= affordable:
        sample.extend(math.ceil(target))
        if sample.half_width <= tolerance:
            return _with_passes(sample.measurements(), pilot)
        target = max(sample.enough(tolerance), 1.1 * sample.num_draws)
    return _with_passes([measure_all(job) for job in jobs], pilot, sample)


def _with_passes(measurements: list[Measurement], *samples: "_Sample") -> list[Measurement]:
    """The measurements, with the passes of samples that were thrown away added to their cost."""
    for sample in samples:
        measurements = [
            replace(measured, num_passes=measured.num_passes + wasted.num_passes)
            for measured, wasted in zip(measurements, sample.measurements(), strict=True)
        ]
    return measurements


class _Sample:
    """Draws of random (example, position, sample) triples from all jobs, added up as they come.

    Each round visits every example of every job once, in random order: draws spread over as many
    examples as there are, which makes the error as small as it can be. Within an example, positions
    are uniform over the unmasked ones. No two samples share a round, so their noise is independent.
    The examples of all jobs are counted through, and tables are as wide as the job with the most
    positions.
    """

    def __init__(self, jobs: Sequence[MeasurementJob], first_round: int = 0):
        self.jobs = jobs
        self.spec = jobs[0].spec
        self.num_positions = max(job.mask.shape[1] for job in jobs)
        self.stops = np.cumsum([len(job.x) for job in jobs])
        self.lengths = np.concatenate([job.mask.sum(axis=1) for job in jobs])
        self.unmasked = np.concatenate([self._widened(job.unmasked) for job in jobs])
        self.totals = np.zeros(self.unmasked.shape)
        self.counts = np.zeros(self.unmasked.shape, np.int64)
        self.squares = np.zeros(len(self.unmasked))
        self.num_draws, self.sum = 0, 0.0
        self.num_rounds = first_round
        self._queue = np.zeros((0, 3), np.int64)
        self._calls = call_log.begin(
            lambda: ("random", first_round, [job.identity for job in jobs]), is_shared=True
        )

    def _widened(self, table: Int[np.ndarray, "n _"]) -> Int[np.ndarray, "n T"]:
        return np.pad(table, ((0, 0), (0, self.num_positions - table.shape[1])))

    def extend(self, target: int) -> None:
        """Draws until there are `target` draws."""
        # A batch larger than a job's share of the pilot would be mostly padding.
        most = -(-PILOT_DRAWS // len(self.jobs))
        num_devices = self.jobs[0].mesh.size * jax.process_count()
        batches = [min(job.max_batch, most) * num_devices for job in self.jobs]
        listed = max(1, _LISTED_DRAWS // sum(batches)) * sum(batches)
        while self.num_draws < target:
            draws = self._next(min(listed, target - self.num_draws))
            owners = np.searchsorted(self.stops, draws[:, 0], side="right")
            for number, (job, batch) in enumerate(zip(self.jobs, batches, strict=True)):
                of_job = draws[owners == number]
                for start in range(0, len(of_job), batch):
                    self._add(number, of_job[start : start + batch], batch)
                    job.report(self.num_draws, target, self.sum / self.num_draws)

    def _add(self, number: int, draws: Int[np.ndarray, "B 3"], batch: int) -> None:
        """Makes draws of one job and adds them up."""
        job = self.jobs[number]
        first = np.array([self.stops[number] - len(job.x), 0, 0])
        found = self._calls.recall()
        if found is None:
            found = {"changes": _changes_of(job, draws - first, batch)}
            self._calls.add(found)
        changes = found["changes"].astype(np.float64)
        np.add.at(self.totals, (draws[:, 0], draws[:, 1]), changes)
        np.add.at(self.counts, (draws[:, 0], draws[:, 1]), 1)
        np.add.at(self.squares, draws[:, 0], changes**2)
        self.num_draws += len(draws)
        self.sum += float(changes.sum())

    def _next(self, num: int) -> Int[np.ndarray, "num 3"]:
        """The next draws of the endless sequence of rounds."""
        parts, there = [self._queue], len(self._queue)
        while there < num:
            parts.append(self._rounds())
            there += len(parts[-1])
        draws, self._queue = np.split(np.concatenate(parts), [num])
        return draws

    def _rounds(self) -> Int[np.ndarray, "B 3"]:
        """One round over the examples, or as many as make a pilot if the examples are few."""
        examples = np.flatnonzero(self.lengths)
        rounds = self.num_rounds + np.arange(-(-PILOT_DRAWS // len(examples)))
        rng = np.random.default_rng([*self.jobs[0].seed, self.num_rounds])
        order = rng.permuted(np.tile(examples, (len(rounds), 1)), axis=1).ravel()
        positions = self.unmasked[order, rng.integers(0, self.lengths[order])]
        samples = np.repeat(rounds, len(examples))
        if self.spec.exact:
            samples = rng.integers(0, self.spec.num_samples, len(order))
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
        metric = self.spec.metric
        return mean_interval(values, (metric.lower, metric.upper)).half_width

    def enough(self, tolerance: float) -> float:
        """How many draws should make the half-width `tolerance`; inf if no number of them would.

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

    def measurements(self) -> list[Measurement]:
        """The result for each job."""
        found = []
        for job, stop in zip(self.jobs, self.stops, strict=True):
            table = slice(stop - len(job.x), stop), slice(job.mask.shape[1])
            counts = self.counts[table]
            found.append(Measurement(self.totals[table], counts, 2 * int(counts.sum()), "random"))
        return found


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
    check_finite(changes[:, None], job.example_ids[draws[:, 0]])
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
    """The change of each draw (example, position, sample); nan where a logit was not finite."""

    def changes(params, x, context, draws, key, pool):
        edited = spec.edited_inputs(key, x, draws, pool)
        clean, perturbed = (spec.apply_fn(params, inputs, *context) for inputs in (x, edited))
        return jax.vmap(spec.change)(clean, perturbed)

    in_specs = (REPLICATED, SPLIT, SPLIT, SPLIT, REPLICATED, REPLICATED)
    return runtime.over_devices(changes, mesh, in_specs)(params, x, context, draws, key, pool)
