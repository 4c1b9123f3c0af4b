"""The result of `worst_case`: the largest changes that were found, and how far to trust them.

With c(i, τ) the largest change that any start found at position τ of example i, the estimate is

    v_i  = max_τ c(i, τ),
    mean = (1/n) Σ_i v_i,          stderr = std(v_1 … v_n) / √n.

Every number is a lower bound of the supremum: an ascent finds a window, and cannot rule out that
there is a worse one. Where most starts agree, that is unlikely; where they do not, take more. The
interval is for the mean of what such a search finds, over the distribution of the examples.

Assumption: examples are independent draws from that distribution.
"""

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped

from jaxsens.core.intervals import Interval, mean_interval
from jaxsens.measurement.notes import finite_or_none
from jaxsens.measurement.packing import (
    check_summary,
    fields_of,
    pack,
    reading,
    record_of,
    unpack,
)

#: A start agrees with the best one if it reached all but this share of it.
AGREES_WITHIN = 0.01


@dataclass(frozen=True)
class WorstCaseProvenance:
    """How a search was made: enough to make it again.

    Attributes:
      metric: the name of the metric.
      perturbation: the window edit, as Python prints it.
      num_starts: S, ascents at each position.
      num_steps: of each ascent.
      seed: the words of the key.
      precision: the precision of matrix products.
      device: the kind of device.
      num_devices: how many devices took part, on all hosts.
      seconds: wall-clock seconds, compilation included.
      num_passes: passes through the model and back: S·(steps + 1) at each position, also where
        clean values are reused.
      incremental: whether clean values were reused.
      self_check: "passed" or "failed" where reuse was compared with whole passes, which replace it
        if it failed; "none" where there was nothing to compare.
    """

    metric: str
    perturbation: str
    num_starts: int
    num_steps: int
    seed: tuple[int, ...]
    precision: str
    device: str
    num_devices: int
    seconds: float
    num_passes: int
    incremental: bool = False
    self_check: str = "none"


@dataclass(frozen=True, eq=False)
class WorstCaseEstimate:
    """max_τ sup_Δ of the change that moving window τ by Δ inside a ball makes, from below.

    Attributes:
      changes: (n, P) the largest change found at each position; nan where it is masked.
      windows: (n, P, …) the entries of the window that make it; nan where it is masked.
      start_values: (n, P, S) what each start reached by itself: its change, or its margin where
        `margins` is not None.
      margins: (n, P) for metrics that jump, such as the label flip, what was followed in place of
        the change: by how much another class leads the predicted one, above 0 a flip. Else None.
      positions: (P,) which positions of the T of an example were searched.
      num_positions: T.
      bounds: the range of the metric.
      provenance: how it was made.
    """

    changes: Float[np.ndarray, "n P"]
    windows: Shaped[np.ndarray, "n P ..."]
    start_values: Float[np.ndarray, "n P S"]
    margins: Float[np.ndarray, "n P"] | None
    positions: Int[np.ndarray, " P"]
    num_positions: int
    bounds: tuple[float, float]
    provenance: WorstCaseProvenance

    @property
    def num_examples(self) -> int:
        """n: examples with at least one position that was searched."""
        return int((~np.isnan(self.changes)).any(axis=1).sum())

    @property
    def per_example(self) -> Float[np.ndarray, " n"]:
        """v_i, the largest change over the positions; nan for an example without any."""
        found = np.where(np.isnan(self.changes), -np.inf, self.changes).max(axis=1)
        return np.where(np.isinf(found), np.nan, found).astype(np.float64)

    @property
    def per_position(self) -> Float[np.ndarray, " P"]:
        """Mean over the examples of the largest change at each position; nan where none has it."""
        num = (~np.isnan(self.changes)).sum(axis=0)
        total = np.nansum(self.changes, axis=0, dtype=np.float64)
        return np.divide(total, num, out=np.full(len(num), np.nan), where=num > 0)

    @property
    def worst_position(self) -> Int[np.ndarray, " n"]:
        """The position of each example's largest change; -1 for an example without any."""
        found = np.where(np.isnan(self.changes), -np.inf, self.changes)
        at = self.positions[found.argmax(axis=1)]
        return np.where(np.isinf(found.max(axis=1)), -1, at)

    @property
    def mean(self) -> float:
        """The mean of v_i."""
        return float(np.nanmean(self.per_example))

    @property
    def stderr(self) -> float:
        """std(v_i)/√n; nan for a single example."""
        if self.num_examples < 2:
            return math.nan
        return float(np.nanstd(self.per_example, ddof=1)) / math.sqrt(self.num_examples)

    def ci(self, level: float = 0.95) -> tuple[float, float]:
        """(low, high), the confidence interval of the mean over examples at this level."""
        return self._interval(level).ends

    def half_width(self, level: float = 0.95) -> float:
        """Half the length of `ci(level)`."""
        return self._interval(level).half_width

    def _interval(self, level: float = 0.95) -> Interval:
        v = self.per_example
        return mean_interval(v[~np.isnan(v)], self.bounds, level)

    @property
    def agreement(self) -> Float[np.ndarray, "n P"]:
        """Share of the starts that reached the best value of all, up to 1 % of it; nan if masked.

        1/S says that one start alone found it: another search might well find more.
        """
        best = self.start_values.max(axis=2, keepdims=True)
        close = best - self.start_values <= AGREES_WITHIN * np.abs(best)
        return np.where(np.isnan(best[..., 0]), np.nan, close.mean(axis=2))

    @property
    def spread(self) -> Float[np.ndarray, "n P"]:
        """(best - worst)/|best| of the starts: what a single start may miss; nan if masked."""
        best, worst = self.start_values.max(axis=2), self.start_values.min(axis=2)
        size = np.where(best == 0, 1, np.abs(best))
        return np.where(best == worst, best - worst, (best - worst) / size)

    def __str__(self) -> str:
        name, made = self.provenance.metric, self.provenance
        error = self._interval().longer_side
        shown = 0 < error < math.inf
        digits = max(4, 1 - math.floor(math.log10(error))) if shown else 4
        num = len(self.positions)
        sizes = f"T={num}" if num == self.num_positions else f"{num} of T={self.num_positions}"
        return (
            f"worst {name} found {self.mean:.{digits}f} ± {error:.{digits}f} (95 % CI, "
            f"n={self.num_examples}, {sizes}, {made.num_starts} starts × {made.num_steps} steps, "
            f"{np.nanmean(self.agreement):.0%} of them within 1 % of the best; a lower bound of "
            "the supremum)"
        )

    __repr__ = __str__

    def summary(self) -> dict[str, Any]:
        """The numbers of one line of a log: mean, interval, sizes and how far starts agree."""
        low, high = self.ci()
        return {
            "mean": self.mean,
            "stderr": finite_or_none(self.stderr),
            "low": finite_or_none(low),
            "high": finite_or_none(high),
            "num_examples": self.num_examples,
            "num_positions": self.num_positions,
            "num_searched": len(self.positions),
            "agreement": float(np.nanmean(self.agreement)),
            "spread": float(np.nanmean(self.spread)),
            "per_position": [finite_or_none(v) for v in self.per_position.tolist()],
        }

    def to_json(self) -> str:
        """The estimate as text, without any loss; `from_json` reads it back."""
        n = len(self.changes)
        return json.dumps(
            {
                "summary": self.summary(),
                "bounds": [repr(bound) for bound in self.bounds],
                "provenance": asdict(self.provenance),
                "positions": self.positions.tolist(),
                "num_positions": self.num_positions,
                "window_shape": list(self.windows.shape[2:]),
                "changes": pack(self.changes),
                "windows": pack(self.windows.astype(np.float32).reshape(n, -1)),
                "start_values": pack(self.start_values.reshape(n, -1)),
                "margins": None if self.margins is None else pack(self.margins),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> "WorstCaseEstimate":
        """The estimate that `to_json` wrote; ValueError if the text is damaged or another."""
        with reading():
            record = record_of(text)
            lower, upper = (float(bound) for bound in record["bounds"])
            positions = np.array(record["positions"], np.int64)
            made = fields_of(WorstCaseProvenance, record["provenance"])
            changes, margins = unpack(record["changes"], "f"), record["margins"]
            cells = (len(changes), len(positions))
            shape = (*cells, *record["window_shape"])
            estimate = cls(
                changes=changes.reshape(cells),
                windows=unpack(record["windows"], "f").reshape(shape),
                start_values=unpack(record["start_values"], "f").reshape(*cells, -1),
                margins=None if margins is None else unpack(margins, "f").reshape(cells),
                positions=positions,
                num_positions=record["num_positions"],
                bounds=(lower, upper),
                provenance=WorstCaseProvenance(**made),
            )
            sizes = ("mean", "num_examples")
            check_summary(record["summary"], {name: getattr(estimate, name) for name in sizes})
        return estimate
