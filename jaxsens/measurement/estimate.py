"""The result of a measurement: a mean with its error bar, and how it was made.

With draws d(i, τ, s) of the change at position τ of example i, the estimate is

    v_i  = mean of the draws of example i,
    mean = (1/n) Σ_i v_i,          stderr = std(v_1 … v_n) / √n,

so the standard error is clustered by example: the draws of one example share its input and are not
independent. The interval is for the mean over the distribution that the examples came from, or,
with population="fixed", for the mean over the n examples themselves, of which k were drawn:

    stderr² = (1 - k/n) std(v_1 … v_k)²/k + (k/n) V_w,

with V_w the variance of the mean by noise alone (`jaxsens.core.intervals.population`).

Assumption: examples are independent draws from that distribution. If they are the whole population
(the training set of the paper's definition, every point of the cube), that interval is wider than
it need be, and population="fixed" is for them.
"""

import json
import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from jaxsens.core.intervals import (
    Interval,
    mean_interval,
    population_interval,
    population_variance,
)
from jaxsens.core.scalars import one_line
from jaxsens.measurement.packing import (
    check_summary,
    check_table,
    fields_of,
    pack,
    reading,
    record_of,
    unpack,
)

#: If fewer examples than this change at all, a printed estimate says so.
FEW_SENSITIVE = 5


@dataclass(frozen=True)
class Provenance:
    """How a measurement was made: enough to make it again.

    Attributes:
      metric: the name of the metric.
      perturbation: the window edit, as Python prints it.
      num_samples: S, or the number of all replacements.
      exact: whether every replacement was taken once (`num_samples="all"`).
      positions: "all" or "random": which positions were measured.
      tolerance: the tolerance asked for, if one was.
      seed: the words of the key.
      precision: the precision of matrix products: "highest" is full float32.
      device: the kind of device.
      num_devices: how many devices took part, on all hosts.
      seconds: wall-clock seconds, compilation included.
      num_passes: forward passes of the measurement. At all positions every edit counts as one,
        also where clean values are reused, and every example has one more, its clean pass. At
        random positions so does every draw, and every visit to an example has a clean pass more;
        the draws of a pilot, or of a sample that was given up, count too. Not counted are the
        passes that check the model and reuse, that decide cells which reuse leaves open, and a
        measurement by reuse that whole passes replace.
      exhaustive_passes: what num_passes would be with positions="all".
      incremental: whether clean values were reused; files of before this was recorded have none.
      self_check: "passed" or "failed" where reuse was compared with whole passes, which replace it
        if it failed; "none" where there was nothing to compare.
      merged_seeds: of estimates merged into this one, the seeds that are not its own.
      population: "sample" if the interval speaks of what the examples came from, "fixed" if it
        speaks of the examples that were given.
      population_size: how many those are, without any that is masked altogether; None for
        "sample".
    """

    metric: str
    perturbation: str
    num_samples: int
    exact: bool
    positions: str
    tolerance: float | None
    seed: tuple[int, ...]
    precision: str
    device: str
    num_devices: int
    seconds: float
    num_passes: int
    exhaustive_passes: int
    incremental: bool = False
    self_check: str = "none"
    merged_seeds: tuple[tuple[int, ...], ...] = ()
    population: str = "sample"
    population_size: int | None = None


@dataclass(frozen=True, eq=False)
class SensitivityEstimate:
    """E_x (1/T) Σ_τ E_noise Δ(f(x), f(x with window τ edited)), estimated.

    Attributes:
      totals: (n, T) sum of the change over the draws at each position of each example.
      counts: (n, T) number of those draws; 0 where the position is masked or was not drawn.
      bounds: the range of the metric, (0, 1) for the label flip.
      provenance: how it was made.
    """

    totals: Float[np.ndarray, "n T"]
    counts: Int[np.ndarray, "n T"]
    bounds: tuple[float, float]
    provenance: Provenance

    def __post_init__(self):
        if not self.counts.any():
            raise ValueError("no position was measured: every position of every example is masked")

    @property
    def num_examples(self) -> int:
        """n: examples with at least one draw."""
        return int(self.counts.any(axis=1).sum())

    @property
    def num_positions(self) -> int:
        """T."""
        return self.totals.shape[1]

    @property
    def num_sensitive(self) -> int:
        """The number of examples that changed in at least one draw."""
        return int((self.totals != 0).any(axis=1).sum())

    @property
    def num_draws(self) -> int:
        """The number of all draws: Σ counts."""
        return int(self.counts.sum())

    @property
    def draws_per_second(self) -> float:
        """Draws over wall-clock seconds, compilation included."""
        return self.num_draws / self.provenance.seconds

    @property
    def per_example(self) -> Float[np.ndarray, " n"]:
        """v_i; nan for an example without draws."""
        return _ratio(self.totals.sum(axis=1), self.counts.sum(axis=1))

    @property
    def per_position(self) -> Float[np.ndarray, " T"]:
        """Mean change at each position over the examples that have it; nan where none has."""
        return _ratio(self.totals.sum(axis=0), self.counts.sum(axis=0))

    @property
    def per_example_position(self) -> Float[np.ndarray, "n T"]:
        """Mean change at each position of each example; nan where it was not measured."""
        return _ratio(self.totals, self.counts)

    @property
    def mean(self) -> float:
        """The sensitivity: the mean of v_i."""
        return float(np.nanmean(self.per_example))

    @property
    def stderr(self) -> float:
        """std(v_i)/√n, clustered by example; nan for a single example.

        For a fixed population the formula at the top of this module.
        """
        size = self.provenance.population_size
        if size is not None:
            return math.sqrt(
                population_variance(self.totals, self.counts, self.bounds, size, **self._how)
            )
        if self.num_examples < 2:
            return math.nan
        return float(np.nanstd(self.per_example, ddof=1)) / math.sqrt(self.num_examples)

    def ci(self, level: float = 0.95) -> tuple[float, float]:
        """(low, high), the confidence interval of the mean at this level, clustered by example.

        Metrics with two bounds get an interval that also holds where few examples make the mean
        (`core.intervals.means`): for rare flips its upper side is longer, and 0 flips in 1000
        examples give [0, 0.0038]. Others get Student's interval. Both stay inside the bounds. For a
        fixed population see `core.intervals.population`.
        """
        return self._interval(level).ends

    @property
    def _how(self) -> dict[str, bool]:
        """What decides how much of the spread is noise."""
        positions, exact = self.provenance.positions, self.provenance.exact
        return {"all_positions": positions == "all", "exact": exact}

    def _interval(self, level: float = 0.95) -> Interval:
        size = self.provenance.population_size
        if size is not None:
            tables = self.totals, self.counts
            return population_interval(*tables, self.bounds, size, level, **self._how)
        v = self.per_example
        return mean_interval(v[~np.isnan(v)], self.bounds, level)

    def pooled(self, level: float = 0.95) -> tuple[float, float, float]:
        """(mean, low, high) of Σ totals / Σ counts, in which long examples weigh more.

        This is the mean over all positions of all examples, as some released code reports it. Its
        standard error is that of the linearised ratio, clustered by example.
        """
        totals, counts = self.totals.sum(axis=1), self.counts.sum(axis=1)
        totals, counts = totals[counts > 0], counts[counts > 0]
        mean = float(totals.sum() / counts.sum())
        # An example's share in the error of the ratio, as if it were a value of its own.
        influence = mean + (totals - mean * counts) / counts.mean()
        return mean, *mean_interval(influence, self.bounds, level).ends

    def right_aligned(self) -> "SensitivityEstimate":
        """The same draws, moved so that every example's last measured position is position T-1.

        For sequences of different lengths: `per_position` then counts from the end.
        """
        shifted = np.arange(self.num_positions)
        measured = self.counts > 0
        lengths = np.where(measured.any(axis=1), measured.shape[1] - measured[:, ::-1].argmax(1), 0)
        source = shifted[None] - (self.num_positions - lengths)[:, None]
        source = source % self.num_positions
        return replace(
            self,
            totals=np.take_along_axis(self.totals, source, axis=1),
            counts=np.take_along_axis(self.counts, source, axis=1),
        )

    def half_width(self, level: float = 0.95) -> float:
        """Half the length of `ci(level)`."""
        return self._interval(level).half_width

    def merge(self, other: "SensitivityEstimate") -> "SensitivityEstimate":
        """The estimate over the examples of both, which must be disjoint parts of a dataset.

        Draws are keyed by the id of an example, by default its index in its own part: give parts
        different `example_ids` or different keys, or examples with the same index share their
        noise. Parts that were measured by themselves to a tolerance may have been drawn from more
        or less densely, and a part weighs by the examples that were drawn: the merged mean is then
        biased towards the denser part. `ragged_sensitivity` draws from all parts alike.

        Raises:
          ValueError: the two were not measured in the same way.
        """
        if not isinstance(other, SensitivityEstimate):
            raise ValueError(f"merge takes another SensitivityEstimate; got {one_line(other)}")
        fields = ("metric", "perturbation", "num_samples", "exact", "positions", "precision")
        for field in (*fields, "population"):
            mine, theirs = getattr(self.provenance, field), getattr(other.provenance, field)
            if mine != theirs:
                raise ValueError(f"cannot merge estimates with {field}={mine!r} and {theirs!r}")
        if self.bounds != other.bounds:
            raise ValueError(f"cannot merge estimates with bounds={self.bounds} and {other.bounds}")
        if self.num_positions != other.num_positions:
            raise ValueError(
                f"cannot merge estimates with T={self.num_positions} and T={other.num_positions}"
            )
        a, b = self.provenance, other.provenance
        seeds = dict.fromkeys([*a.merged_seeds, b.seed, *b.merged_seeds])
        seeds.pop(a.seed, None)
        return replace(
            self,
            totals=np.concatenate([self.totals, other.totals]),
            counts=np.concatenate([self.counts, other.counts]),
            provenance=replace(
                a,
                seconds=a.seconds + b.seconds,
                num_passes=a.num_passes + b.num_passes,
                exhaustive_passes=a.exhaustive_passes + b.exhaustive_passes,
                incremental=a.incremental and b.incremental,
                self_check=min(a.self_check, b.self_check),  # "failed" before all others
                merged_seeds=tuple(seeds),
                population_size=_sum_of(a.population_size, b.population_size),
            ),
        )

    def __str__(self) -> str:
        draws = "every replacement" if self.provenance.exact else f"S={self.provenance.num_samples}"
        if self.provenance.positions == "random":
            saved = self.provenance.exhaustive_passes / self.provenance.num_passes
            draws = f"{self.num_draws} random draws, {saved:.3g}× fewer passes than exhaustive"
        name = "sensitivity" if self.provenance.metric == "label_flip" else self.provenance.metric
        # Near a bound the interval is lopsided: its longer side, or ± would promise too much.
        error = self._interval().longer_side
        # Two digits of the error, so that a small sensitivity is not printed as 0.0000 ± 0.0000.
        shown = 0 < error < math.inf
        digits = max(4, 1 - math.floor(math.log10(error))) if shown else 4
        size = self.provenance.population_size
        shown_n = f"n={self.num_examples}" + (f" of {size}" if size is not None else "")
        return (
            f"{name} {self.mean:.{digits}f} ± {error:.{digits}f} "
            f"(95 % CI, {shown_n}, T={self.num_positions}, {draws})"
            + few_sensitive(self.num_sensitive, self.num_examples)
        )

    __repr__ = __str__

    def summary(self) -> dict[str, Any]:
        """The numbers of one line of a log: mean, interval, sizes and the mean at each position."""
        low, high = self.ci()
        return {
            "mean": self.mean,
            "stderr": finite_or_none(self.stderr),
            "low": finite_or_none(low),
            "high": finite_or_none(high),
            "num_examples": self.num_examples,
            "num_sensitive": self.num_sensitive,
            "num_positions": self.num_positions,
            "num_draws": self.num_draws,
            "per_position": [finite_or_none(v) for v in self.per_position.tolist()],
        }

    def to_json(self) -> str:
        """The estimate as text, without any loss; `from_json` reads it back."""
        return json.dumps(
            {
                "summary": self.summary(),
                "bounds": [repr(bound) for bound in self.bounds],
                "provenance": asdict(self.provenance),
                "totals": pack(self.totals),
                "counts": pack(self.counts),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> "SensitivityEstimate":
        """The estimate that `to_json` wrote; ValueError if the text is damaged or another."""
        with reading():
            record = record_of(text)
            lower, upper = (float(bound) for bound in record["bounds"])
            if not lower < upper:
                raise ValueError(f"its bounds are {lower} and {upper}")
            totals, counts = unpack(record["totals"], "f"), unpack(record["counts"], "i")
            check_table(totals, counts, (lower, upper))
            provenance = Provenance(**fields_of(Provenance, record["provenance"]))
            estimate = cls(totals, counts, (lower, upper), provenance)
            sizes = ("mean", "num_examples", "num_positions", "num_draws")
            check_summary(record["summary"], {name: getattr(estimate, name) for name in sizes})
        return estimate


def few_sensitive(num: int, num_examples: int) -> str:
    """A note for the reader, which no interval can give, if few of many examples changed at all.

    >>> few_sensitive(3, 1000), few_sensitive(0, 1000), few_sensitive(3, 3)
    (', few sensitive examples (3)', '', '')
    """
    few = 0 < num < min(FEW_SENSITIVE, num_examples)
    return f", few sensitive examples ({num})" if few else ""


def _sum_of(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def finite_or_none(value: float) -> float | None:
    """The value, or None if it is nan or infinite, for which JSON has no word."""
    return value if math.isfinite(value) else None


def _ratio(total: np.ndarray, count: np.ndarray) -> np.ndarray:
    return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
