"""Is one model more sensitive than another? The paired difference of two estimates.

Two models measured on the same examples are compared example by example, so that how hard an
example is for both of them cancels. The interval is that of the mean difference

    mean_a - mean_b = (1/n) Σ_i (a_i - b_i).

Assumption: row i of both estimates is the same example. An estimate does not say which examples it
is of, so this cannot be checked.
"""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from jaxtyping import Float

from jaxsens.core.intervals import (
    Bounds,
    Interval,
    difference_bounds,
    mean_interval,
    two_way_interval,
)
from jaxsens.measurement.estimate import SensitivityEstimate
from jaxsens.measurement.notes import FEW_SENSITIVE
from jaxsens.measurement.sharpness_estimate import Change

Measured = TypeVar("Measured", SensitivityEstimate, Change)


@dataclass(frozen=True, eq=False)
class Difference:
    """One estimate minus another on the same examples.

    Attributes:
      values: (n,) the difference for each example or, for sharpness, (n, S) under each draw of the
        weights.
      bounds: the range of a difference, (-1, 1) for flips.

    >>> difference = Difference(np.array([0.5, 0.0, 0.25, 0.0]), (-1.0, 1.0))
    >>> difference
    difference 0.1875 (95 % CI -0.1775 to 0.8255, n=4), few examples differ (2)
    >>> difference.num_differing
    2
    """

    values: Float[np.ndarray, "n ..."]
    bounds: Bounds

    @property
    def per_example(self) -> Float[np.ndarray, " n"]:
        """(n,) the difference for each example, averaged over draws for sharpness."""
        return self.values.reshape(len(self.values), -1).mean(axis=1, dtype=np.float64)

    @property
    def mean(self) -> float:
        """The first mean minus the second."""
        return self.interval().mean

    @property
    def num_differing(self) -> int:
        """Examples for which the two differ at all."""
        return int(self.values.reshape(len(self.values), -1).any(axis=1).sum())

    def interval(self, level: float = 0.95) -> Interval:
        """(mean, low, high), clustered by example, and by draw of the weights for sharpness."""
        if self.values.ndim == 2:
            return two_way_interval(self.values, self.bounds, level)
        return mean_interval(self.values, self.bounds, level)

    def ci(self, level: float = 0.95) -> tuple[float, float]:
        """Confidence interval at this level; where it excludes 0, one mean is larger."""
        return self.interval(level).ends

    def __str__(self) -> str:
        (mean, low, high), n = self.interval(), len(self.values)
        few = 0 < self.num_differing < min(FEW_SENSITIVE, n)
        return f"difference {mean:.4f} (95 % CI {low:.4f} to {high:.4f}, n={n})" + (
            f", few examples differ ({self.num_differing})" if few else ""
        )

    __repr__ = __str__


def compare(a: Measured, b: Measured) -> Difference:
    """The paired difference of two estimates on the same examples, with its confidence interval.

        mean_a - mean_b = (1/n) Σ_i (a_i - b_i)

    Args:
      a: a `SensitivityEstimate`, or one kind of change of a `SharpnessEstimate` (`.flips`, …).
      b: an estimate of the same kind and metric on the same examples in the same order, of another
        model or by another perturbation. For sharpness, key, number of draws and noise must be the
        same too.

    Returns:
      The difference: `.mean`, `.ci(level)` and `.per_example` (n,).

    Raises:
      ValueError: the two have different metrics, sizes or measured examples.
      TypeError: these are not two estimates of one kind.

    >>> import jax, jaxsens
    >>> x = np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32)
    >>> noise = jaxsens.Perturbation(jaxsens.Bits(), jaxsens.Gaussian(sigma=1.0))
    >>> def linear(w, x): return x @ w
    >>> total, first = np.ones(8, np.float32), np.eye(8, dtype=np.float32)[0]
    >>> key = jax.random.key(1)
    >>> one, other = (jaxsens.sensitivity(linear, w, x, noise, 5, key=key) for w in (total, first))
    >>> jaxsens.compare(one, other)
    difference 0.0... (95 % CI 0.0... to 0.0..., n=300)
    """
    if isinstance(a, SensitivityEstimate) and isinstance(b, SensitivityEstimate):
        _check_same("metric", a.provenance.metric, b.provenance.metric)
        values = a.per_example, b.per_example
    elif isinstance(a, Change) and isinstance(b, Change):
        _check_same("S", *(change.per_example_draw.shape[1] for change in (a, b)))
        values = a.per_example_draw, b.per_example_draw
    else:
        raise TypeError(
            "compare takes two SensitivityEstimates, or two changes of SharpnessEstimates such as "
            f"a.flips and b.flips; got {type(a).__name__} and {type(b).__name__}"
        )
    _check_same("bounds", a.bounds, b.bounds)
    _check_same("n", *map(len, values))
    there = [~np.isnan(v) for v in values]
    if not np.array_equal(*there):
        raise ValueError(
            f"cannot compare estimates of different examples: {there[0].sum()} measured in one, "
            f"{there[1].sum()} in the other, {(there[0] & there[1]).sum()} in both; "
            "measure both with positions='all', or with the same mask and key"
        )
    difference = values[0] - values[1]
    if difference.ndim == 1:
        difference = difference[there[0]]
    return Difference(difference, difference_bounds(a.bounds))


def changed_draws(a: SensitivityEstimate, b: SensitivityEstimate) -> int:
    """How many draws came out differently in two measurements that made the same draws.

        Σ_i Σ_τ | totals_a(i, τ) - totals_b(i, τ) |

    For one model at two precisions, say: `precision="default"` rounds more than "highest" does, and
    decides other near-ties. Draws of one cell that changed in both directions cancel, so that it is
    the least number, and exact with one sample per position.

    Args:
      a: label flips, measured with some key.
      b: with the same key, perturbation and samples, of the same examples.

    Raises:
      ValueError: the two did not make the same draws, or did not count flips.

    >>> import jax, jaxsens
    >>> x = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    >>> noise = jaxsens.Perturbation(jaxsens.Bits(), jaxsens.Gaussian(sigma=1.0))
    >>> def linear(w, x): return x @ w
    >>> w, key = np.ones(8, np.float32), jax.random.key(1)
    >>> full, fast = (jaxsens.sensitivity(linear, w, x, noise, 5, key=key, precision=precision)
    ...               for precision in ("highest", "default"))
    >>> jaxsens.changed_draws(full, fast)  # a CPU has one precision
    0
    """
    for name in ("metric", "perturbation", "num_samples", "exact", "seed", "positions"):
        _check_same(name, getattr(a.provenance, name), getattr(b.provenance, name))
    if a.provenance.metric != "label_flip":
        raise ValueError(
            f"changed_draws counts flips: metric must be 'label_flip'; got {a.provenance.metric!r}"
        )
    if not np.array_equal(a.counts, b.counts):
        raise ValueError(
            f"cannot count changed draws of different draws: {a.num_draws} in one, {b.num_draws} "
            "in the other; measure both with positions='all' on the same examples"
        )
    return round(float(np.abs(a.totals - b.totals).sum()))


def _check_same(name: str, mine: object, theirs: object) -> None:
    if mine != theirs:
        raise ValueError(
            f"cannot compare estimates with {name}={mine!r} and {name}={theirs!r}; "
            "measure both on the same examples in the same way"
        )
