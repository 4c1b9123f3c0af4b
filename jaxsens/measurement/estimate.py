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
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from jaxsens.core.intervals import (
    Interval,
    mean_interval,
    population_interval,
    population_variance,
)
from jaxsens.core.scalars import one_line
from jaxsens.measurement import html
from jaxsens.measurement.merging import merged
from jaxsens.measurement.notes import (
    few_sensitive,
    finite_or_none,
    half_precision,
)
from jaxsens.measurement.packing import (
    check_summary,
    check_table,
    fields_of,
    pack,
    reading,
    record_of,
    unpack,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
      num_passes: forward passes of the measurement. At all positions: one per edit, also where
        clean values are reused, and one per example, its clean pass. At random positions: one per
        draw, those of a pilot or of a sample that was given up included, and one per visit to an
        example. Not counted are passes that check the model and reuse, those that decide cells
        which reuse leaves open, and a measurement by reuse that whole passes replace.
      exhaustive_passes: what num_passes would be with positions="all".
      incremental: whether clean values were reused; False in files of before this was recorded.
      self_check: "passed" or "failed" where reuse was compared with whole passes, which replace it
        if it failed; "none" where there was nothing to compare.
      merged_seeds: of estimates merged into this one, the seeds that are not its own.
      layout: how positions are arranged, (rows, columns) of patches or (T,) of tokens; () in files
        of before this was recorded.
      near_ties: for a model in half precision, the share of draws whose outputs lie within rounding
        of a tie, so that rounding decides whether the label flips; of merged estimates the largest.
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
    layout: tuple[int, ...] = ()
    near_ties: float | None = None
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

    >>> import jax, jaxsens
    >>> flip = jaxsens.Perturbation(jaxsens.Bits(), jaxsens.Flip())
    >>> cube = np.array([[a, b] for a in (-1, 1) for b in (-1, 1)], np.float32)
    >>> first = lambda params, x: x[:, 0]
    >>> est = jaxsens.sensitivity(first, (), cube, flip, "all", key=jax.random.key(0))
    >>> est.mean, est.per_position.tolist(), est.num_draws
    (0.5, [1.0, 0.0], 8)
    >>> SensitivityEstimate.from_json(est.to_json()).mean
    0.5
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
            return population_interval(
                self.totals, self.counts, self.bounds, size, level, **self._how
            )
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
        return merged([self, other])

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
            + half_precision(self.provenance.near_ties)
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """For notebooks: the number, its interval and a small picture; needs nothing but itself."""
        return html.of_estimate(self)

    def plot(
        self,
        x: Any = None,
        *,
        tokens: Sequence[Sequence[str]] | None = None,
        examples: Sequence[int] | None = None,
    ) -> "Figure":
        """A matplotlib figure of where the model is sensitive.

        Without arguments it shows the mean of each position: a heat map of patches, a curve of
        tokens. With `x` or `tokens` it shows single examples.

        Args:
          x: (n, H, W, C) or (n, C, H, W) the images, or a memmap of them; heat maps are laid over
            some of them.
          tokens: the words of each example, which are coloured.
          examples: which examples; default the four that change most.

        Returns:
          The figure: `fig.savefig("map.png")`.

        Raises:
          ValueError: images or tokens do not fit the estimate.

        >>> import jax, jaxsens
        >>> noise = jaxsens.Perturbation(jaxsens.Patches(2), jaxsens.Gaussian(sigma=1.0))
        >>> x = np.zeros((5, 4, 4, 1), np.float32)
        >>> model = lambda _, x: x[:, 0, 0, 0]
        >>> est = jaxsens.sensitivity(model, (), x, noise, 9, key=jax.random.key(0))
        >>> est.plot().axes[0].images[0].get_array().shape
        (2, 2)
        """
        from jaxsens.measurement import plots  # here, since matplotlib takes a second to load

        return plots.of_estimate(self, x, tokens, examples)

    @property
    def layout(self) -> tuple[int, ...]:
        """How positions are arranged, if that is known; else (T,)."""
        layout = self.provenance.layout
        return layout if math.prod(layout) == self.num_positions else (self.num_positions,)

    def most_changed(self, num: int) -> Int[np.ndarray, " num"]:
        """The numbers of the examples whose predictions change most, by |v_i|, at most `num`."""
        values = np.abs(self.per_example)
        order = np.argsort(np.where(np.isnan(values), -1.0, values), kind="stable")[::-1]
        return order[: min(num, self.num_examples)]

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


def _ratio(total: np.ndarray, count: np.ndarray) -> np.ndarray:
    return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
