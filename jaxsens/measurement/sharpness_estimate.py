"""The result of a sharpness measurement: means with their error bars, and how it was made.

The changes d(i, s) of example i under draw s of the weights form an n × S table. All examples share
a draw, so standard errors are clustered by example and by draw (`jaxsens.core.intervals.two_way`).

Assumption: examples and draws are independent, and no single draw makes most of the mean.
"""

import json
import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxsens.core.intervals import Interval, two_way_interval, two_way_variance
from jaxsens.core.scalars import one_line
from jaxsens.measurement.notes import few_sensitive, finite_or_none
from jaxsens.measurement.packing import (
    check_summary,
    check_table,
    fields_of,
    pack,
    reading,
    record_of,
    unpack,
)

#: The kinds of change and the range of each, within which intervals stay.
BOUNDS = {
    "flips": (0.0, 1.0),
    "l1": (0.0, math.inf),
    "squared": (0.0, math.inf),
    "loss": (-math.inf, math.inf),
}


@dataclass(frozen=True, eq=False)
class Change:
    """The mean of one kind of change over examples and draws of the weights, estimated.

    Attributes:
      per_example_draw: (n, S) the change of each example under each draw.
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
        return math.sqrt(two_way_variance(self.per_example_draw).total)

    @property
    def dof(self) -> float:
        """Satterthwaite's degrees of freedom of `stderr`; nan for one example or draw."""
        return two_way_variance(self.per_example_draw).dof

    def ci(self, level: float = 0.95) -> tuple[float, float]:
        """(low, high), the confidence interval of the mean at this level, inside the bounds.

        Flips have a score interval; L1 and squared changes, which are skewed to the right, have one
        on the scale of their logarithm; the loss has Student's: see `two_way_interval`. A single
        draw, or a single example, says nothing about others: the interval is the whole range then.
        """
        return self._interval(level).ends

    def _interval(self, level: float = 0.95) -> Interval:
        return two_way_interval(self.per_example_draw, self.bounds, level)

    def half_width(self, level: float = 0.95) -> float:
        """Half the length of `ci(level)`."""
        return self._interval(level).half_width

    def __str__(self) -> str:
        # The interval is lopsided: its longer side, or ± would promise too much.
        error = self._interval().longer_side
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
      num_passes: forward passes: one for each example and draw, and one clean pass of each example
        for each block of draws that was in memory together.
      perturbed_batch: how many examples it got together; None without it.
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

    >>> import jax, jaxsens
    >>> line, weight, x = (lambda w, x: x * w), np.float32(3.0), np.array([1.0, 2.0], np.float32)
    >>> est = jaxsens.sharpness(line, weight, x, jaxsens.Sphere(0.5), 4, key=jax.random.key(0))
    >>> est.num_examples, est.num_draws, est.l1.mean, est.squared.mean
    (2, 4, 0.75, 0.625)
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
    def num_sensitive(self) -> int:
        """Examples whose prediction flipped under at least one draw."""
        return int(self.flips.per_example_draw.any(axis=1).sum())

    @property
    def num_draws(self) -> int:
        """S: the draws of the weights."""
        return self.flips.per_example_draw.shape[1]

    def merge(self, other: "SharpnessEstimate") -> "SharpnessEstimate":
        """The estimate over the examples of both, which must be disjoint parts of a dataset.

        Both must have the same noise on the weights: the same key, number of draws and mask.

        Raises:
          ValueError: the two do not have the same noise.
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
        """What two estimates must share to be of the same perturbed models."""
        fields = ("perturbation", "num_weights", "perturbed_apply_fn", "perturbed_batch", "seed")
        named = {field: getattr(self.provenance, field) for field in (*fields, "precision")}
        return named | {"num_draws": self.num_draws, "changes": tuple(self.changes)}

    def __str__(self) -> str:
        shown = ", ".join(f"{name} {change}" for name, change in self.changes.items())
        sizes = f"(95 % CI, n={self.num_examples}, S={self.num_draws})"
        return f"sharpness: {shown} {sizes}" + few_sensitive(self.num_sensitive, self.num_examples)

    __repr__ = __str__

    def summary(self) -> dict[str, Any]:
        """The numbers of one line of a log."""
        names = ("num_examples", "num_sensitive", "num_draws")
        sizes = {name: getattr(self, name) for name in names}
        return {name: change.summary() for name, change in self.changes.items()} | sizes

    def to_json(self) -> str:
        """The estimate as text, without any loss; `from_json` reads it back."""
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
        """The estimate that `to_json` wrote; ValueError if the text is damaged or another."""
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
