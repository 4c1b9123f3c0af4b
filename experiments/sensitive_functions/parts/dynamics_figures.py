"""The figure of the part `dynamics`: raw curves and their mean, aligned at the drop of the loss."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from jaxsens.figures.style import GREY, PALETTE, new_figure, styled

from .dynamics_curves import Curve


@styled
def draw(curves: Sequence[Curve], kind: str) -> Drawing:
    """Loss, sharpness, blow-up and norm."""
    sharp = "sharpness" if kind == "definition" else "released"
    panels = {
        "loss": "Loss",
        sharp: "Sharpness",
        "blowup_released": "Blow-up, released",
        "norm": "Weight norm",
    }
    fig = new_figure(9.0, 5.4)
    grid = fig.subplots(2, 2, sharex=True)
    for axes, color, (name, label) in zip(grid.flat, PALETTE, panels.items(), strict=False):
        _draw_panel(axes, curves, name, color)
        axes.set_ylabel(label)
    grid[0, 0].set_yscale("log")
    grid[1, 0].set_yscale("log")
    for axes in grid[1]:
        axes.set_xlabel("Steps from the first loss below 0.01")
    return fig


def _draw_panel(axes: Axes, curves: Sequence[Curve], name: str, color: str) -> None:
    aligned = [(c.steps - c.steps[c.dropped], c) for c in curves if c.dropped is not None]
    origin = np.mean([c.steps[c.dropped] for _, c in aligned]) if aligned else 0.0
    for curve in (curve for curve in curves if curve.dropped is None):
        axes.plot(curve.steps - origin, curve.measured[name], ":", color=GREY, linewidth=1)
    for steps, curve in aligned:
        axes.plot(steps, curve.measured[name], color=color, linewidth=0.7, alpha=0.5)
    if not aligned:
        return
    steps, mean = mean_where_enough(
        [steps for steps, _ in aligned], [curve.measured[name] for _, curve in aligned]
    )
    axes.plot(steps, mean, color=color, linewidth=2.2)
    ends = [curve.steps[curve.plateau] - curve.steps[curve.dropped] for _, curve in aligned]
    axes.axvline(float(np.mean(ends)), color=GREY, linestyle="--", linewidth=1)
    axes.axvline(0, color=GREY, linewidth=1)


def mean_where_enough(
    steps: Sequence[Int[np.ndarray, " m"]], values: Sequence[Float[np.ndarray, " m"]]
) -> tuple[Int[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """The mean at every step that at least a quarter of the curves have.

    >>> mean_where_enough([np.array([0, 1]), np.array([1, 2])], [np.zeros(2), np.ones(2)])
    (array([0, 1, 2]), array([0. , 0.5, 1. ]))
    """
    found: dict[int, list[float]] = {}
    for at, value in zip(np.concatenate(steps), np.concatenate(values), strict=True):
        if np.isfinite(value):
            found.setdefault(int(at), []).append(float(value))
    enough = sorted(at for at, each in found.items() if len(each) >= len(steps) / 4)
    return np.array(enough), np.array([np.mean(found[at]) for at in enough])
