"""The mean of independent values between known bounds, most of which may be alike.

Sensitivities v_1 … v_n of examples are such values: most examples never flip, a few flip often, and
the few decide the mean. An interval from the spread that was seen is then too narrow, as too few of
the few were seen. So each end asks how far the mean μ may be from the mean m that was seen, while
the error m - μ stays within t standard errors *at μ*, where the variance of a value is larger than
the variance s² that was seen, because what is missing in m comes in few large pieces:

    upper end  m + h,  the largest h with  h² ≤ t² V(h)/(n - 1),  V(h) = min(s² + b h, V_bound(h)).

* b, the size of the pieces, is third over second central moment (1 for rare flips of one draw, 0
  for symmetric values, as skewness-corrected intervals have it) plus r·max |d_i| with

      r = 22 (1/(K - 1) - 5/(2n))²₊ + 10 (1 - q)(1/K - 9/n)₊,
      K = (Σ d_i²)²/Σ d_i⁴,    q = (Σ d_i³/Σ d_i²)/max |d_i|,    d_i = v_i - m.

  K counts the examples that make the variance: n/3 for normal values, n/9 for exponential ones,
  near 1 if one example makes all of it. With few, values much larger than those seen may be
  missing. So they may with more, if n/K, the kurtosis, is above 9 and the pieces are uneven (q is 1
  if all are alike): the second part.
* V_bound is the variance if all that is missing were values at the bound, the worst case: the share
  ε = h/(upper - m) of the examples there and the others as they were seen.

With values 0 and 1 it is V_bound that counts, and the interval is Wilson's. The lower end is the
upper one of the values mirrored.

Rare flips are larger than their mean, and b < 0 for the lower end, which is nearer than the upper.
It is less near if there are pieces on both sides, as in a difference of two models, where the third
moment knows little of the sign of the next piece. And as few pieces come in steps, it lies farther
out by max(β/2, min(4β, 1/4)) of a piece, β = (1/K - 1/10)₊, which for rare flips of one draw is
between the score interval and the exact one.

The form follows from the model; the numbers in it were found by simulation. What holds, of 0.95, in
3,654 cells of means from 0.0005 to 0.5, 10 to 3000 examples and 8 to 2450 draws of each (200 to
2,000 data sets a cell, 4,000 in doubt: tests/core/simulation.py, tests/core/coverage.json):

* Tails that the numbers were found on (all alike, beta, two-point): 0.94 in every cell.
* Other tails, where n E(v)²/E(v²), the number of examples that make the mean, is 10 or more: 0.93,
  but 0.90 for Pareto rates of index 1.5, which have no variance. (Among several forms this one was
  chosen with lognormal and Pareto rates in sight; the numbers are from fresh draws.)
* Other tails with fewer: at n = 10 lognormal rates of σ = 1 have 0.93, of σ = 2 0.85, Pareto rates
  of index 2.5 0.91, of index 1.5 0.82; at n = 100 they have 0.95, 0.94, 0.95 and 0.89. Samples that
  miss look like any others there: large values are what they lack.
* Half of the mean from a share s of the examples while all others flip as well: 0.03 to 0.66 where
  n s ≤ 1, 0.93 from n s = 3 on. Who was never drawn is in no interval, nor can an estimate say so.
* Data sets of which the estimate does not say "few sensitive examples" (1 to 4 that flip): 0.92
  where they are the most. Where they are the few, they are those with many sensitive examples by
  luck, and no interval of level 0.95 can hold 0.93 of them; but of all data sets at most 0.06 miss
  without these words, on the first tails.
* Length where flips are common (mean ≥ 0.05, n ≥ 300): 1.01 of Wilson's, 1.08 at most.

Assumption: values much larger than those that were seen are rare enough not to matter. That one
example in 10 n differs from all n that were seen can never be ruled out.
"""

import numpy as np
from jaxtyping import Float

from jaxsens.core.intervals.basics import REAL_LINE, Bounds, Interval, student_interval, student_t

#: The two numbers in r.
_REACH, _REACH_UNEVEN = 22.0, 10.0
#: Largest deviations from the mean to a bound beyond which the bound does not matter.
_FAR = 1e100
#: Values no further apart than this share of the bounds' distance are the same.
_SAME = 1e-14


def mean_interval(
    values: Float[np.ndarray, " n"], bounds: Bounds = REAL_LINE, level: float = 0.95
) -> Interval:
    """Mean of independent values in `bounds`, with its confidence interval.

    Values without two finite bounds get Student's interval. Equal values have no error, unless they
    say that nothing happened: where all are 0 or on a bound, or there are two at the most, each
    counts as one draw of yes or no.

    >>> low, high = mean_interval(np.zeros(1000), (0.0, 1.0)).ends  # no flip in 1000 examples
    >>> low, round(high, 4)
    (0.0, 0.0038)
    >>> one = np.append(np.zeros(99), 1 / 400)  # one flip in 400 draws of one of 100 examples
    >>> round(mean_interval(one, (0.0, 1.0)).high, 3)
    0.038
    """
    if not np.isfinite(bounds).all():
        return student_interval(values, bounds, level)
    mean, low, high = bounded_intervals(np.asarray(values, np.float64)[None], bounds, level)
    return Interval(float(mean[0]), float(low[0]), float(high[0]))


def bounded_intervals(
    values: Float[np.ndarray, "m n"], bounds: Bounds, level: float
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """Mean, low and high of each row."""
    n = values.shape[1]
    # Within rounding: what a shift of all values makes of them is the same as well.
    width = bounds[1] - bounds[0]
    same = (np.abs(values - values[:, :1]) <= _SAME * width).all(axis=1)
    # The mean of equal values is one of them, whatever rounding makes of it.
    mean = np.clip(values.mean(axis=1), values.min(axis=1), values.max(axis=1)).clip(*bounds)
    k = student_t(max(n - 1, 1), level) ** 2 / max(n - 1, 1)
    above = distance_to_end(values - mean[:, None], bounds[1] - mean, k)
    below = distance_to_end(mean[:, None] - values, mean - bounds[0], k)
    # Nothing happened: no spread to go by.
    nothing = np.abs(mean[:, None] - np.array([0.0, *bounds])).min(axis=1) <= _SAME * width
    still = nothing | (n <= 2)
    alone = still & same
    one_each = k / (1 + k)
    above = np.where(alone, one_each * (bounds[1] - mean), above)
    below = np.where(alone, one_each * (mean - bounds[0]), below)
    # Rounding may put the ends a hair beyond the bounds.
    return mean, np.clip(mean - below, *bounds), np.clip(mean + above, *bounds)


def distance_to_end(
    d: Float[np.ndarray, "m n"], room: Float[np.ndarray, " m"], k: float, *, reaching: bool = True
) -> Float[np.ndarray, " m"]:
    """From the mean to the upper end, for deviations d from it, `room` below the bound.

    Without `reaching`, r = 0: values much larger than those that were seen are left out.
    """
    n = d.shape[1]
    if n == 1:
        return room
    scale = np.abs(d).max(axis=1)
    spread = scale > 0
    # All in units of the largest deviation: fourth powers neither vanish nor overflow.
    unit = np.where(spread, scale, 1.0)
    with np.errstate(over="ignore"):
        d, room = d / unit[:, None], np.minimum(room / unit, _FAR)
    squares = d * d
    second, third, fourth = (power.sum(axis=1) for power in (squares, squares * d, squares**2))
    num_deciding = np.where(spread, second, n) ** 2 / np.where(spread, fourth, n)
    piece = third / np.where(spread, second, 1.0)
    # One value that differs by a rounding error alone has num_deciding = 1.
    others = np.maximum(num_deciding - 1, 1 / n)
    few = _REACH * np.square(np.maximum(1 / others - 2.5 / n, 0.0))
    uneven = _REACH_UNEVEN * (1 - np.clip(piece, 0.0, 1.0))
    reach = few + uneven * np.maximum(1 / num_deciding - 9 / n, 0.0)
    on_this_side = np.where(d > 0, squares, 0.0).sum(axis=1) / np.where(spread, second, 1.0)
    shorter = np.minimum(piece, 0.0) * np.maximum(1 - 1.5 * on_this_side, 0.0)
    b = np.maximum(piece, 0.0) + shorter + (reach if reaching else 0.0)
    variance = second / n
    # (1 - ε)(s² + ε room²) = s² + (room - s²/room) h - h².
    lost = np.divide(variance, room, out=np.zeros_like(room), where=room > 0)
    h = np.minimum(_root(k, variance, b, 0.0), _root(k, variance, room - lost, 1.0))
    beyond = np.maximum(1 / num_deciding - 0.1, 0.0)
    step = np.maximum(-piece, 0.0) * np.maximum(beyond / 2, np.minimum(4 * beyond, 0.25)) / n
    # What was seen once is there: the end keeps away from the bound.
    return scale * (np.minimum(h, room) + np.minimum(step, 0.85 * np.maximum(room - h, 0.0)))


def _root(
    k: float, variance: Float[np.ndarray, " m"], b: Float[np.ndarray, " m"], c: float
) -> Float[np.ndarray, " m"]:
    """The positive h with h² = k (s² + b h - c h²)."""
    half = k * b / 2
    return (half + np.sqrt((1 + k * c) * k * variance + half**2)) / (1 + k * c)
