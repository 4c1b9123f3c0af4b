"""Samples of random draws: which were made, what they gave, and how many more are needed.

A visit draws one example and makes m draws of it: its T positions are cut into m strata of equal
length, and one position is drawn at random from each, so that positions are as likely as in the
definition and spread over the example. Examples are visited in random order, all of them once
before any of them again.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from jaxsens.core.intervals import Interval, mean_interval, population_interval
from jaxsens.measurement.batching import MAX_DRAWS
from jaxsens.measurement.drawing import DrawEngine
from jaxsens.measurement.jobs import Measurement, MeasurementJob
from jaxsens.measurement.sample_size import SampleSize, cheapest_sample

#: By how much more draws of an example may be planned than were made of each so far.
_MOST_GROWTH = 4


class Examples:
    """The examples of all jobs, counted through, and what makes draws of them.

    Attributes:
      jobs: parts of one dataset.
      spec: what all of them measure.
      seed: the words of their key.
      population: "sample", or "fixed" if these examples are all there are.
      lengths: (n,) positions of each example that may be drawn.
      drawable: the indices of the examples that have one.
      num_passes: forward passes of each job so far.
    """

    def __init__(
        self,
        jobs: Sequence[MeasurementJob],
        population: Literal["sample", "fixed"] = "sample",
    ):
        self.jobs = jobs
        self.spec, self.seed = jobs[0].spec, jobs[0].seed
        self.population = population
        self.stops = np.cumsum([len(job.x) for job in jobs])
        self.num_positions = max(job.mask.shape[1] for job in jobs)
        self.lengths = np.concatenate([job.mask.sum(axis=1) for job in jobs])
        self.drawable = np.flatnonzero(self.lengths)
        self.engines = [DrawEngine(job) for job in jobs]
        self.num_passes = [0] * len(jobs)

    @property
    def bounds(self) -> tuple[float, float]:
        """The range of a change."""
        return self.spec.metric.lower, self.spec.metric.upper

    @property
    def costs(self) -> tuple[float, float]:
        """What a clean pass and a draw cost, in whole passes, on average over the examples."""
        clean, edit = np.average(
            [engine.job.draw_costs for engine in self.engines],
            axis=0,
            weights=[len(job.x) for job in self.jobs],
        )
        return float(clean), float(edit)

    def owners(self, examples: Int[np.ndarray, " B"]) -> Int[np.ndarray, " B"]:
        """The number of each example's job."""
        return np.searchsorted(self.stops, examples, side="right")

    def positions(
        self, examples: Int[np.ndarray, " B"], ranks: Int[np.ndarray, " B"]
    ) -> Int[np.ndarray, " B"]:
        """The unmasked position of each example that has this rank among them."""
        owners, found = self.owners(examples), np.zeros(len(examples), np.int64)
        for number, job in enumerate(self.jobs):
            mine = owners == number
            first = self.stops[number] - len(job.x)
            found[mine] = job.unmasked[examples[mine] - first, ranks[mine]]
        return found

    def changes(
        self, draws: Int[np.ndarray, "B 3"], before: Float[np.ndarray, " _"]
    ) -> Float[np.ndarray, " B"]:
        """The change of each draw; `before` are those of draws that were made before."""
        owners, found = self.owners(draws[:, 0]), np.zeros(len(draws))
        num, total = len(before), float(before.sum())
        for number, (job, engine) in enumerate(zip(self.jobs, self.engines, strict=True)):

            def report(changes: np.ndarray, job: MeasurementJob = job) -> None:
                nonlocal num, total
                num, total = num + len(changes), total + float(np.nansum(changes))
                job.report(num, len(before) + len(draws), total / num)

            mine = owners == number
            own = draws[mine] - np.array([self.stops[number] - len(job.x), 0, 0])
            found[mine] = engine.changes(own, report)
            visited = np.bincount(own[:, 0]) if len(own) else np.zeros(0, int)
            self.num_passes[number] += len(own) + int((-(-visited // MAX_DRAWS)).sum())
        return found


class Visits:
    """The endless sequence of visits; no two draws of it share their noise."""

    def __init__(self, examples: Examples):
        self._examples = examples
        self._order = np.random.default_rng([*examples.seed, 0]).permutation(examples.drawable)
        self._num_calls = self._num_visits = self._num_samples = 0

    def next(self, num_visits: int, num_draws: int) -> Int[np.ndarray, "B 3"]:
        """(example, position, sample) of the draws of the next visits."""
        parts = [np.zeros((0, 3), np.int64)]
        while num_visits > 0:
            at = self._num_visits % len(self._order)
            some = self._order[at : at + num_visits]
            parts.append(self._visited(some, num_draws))
            self._num_visits += len(some)
            num_visits -= len(some)
        return np.concatenate(parts)

    def _visited(self, examples: Int[np.ndarray, " k"], num_draws: int) -> Int[np.ndarray, "B 3"]:
        self._num_calls += 1
        rng, spec = (
            np.random.default_rng([*self._examples.seed, self._num_calls]),
            self._examples.spec,
        )
        strata = np.arange(num_draws) + rng.random((len(examples), num_draws))
        lengths = self._examples.lengths[examples][:, None]
        # Rounding may put the last stratum's end on the length itself.
        ranks = np.minimum((strata * (lengths / num_draws)).astype(np.int64), lengths - 1)
        repeated = np.repeat(examples, num_draws)
        samples = np.tile(self._num_samples + np.arange(num_draws), len(examples))
        if spec.exact:
            samples = rng.integers(0, spec.num_samples, len(repeated))
        self._num_samples += num_draws
        positions = self._examples.positions(repeated, ranks.ravel())
        return np.stack([repeated, positions, samples], axis=1)


@dataclass(frozen=True)
class Sample:
    """Draws that were made, in the order of their visits.

    Attributes:
      examples: what they were drawn from.
      draws: (example, position, sample) of each.
      changes: what each gave.
    """

    examples: Examples
    draws: Int[np.ndarray, "B 3"]
    changes: Float[np.ndarray, " B"]

    @classmethod
    def nothing(cls, examples: Examples) -> "Sample":
        """No draws."""
        return cls(examples, np.zeros((0, 3), np.int64), np.zeros(0))

    def added(self, draws: Int[np.ndarray, "B 3"]) -> "Sample":
        """This sample and new draws, which are made."""
        if not len(draws):
            return self
        changes = self.examples.changes(draws, self.changes)
        return self.joined(Sample(self.examples, draws, changes))

    def joined(self, other: "Sample") -> "Sample":
        """The draws of both."""
        return Sample(
            self.examples,
            np.concatenate([self.draws, other.draws]),
            np.concatenate([self.changes, other.changes]),
        )

    @functools.cached_property
    def _visited(self) -> tuple[np.ndarray, np.ndarray]:
        """The examples in the order of their first visits, and which of them each draw is of."""
        unique, first, inverse = np.unique(self.draws[:, 0], return_index=True, return_inverse=True)
        rank = np.argsort(np.argsort(first))
        return unique[np.argsort(first)], rank[inverse]

    @property
    def num_examples(self) -> int:
        """Examples that were drawn."""
        return len(self._visited[0])

    def _only(self, is_kept: np.ndarray) -> "Sample":
        return Sample(self.examples, self.draws[is_kept], self.changes[is_kept])

    def halves(self) -> tuple["Sample", "Sample"]:
        """The examples of even and of odd visits."""
        visit = self._visited[1]
        return self._only(visit % 2 == 0), self._only(visit % 2 == 1)

    def first_examples(self, num: int) -> "Sample":
        """The examples that were visited first."""
        return self._only(self._visited[1] < num)

    @functools.cached_property
    def _counts(self) -> Int[np.ndarray, " k"]:
        return np.bincount(self._visited[1])

    @functools.cached_property
    def per_example(self) -> Float[np.ndarray, " k"]:
        """v_i of the examples that were drawn."""
        return np.bincount(self._visited[1], self.changes) / self._counts

    def tables(self) -> tuple[Float[np.ndarray, "n T"], Int[np.ndarray, "n T"]]:
        """Sums of changes and numbers of draws of every position of every example."""
        shape = len(self.examples.lengths), self.examples.num_positions
        cells = self.draws[:, 0] * shape[1] + self.draws[:, 1]
        totals = np.bincount(cells, self.changes, minlength=math.prod(shape))
        return totals.reshape(shape), np.bincount(cells, minlength=math.prod(shape)).reshape(shape)

    @property
    def half_width(self) -> float:
        """Half the length of the 95 % interval that will be reported."""
        if self.examples.population == "sample":
            return self._sample_interval(self.per_example).half_width
        return population_interval(
            *self.tables(), self.examples.bounds, len(self.examples.drawable),
            all_positions=False, exact=self.examples.spec.exact,
        ).half_width  # fmt: skip

    def _sample_interval(self, values: Float[np.ndarray, " k"]) -> Interval:
        return mean_interval(values, self.examples.bounds)

    # How many more are needed.

    @functools.cached_property
    def _spread(self) -> tuple[float, float, float, float]:
        """Variances of v_i, within and between examples; and the relative error of the first."""
        v, counts = self.per_example, self._counts
        deviations = np.square(v - v.mean())
        variance = float(deviations.mean())
        if variance == 0:
            return 0.0, 0.0, 0.0, 0.0
        error = float(deviations.std()) / variance / math.sqrt(len(v))
        squares = np.bincount(self._visited[1], np.square(self.changes))
        again = counts > 1
        per_draw = (squares - counts * v**2)[again] / (counts[again] - 1)
        within = max(float(per_draw.mean()), 0.0) if again.any() else 0.0
        within = min(within, variance / float((1 / counts).mean()))
        return variance, within, variance - within * float((1 / counts).mean()), error

    def _allowed_variance(self, tolerance: float) -> float:
        """The variance of the mean at which the interval has this half-width, with a margin.

        The variance that was found is itself an estimate, with relative error √((kurtosis - 1)/k),
        large for rare flips; the margin is twice that error.
        """
        variance, _, _, error = self._spread
        half_width = self._sample_interval(self.per_example).half_width
        found = variance / self.num_examples
        return found * (tolerance / half_width) ** 2 / (1 + 2 * error)

    def _unseen(self, tolerance: float) -> int:
        """Examples to draw if no change was seen: nothing to go by, nor reason to expect much."""
        ratio = (self._sample_interval(self.per_example).half_width / tolerance) ** 2
        return math.ceil(2.5 * self.num_examples * min(ratio, 100.0))

    def size_for(self, tolerance: float, made: tuple[int, float] = (0, 1.0)) -> SampleSize | None:
        """The cheapest sample that should have the half-width `tolerance`; None if none would.

        Where few examples make the mean, it is their number that keeps the interval wide, with any
        number of draws: where all of them were drawn, that is looked at with the noise taken out.

        Args:
          tolerance: the half-width.
          made: (examples, draws of each) that will be part of it.
        """
        num, (clean, edit) = len(self.examples.drawable), self.examples.costs
        variance, within, between, error = self._spread
        average = float(self._counts.mean())
        if variance == 0:
            needed, num_draws = max(self._unseen(tolerance), made[0]), round(average)
            num_draws = max(num_draws, math.ceil(num_draws * needed / num))
            needed = min(needed, num)
            return SampleSize(needed, num_draws, (needed - made[0]) * (clean + num_draws * edit))
        is_fixed = self.examples.population == "fixed"
        if self.num_examples == num and not is_fixed:
            v, least = self.per_example, max(between - 2 * error * (variance - between), 0.0)
            without_noise = v.mean() + math.sqrt(least / variance) * (v - v.mean())
            if self._sample_interval(without_noise).half_width > tolerance:
                return None
        every = self.examples.num_positions * self.examples.spec.num_samples
        # Many draws of few examples only if there are no more examples; and the benefit of the
        # doubt, where it is unclear how much of the variance is noise.
        optimistic = max(between - 2 * error * variance, 0.0)
        for assumed, most in (
            (between, min(every, math.ceil(_MOST_GROWTH * average))),
            (between, every),
            (optimistic, every),
        ):
            found = cheapest_sample(
                assumed,
                within,
                self._allowed_variance(tolerance),
                costs=(clean, edit),
                num_examples=num,
                most_draws=most,
                is_fixed=is_fixed,
                made=made,
                least_examples=self.num_examples,
            )
            if found is not None:
                # A single draw would not show how much draws of an example differ.
                return found._replace(num_draws=max(found.num_draws, 2))
        return None

    def larger_size_for(self, tolerance: float) -> SampleSize | None:
        """Visits to make beside those of this sample, whose interval is too wide; None as above."""
        num, (clean, edit) = len(self.examples.drawable), self.examples.costs
        average = len(self.draws) / self.num_examples
        is_all = self.num_examples == num
        size = self.size_for(tolerance, (0, 1.0) if is_all else (self.num_examples, average))
        if size is None:
            return None
        if is_all:
            more, num_draws = num, math.ceil(max(size.num_draws - average, average / 5))
        else:
            more = max(size.num_examples - self.num_examples, self.num_examples // 5, 1)
            more, num_draws = min(more, num - self.num_examples), size.num_draws
        return SampleSize(more, num_draws, more * (clean + num_draws * edit))

    @property
    def cost(self) -> float:
        """What the draws cost, in whole passes."""
        clean, edit = self.examples.costs
        return self.num_examples * clean + len(self.draws) * edit

    def measurements(self) -> list[Measurement]:
        """The result for each job."""
        found = []
        all_totals, all_counts = self.tables()
        for number, (job, engine) in enumerate(
            zip(self.examples.jobs, self.examples.engines, strict=True)
        ):
            stop = self.examples.stops[number]
            table = slice(stop - len(job.x), stop), slice(job.mask.shape[1])
            num_passes = self.examples.num_passes[number]
            found.append(
                Measurement(
                    all_totals[table],
                    all_counts[table],
                    num_passes,
                    "random",
                    engine.job.draw_reuse is not None,
                    engine.self_check,
                )
            )
        return found
