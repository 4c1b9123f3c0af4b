"""Figures of the experiment `word_sensitivity`, from the numbers that it found."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

from jaxsens.figures.style import GREY, legend_below, look_of, new_figure, styled
from jaxsens.reporting.results import Figure
from jaxsens.reporting.run_folder import RunFolder

from .._common.figures import saved_figure
from . import paper
from .context import OBJECTIVES, TRAININGS
from .measuring import Row, best, of
from .tables import curves_of
from .texts import Gaussian


def grid_figure(rows: Sequence[Row], folder: RunFolder) -> Figure:
    """S against n, all maps on one grid."""
    return saved_figure(
        _draw_grid(of(list(rows), texts=Gaussian().name)),
        folder,
        "word_sensitivity",
        "Worst relative change of the features by the first word against the number of words, on "
        "independent rows; bands are ± one standard deviation over seeds, dotted lines the mean "
        "over random moves of the same length. Dashed: (1 + √(d/k))/√n, the theory for RF.",
    )


@styled
def _draw_grid(rows: Sequence[Row]) -> Drawing:
    widths = sorted({row["d"] for row in rows})
    labels = list(dict.fromkeys(row["label"] for row in rows))
    fig = new_figure(3.3 * len(widths) + 0.6, 3.9)
    grid = fig.subplots(1, len(widths), squeeze=False, sharey=True)[0]
    for axes, d in zip(grid, widths, strict=True):
        for curve in curves_of(of(list(rows), d=d), "label"):
            look = look_of(labels.index(curve[0]["label"]), len(curve))
            _band(axes, curve, look, curve[0]["label"])
            random = [np.mean(row["random_mean"]) for row in curve]
            axes.plot(_ns(curve), random, ":", color=look["color"], linewidth=1.0)
        ns = sorted({row["n"] for row in rows})
        line = [paper.theory(n, d, n * d) for n in ns]
        axes.plot(ns, line, "--", color=GREY, linewidth=1.2, label="theory for RF")
        _logarithmic(axes, ns)
        axes.set(title=f"d = {d}", xlabel="words n")
    grid[0].set_ylabel("word sensitivity S")
    handles = {
        label: handle
        for axes in grid
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    legend_below(fig, list(handles.values()))
    return fig


def texts_figure(rows: Sequence[Row], folder: RunFolder) -> Figure:
    """S of attention for every kind of texts."""
    return saved_figure(
        _draw_texts([row for row in rows if row["map"] in ("raf", "relu-raf")]),
        folder,
        "texts",
        "The same for attention on every kind of texts, at the largest d of each; bands are ± one "
        "standard deviation.",
    )


@styled
def _draw_texts(rows: Sequence[Row]) -> Drawing:
    labels = list(dict.fromkeys(row["label"] for row in rows))
    fig = new_figure(3.8 * len(labels) + 0.4, 3.6)
    grid = fig.subplots(1, len(labels), squeeze=False, sharey=True)[0]
    for axes, label in zip(grid, labels, strict=True):
        for i, curve in enumerate(curves_of(of(list(rows), label=label), "texts")):
            d = max(row["d"] for row in curve)
            widest = of(curve, d=d)
            _band(axes, widest, look_of(i, len(widest)), f"{curve[0]['texts']}, d = {d}")
        _logarithmic(axes, sorted({row["n"] for row in rows}))
        axes.set(title=label, xlabel="words n")
        axes.legend(fontsize=8)
    grid[0].set_ylabel("word sensitivity S")
    return fig


def stuck_figure(rows: Sequence[Row], folder: RunFolder) -> Figure:
    """What single starts reach."""
    return saved_figure(
        _draw_stuck(rows),
        folder,
        "starts",
        "What single starts reach, as a share of the best that was found for their text: every "
        "point is one start (left of each pair: random starts; right, with crosses: the authors' "
        "ascent). Below the dashed line a start counts as stuck.",
    )


@styled
def _draw_stuck(rows: Sequence[Row]) -> Drawing:
    fig = new_figure(0.75 * len(rows) + 2.0, 3.9)
    axes = fig.subplots()
    rng = np.random.default_rng(0)  # of the points' places across, which mean nothing
    for i, row in enumerate(rows):
        starts, released = np.array(row["starts"]), np.array(row["released"])
        most = np.maximum(starts.max(axis=1), released)
        color = look_of(0 if row["map"] == "raf" else 1, 1)["color"]
        across = i - 0.18 + 0.1 * (rng.random(starts.size) - 0.5)
        axes.plot(across, (starts / most[:, None]).ravel(), ".", color=color, markersize=3)
        across = i + 0.18 + 0.1 * (rng.random(len(released)) - 0.5)
        axes.plot(across, released / most, "x", color=color, markersize=5)
    axes.axhline(paper.STUCK, linestyle="--", color=GREY, linewidth=1)
    names = [f"{row['label']}\nd = {row['d']}\n{row['texts']}" for row in rows]
    axes.set_xticks(range(len(rows)), names, rotation=60, ha="right", fontsize=7.5)
    axes.set(ylabel="S of one start / best S", ylim=(0, 1.05))
    return fig


def context_figure(rows: Sequence[Row], folder: RunFolder) -> Figure:
    """Err against γ with the curve."""
    return saved_figure(
        _draw_context(of(list(rows), texts=Gaussian().name)),
        folder,
        "context",
        "Error on a text whose context one word has modified, against how far the first model "
        "already tells the two texts apart; a point for each seed. The curve is (2 − γ)², which "
        "RF cannot get below. Independent rows.",
    )


@styled
def _draw_context(rows: Sequence[Row]) -> Drawing:
    labels = list(dict.fromkeys(row["label"] for row in rows))
    fig = new_figure(9.6, 5.6)
    grid = fig.subplots(len(TRAININGS), len(OBJECTIVES), sharex=True, sharey=True)
    gamma = np.linspace(0, 2, 100)
    for across, training in zip(grid, TRAININGS, strict=True):
        for axes, objective in zip(across, OBJECTIVES, strict=True):
            for i, label in enumerate(labels):
                part = of(list(rows), label=label, training=training, objective=objective)
                look = look_of(i, 1)
                axes.plot(
                    [row["gamma"] for row in part],
                    [row["err"] for row in part],
                    look["marker"],
                    color=look["color"],
                    label=label,
                    alpha=0.8,
                )
            axes.plot(gamma, (2 - gamma) ** 2, "--", color=GREY, label="(2 − γ)²")
            axes.set_title(f"{training}, objective {objective}", fontsize=9)
        across[0].set_ylabel("Err")
    for axes in grid[-1]:
        axes.set_xlabel("γ")
    handles = grid[0, 0].get_legend_handles_labels()[0]
    legend_below(fig, handles, num_columns=len(handles))
    return fig


def _ns(curve: Sequence[Row]) -> list[int]:
    return [row["n"] for row in curve]


def _band(axes: Axes, curve: Sequence[Row], look: dict, label: str) -> None:
    values = np.array([best(row) for row in curve])
    mean, deviation = values.mean(axis=1), values.std(axis=1, ddof=1)
    axes.plot(_ns(curve), mean, label=label, **look)
    # A logarithmic axis has no place for 0.
    low = np.maximum(mean - deviation, 0.02 * mean)
    axes.fill_between(
        _ns(curve), low, mean + deviation, color=look["color"], alpha=0.18, linewidth=0
    )


def _logarithmic(axes: Axes, ns: Sequence[int]) -> None:
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(list(ns), [str(n) for n in ns])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
