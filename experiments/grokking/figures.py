"""Figures of the experiment `grokking`: raw curves, every run of every arm."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from jaxsens.figures.style import GREY, PALETTE, legend_below, new_figure, styled
from jaxsens.reporting.results import Figure
from jaxsens.reporting.run_folder import RunFolder

from .._common.figures import saved_figure
from .leads import SHARES, MeanOverRuns, Measure
from .outcome import Outcome


def figures_of(outcome: Outcome, folder: RunFolder) -> list[Figure]:
    """What can be drawn of a task."""
    draw = [training_figure]
    if outcome.training.name == "addition":
        draw.append(unit_figure)
    draw.append(measures_figure)
    if outcome.jumps:
        draw += [normalised_figure, leads_figure]
    return [each(outcome, folder) for each in draw]


def training_figure(outcome: Outcome, folder: RunFolder) -> Figure:
    """Accuracy, loss and sensitivity against epochs, like the paper's."""
    sensitivity = next(m for m in outcome.measures if m.sensitivity)
    return saved_figure(
        _draw_training(outcome, sensitivity),
        folder,
        f"{outcome.training.name}_training",
        f"{outcome.title}: training and test accuracy (left) and loss (right) with the "
        f"{sensitivity.label} on the training set, every seed a line, nothing smoothed; dashed: "
        "the jumps of test accuracy.",
    )


@styled
def _draw_training(outcome: Outcome, sensitivity: Measure) -> Drawing:
    fig = new_figure(9.6, 3.8)
    grid = fig.subplots(1, 2)
    epochs = np.maximum(outcome.first["epochs"], 1)
    names = ("train", "test")
    for axes, kind in zip(grid, ("accuracy", "loss"), strict=True):
        for color, name in zip(PALETTE, names, strict=False):
            axes.plot(epochs, outcome.first[f"{name}_{kind}"].T, color=color, linewidth=1.2)
        axes.set(xlabel="Epoch", ylabel=kind.capitalize(), xscale="log")
        right = axes.twinx()
        right.plot(epochs, outcome.first[sensitivity.name].T, color=PALETTE[2], linewidth=1.0)
        right.set_ylim(bottom=0)
        right.yaxis.set_major_formatter(PercentFormatter(1.0))
        right.set_ylabel("Sensitivity", color=PALETTE[2])
        right.spines["right"].set_visible(True)
        right.grid(False)
        _mark_jumps(axes, outcome)
    grid[0].set_ylim(0, 1.03)
    grid[0].yaxis.set_major_formatter(PercentFormatter(1.0))
    grid[1].set_yscale("log")
    labels = ("training set", "test set", "sensitivity (right axes)")
    handles = [Line2D([], [], color=c, label=t) for c, t in zip(PALETTE, labels, strict=False)]
    legend_below(fig, handles, num_columns=3)
    return fig


def measures_figure(outcome: Outcome, folder: RunFolder) -> Figure:
    """Every measure in its own panel, with the controls."""
    return saved_figure(
        _draw_measures(outcome),
        folder,
        f"{outcome.training.name}_measures",
        f"{outcome.title}: every measure in the runs that generalise and in the controls that do "
        "not, raw. Dashed: the jumps of test accuracy. A progress measure leaves the controls "
        "before them.",
    )


@styled
def _draw_measures(outcome: Outcome) -> Drawing:
    columns = 3
    rows = -(-len(outcome.measures) // columns)
    fig = new_figure(3.3 * columns, 2.1 * rows + 0.5)
    grid = fig.subplots(rows, columns, squeeze=False, sharex=True)
    arms = outcome.training.arms
    for axes in grid.flat[len(outcome.measures) :]:
        axes.remove()
    for axes, m in zip(grid.flat, outcome.measures, strict=False):
        for color, arm in reversed(list(zip(PALETTE, arms, strict=False))):
            curves = outcome.curves[arm.name]
            # The first values, before anything is learned, would squeeze all others.
            shown = curves["epochs"] >= outcome.training.every // 2
            axes.plot(curves["epochs"][shown], curves[m.name][:, shown].T, color=color, lw=1.0)
        axes.set_title(m.label.replace(": ", ":\n", 1), fontsize=8.5)
        if m.name == "test_loss":
            axes.set_yscale("log")
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        _mark_jumps(axes, outcome)
    for axes in grid.flat[max(0, len(outcome.measures) - columns) : len(outcome.measures)]:
        axes.set_xlabel("Epoch")
        axes.tick_params(labelbottom=True)
    handles = [Line2D([], [], color=c, label=a.label) for c, a in zip(PALETTE, arms, strict=False)]
    legend_below(fig, handles, num_columns=len(handles))
    return fig


def normalised_figure(outcome: Outcome, folder: RunFolder) -> Figure:
    """One run: all measures from 0 to 1, with their leads."""
    seed = outcome.training.seeds[outcome.jumps[0].place]
    return saved_figure(
        _draw_normalised(outcome),
        folder,
        f"{outcome.training.name}_normalised",
        f"{outcome.title}, seed {seed}: each measure from its worst value "
        "between memorised and jump (0) to its final value (1). Marks: since when it has covered "
        "10 % (circle) and 50 % (square) of the way; dashed: the jump.",
    )


@styled
def _draw_normalised(outcome: Outcome) -> Drawing:
    jump = outcome.jumps[0]
    epochs = outcome.first["epochs"]
    start, at = (int(np.argmax(epochs == e)) for e in (jump.memorised, jump.epoch))
    fig = new_figure(8.4, 4.6)
    axes = fig.subplots()
    colors = [*PALETTE, "#999999", "#8C510A"]
    for color, m in zip(colors, outcome.measures, strict=False):
        better = m.sign * outcome.first[m.name][jump.place]
        worst, end = better[start : at + 1].min(), better[-1]
        if end <= worst:
            continue
        way = (better - worst) / (end - worst)
        axes.plot(epochs[start:], way[start:], color=color, lw=1.2, label=m.label)
        for marker, share in zip("os", SHARES, strict=True):
            lead = jump.leads[m.name][share]
            if lead is not None:
                when = jump.epoch - lead
                axes.plot(when, way[epochs == when], marker, color=color, markersize=6)
    axes.axvline(jump.epoch, color=GREY, linestyle="--", lw=1)
    axes.set(xlabel="Epoch", ylabel="Share of the way", ylim=(-0.05, 1.15))
    legend_below(fig, num_columns=2, fontsize=8)
    return fig


def leads_figure(outcome: Outcome, folder: RunFolder) -> Figure:
    """Leads with intervals."""
    return saved_figure(
        _draw_leads(outcome),
        folder,
        f"{outcome.training.name}_leads",
        f"{outcome.title}: epochs by which each measure leads the jump of test accuracy; every "
        "run a small mark, mean and 95 % t-interval large. Right of 0: before the jump. An alarm "
        "is given by no control run; a measure without its mark never gave it.",
    )


@styled
def _draw_leads(outcome: Outcome) -> Drawing:
    fig = new_figure(8.8, 0.5 * len(outcome.measures) + 1.3)
    axes = fig.subplots()
    looks = zip(outcome.columns.items(), "os^vD", PALETTE, strict=False)
    for i, ((column, label), marker, color) in enumerate(looks):
        for row, m in enumerate(outcome.measures):
            leads = outcome.leads(m.name, column)
            lead, y = MeanOverRuns.of(leads), row + 0.17 * (i - 2)
            if lead is None:
                continue
            there = [value for value in leads if value is not None]
            axes.plot(there, [y] * len(there), marker, color=color, markersize=3, alpha=0.5)
            half = [[lead.mean - lead.low], [lead.high - lead.mean]] if lead.num > 1 else None
            axes.errorbar(lead.mean, y, xerr=half, fmt=marker, color=color, capsize=3, markersize=6)
        axes.plot([], [], marker, color=color, label=label)
    axes.axvline(0, color=GREY, linestyle="--", lw=1)
    axes.set_yticks(range(len(outcome.measures)), [m.label for m in outcome.measures], fontsize=8.5)
    axes.invert_yaxis()
    axes.set_xlabel("epochs before the jump")
    legend_below(fig, num_columns=3, fontsize=8.5)
    return fig


def unit_figure(outcome: Outcome, folder: RunFolder) -> Figure:
    """Absolute and relative noise, and the embedding's RMS."""
    return saved_figure(
        _draw_unit(outcome),
        folder,
        f"{outcome.training.name}_unit",
        "The same noise on both operands in two units: absolute, as the authors have it (left), "
        "and relative to the RMS of the embedding (middle), which weight decay shrinks (right). "
        "Every seed a line, from its memorisation on; dashed: the jumps of test accuracy.",
    )


@styled
def _draw_unit(outcome: Outcome) -> Drawing:
    fig = new_figure(9.6, 3.0)
    titles = {
        "authors": "sensitivity, absolute noise",
        "authors_relative": "sensitivity, relative noise",
        "embedding_rms": "RMS of the embedding",
    }
    for color, axes, (name, title) in zip(
        PALETTE, fig.subplots(1, 3), titles.items(), strict=False
    ):
        for values, run in zip(outcome.first[name], outcome.runs, strict=True):
            shown = outcome.first["epochs"] >= (run.memorised or 0)
            axes.plot(outcome.first["epochs"][shown], values[shown], color=color, lw=1.0)
        axes.set(title=title, xlabel="Epoch", ylim=(0, None))
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        _mark_jumps(axes, outcome)
    return fig


def _mark_jumps(axes: Axes, outcome: Outcome) -> None:
    for jump in outcome.jumps:
        axes.axvline(jump.epoch, color=GREY, linestyle="--", lw=0.8)
