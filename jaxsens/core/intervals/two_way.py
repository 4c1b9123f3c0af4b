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

That is symmetric. Where changes have a bound, few examples or draws may make the mean, and what is
missing comes in large pieces. So an end is no nearer than

    √(h_x² + h_w² - t²V_xw)    and each of h_x, h_w,

h_x the distance to that end of the interval of the n row means alone, h_w of the S column means
(`jaxsens.core.intervals.means`, the latter with r = 0: a few draws say too little of their tail),
each of which counts V_xw once.

Coverage of 0.95 (tests/core/coverage.json), S = 2 to 10 draws, whose rates differ by factors: flips
have 0.94 with factors that are equal, uniform in 1 ± 0.9, lognormal with σ = 0.5 or exponential,
and 0.90 with σ = 1. Changes without an upper bound have 0.93 and 0.90; 0.91 where 30 examples are
lognormal with σ = 2. Misses are on the low side. A draw in ten that makes half of the mean leaves
0.3 to 0.9.

Assumption: examples and draws are independent, and no draw is far worse than the others. A
catastrophe that strikes one draw in ten stays unseen in 5 draws with probability 0.59, and no
interval made of those 5 draws knows of it.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit

from jaxsens.core.intervals.basics import Bounds, Interval, check_level, student_t, unit_of
from jaxsens.core.intervals.means import distance_to_end


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
    if min(table.shape) < 2:
        return TwoWayVariance(math.nan, math.nan, math.nan)
    unit = unit_of(table)
    parts = _Parts.of(table[None] / unit)
    total, columns = (float(v[0]) * unit * unit for v in (parts.total, parts.v_w))
    return TwoWayVariance(total, float(parts.dof[0]), columns)


class _Parts(NamedTuple):
    """What makes the variance of each of m tables.

    Attributes:
      rows: their means.
      columns: their means.
      v_x: variance of the mean by rows.
      v_w: by columns.
      v_xw: by what neither explains.
    """

    rows: Float[np.ndarray, "m n"]
    columns: Float[np.ndarray, "m S"]
    v_x: Float[np.ndarray, " m"]
    v_w: Float[np.ndarray, " m"]
    v_xw: Float[np.ndarray, " m"]

    @classmethod
    def of(cls, tables: Float[np.ndarray, "m n S"]) -> "_Parts":
        _, n, S = tables.shape
        rows, columns = (tables.mean(axis=axis, dtype=np.float64) for axis in (2, 1))
        means = rows.mean(axis=1)
        residual = tables - rows[:, :, None] - columns[:, None, :] + means[:, None, None]
        v_x, v_w = rows.var(axis=1, ddof=1) / n, columns.var(axis=1, ddof=1) / S
        v_xw = np.square(residual).sum(axis=(1, 2)) / ((n - 1) * (S - 1)) / (n * S)
        return cls(rows, columns, v_x, v_w, v_xw)

    @property
    def num(self) -> tuple[int, int]:
        return self.rows.shape[1], self.columns.shape[1]

    @property
    def total(self) -> Float[np.ndarray, " m"]:
        largest = np.maximum(np.maximum(self.v_x, self.v_w), self.v_xw)
        return np.maximum(self.v_x + self.v_w - self.v_xw, largest)

    @property
    def dof(self) -> Float[np.ndarray, " m"]:
        n, S = self.num
        spread, fewest = self.total > 0, float(min(n, S) - 1)
        # Relative to the total: its square may vanish.
        shares = np.stack([self.v_x, self.v_w, self.v_xw], axis=1)
        shares = shares / np.where(spread, self.total, 1.0)[:, None]
        inverse = (np.square(shares) / [n - 1, S - 1, (n - 1) * (S - 1)]).sum(axis=1)
        return np.maximum(1 / np.where(spread, inverse, 1 / fewest), fewest)

    def error(self, level: float) -> Float[np.ndarray, " m"]:
        """max(t(dof)·stderr, t(S - 1)·√V_w)."""
        of_draws = student_t(self.num[1] - 1, level) * np.sqrt(self.v_w)
        return np.maximum(stdtrit(self.dof, (1 + level) / 2) * np.sqrt(self.total), of_draws)

    def distance(
        self, sign: int, room: Float[np.ndarray, " m"], level: float
    ) -> Float[np.ndarray, " m"]:
        """√(h_x² + h_w² - t²V_xw) to the upper end (sign 1) or to the lower (-1)."""
        n, S = self.num
        mean = self.rows.mean(axis=1)[:, None]
        k_x, k_w = (student_t(num - 1, level) ** 2 / (num - 1) for num in (n, S))
        h_x = distance_to_end(sign * (self.rows - mean), room, k_x)
        h_w = distance_to_end(sign * (self.columns - mean), room, k_w, reaching=False)
        in_both = student_t((n - 1) * (S - 1), level) ** 2 * self.v_xw
        return np.sqrt(np.maximum(h_x**2 + h_w**2 - in_both, np.maximum(h_x, h_w) ** 2))


def two_way_interval(
    table: Float[np.ndarray, "n S"], bounds: Bounds, level: float = 0.95
) -> Interval:
    """Mean of a table of examples × draws, with its confidence interval inside `bounds`.

    Without bounds it is mean ± error. Changes that are never negative are skewed to the right and
    have mean · exp(± error/mean) at the least. Changes with two bounds have at the least the Wilson
    score interval with the effective number of independent draws p(1-p)·t²/error² (p the mean,
    rescaled to the bounds). That number is found with two imagined examples added, one on either
    bound under every draw: a few examples that seldom flip would look like many independent draws,
    and no flip at all like none. So 0 flips of 1000 examples give [0, 0.0038].

    One draw, or one example, says nothing about others: the interval is the whole range.
    """
    mean = float(table.mean(axis=0, dtype=np.float64).mean())
    check_level(level)
    if min(table.shape) < 2:
        return Interval(mean, *bounds)
    low, high = two_way_ends(table[None], bounds, level)
    return Interval(mean, min(float(low[0]), mean), max(float(high[0]), mean))


def two_way_ends(
    tables: Float[np.ndarray, "m n S"], bounds: Bounds, level: float
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """Low and high of each table; of at least two rows and two columns."""
    unit = unit_of(np.array(bounds) if np.isfinite(bounds).all() else tables)
    scaled, (lower, upper) = tables / unit, (bound / unit for bound in bounds)
    parts = _Parts.of(scaled)
    mean = parts.columns.mean(axis=1)
    error = parts.error(level)
    low, high = mean - error, mean + error
    if np.isfinite(bounds).all():
        low, high = _score_ends(scaled, (lower, upper), level)
    elif lower == 0:
        positive = mean > 0
        with np.errstate(over="ignore"):
            factor = np.exp(error / np.where(positive, mean, 1.0))
            low, high = (np.where(positive, v, mean) for v in (mean / factor, mean * factor))
    if math.isfinite(lower):
        low = np.minimum(low, mean - parts.distance(-1, mean - lower, level))
        high = np.maximum(high, mean + parts.distance(1, upper - mean, level))
        low, high = np.maximum(low, lower), np.minimum(high, upper)
    return low * unit, high * unit


def _score_ends(
    tables: Float[np.ndarray, "m n S"], bounds: Bounds, level: float
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """Wilson's interval of means between two bounds."""
    m, _, S = tables.shape
    lower, size = bounds[0], bounds[1] - bounds[0]
    shares = (tables - lower) / size
    imagined = np.broadcast_to(np.array([0.0, 1.0])[None, :, None], (m, 2, S))
    seen = np.concatenate([shares, imagined], axis=1)
    p, expected = (table.mean(axis=(1, 2), dtype=np.float64) for table in (shares, seen))
    # k = t²/(number of independent draws).
    k = np.square(_Parts.of(seen).error(level)) / (expected * (1 - expected))
    centre = (p + k / 2) / (1 + k)
    half = np.sqrt(k * np.maximum(p * (1 - p), 0.0) + k**2 / 4) / (1 + k)
    low, high = np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)
    return lower + size * low, lower + size * high
