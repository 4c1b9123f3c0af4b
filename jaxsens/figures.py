"""The figures of the papers, drawn from numbers and saved as PNG and PDF.

Every function returns a matplotlib ``Figure`` with its own Agg canvas and one fixed style: no
pyplot, no global state, no influence of the user's matplotlibrc. Colours (Okabe and Ito's palette,
safe for colour-blind readers) follow the order of the labels, so a model keeps its colour from one
figure to the next only if the labels come in the same order. The same numbers give the same bytes
with the same version of matplotlib.

Sensitivity and accuracy are fractions in [0, 1] everywhere; percentages would be drawn off scale.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec

import matplotlib
import matplotlib.style
import numpy as np
from jaxtyping import Array, Float
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from jaxsens.runfolder import write_atomic

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_GREY = "#555555"

_STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # shipped with matplotlib, so it is the same on every machine
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.labelsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#333333",
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "hatch.linewidth": 0.8,
    "pdf.fonttype": 42,  # text in the PDF stays text
}

Numbers = Sequence[float | int] | np.ndarray
P = ParamSpec("P")


def _styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    @functools.wraps(draw)
    def styled(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with matplotlib.style.context(["default", _STYLE]):
            return draw(*args, **kwargs)

    return styled


@dataclasses.dataclass(frozen=True)
class Curve:
    """One model's training: accuracy and sensitivity, with its interval, after some epochs.

    Attributes:
        label: The model's name in the legend.
        epochs: When it was measured.
        accuracy: Train accuracy in [0, 1], one value an epoch of ``epochs``.
        sensitivity: Sensitivity in [0, 1].
        low: Lower end of the 95 % interval of the sensitivity.
        high: Upper end.
        paper: The paper's sensitivity at the end of training, if it gives one.
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


@_styled
def training_curves(
    curves: Sequence[Curve],
    *,
    accuracy_label: str = "Train accuracy",
    sensitivity_label: str = "Sensitivity",
    paper_label: str = "paper, end of training",
) -> Figure:
    """Accuracy and sensitivity while models train, as in the paper's Figure 4.

    Args:
        curves: One for each model; their order fixes the colours.
        accuracy_label: Name of the left axis.
        sensitivity_label: Name of the right axis.
        paper_label: Legend of the marks at the right edge, the paper's values.

    Returns:
        Two panels: accuracy, and sensitivity with its 95 % band, against epochs.

    Raises:
        ValueError: There is no curve.

    Example:
        >>> curve = Curve("ViT", [1, 2], [0.6, 0.9], [0.05, 0.03], [0.04, 0.02], [0.06, 0.04])
        >>> len(training_curves([curve]).axes)
        2
    """
    if not curves:
        raise ValueError("expected at least one curve, got none")
    # The marks stand outside the axes, where the layout does not look, and need some room.
    fig = _figure(8.4, 3.6, rect=(0.0, 0.0, 0.985, 1.0), wspace=0.06)
    left, right = fig.subplots(1, 2)
    for i, curve in enumerate(curves):
        look = _look(i, len(curve.epochs))
        left.plot(curve.epochs, curve.accuracy, label=curve.label, **look)
        right.plot(curve.epochs, curve.sensitivity, **look)
        right.fill_between(
            curve.epochs, curve.low, curve.high, color=look["color"], alpha=0.18, linewidth=0
        )
        if curve.paper is not None:
            _mark_right_edge(right, curve.paper, look["color"])
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
            Line2D([], [], color=_GREY, marker="<", markersize=6, linestyle="--", label=paper_label)
        )
    num_rows = math.ceil(len(handles) / 4)
    num_columns = math.ceil(len(handles) / num_rows)
    fig.legend(handles=handles, loc="outside lower center", ncols=num_columns)
    return fig


@_styled
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
        labels: Names of the models; their order fixes the colours.
        values: Measured values, as many as labels.
        lows: Lower ends of the 95 % intervals.
        highs: Upper ends.
        paper: The paper's values, None where it gives none.
        ylabel: Name of the axis.
        digits: Decimals written above the bars.

    Returns:
        One panel: for each label a filled bar (measured) and a hatched one (paper).

    Raises:
        ValueError: Lengths differ, or a value lies outside its interval.
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

    fig = _figure(max(4.2, 1.6 + 1.25 * len(labels)), 3.4)
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
            axes.bar(x, published, width, facecolor="white", edgecolor=color, hatch="////")
            _write_above(axes, x, published, f"{published:.{digits}f}", _GREY)
    axes.set_xticks(range(len(labels)), [label.replace(" ", "\n", 1) for label in labels])
    axes.tick_params(axis="x", length=0)
    axes.grid(False, axis="x")
    axes.set(ylabel=ylabel, xlim=(-0.6, len(labels) - 0.4))
    tallest = max([*map(float, highs), *(p for p in given if p is not None), 1e-6])
    axes.set_ylim(0.0, 1.14 * tallest)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    if with_paper:
        measured = Patch(facecolor=_GREY, label="measured, 95 % interval")
        published_patch = Patch(facecolor="white", edgecolor=_GREY, hatch="////", label="paper")
        fig.legend(handles=[measured, published_patch], loc="outside lower center", ncols=2)
    return fig


@_styled
def patch_heatmaps(
    images: Float[Array | np.ndarray, "m H W C"],
    maps: Mapping[str, Float[Array | np.ndarray, "m _ _"]],
    *,
    row_labels: Sequence[str] | None = None,
    colorbar_label: str = "Sensitivity of the patch",
) -> Figure:
    """Where in an image each model is sensitive.

    Args:
        images: Images in [-1, 1] with 1 or 3 channels, shape (m, H, W, C).
        maps: For every model, the sensitivity of each patch, shape (m, Th, Tw).
        row_labels: A name for each image, such as its class.
        colorbar_label: Name of the colour bar.

    Returns:
        A row for each image: the image, then the patch map of every model laid over it in grey.
        All maps share one colour scale from 0 to their largest value.

    Raises:
        ValueError: Shapes, ranges or the number of labels do not fit together.
    """
    pictures = (np.asarray(images, np.float64) + 1.0) / 2.0
    heat = {label: np.asarray(values, np.float64) for label, values in maps.items()}
    _check_heatmaps(pictures, heat, row_labels)
    num_images, height, width, channels = pictures.shape
    num_columns = 1 + len(heat)
    grey = pictures.mean(-1)
    top = max([float(values.max()) for values in heat.values()] + [1e-12])
    scale = ScalarMappable(Normalize(0.0, top), cmap="Reds")

    fig = _figure(1.55 * num_columns + 1.0, 1.62 * num_images * height / width + 0.35)
    grid = fig.subplots(num_images, num_columns, squeeze=False)
    for i in range(num_images):
        colours = pictures[i] if channels == 3 else np.repeat(pictures[i], 3, axis=-1)
        grid[i, 0].imshow(colours)
        for axes, (label, values) in zip(grid[i, 1:], heat.items(), strict=True):
            rows, columns = values[i].shape
            pixels = np.ix_(np.arange(height) * rows // height, np.arange(width) * columns // width)
            # Multiplied, not blended: the colour keeps its hue and the picture stays a hint.
            axes.imshow(
                scale.to_rgba(values[i][pixels])[..., :3] * (0.72 + 0.28 * grey[i])[..., None]
            )
            lines = {"color": "white", "linewidth": 0.5, "alpha": 0.7}
            axes.vlines(np.arange(1, columns) * width / columns - 0.5, -0.5, height - 0.5, **lines)
            axes.hlines(np.arange(1, rows) * height / rows - 0.5, -0.5, width - 0.5, **lines)
            if i == 0:
                axes.set_title(label)
            axes.set_xlabel(f"mean {values[i].mean():.3f}", fontsize=8.5, color=_GREY, labelpad=2)
        if row_labels is not None:
            grid[i, 0].set_ylabel(row_labels[i])
    grid[0, 0].set_title("image")
    for axes in grid.flat:
        axes.set(xticks=[], yticks=[])
        axes.grid(False)
        axes.spines[:].set_visible(False)
    fig.colorbar(scale, ax=grid, label=colorbar_label, aspect=30, fraction=0.04, pad=0.02)
    return fig


def save(fig: Figure, folder: Path | str, name: str) -> Path:
    """Writes ``name.png`` (150 dpi) and ``name.pdf``, byte-identical for identical numbers.

    Args:
        fig: A figure of this module, or any other.
        folder: The folder, made when missing.
        name: File name without extension.

    Returns:
        The path of the PNG file.
    """
    folder = Path(folder)
    # Version and time of writing would make equal figures differ.
    metadata: dict[str, dict[str, Any]] = {
        "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
        "png": {"Software": None},
    }
    with matplotlib.style.context(["default", _STYLE]):
        for kind, fields in metadata.items():
            buffer = io.BytesIO()
            fig.savefig(buffer, format=kind, dpi=150, metadata=fields)
            write_atomic(folder / f"{name}.{kind}", buffer.getvalue())
    return folder / f"{name}.png"


def _figure(width: float, height: float, **layout: Any) -> Figure:
    fig = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(**layout))
    FigureCanvasAgg(fig)
    return fig


def _look(i: int, num_points: int) -> dict[str, Any]:
    """Colour and marker of the i-th label: told apart also in print without colour."""
    every = max(1, num_points // 8)
    return {
        "color": PALETTE[i % len(PALETTE)],
        "marker": _MARKERS[i % len(_MARKERS)],
        # Staggered, so that the markers of curves that run together do not hide each other.
        "markevery": (i % every, every),
    }


def _mark_right_edge(axes: Axes, value: float, color: str) -> None:
    place = axes.get_yaxis_transform()
    axes.plot([0.9, 1.0], [value, value], color=color, linestyle="--", transform=place)
    axes.plot([1.02], [value], "<", color=color, markersize=6, clip_on=False, transform=place)


def _write_above(axes: Axes, x: float, y: float, text: str, color: str) -> None:
    axes.annotate(
        text, (x, y), (0, 3), textcoords="offset points", ha="center", fontsize=8.5, color=color
    )


def _check_heatmaps(
    pictures: np.ndarray, heat: dict[str, np.ndarray], row_labels: Sequence[str] | None
) -> None:
    if pictures.shape[-1] not in (1, 3) or not pictures.size:
        raise ValueError(f"expected images with 1 or 3 channels, got shape {pictures.shape}")
    if not (pictures.min() >= -1e-6 and pictures.max() <= 1 + 1e-6):
        low, high = 2 * pictures.min() - 1, 2 * pictures.max() - 1
        raise ValueError(f"expected images in [-1, 1], got values from {low:.3g} to {high:.3g}")
    if not heat:
        raise ValueError("expected at least one map, got none")
    for label, values in heat.items():
        if values.ndim != 3 or len(values) != len(pictures) or not values.min() >= 0:
            raise ValueError(
                f"map {label!r}: expected shape ({len(pictures)}, Th, Tw) and values >= 0, got "
                f"shape {values.shape} and smallest value {values.min():.3g}"
            )
    if row_labels is not None and len(row_labels) != len(pictures):
        raise ValueError(f"expected {len(pictures)} row labels, got {len(row_labels)}")
