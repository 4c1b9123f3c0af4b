"""Differences and ratios of two means."""

import math

import numpy as np
from jaxtyping import Float

from jaxsens.core.intervals.basics import REAL_LINE, Bounds, Interval, student_t, unit_of
from jaxsens.core.intervals.means import mean_interval


def paired_difference(
    first: Float[np.ndarray, " n"],
    second: Float[np.ndarray, " n"],
    bounds: Bounds = REAL_LINE,
    level: float = 0.95,
) -> Interval:
    """mean(first) - mean(second) of the same n examples, whose values lie in `bounds`.

    Example by example, so that how hard an example is for both does not count.

    >>> flips = np.array([0.0, 0.0, 0.2, 0.6]), np.array([0.0, 0.1, 0.3, 0.5])
    >>> round(paired_difference(*flips, (0.0, 1.0)).mean, 3)
    -0.025
    """
    return mean_interval(first - second, difference_bounds(bounds), level)


def difference_bounds(bounds: Bounds) -> Bounds:
    """The range of a difference of two values in `bounds`.

    >>> difference_bounds((0.0, 1.0)), difference_bounds((0.0, math.inf))
    ((-1.0, 1.0), (-inf, inf))
    """
    reach = bounds[1] - bounds[0]
    return -reach, reach


def independent_difference(first: Interval, second: Interval) -> Interval:
    """The difference of two independent estimates, from the interval of each at the same level.

    Each end combines the sides that point to it (Zou & Donner 2008):
    low = m₁ - m₂ - √((m₁ - low₁)² + (high₂ - m₂)²).

    >>> independent_difference(Interval(5.0, 2.0, 6.0), Interval(1.0, 0.0, 5.0))
    Interval(mean=4.0, low=-1.0, high=5.414213562373095)
    """
    mean = first.mean - second.mean
    below = math.hypot(first.mean - first.low, second.high - second.mean)
    above = math.hypot(first.high - first.mean, second.mean - second.low)
    return Interval(mean, mean - below, mean + above)


def ratio_of_means(
    top: Float[np.ndarray, " n"], bottom: Float[np.ndarray, " n"], level: float = 0.95
) -> Interval:
    """mean(top) / mean(bottom) of the same n examples, with Fieller's interval.

    It holds the ratios ρ for which 0 is in Student's interval of mean(top - ρ·bottom). Where
    mean(bottom) may be 0 any ratio is possible, and the interval is the real line; where it is 0
    all is nan.

    >>> ratio_of_means(np.array([2.0, 4.0, 6.0]), np.array([1.0, 2.0, 3.0])).mean
    2.0
    """
    a, b = float(np.mean(top)), float(np.mean(bottom))
    if b == 0:
        return Interval(math.nan, math.nan, math.nan)
    if len(top) < 2:
        return Interval(a / b, *REAL_LINE)
    unit_a, unit_b = unit_of(top), unit_of(bottom)
    spread = np.cov(top / unit_a, bottom / unit_b) / len(top)
    (aa, ab), (_, bb) = student_t(len(top) - 1, level) ** 2 * spread
    m_a, m_b = a / unit_a, b / unit_b
    # (m_a - ρ m_b)² = aa - 2ρ ab + ρ² bb, a quadratic equation for the ends.
    square, linear, constant = m_b**2 - bb, m_a * m_b - ab, m_a**2 - aa
    if square <= 0:
        return Interval(a / b, *REAL_LINE)
    root = math.sqrt(max(linear**2 - square * constant, 0.0))
    low, high = ((linear + sign * root) / square * (unit_a / unit_b) for sign in (-1, 1))
    # Rounding may put the ends a hair beyond the ratio.
    return Interval(a / b, min(float(low), a / b), max(float(high), a / b))
