"""Figures of the part `scaling`: every run, and the share of runs that learnt."""

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from jaxsens.figures.style import GREY, PALETTE, legend_below, new_figure, styled
from jaxsens.reporting.results import Figure
from jaxsens.reporting.run_folder import RunFolder

from ..._common.figures import saved_figure
from ..config import Config
from ..functions import FUNCTIONS, LABELS, Function
from ..outcome import mean_over_seeds, share
from ..stages import Point, TrainedModel
from .scaling_claims import Points

Measure = Callable[[TrainedModel], float]
#: Names of the two ways to measure sharpness.
KINDS = {"definition": "mean squared change of the output", "released": "4·(increase of the loss)"}


def figures_of(points: Points, long: Points, config: Config, folder: RunFolder) -> list[Figure]:
    """PARITY beside MAJORITY; all functions by all measures; the narrow model, if there is one."""
    kind = config.sharpness
    hollow = "filled: runs that learnt (loss below 0.001), hollow: the others"
    found = [
        saved_figure(
            draw_pair(points, kind),
            folder,
            "scaling",
            f"Sharpness ({KINDS[kind]}) against the number of bits, PARITY and MAJORITY (Fig. 1); "
            f"{hollow}. Line and band: mean of the runs that learnt, 95 % interval over seeds. "
            "Below: share of runs that learnt, with 95 % intervals; the paper drops the others.",
        ),
        saved_figure(
            draw_measures(points),
            folder,
            "scaling_measures",
            "The four functions by three measures: the definition on the sphere of radius ε√p, the "
            "released proxy under Gaussian noise, and the definition on the sphere of the paper's "
            f"radius 8.93 (Fig. 5); {hollow}; lines: means of the runs that learnt.",
        ),
    ]
    if long:
        caption = f"The narrow model at longer inputs, the same measures (Figs 7, 8); {hollow}."
        found.append(saved_figure(draw_measures(long), folder, "scaling_long", caption))
    return found


@styled
def draw_pair(points: Points, kind: str) -> Drawing:
    """PARITY and MAJORITY, sharpness above, share of runs that learnt below."""
    fig = new_figure(8.4, 5.0)
    grid = fig.subplots(2, 2, sharex=True, sharey="row", height_ratios=(3, 1))
    pair: tuple[Function, ...] = ("parity", "majority")
    for column, name in enumerate(pair):
        mine = [point for point in points if point.function == name]
        above, below = grid[:, column]
        _draw_points(above, mine, lambda model: model.sharpness(kind), PALETTE[column], band=True)
        above.set_title(LABELS[name])
        shares = [share([model.learnt for model in point.models]) for point in mine]
        below.errorbar(
            [point.n for point in mine],
            [each.mean for each in shares],
            yerr=[
                [each.mean - each.low for each in shares],
                [each.high - each.mean for each in shares],
            ],
            fmt="o-",
            color=PALETTE[column],
            capsize=3,
            linewidth=1,
        )
        below.set(xlabel="Bits n", ylim=(-0.05, 1.1))
        below.yaxis.set_major_formatter(PercentFormatter(1.0))
        below.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    grid[0, 0].set(ylabel="Sharpness")
    grid[0, 0].set_ylim(bottom=0)
    grid[1, 0].set(ylabel="Runs that learnt")
    legend_below(fig, _legend(), num_columns=3)
    return fig


@styled
def draw_measures(points: Points) -> Drawing:
    """All functions, a panel for each measure."""
    measures: dict[str, Measure] = {
        "definition, radius ε√p": lambda model: model.sharpness("definition"),
        "released, σ = ε": lambda model: model.sharpness("released"),
        "definition, the paper's ρ": lambda model: model.sharpness("definition", matched=True),
    }
    fig = new_figure(10.2, 3.6)
    for axes, (title, measure) in zip(fig.subplots(1, 3), measures.items(), strict=True):
        for color, name in zip(PALETTE, FUNCTIONS, strict=False):
            mine = [point for point in points if point.function == name]
            _draw_points(axes, mine, measure, color, band=False)
        axes.set(title=title, xlabel="Bits n")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    fig.axes[0].set_ylabel("Sharpness")
    handles = [
        Line2D([], [], color=color, marker="o", label=LABELS[name])
        for color, name in zip(PALETTE, FUNCTIONS, strict=False)
    ]
    legend_below(fig, handles)
    return fig


def _draw_points(
    axes: Axes, points: Sequence[Point], measure: Measure, color: str, *, band: bool
) -> None:
    for point in points:
        for model in point.models:
            if model.finite:
                face = color if model.learnt else "none"
                axes.plot(point.n, measure(model), "o", color=color, mfc=face, alpha=0.7, ms=4)
    learnt = [(p.n, mean_over_seeds([measure(m) for m in p.learnt])) for p in points if p.learnt]
    if not learnt:
        return
    lengths, means = zip(*learnt, strict=True)
    axes.plot(lengths, [each.mean for each in means], color=color)
    # A single run has no interval.
    narrow = [(n, each) for n, each in learnt if each.half_width < float("inf")]
    if band and narrow:
        axes.fill_between(
            [n for n, _ in narrow],
            [max(0.0, each.low) for _, each in narrow],
            [each.high for _, each in narrow],
            color=color,
            alpha=0.15,
            linewidth=0,
        )


def _legend() -> list[Line2D]:
    return [
        Line2D([], [], color=GREY, marker="o", linestyle="none", label="a run that learnt"),
        Line2D([], [], color=GREY, marker="o", mfc="none", linestyle="none", label="did not"),
        Line2D([], [], color=GREY, label="mean of those that learnt"),
    ]
