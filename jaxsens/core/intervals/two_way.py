"""The mean of a table whose rows and columns are both random.

Changes d(i, s) of example i under draw s of the weights form an n × S table in which every draw is
shared by all examples. Examples and draws are both random, so with

    V_x  = variance of the n row means / n,          E V_x  = σ_x²/n             + σ_xw²/(nS),
    V_w  = variance of the S column means / S,       E V_w  =           σ_w²/S   + σ_xw²/(nS),
    V_xw = variance of what neither explains / (nS), E V_xw =                      σ_xw²/(nS),

    mean = Σ_is d(i, s)/(nS),    stderr² = V_x + V_w - V_xw,    E stderr² = Var(mean),

which is the two-way clustered variance (Cameron, Gelbach & Miller 2011) of a table without gaps. It
is taken to be no smaller than any of the three, as its expectation is. The error of the mean is

    max(t(dof)·stderr, t(S - 1)·√V_w),    t(·) Student's quantile,

dof being Satterthwaite's degrees of freedom, near S - 1 where the draws dominate: with the papers'
S = 5 that is t = 2.8, and n cannot make up for it. Two or three draws that happen to agree would
make dof large; the second term is what they say by themselves.

Assumption: examples and draws are independent, and no draw is far worse than the others. A
catastrophe that strikes one draw in ten stays unseen in 5 draws with probability 0.59, and no
interval made of those 5 draws knows of it.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxsens.core.intervals.basics import Bounds, Interval, check_level, student_t


class TwoWayVariance(NamedTuple):
    """Of the mean of a table; nan for one row or one column.

    Attributes:
      total: V_x + V_w - V_xw, or the largest of them.
      dof: Satterthwaite's degrees of freedom.
      columns: V_w.
    """

    total: float
    dof: float
    columns: float


def two_way_variance(table: Float[np.ndarray, "n S"]) -> TwoWayVariance:
    """Variance of the mean of a table of examples × draws."""
    n, S = table.shape
    if n < 2 or S < 2:
        return TwoWayVariance(math.nan, math.nan, math.nan)
    rows, columns = (table.mean(axis=axis, dtype=np.float64) for axis in (1, 0))
    residual = table - rows[:, None] - columns[None, :] + rows.mean()
    dofs = np.array([n - 1, S - 1, (n - 1) * (S - 1)])
    v_x, v_w = rows.var(ddof=1) / n, columns.var(ddof=1) / S
    v_xw = np.square(residual).sum() / dofs[2] / (n * S)
    variance = float(max(v_x + v_w - v_xw, v_x, v_w, v_xw))
    fewest = float(min(n, S) - 1)
    if variance == 0:
        return TwoWayVariance(0.0, fewest, 0.0)
    dof = variance**2 / float(np.sum(np.square([v_x, v_w, v_xw]) / dofs))
    return TwoWayVariance(variance, max(dof, fewest), float(v_w))


def two_way_interval(
    table: Float[np.ndarray, "n S"], bounds: Bounds, level: float = 0.95
) -> Interval:
    """Mean of a table of examples × draws, with its confidence interval inside `bounds`.

    Without bounds it is mean ± error. Changes that are never negative are skewed to the right and
    have mean · exp(± error/mean). Changes with two bounds have the Wilson score interval with the
    effective number of independent draws p(1-p)·t²/error² (p the mean, rescaled to the bounds).
    That number is found with two imagined examples added, one on either bound under every draw: a
    few examples that seldom flip would look like many independent draws, and no flip at all like
    none. So 0 flips of 1000 examples give [0, 0.0038].

    One draw, or one example, says nothing about others: the interval is the whole range.
    """
    mean = float(table.mean(axis=0, dtype=np.float64).mean())
    check_level(level)
    if min(table.shape) < 2:
        return Interval(mean, *bounds)
    if np.isfinite(bounds).all():
        lower, size = bounds[0], bounds[1] - bounds[0]
        low, high = _score_ends((table - lower) / size, level)
        return Interval(mean, min(lower + size * low, mean), max(lower + size * high, mean))
    error = _error(table, level)
    if bounds[0] == 0 and mean > 0:
        with np.errstate(over="ignore"):
            factor = float(np.exp(error / mean))
        return Interval(mean, mean / factor, mean * factor)
    return Interval(mean, mean - error, mean + error)


def _error(table: Float[np.ndarray, "n S"], level: float) -> float:
    variance = two_way_variance(table)
    of_draws = student_t(table.shape[1] - 1, level) * math.sqrt(variance.columns)
    return max(student_t(variance.dof, level) * math.sqrt(variance.total), of_draws)


def _score_ends(shares: Float[np.ndarray, "n S"], level: float) -> tuple[float, float]:
    """Wilson's interval of a mean between 0 and 1."""
    imagined = np.repeat([[0.0], [1.0]], shares.shape[1], axis=1)
    seen = np.concatenate([shares, imagined])
    p, expected = float(shares.mean(dtype=np.float64)), float(seen.mean(dtype=np.float64))
    # k = t²/(number of independent draws).
    k = _error(seen, level) ** 2 / (expected * (1 - expected))
    centre = (p + k / 2) / (1 + k)
    half = math.sqrt(k * max(p * (1 - p), 0.0) + k**2 / 4) / (1 + k)
    return max(centre - half, 0.0), min(centre + half, 1.0)
