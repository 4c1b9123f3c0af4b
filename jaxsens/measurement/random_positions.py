"""Random positions instead of all: the same quantity, unbiased, for a fraction of the passes.

The mean over all positions and noises of an example is the expectation over a random one of them.
So random examples, with random draws (position, noise) of each, estimate the exhaustive mean
without bias. The draws of an example share its clean pass (`drawing`); how many of them to make is
a matter of what they cost and how much they differ (`sample_size`).
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from jaxsens.measurement.exhaustive import measure_all
from jaxsens.measurement.jobs import Measurement, MeasurementJob
from jaxsens.measurement.reuse import PRIOR_RATIO
from jaxsens.measurement.sample_size import SampleSize
from jaxsens.measurement.samples import Examples, Sample, Visits

#: Draws of the pilot, which says how many will be needed; also the fewest of an estimate.
PILOT_DRAWS = 1000
#: Draws at random have to be so many times cheaper than all positions for a pilot to be tried.
_LEAST_GAIN = 4


def measure_random(jobs: Sequence[MeasurementJob]) -> list[Measurement]:
    """Measures S draws of every example of all jobs, each at a random position."""
    examples = Examples(jobs)
    sample = Sample.nothing(examples).added(_rounds(examples, jobs[0].spec.num_samples))
    return sample.measurements()


def _rounds(examples: Examples, num_rounds: int) -> np.ndarray:
    """(B, 3) draws: every example once in each round, at a position of its own."""
    at_once = -(-PILOT_DRAWS // len(examples.drawable))
    parts = []
    for first in range(0, num_rounds, at_once):
        rng = np.random.default_rng([*examples.seed, first])
        order = np.tile(examples.drawable, (at_once, 1))
        order = rng.permuted(order, axis=1).ravel()
        positions = examples.positions(order, rng.integers(0, examples.lengths[order]))
        samples = np.repeat(first + np.arange(at_once), len(examples.drawable))
        if examples.spec.exact:
            samples = rng.integers(0, examples.spec.num_samples, len(order))
        parts.append(np.stack([order, positions, samples], axis=1))
    return np.concatenate(parts)[: num_rounds * len(examples.drawable)]


def measure_within(
    jobs: Sequence[MeasurementJob],
    tolerance: float,
    population: Literal["sample", "fixed"] = "sample",
) -> list[Measurement]:
    """Draws until half of the 95 % interval of all jobs together is within `tolerance`.

    A pilot of some examples, with a few draws of each, says how many of both should be enough, with
    a margin for its own error. If the pilot then counted as it is, or if drawing stopped at the
    first look that satisfies, lucky draws would be favoured: for a rare flip they are the low ones,
    and the estimate would come out up to 15 % too small. So each half of the pilot says by itself
    how many examples are needed, k_A and k_B, and counts with the share of the sample that the
    *other* half gave it: half A, of a examples, is a/k_B of the sample and half B a/k_A. A share
    that does not depend on what it is a share of leaves no bias. Where it is less than the whole
    half, the last examples of it are left out.

    Where the pilot takes more than half of all examples, it is thrown away instead. More is drawn
    only in the few cases where the margin was too small, or where examples turn out to differ much;
    the bias that this leaves is below 0.15 standard errors. The interval that decides is the one
    that is reported. It stays wide while few examples make the mean: where few of few examples
    flip, no number of draws is enough, and every position is measured. So it is where draws would
    cost more than the exhaustive measurement.

    Args:
      jobs: parts of one dataset, such as texts in buckets of different lengths, that share key,
        perturbation, metric and number of samples. A draw picks its example from all of them alike,
        so that the mean over the examples that were drawn is unbiased for the mean over all: a part
        that was sampled more densely than the others would weigh too much in it.
      tolerance: half the length of the interval to reach.
      population: what the interval speaks of, as in `sensitivity`.

    Returns:
      The measurement of each job: of all of them at random positions, or of all at every position.
    """
    most = sum(job.exhaustive_cost for job in jobs)
    examples = Examples(jobs, population)
    num, clean, edit = len(examples.drawable), *examples.costs
    num_draws = max(2, round(math.sqrt(PRIOR_RATIO * clean / edit)))
    num_visits = min(num, -(-PILOT_DRAWS // num_draws))
    num_draws = max(num_draws, -(-PILOT_DRAWS // num_visits))
    if most < _LEAST_GAIN * num_visits * (clean + num_draws * edit):
        return [measure_all(job) for job in jobs]
    visits = Visits(examples)
    pilot = Sample.nothing(examples).added(visits.next(num_visits, num_draws))
    if num_visits <= num // 2:
        sample, size = _pooled(pilot, tolerance)
    else:
        sample, size = Sample.nothing(examples), pilot.size_for(tolerance)
    while size is not None and sample.cost + size.cost <= most:
        sample = sample.added(visits.next(size.num_examples, size.num_draws))
        if sample.half_width <= tolerance:
            return sample.measurements()
        size = sample.larger_size_for(tolerance)
    measured = zip(map(measure_all, jobs), examples.num_passes, strict=True)
    return [replace(each, num_passes=each.num_passes + wasted) for each, wasted in measured]


def _pooled(pilot: Sample, tolerance: float) -> tuple[Sample, SampleSize | None]:
    """What counts of the pilot, and the visits to make beside it; None if none are enough."""
    made = pilot.num_examples, len(pilot.draws) / pilot.num_examples
    halves = pilot.halves()
    sizes = [half.size_for(tolerance, made) for half in halves]
    found = [size for size in sizes if size is not None]
    if len(found) < 2:
        return pilot, None
    num = min(size.num_examples for size in found)
    kept = [
        half.first_examples(round(half.num_examples * num / of_other.num_examples))
        for half, of_other in zip(halves, reversed(found), strict=True)
    ]
    both = kept[0].joined(kept[1])
    num_draws = max(size.num_draws for size in found)
    left = num - both.num_examples
    clean, edit = pilot.examples.costs
    return both, SampleSize(left, num_draws, left * (clean + num_draws * edit))
