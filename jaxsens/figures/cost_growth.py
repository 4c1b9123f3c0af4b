"""How a cost grows with several sizes, on logarithmic axes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from jaxsens.figures.style import GREY, Numbers, legend_below, look_of, new_figure, styled

GUIDE = "in proportion"


@styled
def growth(panels: Mapping[str, Mapping[str, tuple[Numbers, Numbers]]], *, ylabel: str) -> Figure:
    """One panel for each size, a line for each way, the same cost axis for all.

    A straight line is a power law; a cost in proportion to the size runs parallel to the dotted
    line, which starts where the cheapest way does.

    Args:
      panels: for every size, named as its axis shall be, and every way of paying for it, the
        sizes and the costs, all positive.
      ylabel: name of the cost.

    Returns:
      The panels, with one legend below.

    Raises:
      ValueError: there is nothing to draw, or something that has no logarithm.

    Example:
      >>> fig = growth({"n": {"loop": ([1, 10], [0.1, 1.0])}}, ylabel="Seconds")
      >>> fig.axes[0].get_xlabel()
      'n'
    """
    lines = [line for lines in panels.values() for line in lines.values()]
    if not lines:
        raise ValueError(f"expected at least one line, got {len(panels)} panels without any")
    for sizes, costs in lines:
        if len(sizes) != len(costs) or min(*sizes, *costs) <= 0:
            raise ValueError(
                f"expected as many positive sizes as costs, got {list(sizes)} and {list(costs)}"
            )
    # A way keeps its colour where a panel lacks another.
    order = list(dict.fromkeys(label for lines in panels.values() for label in lines))
    fig = new_figure(2.4 * len(panels) + 0.6, 2.9)
    all_axes = fig.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (xlabel, lines_here) in zip(all_axes, panels.items(), strict=True):
        axes.set(xscale="log", yscale="log", xlabel=xlabel)
        sizes = np.asarray(next(iter(lines_here.values()))[0])
        cheapest = min(costs[0] for _, costs in lines_here.values())
        axes.plot(sizes, cheapest * sizes / sizes[0], ":", color=GREY, linewidth=1, label=GUIDE)
        for label, (sizes, costs) in lines_here.items():
            axes.plot(sizes, costs, label=label, **look_of(order.index(label), len(sizes)))
    all_axes[0].set_ylabel(ylabel)
    handles = {
        label: handle
        for axes in all_axes
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    shown = [handles[label] for label in (*order, GUIDE)]
    legend_below(fig, shown, num_columns=min(5, len(shown)))
    return fig
