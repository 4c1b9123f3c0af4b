"""Numbers with their intervals, as bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from jaxsens.figures.style import GREY, PALETTE, Numbers, legend_below, new_figure, styled


@styled
def bars(
    labels: Sequence[str],
    values: Numbers,
    lows: Numbers,
    highs: Numbers,
    paper: Sequence[float | None] | None = None,
    *,
    ylabel: str = "Sensitivity",
    digits: int = 3,
) -> Figure:
    """Measured values with their intervals, each beside the paper's value.

    Args:
      labels: names of the models; their order fixes the colours.
      values: measured values, as many as labels.
      lows: lower ends of the 95 % intervals.
      highs: upper ends.
      paper: the paper's values, None where it gives none.
      ylabel: name of the axis.
      digits: decimals written above the bars.

    Returns:
      One panel: for each label a filled bar (measured) and a hatched one (paper).

    Raises:
      ValueError: lengths differ, or a value lies outside its interval.

    Example:
      >>> fig = bars(["CNN", "ViT"], [0.2, 0.1], [0.1, 0.05], [0.3, 0.15], paper=[None, 0.08])
      >>> [label.get_text() for label in fig.axes[0].get_xticklabels()]
      ['CNN', 'ViT']
    """
    given: Sequence[float | None] = [None] * len(labels) if paper is None else paper
    lengths = [len(labels), len(values), len(lows), len(highs), len(given)]
    if len(set(lengths)) != 1 or not lengths[0]:
        raise ValueError(
            f"expected as many values, lows, highs and paper values as labels, got {lengths}"
        )
    for label, value, low, high in zip(labels, values, lows, highs, strict=True):
        if not low <= value <= high:
            raise ValueError(f"{label}: expected low <= value <= high, got {low}, {value}, {high}")

    fig = new_figure(max(4.2, 1.6 + 1.25 * len(labels)), 3.4)
    axes = fig.subplots()
    with_paper = any(number is not None for number in given)
    width = 0.36 if with_paper else 0.6
    for i, label in enumerate(labels):
        color, published = PALETTE[i % len(PALETTE)], given[i]
        # A model without a published value keeps its measured bar in the middle of its place.
        x = float(i) if published is None else i - 0.52 * width
        value, low, high = float(values[i]), float(lows[i]), float(highs[i])
        axes.bar(x, value, width, color=color, label=label)
        axes.errorbar(
            x, value, [[value - low], [high - value]], color="#222222", capsize=3.5, linewidth=1.2
        )
        _write_above(axes, x, high, f"{value:.{digits}f}", "#222222")
        if published is not None:
            x = i + 0.52 * width
            look: dict[str, Any] = {"facecolor": "white", "edgecolor": color, "hatch": "////"}
            axes.bar(x, published, width, label="_paper", **look)
            _write_above(axes, x, published, f"{published:.{digits}f}", GREY)
    axes.set_xticks(range(len(labels)), [label.replace(" ", "\n", 1) for label in labels])
    axes.tick_params(axis="x", length=0)
    axes.grid(False, axis="x")
    axes.set(ylabel=ylabel, xlim=(-0.6, len(labels) - 0.4))
    tallest = max([*map(float, highs), *(p for p in given if p is not None), 1e-6])
    axes.set_ylim(0.0, 1.14 * tallest)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    if with_paper:
        measured = Patch(facecolor=GREY, label="measured, 95 % interval")
        published_patch = Patch(facecolor="white", edgecolor=GREY, hatch="////", label="paper")
        legend_below(fig, [measured, published_patch], num_columns=2)
    return fig


@styled
def grouped_bars(
    groups: Sequence[str],
    series: Mapping[str, Sequence[tuple[float, float, float]]],
    *,
    ylabel: str = "Sensitivity",
    log: bool = False,
) -> Figure:
    """Several measurements of the same things side by side.

    Args:
      groups: what is measured, such as models: a cluster of bars each.
      series: for every way of measuring, (value, low, high) for each group, with the ends of the
        95 % interval; their order fixes the colours.
      ylabel: name of the axis.
      log: whether the axis is logarithmic, for values that differ by orders of magnitude.

    Returns:
      One panel with a legend of the series below it.

    Raises:
      ValueError: a series does not have one value for each group, or a value lies outside its
        interval.

    Example:
      >>> fig = grouped_bars(["ViT", "CNN"], {"patch": [(0.1, 0.0, 0.2), (0.3, 0.2, 0.4)]})
      >>> len(fig.axes[0].patches)
      2
    """
    if not groups or not series:
        raise ValueError(f"expected groups and series, got {len(groups)} and {len(series)}")
    for label, numbers in series.items():
        if len(numbers) != len(groups):
            raise ValueError(f"{label}: expected {len(groups)} values, got {len(numbers)}")
        for value, low, high in numbers:
            if not low <= value <= high:
                raise ValueError(f"{label}: expected low <= value <= high, got {low, value, high}")
    fig = new_figure(max(4.8, 1.4 + 0.42 * len(groups) * (len(series) + 1)), 3.6)
    axes = fig.subplots()
    width = 0.84 / len(series)
    for i, (label, numbers) in enumerate(series.items()):
        x = [group + (i - (len(series) - 1) / 2) * width for group in range(len(groups))]
        values = [value for value, _, _ in numbers]
        errors = [[v - low for v, low, _ in numbers], [high - v for v, _, high in numbers]]
        axes.bar(x, values, 0.92 * width, color=PALETTE[i % len(PALETTE)], label=label)
        axes.errorbar(x, values, errors, fmt="none", color="#222222", capsize=2, linewidth=1)
    axes.set_xticks(range(len(groups)), groups)
    axes.tick_params(axis="x", length=0)
    axes.grid(False, axis="x")
    axes.set(ylabel=ylabel, xlim=(-0.6, len(groups) - 0.4))
    if log:
        axes.set_yscale("log")
    legend_below(fig, num_columns=min(3, len(series)))
    return fig


def _write_above(axes: Axes, x: float, y: float, text: str, color: str) -> None:
    axes.annotate(
        text, (x, y), (0, 3), textcoords="offset points", ha="center", fontsize=8.5, color=color
    )
