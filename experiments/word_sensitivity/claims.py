"""Claims W1 to W6 of the experiment `word_sensitivity`: how S depends on the number of words.

A claim holds if the whole 95 % interval lies in the range that `paper` fixes. Where a claim is
about several cells, the one farthest out decides. Slopes are those of log S against log n, one for
each seed; their mean has Student's interval.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxsens.core.intervals import Interval, ratio_of_means, student_interval
from jaxsens.reporting.results import Claim

from . import paper
from .measuring import Row, best, of
from .paper import Within
from .texts import Gaussian

Measured = dict[str, Interval]


def inside(found: Interval, within: Within) -> bool:
    """Whether the interval lies in the range.

    >>> inside(Interval(1.0, 0.97, 1.03), (0.95, 1.05)), inside(Interval(1.0, 0.9, 1.1), (0.95, 2))
    (True, False)
    """
    return within[0] <= found.low and found.high <= within[1]


def slope(curves: Sequence[Row], measure: Callable[[Row], np.ndarray] = best) -> Interval:
    """Exponent of S, or of another measure, in n: mean over the seeds, with its interval."""
    num = min(len(measure(row)) for row in curves)
    x = np.log([row["n"] for row in curves])
    y = np.log([measure(row)[:num] for row in curves])
    return student_interval(np.polyfit(x, y, 1)[0])


def range_claim(
    statement: str,
    theirs: str,
    found: Measured,
    within: Within,
    num_seeds: int,
    **others: Any,
) -> Claim:
    """Whether all intervals lie in the range; the one that is farthest out decides."""

    def outside(interval: Interval) -> float:
        # Of ends that are infinite nothing is far.
        return max(within[0] - interval.low, interval.high - within[1])

    name = max(found, key=lambda each: outside(found[each]))
    decides = found[name]
    several = f" ({name}; {len(found)} of them)" if len(found) > 1 else ""
    return Claim(
        statement=statement,
        paper=theirs,
        measured=f"{decides.mean:.4g}{several}, 95 % interval {decides.low:.4g} to "
        f"{decides.high:.4g}; must lie in {shown(within)}",
        holds=all(inside(each, within) for each in found.values()),
        values={each: interval.mean for each, interval in found.items()} | others,
        decided_by=name,
        interval=decides.ends,
        num_seeds=num_seeds,
    )


def shown(within: Within) -> str:
    """The range in words.

    >>> shown((0.9, math.inf)), shown((-math.inf, -0.3)), shown((0.95, 1.05))
    ('[0.9, ∞)', '(−∞, -0.3]', '[0.95, 1.05]')
    """
    low = "(−∞" if math.isinf(within[0]) else f"[{within[0]:g}"
    high = "∞)" if math.isinf(within[1]) else f"{within[1]:g}]"
    return f"{low}, {high}"


def sensitivity_claims(rows: Sequence[Row]) -> list[Claim]:
    """W1 to W6, on independent rows."""
    rows = of(list(rows), texts=Gaussian().name)
    num_seeds = len(best(rows[0]))
    rf, raf, relu = (of(rows, map=name) for name in ("rf", "raf", "relu-raf"))
    widest = max(row["d"] for row in rows)
    raf_wide, relu_wide = of(raf, d=widest), of(relu, d=widest)
    over_relu = {row["n"]: _over(raf, row) for row in relu_wide}
    longest = max(row["n"] for row in rows)
    (rf_last,) = of(rf, d=widest, n=longest)
    at = f"d = {widest}, n = {longest}"
    return [
        range_claim(
            "W1: S of RF is (1 + √(d/k))/√n, for k = nd units",
            "O(1/√n); the constant is from the largest singular value of a block of V",
            {f"S over theory, {_place(row)}": constant(row) for row in rf},
            paper.CONSTANT,
            num_seeds,
        ),
        range_claim(
            "W2: S of RF falls like n^(−1/2), whatever the width d",
            "S = O(1/√n)",
            {f"slope, d = {d}": slope(of(rf, d=d)) for d in _widths(rf)},
            paper.RF_SLOPE,
            num_seeds,
        ),
        *_deep_claims(rows, num_seeds),
        range_claim(
            f"W4: S of softmax attention does not fall with n (d = {widest})",
            "S = Ω(1) where d is larger than n",
            {f"slope, d = {widest}": slope(raf_wide)},
            paper.RAF_SLOPE,
            num_seeds,
        ),
        range_claim(
            f"W4: S of softmax attention is above 1 at every n (d = {widest})",
            "S = Ω(1)",
            {f"S, {_place(row)}": student_interval(best(row)) for row in raf_wide},
            paper.RAF_LEVEL,
            num_seeds,
        ),
        range_claim(
            f"W5: S of ReLU attention falls with n (d = {widest})",
            "it is not Ω(1): no saturation",
            {f"slope, d = {widest}": slope(relu_wide)},
            paper.RELU_SLOPE,
            num_seeds,
        ),
        range_claim(
            f"W5: softmax attention is at least 2.5 times as sensitive as ReLU attention ({at})",
            "softmax above ReLU",
            {"ratio": over_relu[longest]},
            paper.SOFTMAX_OVER_RELU,
            num_seeds,
        ),
        range_claim(
            f"W5: ReLU attention is below softmax attention at every n (d = {widest})",
            "softmax above ReLU",
            {f"ratio, d = {widest}, n = {n}": ratio for n, ratio in over_relu.items()},
            paper.SOFTMAX_ABOVE_RELU,
            num_seeds,
        ),
        range_claim(
            f"W6: softmax attention is at least 10 times as sensitive as RF ({at})",
            "Ω(1) against O(1/√n)",
            {"ratio": _over(raf, rf_last)},
            paper.RAF_OVER_RF,
            num_seeds,
        ),
    ]


def _over(rows: Sequence[Row], other: Row) -> Interval:
    """S of a map over that of another at the same place, of as many seeds as both have."""
    (row,) = of(list(rows), d=other["d"], n=other["n"])
    num = min(len(best(row)), len(best(other)))
    return ratio_of_means(best(row)[:num], best(other)[:num])


def constant(row: Row) -> Interval:
    """S over the theory's, for RF."""
    n, d = row["n"], row["d"]
    return student_interval(best(row) / paper.theory(n, d, n * d))


def deep_curves(rows: Sequence[Row]) -> dict[tuple[str, int], list[Row]]:
    """The curves of DRF with at least two n, by label and width."""
    found: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        if row["map"].startswith("drf"):
            found.setdefault((row["label"], row["d"]), []).append(row)
    return {place: curve for place, curve in found.items() if len(curve) > 1}


def stuck_shares(row: Row) -> tuple[float, float]:
    """Share of random starts, and of the authors' single starts, that are stuck."""
    starts, reached = np.array(row["starts"]), np.array(row["released"])
    most = np.maximum(starts.max(axis=1), reached)
    return (
        float((starts < paper.STUCK * most[:, None]).mean()),
        float((reached < paper.STUCK * most).mean()),
    )


def _deep_claims(rows: Sequence[Row], num_seeds: int) -> list[Claim]:
    curves = deep_curves(rows)
    if not curves:
        return []
    slopes = {f"slope, {label}, d = {d}": slope(curve) for (label, d), curve in curves.items()}
    growth: Measured = {}
    for d in {d for _, d in curves}:
        ends = [curve[-1] for (_, width), curve in curves.items() if width == d]
        ratio = ratio_of_means(best(ends[-1]), best(ends[0]))
        growth[f"{ends[-1]['label']} over {ends[0]['label']}, {_place(ends[0])}"] = ratio
    return [
        range_claim(
            "W3: S of deep random features falls like n^(−1/2) at every depth",
            "the same order for every fixed L",
            slopes,
            paper.DRF_SLOPE,
            num_seeds,
        ),
        range_claim(
            "W3: its constant grows mildly with the depth",
            "a constant that depends on L",
            growth,
            paper.DRF_GROWTH,
            num_seeds,
        ),
    ]


def _place(row: Row) -> str:
    return f"d = {row['d']}, n = {row['n']}"


def _widths(rows: Sequence[Row]) -> list[int]:
    return sorted({row["d"] for row in rows})
