"""One fixed style for all figures, and how they are saved.

No pyplot, no global state, no influence of the user's matplotlibrc. Colours (Okabe and Ito's
palette, safe for colour-blind readers) follow the order of the labels, so a model keeps its colour
from one figure to the next only if the labels come in the same order.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any, ParamSpec

import matplotlib
import matplotlib.style
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.legend import Legend

from jaxsens.core import storage
from jaxsens.figures.plotted_numbers import csv_of

#: Colours that people with colour blindness can tell apart (Okabe and Ito).
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
#: Of the labels beyond the seventh, whose colours and markers are those of the first ones again.
_LINES = ("-", "--", ":", "-.")
GREY = "#555555"

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


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draws in the fixed style, whatever the user's own is."""

    @functools.wraps(draw)
    def in_style(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with matplotlib.style.context(["default", _STYLE]):
            return draw(*args, **kwargs)

    return in_style


def save(fig: Figure, folder: PurePath | str, name: str) -> PurePath:
    """Writes `name.png` (150 dpi), `name.pdf` and, with the numbers drawn, `name.csv`.

    The files are byte-identical for identical numbers.

    Args:
      fig: a figure of this module, or any other.
      folder: the folder, made when missing.
      name: file name without extension.

    Returns:
      The path of the PNG file.

    Example:
      >>> import tempfile
      >>> from jaxsens.figures import Band, bands
      >>> fig = bands({"Place": {"LSTM": Band([0, 1], [0.1, 0.2], [0.0, 0.1], [0.2, 0.3])}})
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = save(fig, folder, "places")
      ...     sorted(file.name for file in path.parent.iterdir())
      ['places.csv', 'places.pdf', 'places.png']
    """
    place = storage.at(folder)
    # Version and time of writing would make equal figures differ.
    metadata: dict[str, dict[str, Any]] = {
        "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
        "png": {"Software": None},
    }
    with matplotlib.style.context(["default", _STYLE]):
        for file_format, fields in metadata.items():
            buffer = io.BytesIO()
            fig.savefig(buffer, format=file_format, dpi=150, metadata=fields)
            place.write(f"{name}.{file_format}", buffer.getvalue())
        if numbers := csv_of(fig):
            place.write(f"{name}.csv", f"{numbers}\n")
    return place.location / f"{name}.png"


def new_figure(width: float, height: float, **layout: Any) -> Figure:
    """A figure of that many inches with its own Agg canvas."""
    fig = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(**layout))
    FigureCanvasAgg(fig)
    return fig


def legend_below(
    fig: Figure, handles: Sequence[Any] | None = None, *, num_columns: int = 4, **look: Any
) -> Legend:
    """A legend below all panels, in as many columns as the figure has room for.

    Args:
      fig: a figure whose panels are drawn.
      handles: what it names; by default everything that has a label.
      num_columns: the most that it may have.
      **look: other arguments of matplotlib's `Figure.legend`.

    Example:
      >>> fig = new_figure(2.0, 2.0)
      >>> lines = [fig.subplots().plot([0, 1], label="a rather long name")[0] for _ in range(4)]
      >>> legend_below(fig, lines)._ncols
      1
    """
    named = {} if handles is None else {"handles": handles}
    for columns in range(max(1, num_columns), 0, -1):
        legend = fig.legend(**named, loc="outside lower center", ncols=columns, **look)
        if columns == 1 or legend.get_window_extent().width <= 0.97 * fig.bbox.width:
            break
        legend.remove()
    return legend


def look_of(i: int, num_points: int) -> dict[str, Any]:
    """Colour and marker of the i-th label: told apart also in print without colour."""
    every = max(1, num_points // 8)
    again = {"linestyle": _LINES[i // len(PALETTE) % len(_LINES)]} if i >= len(PALETTE) else {}
    return again | {
        "color": PALETTE[i % len(PALETTE)],
        "marker": _MARKERS[i % len(_MARKERS)],
        # Staggered, so that the markers of curves that run together do not hide each other.
        "markevery": (i % every, every),
    }
