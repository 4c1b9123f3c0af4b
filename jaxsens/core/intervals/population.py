"""The mean over a population of n examples that are all there are: a training set, a whole cube.

Of n examples, k were drawn, f = k/n; of each some draws of the noise. Two things make the error of
the mean of v_1 … v_k: which examples were drawn, and the noise. The examples that were drawn are no
source of error by themselves, so the variance is that of two-stage sampling (Cochran 1977, Sampling
Techniques, section 10.6):

    V = (1 - f) s²/k + f V_w,        s² = variance of v_i,   V_w = variance of the mean by noise.

s² has noise in it, and f V_w what that leaves out. With f → 0 it is the interval for the mean over
the distribution that examples came from; with f = 1 noise alone is left. Each side of the interval
combines those of the two extremes in the same way, h² = (1 - f) h_s² + f h_w², with h_s from
`means`, and h_w, where what is missing comes in pieces of w, the weight of one draw times its
range, from

    h_w² = t² (V_w + w h_w).

V_w = (1/k²) Σ_i Var(v_i). Where all positions were measured, noise is that within a cell, one
position of one example, with c ≥ 2 draws of mean u in the bounds [a, b]:

    Var(v_i) = Σ_cells (c/C_i)² (u - a)(b - u)/(c - 1),          C_i = Σ_cells c,

exact for changes of 0 and 1 and too large for others (Bhatia and Davis 2000). Where positions were
drawn, or the change is not bounded, it is the spread of the J_i cells of an example, in which the
differences between positions count as noise as well:

    Var(v_i) = Σ_cells c (u - v_i)²/((J_i - 1) C_i).

An example with one cell gets the mean of the others; if no example has two cells, V_w = s²/k, which
is too large. Where every replacement at every position was taken there is no noise: V_w = 0.

How often the intervals hold the truth is in tests/core/test_population.py, by simulation.

Assumption: examples were drawn at random from the n, all with the same probability.
"""

import math

import numpy as np
from jaxtyping import Float, Int

from jaxsens.core.intervals.basics import Bounds, Interval, student_t
from jaxsens.core.intervals.means import mean_interval


def noise_variance(
    totals: Float[np.ndarray, "k T"],
    counts: Int[np.ndarray, "k T"],
    bounds: Bounds,
    *,
    all_positions: bool,
) -> float:
    """V_w, the variance of the mean of v_1 … v_k by noise alone.

    >>> totals, counts = np.array([[1.0, 0.0], [3.0, 2.0]]), np.full((2, 2), 4)
    >>> noise_variance(totals, counts, (0.0, 1.0), all_positions=True)
    0.013020833333333332
    """
    k, draws = len(counts), counts.sum(axis=1)
    means = np.divide(totals, counts, out=np.zeros(totals.shape), where=counts > 0)
    if all_positions and np.isfinite(bounds).all() and counts[counts > 0].min() > 1:
        shares = np.square(counts / draws[:, None]) / np.maximum(counts - 1, 1)
        of_cells = shares * np.maximum((means - bounds[0]) * (bounds[1] - means), 0.0)
        return float(of_cells.sum()) / k**2
    values = totals.sum(axis=1) / draws
    cells = (counts > 0).sum(axis=1)
    several = cells > 1
    if not several.any():
        return float(values.var(ddof=1)) / k if k > 1 else math.inf
    spread = (counts * np.square(means - values[:, None])).sum(axis=1)
    per_draw = spread[several] / (cells[several] - 1)
    of_examples = np.full(k, per_draw.mean())
    of_examples[several] = per_draw
    return float((of_examples / draws).sum()) / k**2


def population_variance(
    totals: Float[np.ndarray, "n T"],
    counts: Int[np.ndarray, "n T"],
    bounds: Bounds,
    population_size: int,
    *,
    all_positions: bool,
    exact: bool,
) -> float:
    """V, the variance of the mean over a fixed population; the arguments are as below."""
    totals, counts = _drawn(totals, counts)
    noise = _noise(totals, counts, bounds, all_positions=all_positions, exact=exact)
    k = len(counts)
    share = min(k / population_size, 1.0)
    if share == 1 or k < 2:
        return noise if share == 1 else math.inf
    values = totals.sum(axis=1) / counts.sum(axis=1)
    return (1 - share) * float(values.var(ddof=1)) / k + share * noise


def population_interval(
    totals: Float[np.ndarray, "n T"],
    counts: Int[np.ndarray, "n T"],
    bounds: Bounds,
    population_size: int,
    level: float = 0.95,
    *,
    all_positions: bool,
    exact: bool,
) -> Interval:
    """The mean over a fixed population, with its confidence interval inside `bounds`.

    Args:
      totals: sums of the changes at each position of each example.
      counts: the number of draws there; an example without draws was not drawn.
      bounds: the range of a change.
      population_size: n, how many examples there are.
      level: the share of intervals that hold the truth.
      all_positions: whether all positions of the examples were measured; else they were drawn.
      exact: whether every replacement was taken once at each position that was measured.

    >>> totals, counts = np.array([[1.0, 0.0], [3.0, 2.0]]), np.full((2, 2), 4)
    >>> some = dict(bounds=(0.0, 1.0), population_size=2, all_positions=True)
    >>> population_interval(totals, counts, exact=True, **some)
    Interval(mean=0.375, low=0.375, high=0.375)
    >>> round(population_interval(totals, counts, exact=False, **some).high, 3)
    0.803
    """
    totals, counts = _drawn(totals, counts)
    k, draws = len(counts), counts.sum(axis=1)
    values = totals.sum(axis=1) / draws
    share = min(k / population_size, 1.0)
    mean, low, high = mean_interval(values, bounds, level)
    if exact and all_positions:
        of_noise = 0.0
    else:
        width = bounds[1] - bounds[0]
        piece = width * float((1 / draws).max()) / k if math.isfinite(width) else 0.0
        variance = _noise(totals, counts, bounds, all_positions=all_positions, exact=exact)
        t = student_t(_degrees(counts), level)
        half = t * t * piece / 2
        of_noise = half + math.sqrt(t * t * variance + half**2)
    below, above = (
        math.sqrt((1 - share) * side**2 + share * of_noise**2) if share < 1 else of_noise
        for side in (mean - low, high - mean)
    )
    return Interval(mean, max(bounds[0], mean - below), min(bounds[1], mean + above))


def _noise(totals, counts, bounds, *, all_positions: bool, exact: bool) -> float:
    if exact and all_positions:
        return 0.0
    return noise_variance(totals, counts, bounds, all_positions=all_positions)


def _degrees(counts: Int[np.ndarray, "k T"]) -> int:
    """Degrees of freedom of the noise: draws less examples, at least 1."""
    return max(int(counts.sum()) - len(counts), 1)


def _drawn(totals: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The examples that were drawn."""
    drawn = counts.any(axis=1)
    return totals[drawn], counts[drawn]
