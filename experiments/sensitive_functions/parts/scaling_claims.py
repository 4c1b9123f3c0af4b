"""Claims of the part `scaling`: H1, by criteria fixed beforehand (`paper.py`)."""

import math
from collections.abc import Sequence

import numpy as np
from scipy.stats import spearmanr

from jaxsens.core.intervals import REAL_LINE, Interval, independent_difference
from jaxsens.reporting.results import Claim

from ..._common.claims import number_or_none
from .. import paper
from ..config import Config
from ..functions import CONTROLS, LABELS, Function
from ..outcome import claim_ends, mean_over_seeds, plain_ends, text_of
from ..stages import Point
from ..training import json_lists

Points = Sequence[Point]

#: Where rank correlations lie.
_RANKS = (-1.0, 1.0)


def claims_of(points: Points, config: Config) -> list[Claim]:
    """All of H1 that these lengths can say."""
    kind = config.sharpness
    claims = [
        slope_claim(points, kind),
        slopes_claim(points, kind),
        rank_claim(points, kind),
        ratio_claim(points, kind),
        *control_claims(points, kind),
        learnt_claim(points),
    ]
    return [*claims, *paper_size_claims(points, kind)]


def slope_of(points: Points, function: Function, kind: str) -> Interval:
    """Growth of sharpness per bit: a least-squares line for each seed, and the mean over seeds.

    Runs that did not learn are left out; a seed with fewer than two others has no line.
    """
    by_seed: dict[int, list[tuple[int, float]]] = {}
    for point in points:
        for model in point.learnt if point.function == function else []:
            by_seed.setdefault(model.run.seed, []).append((point.n, model.sharpness(kind)))
    lines = [np.array(pairs).T for pairs in by_seed.values() if len(pairs) > 1]
    return mean_over_seeds([float(np.polyfit(n, sharp, 1)[0]) for n, sharp in lines])


def slope_claim(points: Points, kind: str) -> Claim:
    """PARITY alone."""
    slope = slope_of(points, "parity", kind)
    return Claim(
        statement="PARITY: sharpness rises with n",
        paper=str(paper.H1),
        measured=f"{text_of(slope, 4)} a bit, a line for each seed over the runs that learnt",
        holds=slope.low > 0,
        values={"slope of PARITY": number_or_none(slope.mean)},
        decided_by="slope of PARITY",
        interval=claim_ends(slope),
        num_seeds=_num_seeds(points, "parity"),
    )


def slopes_claim(points: Points, kind: str) -> Claim:
    """PARITY against each other function; the one that comes nearest decides."""
    slopes = {name: slope_of(points, name, kind) for name in ("parity", *CONTROLS)}
    parity = slopes.pop("parity")
    differences = {name: independent_difference(parity, each) for name, each in slopes.items()}
    # A function that no seed learnt at two lengths has no slope, and nothing to compare with.
    known = {name: each for name, each in differences.items() if not math.isnan(each.mean)}
    nearest = min(known, key=lambda name: known[name].low, default=None)
    difference = known[nearest] if nearest else Interval(math.nan, *REAL_LINE)
    texts = ", ".join(f"{LABELS[name]} {text_of(slope, 4)}" for name, slope in slopes.items())
    which = f"less {LABELS[nearest]}" if nearest else "less any of them"
    return Claim(
        statement="Sharpness rises faster for PARITY than for MAJORITY, FIRST and MEAN",
        paper=str(paper.H1),
        measured=f"a bit: PARITY {text_of(parity, 4)}, {texts}; PARITY {which} "
        f"{text_of(difference, 4)}",
        holds=len(known) == len(slopes) and difference.low > 0,
        values={
            "slope of PARITY": number_or_none(parity.mean),
            **{f"slope of {LABELS[name]}": number_or_none(s.mean) for name, s in slopes.items()},
            "difference to the nearest": number_or_none(difference.mean),
        },
        decided_by="difference to the nearest",
        interval=claim_ends(difference),
        num_seeds=_num_seeds(points, "parity"),
    )


def rank_claim(points: Points, kind: str) -> Claim:
    """Spearman's correlation of n and sharpness over single runs."""
    pairs = [
        (point.n, model.sharpness(kind))
        for point in points
        if point.function == "parity"
        for model in point.learnt
    ]
    value, of_seeds = (
        _rank_correlation(pairs),
        mean_over_seeds(_seed_correlations(points, kind), _RANKS),
    )
    return Claim(
        statement=f"PARITY: rank correlation of n and sharpness above {paper.LEAST_CORRELATION}",
        paper=str(paper.H1),
        measured=f"{value:.2f} over {len(pairs)} runs that learnt; within a seed "
        f"{text_of(of_seeds, 2)}",
        holds=value > paper.LEAST_CORRELATION,
        values={
            "rank correlation": number_or_none(value),
            "runs": len(pairs),
            "mean within a seed": number_or_none(of_seeds.mean),
            "its interval over seeds": of_seeds.ends,
        },
        decided_by="rank correlation",
        num_seeds=len(pairs),
    )


def _rank_correlation(pairs: Sequence[tuple[int, float]]) -> float:
    """Spearman's; nan if all runs have one length."""
    varied = len({n for n, _ in pairs}) > 1
    return float(spearmanr(*zip(*pairs, strict=True)).statistic) if varied else math.nan


def _seed_correlations(points: Points, kind: str) -> list[float]:
    """The same within each seed of PARITY that learnt three lengths: two are always ±1."""
    by_seed: dict[int, list[tuple[int, float]]] = {}
    for point in points:
        for model in point.learnt if point.function == "parity" else []:
            by_seed.setdefault(model.run.seed, []).append((point.n, model.sharpness(kind)))
    return [_rank_correlation(pairs) for pairs in by_seed.values() if len(pairs) > 2]


def _ratio(top: Sequence[float], bottom: Sequence[float]) -> Interval:
    """The ratio of two geometric means over seeds, with its interval."""
    if not len(top) or not len(bottom) or min(*top, *bottom) <= 0:
        return Interval(math.nan, 0.0, math.inf)
    difference = independent_difference(
        mean_over_seeds(np.log(top)), mean_over_seeds(np.log(bottom))
    )
    return Interval(*(float(np.exp(each)) for each in difference))


def ratio_claim(points: Points, kind: str) -> Claim:
    """PARITY over MAJORITY at the same lengths."""
    sharp: dict[str, dict[int, list[float]]] = {"parity": {}, "majority": {}}
    for point in points:
        if point.function in sharp and point.n >= paper.RATIO_FROM:
            sharp[point.function][point.n] = [model.sharpness(kind) for model in point.learnt]
    parity, majority = sharp["parity"], sharp["majority"]
    common = sorted(n for n in parity if parity[n] and majority.get(n))
    ratios = [float(np.mean(parity[n]) / np.mean(majority[n])) for n in common]
    mean = float(np.mean(ratios)) if ratios else math.nan
    by_logs = {n: _ratio(parity[n], majority[n]) for n in common}
    each = ", ".join(
        f"{r:.1f} at n = {n} (of geometric means {text_of(by_logs[n], 1)})"
        for n, r in zip(common, ratios, strict=True)
    )
    missing = sorted(n for n in majority if n in parity and n not in common)
    if missing:
        each += f"; not learnt at n = {', '.join(map(str, missing))}"
    return Claim(
        statement=f"PARITY is at least {paper.LEAST_RATIO:g} times as sharp as MAJORITY from "
        f"n = {paper.RATIO_FROM} on, in the mean",
        paper=str(paper.H1),
        measured=f"ratio of means {each}; in the mean {mean:.2f}" if ratios else "no such length",
        holds=mean >= paper.LEAST_RATIO,
        values={
            "mean ratio": number_or_none(mean),
            "lengths": common,
            "ratios": ratios,
            "intervals of ratios of geometric means": [plain_ends(i) for i in by_logs.values()],
        },
        decided_by="mean ratio",
        num_seeds=sum(len(parity[n]) + len(majority[n]) for n in common),
    )


def control_claims(points: Points, kind: str, sweep: str = "") -> list[Claim]:
    """For each other function, by what factor it changes from its first to its last length."""
    claims = []
    for name in CONTROLS:
        mine = [point for point in points if point.function == name]
        first, last = mine[0], mine[-1]
        ends = [[model.sharpness(kind) for model in point.learnt] for point in (first, last)]
        means = [float(np.mean(each)) if each else math.nan for each in ends]
        factor = max(means[1] / means[0], means[0] / means[1]) if all(ends) else math.nan
        change = _ratio(ends[1], ends[0])
        claims.append(
            Claim(
                statement=f"{LABELS[name]}{sweep}: sharpness changes by less than a factor of "
                f"{paper.LARGEST_CHANGE:g} from n = {first.n} to {last.n}",
                paper=str(paper.H1),
                measured=f"{means[0]:.3f} to {means[1]:.3f}, a factor of {factor:.2f}; last over "
                f"first, of geometric means, {text_of(change, 2)}"
                if all(ends)
                else "no run learnt it at one of the two lengths",
                holds=factor < paper.LARGEST_CHANGE,
                values={
                    f"n = {first.n}": number_or_none(means[0]),
                    f"n = {last.n}": number_or_none(means[1]),
                    "factor": number_or_none(factor),
                    "interval of last over first, geometric means": plain_ends(change),
                },
                decided_by="factor",
                num_seeds=sum(map(len, ends)),
            )
        )
    return claims


def long_claims(points: Points, kind: str) -> list[Claim]:
    """The same of the narrow model, if there is one."""
    return control_claims(points, kind, ", narrow model") if points else []


def learnt_claim(points: Points) -> Claim:
    """Whether every point of PARITY rests on enough runs; the paper shows these alone."""
    shares = {p.n: (len(p.learnt), len(p.models)) for p in points if p.function == "parity"}
    fewest = min(learnt for learnt, _ in shares.values())
    return Claim(
        statement=f"PARITY: at least {paper.LEAST_LEARNT} runs learnt it at every length",
        paper="runs that did not are dropped",
        measured=", ".join(f"{a} of {b} at n = {n}" for n, (a, b) in shares.items()),
        holds=fewest >= paper.LEAST_LEARNT,
        values={f"share at n = {n}": a / b for n, (a, b) in shares.items()} | {"fewest": fewest},
        decided_by="fewest",
        num_seeds=sum(b for _, b in shares.values()),
    )


def paper_size_claims(points: Points, kind: str) -> list[Claim]:
    """What the paper says of 30 bits, if there is such a point."""
    at = {
        point.function: mean_over_seeds([model.sharpness(kind) for model in point.learnt])
        for point in points
        if point.n == paper.PAPER_LENGTH
    }
    if "parity" not in at:
        return []
    parity, (low, high) = at["parity"], paper.PAPER_RANGE
    n = paper.PAPER_LENGTH
    claims = [
        Claim(
            statement=f"PARITY of {n} bits has a sharpness between {low} and {high}",
            paper="about 1 (Fig. 1)",
            measured=text_of(parity),
            holds=low <= parity.mean <= high,
            values={"PARITY": number_or_none(parity.mean)},
            decided_by="PARITY",
            interval=claim_ends(parity),
            num_seeds=_num_seeds(points, "parity"),
        )
    ]
    for name in (name for name in CONTROLS if name in at):
        ratio = at[name].mean / parity.mean
        claims.append(
            Claim(
                statement=f"{LABELS[name]} of {n} bits is less than {paper.PAPER_SHARE:g} times as "
                "sharp as PARITY",
                paper=str(paper.H1),
                measured=f"{text_of(at[name])} against {text_of(parity)}",
                holds=ratio < paper.PAPER_SHARE,
                values={
                    LABELS[name]: number_or_none(at[name].mean),
                    "half of its interval": json_lists([at[name].half_width])[0],
                    "ratio": number_or_none(ratio),
                },
                decided_by="ratio",
                num_seeds=_num_seeds(points, name),
            )
        )
        slopes = [slope_of(points, each, kind) for each in (name, "parity")]
        share = slopes[0].mean / slopes[1].mean
        claims.append(
            Claim(
                statement=f"{LABELS[name]}: sharpness rises with n at most {paper.PAPER_SHARE:g} "
                "times as fast as for PARITY",
                paper=str(paper.H1),
                measured=f"a bit {text_of(slopes[0], 5)} against {text_of(slopes[1], 5)}",
                holds=slopes[1].mean > 0 and share <= paper.PAPER_SHARE,
                values={
                    LABELS[name]: number_or_none(slopes[0].mean),
                    "PARITY": number_or_none(slopes[1].mean),
                    "share": number_or_none(share),
                    "interval of the first": plain_ends(slopes[0]),
                    "interval of the second": plain_ends(slopes[1]),
                },
                decided_by="share",
                num_seeds=_num_seeds(points, name),
            )
        )
    return claims


def _num_seeds(points: Points, function: Function) -> int:
    seeds = {m.run.seed for p in points if p.function == function for m in p.learnt}
    return max(1, len(seeds))
