"""Scratchpad: PARITY with its prefix parities written out stays flat as n grows (Fig. 11; H5).

All lengths take equally many steps at one learning rate. A run has learnt if it writes more than
99.9 % of whole strings right by itself; the others are shown, but not averaged.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure as Drawing

from jaxsens.core.intervals import REAL_LINE, Interval, student_half_width
from jaxsens.figures.style import PALETTE, new_figure, styled
from jaxsens.reporting.results import Cell, Claim, Figure, Table
from jaxsens.reporting.run_folder import RunFolder

from ..._common.claims import number_or_none
from ..._common.figures import saved_figure
from ..config import Config
from ..outcome import PartFindings, mean_over_seeds, plain_ends, share, text_of
from ..scratchpads import Scratchpad, trained_scratchpads

#: H5: sharpness may rise from a length to the next by so many standard errors.
LARGEST_RISE = 2.0
#: Kinds of sharpness in the table, and what values they can have: a loss may also fall.
_KINDS = {
    "definition": (0.0, math.inf),
    "released": REAL_LINE,
    "last place": (0.0, math.inf),
}


@dataclass(frozen=True)
class Point:
    """All runs of a length."""

    n: int
    runs: tuple[Scratchpad, ...]

    @property
    def learnt(self) -> list[Scratchpad]:
        """Those that write strings."""
        return [run for run in self.runs if run.learnt]


def run(config: Config, folder: RunFolder) -> PartFindings:
    """Trains, decodes, measures, draws."""
    points = [
        Point(n, tuple(trained_scratchpads(config, folder, n)))
        for n in sorted(config.scratchpad_lengths)
    ]
    slope = slope_of(points, config.sharpness)
    rates = ", ".join(f"{len(p.learnt)} of {len(p.runs)} at n = {p.n}" for p in points)
    return PartFindings(
        summary="With a scratchpad the sharpness of PARITY changes by "
        f"{text_of(slope)} for each doubling of n; strings were learnt by {rates} runs.",
        claims=(does_not_grow(points, config.sharpness), writes_strings(points)),
        tables=(_table(points),),
        figures=(_figure(points, config.sharpness, folder),),
        values={
            "runs": [{"n": p.n, "seed": r.seed, **r.record} for p in points for r in p.runs],
            "slope per doubling of n": number_or_none(slope.mean),
        },
    )


def slope_of(points: Sequence[Point], kind: str) -> Interval:
    """Least-squares slope of sharpness against log₂ n over runs that learnt; nan if it has none."""
    runs = [run for point in points for run in point.learnt]
    x = np.log2([run.n for run in runs])
    y = np.array([run.sharpness(kind) for run in runs])
    if len({*x.tolist()}) < 2:
        return Interval(math.nan, -math.inf, math.inf)
    x, dof = x - x.mean(), len(x) - 2
    slope = float(x @ y / (x @ x))
    if not dof:
        return Interval(slope, -math.inf, math.inf)
    rest = y - y.mean() - slope * x
    half = student_half_width(math.sqrt(float(rest @ rest) / dof / float(x @ x)), dof)
    return Interval(slope, slope - half, slope + half)


def rises(points: Sequence[Point], kind: str) -> list[float]:
    """From each length to the next, the rise of the mean sharpness in its standard errors.

    Lengths at which fewer than two runs learnt have no standard error, and are left out.
    """
    known = [[run.sharpness(kind) for run in p.learnt] for p in points if len(p.learnt) > 1]
    means = [float(np.mean(values)) for values in known]
    squares = [float(np.var(values, ddof=1)) / len(values) for values in known]
    found = []
    for i in range(len(known) - 1):
        error = math.sqrt(squares[i] + squares[i + 1])
        rise = means[i + 1] - means[i]
        found.append(rise / error if error else math.copysign(math.inf, rise) if rise else 0.0)
    return found


def does_not_grow(points: Sequence[Point], kind: str) -> Claim:
    """H5, by the criterion that was fixed beforehand."""
    steps, slope = rises(points, kind), slope_of(points, kind)
    largest = max(steps) if steps else math.nan
    # At every length, else one at which nothing was learnt would be left out silently.
    complete = len(steps) == len(points) - 1
    lengths = f"n = {points[0].n} to {points[-1].n}"
    return Claim(
        statement=f"With a scratchpad the sharpness of PARITY does not grow with n, {lengths} (H5)",
        paper="does not grow (Fig. 11)",
        measured=f"largest rise from a length to the next "
        f"{'none known' if math.isnan(largest) else f'{largest:.1f} standard errors'}; required: "
        f"at most {LARGEST_RISE:g}, with two runs that learnt at every length; slope "
        f"{text_of(slope)} for each doubling of n",
        holds=complete and largest <= LARGEST_RISE,
        values={
            "largest rise in standard errors": largest if math.isfinite(largest) else None,
            "slope for each doubling of n": number_or_none(slope.mean),
            "slope, 95 % interval": plain_ends(slope),
            "runs that learnt": [len(point.learnt) for point in points],
        },
        decided_by="largest rise in standard errors",
        num_seeds=sum(len(point.learnt) for point in points),
    )


def writes_strings(points: Sequence[Point]) -> Claim:
    """Whether the runs can do without the truth before every place."""
    runs = [run for point in points for run in point.runs]
    learnt = share([run.learnt for run in runs])
    worst = min(run.string_accuracy for run in runs)
    return Claim(
        statement="Models with a scratchpad write whole strings right by themselves",
        paper="runs with an accuracy of at most 0.999 are dropped",
        measured=f"{sum(run.learnt for run in runs)} of {len(runs)} runs write more than 99.9 % of "
        f"strings right; the worst {worst:.1%}",
        holds=all(run.learnt for run in runs),
        values={"share of runs": learnt.mean, "smallest string accuracy": worst},
        decided_by="share of runs",
        interval=learnt.ends,
        num_seeds=len(runs),
    )


def _table(points: Sequence[Point]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for point in points:
        sharp = [
            text_of(mean_over_seeds([run.sharpness(kind) for run in point.learnt], bounds))
            for kind, bounds in _KINDS.items()
        ]
        accuracies = [
            float(np.mean([run.record[name] for run in point.runs]))
            for name in ("strings", "places", "places_forced")
        ]
        rows.append((point.n, f"{len(point.learnt)} of {len(point.runs)}", *sharp, *accuracies))
    return Table(
        "scratchpad: PARITY with its prefix parities",
        (
            "n",
            "learnt",
            "sharpness (95 %)",
            "as released (95 %)",
            "last place alone (95 %)",
            "strings right",
            "places right",
            "places right, truth before them",
        ),
        tuple(rows),
        note="Sharpness of runs that learnt, over seeds; accuracies of all runs. Strings and "
        "places are written by the model itself, each place from what it wrote before.",
    )


def _figure(points: Sequence[Point], kind: str, folder: RunFolder) -> Figure:
    return saved_figure(
        _draw(points, kind),
        folder,
        "scratchpad",
        "PARITY with a scratchpad. Left: sharpness against n, small marks for runs (hollow: not "
        "learnt), means of those that learnt with 95 % intervals (Fig. 11). Right: share of whole "
        "strings that each run writes right by itself.",
    )


@styled
def _draw(points: Sequence[Point], kind: str) -> Drawing:
    fig = new_figure(8.4, 3.4)
    left, right = fig.subplots(1, 2)
    for point in points:
        for run in point.runs:
            fill = "full" if run.learnt else "none"
            look = {"color": PALETTE[0], "marker": "o", "fillstyle": fill, "ms": 4}
            left.plot(point.n, run.sharpness(kind), alpha=0.6, **look)
            right.plot(point.n, run.string_accuracy, **look)
        mean = mean_over_seeds([run.sharpness(kind) for run in point.learnt])
        if len(point.learnt) > 1:
            error = [[mean.mean - mean.low], [mean.high - mean.mean]]
            left.errorbar(1.04 * point.n, mean.mean, error, fmt="s", color=PALETTE[1], capsize=3)
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks([p.n for p in points], [str(p.n) for p in points])
        axes.set_xlabel("Bits n")
    left.set(ylabel=f"Sharpness, {kind}")
    left.set_ylim(bottom=0)
    right.set(ylabel="Strings written right", ylim=(0, 1.03))
    return fig
