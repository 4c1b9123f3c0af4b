"""Figures of the part `generalisation`: sensitivity by size, degrees, sharpness."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from jaxsens.core.intervals import Interval
from jaxsens.figures.style import PALETTE, legend_below, new_figure, styled
from jaxsens.reporting.results import Figure
from jaxsens.reporting.run_folder import RunFolder

from ..._common.figures import saved_figure
from ..partial_functions import (
    KINDS,
    Extension,
    Retrained,
    over_functions,
    profile,
    sensitivity,
)

_LABELS = {
    "learned": "learned extension",
    "random": "random extension",
    "target": "random function itself",
}
_MARKERS = {"learned": "o", "random": "s", "target": "^"}
_COLORS = dict(zip(_LABELS, PALETTE, strict=False))


def figures_of(
    extensions: Sequence[Extension], models: Sequence[Retrained], sharpness: str, folder: RunFolder
) -> tuple[Figure, ...]:
    """Both figures."""
    fits = [extension for extension in extensions if extension.fits]
    return (
        saved_figure(
            _draw_sensitivity(fits),
            folder,
            "generalisation_sensitivity",
            "Left: average sensitivity of what is learned from a part of a random function, of "
            "random extensions of the same labels, and of the function itself, against the number "
            "of labels; small marks are fits, large ones means over functions with 95 % intervals "
            f"(Fig. 4). Right: Fourier weight by degree at the fewest labels that were fitted. "
            f"{len(fits)} of {len(extensions)} fitted their labels.",
        ),
        saved_figure(
            _draw_sharpness(models, sharpness),
            folder,
            "generalisation_sharpness",
            "Sharpness of transformers that were trained on whole tables against the average "
            "sensitivity of these (Figs 4, 15). Hollow: the loss did not end below 1e-3; "
            f"{sum(m.learnt for m in models)} of {len(models)} learnt their tables.",
        ),
    )


def _tables(extension: Extension) -> dict[str, np.ndarray]:
    partial = extension.partial
    return {"learned": extension.learned, "random": partial.random, "target": partial.target}


@styled
def _draw_sensitivity(fits: Sequence[Extension]) -> Drawing:
    fig = new_figure(8.8, 3.6)
    left, right = fig.subplots(1, 2)
    sizes = sorted({extension.partial.size for extension in fits})
    for shift, (name, label) in zip((-1, 0, 1), _LABELS.items(), strict=True):
        look = {"color": _COLORS[name], "marker": _MARKERS[name]}
        for size in sizes:
            x = size * 1.05**shift
            mine = [extension for extension in fits if extension.partial.size == size]
            values = [sensitivity(_tables(extension)[name]) for extension in mine]
            left.plot([x] * len(values), values, linestyle="none", alpha=0.35, ms=3, **look)
            _mark(left, x, over_functions(mine, values), look)
        few = [profile(_tables(e)[name]) for e in fits if e.partial.size == sizes[0]]
        if few:
            right.plot(range(len(few[0])), np.mean(few, axis=0), label=label, **look)
    if sizes:
        left.set_xscale("log", base=2)
        left.set_xticks(sizes, [str(size) for size in sizes])
        right.set_title(f"{sizes[0]} labels", fontsize=9.5)
    left.set(xlabel="Labels", ylabel="Average sensitivity")
    left.set_ylim(bottom=0)
    right.set(xlabel="Degree k", ylabel="Fourier weight of degree k")
    right.set_ylim(bottom=0)
    legend_below(fig, right.get_legend_handles_labels()[0], num_columns=3)
    return fig


def _mark(axes: Axes, x: float, mean: Interval, look: dict[str, Any]) -> None:
    known = math.isfinite(mean.low)
    error = [[mean.mean - mean.low], [mean.high - mean.mean]] if known else None
    axes.errorbar(x, mean.mean, error, linestyle="none", capsize=3, markersize=6, **look)


@styled
def _draw_sharpness(models: Sequence[Retrained], sharpness: str) -> Drawing:
    fig = new_figure(5.6, 3.8)
    axes = fig.subplots()
    for kind in KINDS:
        for learnt in (True, False):
            mine = [m for m in models if m.kind == kind and m.learnt == learnt]
            axes.plot(
                [m.sensitivity for m in mine],
                [m.sharpness(sharpness) for m in mine],
                linestyle="none",
                marker=_MARKERS[kind],
                color=_COLORS[kind],
                fillstyle="full" if learnt else "none",
                label=_LABELS[kind] + ("" if learnt else ", not learnt"),
            )
    axes.set(xlabel="Average sensitivity of the table", ylabel=f"Sharpness, {sharpness}")
    axes.set_ylim(bottom=0)
    legend_below(fig, num_columns=2)
    return fig
