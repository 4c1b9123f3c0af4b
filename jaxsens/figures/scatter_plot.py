"""One number against another, a point for each model."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from jaxsens.figures.style import PALETTE, look_of, new_figure, styled

#: A value with the ends of its interval: (value, low, high).
Interval = tuple[float, float, float]


@styled
def scatter(
    labels: Sequence[str], x: Sequence[Interval], y: Sequence[Interval], *, xlabel: str, ylabel: str
) -> Figure:
    """Points with their intervals in both directions.

    Args:
      labels: names of the points; their order fixes the colours, and points with one name share
        theirs.
      x: (value, low, high) of each point.
      y: (value, low, high) of each point.
      xlabel: name of the horizontal axis.
      ylabel: name of the vertical axis.

    Returns:
      One panel with a legend beside it.

    Raises:
      ValueError: there are not as many points as labels.

    Example:
      >>> fig = scatter(["ViT"], [(0.1, 0.0, 0.2)], [(0.5, 0.4, 0.6)], xlabel="S", ylabel="mCE")
      >>> fig.axes[0].get_xlabel()
      'S'
    """
    if not labels or len({len(labels), len(x), len(y)}) != 1:
        raise ValueError(
            f"expected as many points as labels, got {len(labels)}, {len(x)} and {len(y)}"
        )
    fig = new_figure(6.4, 3.6)
    axes = fig.subplots()
    order = list(dict.fromkeys(labels))
    for place, (label, across, up) in enumerate(zip(labels, x, y, strict=True)):
        i = order.index(label)
        axes.errorbar(
            across[0],
            up[0],
            xerr=[[across[0] - across[1]], [across[2] - across[0]]],
            yerr=[[up[0] - up[1]], [up[2] - up[0]]],
            color=PALETTE[i % len(PALETTE)],
            marker=look_of(i, 1)["marker"],
            linestyle="none",
            capsize=2.5,
            linewidth=1,
            label=label if label not in labels[:place] else None,
        )
    axes.set(xlabel=xlabel, ylabel=ylabel)
    fig.legend(loc="outside right center")
    return fig
