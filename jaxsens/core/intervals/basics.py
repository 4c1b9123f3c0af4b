"""What all intervals share: their form, the check of their level, Student's t."""

import math
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit

#: The smallest and the largest value that is possible.
Bounds = tuple[float, float]

Numbers = TypeVar("Numbers", float, np.ndarray)

REAL_LINE: Bounds = (-math.inf, math.inf)


class Interval(NamedTuple):
    """An estimate and the ends of its confidence interval, which holds the estimate."""

    mean: float
    low: float
    high: float

    @property
    def ends(self) -> tuple[float, float]:
        """(low, high)."""
        return self.low, self.high

    @property
    def half_width(self) -> float:
        """Half the length."""
        return (self.high - self.low) / 2

    @property
    def longer_side(self) -> float:
        """From the estimate to the farther end: what ± may promise of a lopsided interval."""
        return max(self.mean - self.low, self.high - self.mean)


def student_half_width(stderr: Numbers, dof: int | float, level: float = 0.95) -> Numbers:
    """t·stderr, half the length of Student's interval; one for each entry of an array.

    >>> round(student_half_width(1.0, dof=4), 3)
    2.776
    """
    return student_t(dof, level) * stderr


def student_t(dof: int | float, level: float) -> float:
    """The quantile that leaves (1 - level)/2 on either side."""
    check_level(level)
    return float(stdtrit(dof, (1 + level) / 2))


def check_level(level: float) -> None:
    """An error if it is no probability."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1; got {level}")


def student_interval(
    values: Float[np.ndarray, " n"], bounds: Bounds = REAL_LINE, level: float = 0.95
) -> Interval:
    """Mean ± t·std/√n, cut off at the bounds: for seeds, runs and unbounded changes.

    A single value has no interval: it is all of `bounds`.

    Assumption: values are near normal, or many. A heavy tail makes it too narrow, and no interval
    can know how far a tail goes that nothing bounds.

    >>> low, high = student_interval(np.array([1.0, 2.0, 3.0])).ends
    >>> round(low, 3), round(high, 3)
    (-0.484, 4.484)
    """
    n, mean, unit = len(values), float(np.mean(values, dtype=np.float64)), unit_of(values)
    t = student_t(max(n - 1, 1), level)
    std = unit * float(np.std(values / unit, ddof=1, dtype=np.float64)) if n > 1 else math.inf
    half = t * std / math.sqrt(n)
    return Interval(mean, max(bounds[0], mean - half), min(bounds[1], mean + half))


def unit_of(values: Float[np.ndarray, "..."]) -> float:
    """The power of two at the largest value, so that squares neither vanish nor overflow.

    To divide by it rounds nothing. It is 1 if all are 0, or one is not finite.

    >>> unit_of(np.array([0.0, -3.0])), unit_of(np.zeros(2)), unit_of(np.array([1e-200])) < 1e-200
    (2.0, 1.0, True)
    """
    largest = float(np.max(np.abs(values), initial=0.0))
    return math.ldexp(1.0, math.frexp(largest)[1] - 1) if 0 < largest < math.inf else 1.0


def bonferroni(level: float, num: int) -> float:
    """The level of each of `num` intervals that hold their truths together at `level`.

    >>> round(bonferroni(0.95, 10), 3)
    0.995
    """
    return 1 - (1 - level) / num
