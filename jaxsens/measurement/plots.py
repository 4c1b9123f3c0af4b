"""Figures of an estimate: heat maps of patches, also over images, curves, coloured words.

This module needs matplotlib, so nothing imports it before a figure is asked for. No pyplot, no
global state: a figure belongs to whoever asked for it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jaxsens.core.scalars import as_list, one_line

if TYPE_CHECKING:
    from jaxsens.measurement.estimate import SensitivityEstimate

#: Examples that are shown if none are named.
_NUM_SHOWN = 4
_GREY, _BLUE = "#555555", "#0072B2"
#: Of a line of words: letters, and inches of a letter and of a line.
_LETTERS, _LETTER, _LINE = 90, 0.083, 0.24


def of_estimate(
    estimate: "SensitivityEstimate",
    x: Any = None,
    tokens: Sequence[Sequence[str]] | None = None,
    examples: Sequence[int] | None = None,
) -> Figure:
    """The figure that `SensitivityEstimate.plot` describes."""
    if x is None and tokens is None:
        if examples is not None:
            raise ValueError("examples are shown with x= (images) or tokens=; give one of them")
        return _mean_map(estimate) if len(estimate.layout) == 2 else _mean_curve(estimate)
    if x is not None and tokens is not None:
        raise ValueError("plot takes images, x=, or tokens=; got both")
    chosen = _chosen(estimate, examples)
    if tokens is not None:
        return _coloured_words(estimate, tokens, chosen)
    return _maps_over_images(estimate, x, chosen)


def _mean_map(estimate: "SensitivityEstimate") -> Figure:
    values = estimate.per_position.reshape(estimate.layout)
    scale = _scale(values)
    fig = _figure(4.2, 0.6 + 3.2 * values.shape[0] / values.shape[1])
    axes = fig.subplots()
    axes.imshow(values, **_look_of(scale))
    axes.set(xlabel="column of patches", ylabel="row of patches")
    axes.set_title(_title(estimate), fontsize=9)
    for axis in (axes.xaxis, axes.yaxis):  # there is no half a patch
        axis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    fig.colorbar(scale, ax=axes, label=_name(estimate), fraction=0.046)
    return fig


def _mean_curve(estimate: "SensitivityEstimate") -> Figure:
    fig = _figure(5.5, 3.0)
    axes = fig.subplots()
    axes.plot(estimate.per_position, color=_BLUE, marker="o", markersize=3)
    axes.axhline(0.0, color=_GREY, linewidth=0.5)
    axes.set(xlabel="position", ylabel=_name(estimate), title=_title(estimate))
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    return fig


def _maps_over_images(estimate: "SensitivityEstimate", x: Any, chosen: np.ndarray) -> Figure:
    if len(estimate.layout) != 2:
        raise ValueError(
            f"maps over images need positions in rows and columns; got {estimate.layout}: give "
            "tokens=, or leave x out for the curve"
        )
    pictures = _pictures(estimate, x, chosen)
    maps = estimate.per_example_position[chosen].reshape(-1, *estimate.layout)
    scale, ratio = _scale(maps), pictures.shape[1] / pictures.shape[2]
    fig = _figure(4.6, 0.4 + 1.9 * ratio * len(chosen))
    grid = fig.subplots(len(chosen), 2, squeeze=False)
    for row, number, picture, values in zip(grid, chosen, pictures, maps, strict=True):
        height, width = picture.shape[:2]
        row[0].imshow(picture)
        # Grey below the colours, so that what is seen is still there to be seen.
        row[1].imshow(np.repeat(picture.mean(axis=2, keepdims=True), 3, axis=2))
        extent = (-0.5, width - 0.5, height - 0.5, -0.5)
        row[1].imshow(values, **_look_of(scale), alpha=0.65, extent=extent)
        row[0].set_ylabel(f"example {number}")
        row[1].set_xlabel(f"mean {np.nanmean(values):.3g}", fontsize=8, color=_GREY)
        for axes in row:
            axes.set(xticks=[], yticks=[])
    fig.colorbar(scale, ax=grid, label=_name(estimate), fraction=0.04)
    return fig


def _coloured_words(
    estimate: "SensitivityEstimate", tokens: Sequence[Sequence[str]], chosen: np.ndarray
) -> Figure:
    if len(tokens) != len(estimate.totals):
        raise ValueError(
            f"tokens must be of n = {len(estimate.totals)} examples; got {len(tokens)}"
        )
    maps = estimate.per_example_position[chosen]
    scale = _scale(maps)
    lines: list[list[tuple[str, float | None]]] = []
    for number, values in zip(chosen, maps, strict=True):
        words = [str(word) for word in tokens[number]]
        if len(words) > len(values):
            raise ValueError(
                f"tokens of example {number} are {len(words)}; got T = {len(values)} positions"
            )
        mean = np.nanmean(values)
        lines.append([(f"example {number}, mean {mean:.3g}", None)])
        lines += _wrapped(list(zip(words, values.tolist(), strict=False)))
    fig = _figure(_LETTERS * _LETTER + 0.9, _LINE * (len(lines) + 2))
    axes = fig.subplots()
    axes.set(xlim=(0, _LETTERS), ylim=(len(lines), -1))
    axes.set_axis_off()
    for y, line in enumerate(lines):
        at = 0.0
        for word, value in line:
            axes.text(at, y, word.replace("$", r"\$"), **_look(value, scale))
            at += len(word) + 1.2
    fig.colorbar(scale, ax=axes, label=_name(estimate), fraction=0.03, pad=0.01)
    return fig


def _look(value: float | None, scale: ScalarMappable) -> dict[str, Any]:
    look: dict[str, Any] = {"family": "monospace", "fontsize": 8.5, "va": "center"}
    if value is None:
        return look | {"color": _GREY}
    red, green, blue, _ = scale.to_rgba(np.asarray(value))
    dark = 0.3 * red + 0.6 * green + 0.1 * blue < 0.5
    box = {"facecolor": (red, green, blue), "edgecolor": "none", "pad": 1.2}
    return look | {"bbox": box, "color": "white" if dark else "black"}


def _wrapped(words: list[tuple[str, float]]) -> list[list[tuple[str, float | None]]]:
    """Words in lines of at most `_LETTERS` letters."""
    lines: list[list[tuple[str, float | None]]] = [[]]
    used = 0.0
    for word, value in words:
        word = word if len(word) <= _LETTERS // 2 else word[: _LETTERS // 2] + "…"
        if used + len(word) > _LETTERS:
            lines.append([])
            used = 0.0
        lines[-1].append((word, value))
        used += len(word) + 1.2
    return lines


def _chosen(estimate: "SensitivityEstimate", examples: Any) -> np.ndarray:
    if examples is None:
        return estimate.most_changed(_NUM_SHOWN)
    n, given = len(estimate.totals), as_list(examples)
    numbers = np.asarray([] if given is None else given)
    if not numbers.size or numbers.dtype.kind not in "iu" or not (numbers >= 0).all():
        raise ValueError(f"examples must be numbers from 0 to {n - 1}; got {one_line(examples)}")
    if numbers.max() >= n:
        raise ValueError(f"examples must be numbers from 0 to {n - 1}; got {numbers.max()}")
    return numbers


def _pictures(estimate: "SensitivityEstimate", x: Any, chosen: np.ndarray) -> np.ndarray:
    """(k, H, W, 3) of 0 to 1: all of them stretched alike, whatever they were scaled to."""
    shape = tuple(getattr(x, "shape", ()))
    if len(shape) != 4 or shape[0] != len(estimate.totals):
        raise ValueError(
            f"x must be images (n, H, W, C) or (n, C, H, W) of n = {len(estimate.totals)} "
            f"examples; got shape {shape}"
        )
    images = np.stack([np.asarray(x[int(number)], np.float64) for number in chosen])
    if images.shape[-1] not in (1, 3):
        if images.shape[1] not in (1, 3):
            raise ValueError(f"x must have 1 or 3 channels; got images of shape {shape[1:]}")
        images = np.moveaxis(images, 1, -1)
    low, high = images.min(), images.max()
    images = (images - low) / ((high - low) or 1.0)
    return np.broadcast_to(images, (*images.shape[:3], 3))


def _scale(values: np.ndarray) -> ScalarMappable:
    """From 0 to the largest in reds, or to both sides of 0 in blues and reds."""
    top = max(float(np.nanmax(np.abs(values))), 1e-12)
    is_signed = float(np.nanmin(values)) < 0
    norm = Normalize(-top if is_signed else 0.0, top)
    return ScalarMappable(norm, cmap="RdBu_r" if is_signed else "Reds")


def _look_of(scale: ScalarMappable) -> dict[str, Any]:
    return {"cmap": scale.cmap, "norm": scale.norm}


def _name(estimate: "SensitivityEstimate") -> str:
    metric = estimate.provenance.metric
    return "sensitivity" if metric == "label_flip" else metric.replace("_", " ")


def _title(estimate: "SensitivityEstimate") -> str:
    low, high = estimate.ci()
    return f"mean {estimate.mean:.3g}, 95 % CI {low:.3g} to {high:.3g}"


def _figure(width: float, height: float) -> Figure:
    fig = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(fig)
    return fig
