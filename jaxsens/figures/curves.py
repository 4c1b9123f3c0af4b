"""What happens along training: a curve for each model."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from jaxsens.figures.style import GREY, Numbers, legend_below, look_of, new_figure, styled


@dataclasses.dataclass(frozen=True)
class Curve:
    """One model's training: accuracy and sensitivity, with its interval, after some epochs.

    Attributes:
      label: the model's name in the legend.
      epochs: when it was measured.
      accuracy: train accuracy in [0, 1], one value per epoch of `epochs`.
      sensitivity: sensitivity in [0, 1].
      low: lower end of the 95 % interval of the sensitivity.
      high: upper end.
      paper: the paper's sensitivity at the end of training, if it gives one.

    Example:
      >>> Curve("ViT", [1, 2], [0.6, 0.9], [0.05], [0.04], [0.06])
      Traceback (most recent call last):
      ValueError: curve 'ViT': expected 2 values of sensitivity, one for each of the epochs ...
    """

    label: str
    epochs: Numbers
    accuracy: Numbers
    sensitivity: Numbers
    low: Numbers
    high: Numbers
    paper: float | None = None

    def __post_init__(self) -> None:
        expected = len(self.epochs)
        for name in ("accuracy", "sensitivity", "low", "high"):
            got = len(getattr(self, name))
            if got != expected or not got:
                raise ValueError(
                    f"curve {self.label!r}: expected {expected} values of {name}, one for each of "
                    f"the epochs (at least 1), got {got}"
                )


@styled
def training_curves(
    curves: Sequence[Curve],
    *,
    accuracy_label: str = "Train accuracy",
    sensitivity_label: str = "Sensitivity",
    paper_label: str = "paper, end of training",
) -> Figure:
    """Accuracy and sensitivity while models train, as in the paper's Figure 4.

    Args:
      curves: one for each model; their order fixes the colours.
      accuracy_label: name of the left axis.
      sensitivity_label: name of the right axis.
      paper_label: legend of the marks at the right edge, the paper's values.

    Returns:
      Two panels: accuracy, and sensitivity with its 95 % band, against epochs.

    Raises:
      ValueError: there is no curve.

    Example:
      >>> curve = Curve("ViT", [1, 2], [0.6, 0.9], [0.05, 0.03], [0.04, 0.02], [0.06, 0.04])
      >>> len(training_curves([curve]).axes)
      2
    """
    if not curves:
        raise ValueError("expected at least one curve, got none")
    # The marks stand outside the axes, where the layout does not look, and need some room.
    fig = new_figure(8.4, 3.6, rect=(0.0, 0.0, 0.985, 1.0), wspace=0.06)
    left, right = fig.subplots(1, 2)
    for i, curve in enumerate(curves):
        look = look_of(i, len(curve.epochs))
        left.plot(curve.epochs, curve.accuracy, label=curve.label, **look)
        right.plot(curve.epochs, curve.sensitivity, **look)
        right.fill_between(
            curve.epochs, curve.low, curve.high, color=look["color"], alpha=0.18, linewidth=0
        )
        if curve.paper is not None:
            _mark_right_edge(right, curve.paper, look["color"], f"{curve.label}, paper")
    papers = [curve.paper for curve in curves if curve.paper is not None]
    for axes, label in ((left, accuracy_label), (right, sensitivity_label)):
        axes.set(xlabel="Epoch", ylabel=label)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.margins(x=0.02)
    left.set_ylim(top=1.02)
    left.yaxis.set_major_formatter(PercentFormatter(1.0))
    right.set_ylim(0.0, 1.06 * max([*papers, *(max(curve.high) for curve in curves), 1e-6]))
    right.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    handles = left.get_legend_handles_labels()[0]
    if papers:
        handles.append(
            Line2D([], [], color=GREY, marker="<", markersize=6, linestyle="--", label=paper_label)
        )
    num_rows = math.ceil(len(handles) / 4)
    num_columns = math.ceil(len(handles) / num_rows)
    legend_below(fig, handles, num_columns=num_columns)
    return fig


@styled
def sensitivity_paths(
    paths: Mapping[str, Sequence[tuple[Numbers, Numbers]]],
    *,
    at: float | None = None,
    xlabel: str = "Training accuracy",
    ylabel: str = "Sensitivity",
) -> Figure:
    """Sensitivity against training accuracy, as models train.

    Args:
      paths: for every model, the accuracies and the sensitivities of each of its trainings, in the
        order of their epochs; the order of the models fixes the colours.
      at: an accuracy to mark, at which models are compared.
      xlabel: name of the horizontal axis.
      ylabel: name of the vertical axis.

    Returns:
      One panel; a dot ends each path.

    Raises:
      ValueError: there is no path.

    Example:
      >>> len(sensitivity_paths({"ViT": [([0.5, 0.9], [0.2, 0.1])]}, at=0.8).axes)
      1
    """
    if not any(paths.values()):
        raise ValueError("expected at least one path, got none")
    fig = new_figure(5.6, 3.6)
    axes = fig.subplots()
    for i, (label, trainings) in enumerate(paths.items()):
        for number, (accuracy, sensitivity) in enumerate(trainings):
            look = look_of(i, len(accuracy))
            axes.plot(accuracy, sensitivity, label=None if number else label, **look)
            axes.plot(accuracy[-1:], sensitivity[-1:], marker="o", color=look["color"])
    if at is not None:
        axes.axvline(at, color=GREY, linestyle=":", zorder=0)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylim(bottom=0.0)
    legend_below(fig, num_columns=min(4, len(paths)))
    return fig


@styled
def panels(
    titles: Sequence[str],
    curves: Mapping[str, tuple[Numbers, Sequence[Numbers]]],
    *,
    bands: Mapping[str, Sequence[tuple[Numbers, Numbers]]] | None = None,
    xlabel: str = "Epoch",
    ylabel: str = "Accuracy",
    num_columns: int = 5,
) -> Figure:
    """One small panel for each title, the same models in all of them, as in the paper's Figure 9.

    Args:
      titles: what the panels show, such as corruptions.
      curves: for every model, the epochs and for each title the values at these epochs; the order
        of the models fixes the colours.
      bands: for every model and each title, both ends of the intervals at these epochs.
      xlabel: name of the horizontal axes.
      ylabel: name of the vertical axes.
      num_columns: panels in a row.

    Returns:
      The panels, with one legend below.

    Raises:
      ValueError: a model does not have values for every title and epoch.

    Example:
      >>> fig = panels(["fog", "snow"], {"ViT": ([0, 1], [[0.1, 0.5], [0.1, 0.4]])})
      >>> [axes.get_title() for axes in fig.axes]
      ['fog', 'snow']
    """
    if not titles or not curves:
        raise ValueError(f"expected titles and curves, got {len(titles)} and {len(curves)}")
    for label, (epochs, rows) in curves.items():
        lengths = {len(row) for row in rows}
        if len(rows) != len(titles) or lengths != {len(epochs)}:
            raise ValueError(
                f"{label}: expected {len(titles)} rows of {len(epochs)} values, got {len(rows)} "
                f"rows of {sorted(lengths)}"
            )
    num_columns = min(num_columns, len(titles))
    num_rows = math.ceil(len(titles) / num_columns)
    fig = new_figure(1.9 * num_columns + 0.4, 1.6 * num_rows + 0.6)
    grid = fig.subplots(num_rows, num_columns, squeeze=False, sharex=True)
    for index, axes in enumerate(grid.flat):
        if index >= len(titles):
            axes.remove()
            continue
        axes.set_title(titles[index], fontsize=9.5)
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(4))
        for i, (label, (epochs, rows)) in enumerate(curves.items()):
            look = look_of(i, len(epochs))
            axes.plot(epochs, rows[index], label=label, **look)
            if bands is not None:
                low, high = bands[label][index]
                axes.fill_between(epochs, low, high, color=look["color"], alpha=0.15, linewidth=0)
        if index % num_columns == 0:
            axes.set_ylabel(ylabel)
        if index + num_columns >= len(titles):
            axes.set_xlabel(xlabel)
            axes.tick_params(labelbottom=True)
    handles = grid[0, 0].get_legend_handles_labels()[0]
    legend_below(fig, handles, num_columns=min(4, len(handles)))
    return fig


@dataclasses.dataclass(frozen=True)
class Band:
    """A curve with an interval at every point.

    Attributes:
      x: where.
      y: the values.
      low: lower ends of the 95 % intervals.
      high: upper ends.

    Example:
      >>> Band([0, 1], [0.1, 0.2], [0.0, 0.1], [0.2, 0.3]).high
      [0.2, 0.3]
    """

    x: Numbers
    y: Numbers
    low: Numbers
    high: Numbers

    def __post_init__(self) -> None:
        lengths = [len(values) for values in (self.x, self.y, self.low, self.high)]
        if len(set(lengths)) != 1 or not lengths[0]:
            raise ValueError(f"expected as many y, low and high as x, at least 1, got {lengths}")


@styled
def bands(
    panels: Mapping[str, Mapping[str, Band]], *, ylabel: str = "Sensitivity", height: float = 3.2
) -> Figure:
    """Curves with their bands in panels side by side that share the vertical axis.

    Args:
      panels: for the name of each horizontal axis, the curves by label; the order of the labels
        fixes the colours, and the first panel's are those of the legend.
      ylabel: name of the vertical axis.
      height: of the figure, in inches.

    Returns:
      The panels, with one legend below.

    Raises:
      ValueError: there is no panel, or one without a curve.

    Example:
      >>> band = Band([0, 1], [0.1, 0.2], [0.0, 0.1], [0.2, 0.3])
      >>> [axes.get_xlabel() for axes in bands({"Place": {"LSTM": band}}).axes]
      ['Place']
    """
    if not panels or not all(panels.values()):
        raise ValueError("expected at least one panel, each with at least one curve")
    fig = new_figure(4.2 * len(panels), height, wspace=0.04)
    grid = fig.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axes, (xlabel, curves) in zip(grid, panels.items(), strict=True):
        for i, (label, band) in enumerate(curves.items()):
            look = look_of(i, len(band.x))
            axes.plot(band.x, band.y, label=label, **look)
            axes.fill_between(
                band.x, band.low, band.high, color=look["color"], alpha=0.15, linewidth=0
            )
        axes.set_xlabel(xlabel)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.margins(x=0.02)
    highest = max(max(band.high) for curves in panels.values() for band in curves.values())
    grid[0].set_ylim(0.0, 1.06 * max(float(highest), 1e-6))
    grid[0].set_ylabel(ylabel)
    handles = grid[0].get_legend_handles_labels()[0]
    legend_below(fig, handles, num_columns=min(4, len(handles)))
    return fig


def _mark_right_edge(axes: Axes, value: float, color: str, label: str) -> None:
    # Labels that begin with "_" are in no legend, but in the figure's CSV.
    look: dict[str, Any] = {
        "color": color,
        "transform": axes.get_yaxis_transform(),
        "label": f"_{label}",
    }
    axes.plot([0.9, 1.0], [value, value], linestyle="--", **look)
    axes.plot([1.02], [value], "<", markersize=6, clip_on=False, **look)
