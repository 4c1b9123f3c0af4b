"""The result of a sharpness measurement: means with their error bars, and how it was made.

Changes d(i, s) of example i under draw s of the weights form an n × S table in which every draw is
shared by all examples. Examples and draws are both random, so with

    V_x  = variance of the n row means / n,          E V_x  = σ_x²/n             + σ_xw²/(nS),
    V_w  = variance of the S column means / S,       E V_w  =           σ_w²/S   + σ_xw²/(nS),
    V_xw = variance of what neither explains / (nS), E V_xw =                      σ_xw²/(nS),

    mean = Σ_is d(i, s)/(nS),    stderr² = V_x + V_w - V_xw,    E stderr² = Var(mean),

which is the two-way clustered variance (Cameron, Gelbach & Miller 2011) of a table without gaps. It
is taken to be no smaller than any of the three, as its expectation is. Intervals use Student's t
with Satterthwaite's degrees of freedom, near S - 1 where the draws dominate: with the papers' S = 5
that is t = 2.8, and n cannot make up for it.

Assumption: examples and draws are independent, and no draw is far worse than the others. A
catastrophe that strikes one draw in ten stays unseen in 5 draws with probability 0.59, and no
interval made of those 5 draws knows of it.
"""

import json
import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit

from jaxsens.estimate import finite_or_none
from jaxsens.packing import check_summary, check_table, fields_of, pack, reading, record_of, unpack
from jaxsens.scalars import one_line

#: What is measured, and the range that it lives in, which intervals respect.
BOUNDS = {
    "flips": (0.0, 1.0),
    "l1": (0.0, math.inf),
    "squared": (0.0, math.inf),
    "loss": (-math.inf, math.inf),
}


@dataclass(frozen=True, eq=False)
class Change:
    """E over examples and draws of one kind of change, estimated.

    Attributes:
      per_example_draw: (n, S) the changes.
      bounds: the range of a change, (0, 1) for flips.
    """

    per_example_draw: Float[np.ndarray, "n S"]
    bounds: tuple[float, float]

    @property
    def per_example(self) -> Float[np.ndarray, " n"]:
        """Mean over the draws, for each example."""
        return self.per_example_draw.mean(axis=1, dtype=np.float64)

    @property
    def per_draw(self) -> Float[np.ndarray, " S"]:
        """Mean over the examples, for each draw of the weights."""
        return self.per_example_draw.mean(axis=0, dtype=np.float64)

    @property
    def mean(self) -> float:
        """Mean over examples and draws."""
        return float(self.per_draw.mean())

    @property
    def stderr(self) -> float:
        """√(V_x + V_w - V_xw), clustered by example and by draw; nan for one example or draw."""
        return math.sqrt(_two_way(self.per_example_draw)[0])

    @property
    def dof(self) -> float:
        """Satterthwaite's degrees of freedom of `stderr`; nan for one example or draw."""
        return _two_way(self.per_example_draw)[1]

    def ci(self, level: float = 0.95) -> tuple[float, float]:
        """Confidence interval at this level, inside the metric's bounds.

        With t at `dof` degrees of freedom: the loss has mean ± t·stderr; L1 and squared changes,
        which are skewed to the right, mean · exp(± t·stderr/mean); flips the Wilson score interval
        with the effective number of independent draws p(1-p)/stderr². That number is found with two
        imagined examples added, one that every draw flips and one that none does: a few examples
        that seldom flip would look like many independent draws, and no flip at all like none. So
        0 flips of 1000 examples give [0, 0.0038].

        One draw, or one example, says nothing about others: the interval is the whole range.
        """
        if not 0 < level < 1:
            raise ValueError(f"level must lie strictly between 0 and 1; got {level}")
        table = self.per_example_draw
        if min(table.shape) < 2:
            return self.bounds
        if self.bounds == (0.0, 1.0):
            ends = np.repeat([[0.0], [1.0]], table.shape[1], axis=1)
            table = np.concatenate([table, ends])
        variance, dof = _two_way(table)
        t, mean = float(stdtrit(dof, (1 + level) / 2)), self.mean
        if self.bounds == (0.0, 1.0):
            p = float(table.mean())
            return _wilson(mean, t**2 * variance / (p * (1 - p)))
        error = t * math.sqrt(variance)
        if self.bounds[0] == 0 and mean > 0:
            with np.errstate(over="ignore"):
                factor = float(np.exp(error / mean))
            return mean / factor, mean * factor
        return mean - error, mean + error

    def half_width(self, level: float = 0.95) -> float:
        """Half the length of `ci(level)`."""
        low, high = self.ci(level)
        return (high - low) / 2

    def __str__(self) -> str:
        low, high = self.ci()
        # The interval is lopsided: its longer side, or ± would promise too much.
        error = max(self.mean - low, high - self.mean)
        if not 0 < error < math.inf:
            return f"{self.mean:.4g} ± {error:.2g}"
        digits = max(0, 1 - math.floor(math.log10(error)))
        return f"{self.mean:.{digits}f} ± {error:.{digits}f}"

    __repr__ = __str__

    def summary(self) -> dict[str, float | None]:
        """Mean, standard error and 95 % interval."""
        low, high = self.ci()
        numbers = {"mean": self.mean, "stderr": self.stderr, "low": low, "high": high}
        return {name: finite_or_none(number) for name, number in numbers.items()}


@dataclass(frozen=True)
class SharpnessProvenance:
    """How a measurement was made: enough to make it again.

    Attributes:
      num_weights: p, the numbers that the noise moved; Gaussian noise has norm about σ√p.
      perturbed_apply_fn: the name of the function that made the perturbed pass, if not `apply_fn`.
      num_passes: forward passes, clean ones included.
      perturbed_batch: examples that it got at a time; None without it.
    """

    perturbation: str
    num_weights: int
    perturbed_apply_fn: str | None
    seed: tuple[int, ...]
    precision: str
    device: str
    num_devices: int
    seconds: float
    num_passes: int
    perturbed_batch: int | None = None


@dataclass(frozen=True, eq=False)
class SharpnessEstimate:
    """E_x E_θ' Δ(f_θ(x), f_θ'(x)) for several Δ, estimated from the same perturbed passes.

    Attributes:
      flips: 1[pred differs], the papers' ShPred.
      l1: Σ_c |f_θ'(x)_c - f_θ(x)_c|, the papers' ShOp.
      squared: Σ_c (f_θ'(x)_c - f_θ(x)_c)², average-direction sharpness.
      loss: cross-entropy of f_θ'(x) minus that of f_θ(x); None without labels.
      provenance: how it was made.
    """

    flips: Change
    l1: Change
    squared: Change
    loss: Change | None
    provenance: SharpnessProvenance

    @property
    def changes(self) -> dict[str, Change]:
        """The measured kinds of change by name."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: change for name, change in named.items() if isinstance(change, Change)}

    @property
    def num_examples(self) -> int:
        """n: the examples."""
        return self.flips.per_example_draw.shape[0]

    @property
    def num_draws(self) -> int:
        """S: the draws of the weights."""
        return self.flips.per_example_draw.shape[1]

    def merge(self, other: "SharpnessEstimate") -> "SharpnessEstimate":
        """The estimate over the examples of both, which must be disjoint: shards of a data set.

        Both must have the same noise on the weights: the same key, number of draws and mask.
        """
        if not isinstance(other, SharpnessEstimate):
            raise ValueError(f"merge takes another SharpnessEstimate; got {one_line(other)}")
        mine, theirs = self._noise, other._noise
        for field, value in mine.items():
            if value != theirs[field]:
                raise ValueError(
                    f"cannot merge estimates with {field}={value!r} and {theirs[field]!r}"
                )
        tables = {
            name: np.concatenate([change.per_example_draw, other.changes[name].per_example_draw])
            for name, change in self.changes.items()
        }
        a, b = self.provenance, other.provenance
        both = replace(a, seconds=a.seconds + b.seconds, num_passes=a.num_passes + b.num_passes)
        return SharpnessEstimate.of(tables, both)

    @property
    def _noise(self) -> dict[str, Any]:
        """What estimates must share to be about the same perturbed models."""
        fields = ("perturbation", "num_weights", "perturbed_apply_fn", "perturbed_batch", "seed")
        named = {field: getattr(self.provenance, field) for field in (*fields, "precision")}
        return named | {"num_draws": self.num_draws, "changes": tuple(self.changes)}

    def __str__(self) -> str:
        shown = ", ".join(f"{name} {change}" for name, change in self.changes.items())
        return f"sharpness: {shown} (95 % CI, n={self.num_examples}, S={self.num_draws})"

    __repr__ = __str__

    def summary(self) -> dict[str, Any]:
        """The numbers of one line of a log."""
        sizes = {"num_examples": self.num_examples, "num_draws": self.num_draws}
        return {name: change.summary() for name, change in self.changes.items()} | sizes

    def to_json(self) -> str:
        """Everything, exactly; `from_json` gives it back."""
        tables = {name: pack(change.per_example_draw) for name, change in self.changes.items()}
        return json.dumps(
            {
                "summary": self.summary(),
                "provenance": asdict(self.provenance),
                "per_example_draw": tables,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> "SharpnessEstimate":
        """The estimate that `to_json` wrote; ValueError for a file that is damaged or another."""
        with reading():
            record = record_of(text)
            packed = record["per_example_draw"]
            tables = {name: unpack(table, "f") for name, table in packed.items()}
            once = np.ones(tables["flips"].shape, int)
            for name, table in tables.items():
                check_table(table, once, BOUNDS[name])
            provenance = fields_of(SharpnessProvenance, record["provenance"])
            estimate = cls.of(tables, SharpnessProvenance(**provenance))
            means = {name: {"mean": change.mean} for name, change in estimate.changes.items()}
            sizes = {"num_examples": estimate.num_examples, "num_draws": estimate.num_draws}
            check_summary(record["summary"], means | sizes)
        return estimate

    @classmethod
    def of(
        cls, tables: dict[str, np.ndarray], provenance: SharpnessProvenance
    ) -> "SharpnessEstimate":
        """The estimate with these (n, S) tables of changes by name; "loss" may be missing."""
        changes = {name: Change(table, BOUNDS[name]) for name, table in tables.items()}
        return cls(
            flips=changes["flips"],
            l1=changes["l1"],
            squared=changes["squared"],
            loss=changes.get("loss"),
            provenance=provenance,
        )


def _two_way(table: Float[np.ndarray, "n S"]) -> tuple[float, float]:
    """Variance of the mean of a table of examples × draws, and its degrees of freedom."""
    n, S = table.shape
    if n < 2 or S < 2:
        return math.nan, math.nan
    rows, columns = (table.mean(axis=axis, dtype=np.float64) for axis in (1, 0))
    residual = table - rows[:, None] - columns[None, :] + rows.mean()
    dofs = np.array([n - 1, S - 1, (n - 1) * (S - 1)])
    v_x, v_w = rows.var(ddof=1) / n, columns.var(ddof=1) / S
    v_xw = np.square(residual).sum() / dofs[2] / (n * S)
    variance = float(max(v_x + v_w - v_xw, v_x, v_w, v_xw))
    fewest = float(min(n, S) - 1)
    if variance == 0:
        return 0.0, fewest
    dof = variance**2 / float(np.sum(np.square([v_x, v_w, v_xw]) / dofs))
    return variance, max(dof, fewest)


def _wilson(p: float, k: float) -> tuple[float, float]:
    """The score interval of a proportion, with k = t²/(number of independent draws)."""
    centre = (p + k / 2) / (1 + k)
    half = math.sqrt(k * p * (1 - p) + k**2 / 4) / (1 + k)
    # Rounding may put the ends a hair beyond the mean or the bounds.
    return min(max(centre - half, 0.0), p), max(min(centre + half, 1.0), p)
