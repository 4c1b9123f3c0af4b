"""The numbers behind a figure, as CSV: read from what was drawn, whoever drew it.

One row for each point, bar or cell, with the panel and the series that it belongs to, and the ends
of its interval where a band or an error bar shows one. Marks beside an axis, such as the paper's
values, have no x. A series without a label of its own has that of its colour.

Assumption: colours tell labels apart in one figure, and bands and error bars lie at the points that
they belong to. That is how the figures of this package are drawn. Grid lines and texts are no data.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import re
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator

#: Labels that matplotlib gives to artists without one; other hidden ones begin with "_", too.
_UNNAMED = re.compile(r"_child\d+|_nolegend_|_container\d+|")
_COLORBAR = "<colorbar>"
#: What images of colours show, and its name.
_KEPT: weakref.WeakKeyDictionary[AxesImage, tuple[np.ndarray, str]] = weakref.WeakKeyDictionary()


@dataclasses.dataclass
class PlottedPoint:
    """One row of the CSV; None where there is nothing."""

    panel: str
    series: str
    x: Any
    y: Any
    value: float | None = None
    low: float | None = None
    high: float | None = None
    x_low: float | None = None
    x_high: float | None = None


def keep_values(image: AxesImage, values: np.ndarray, series: str) -> None:
    """Says what an image of colours shows: rows and columns of numbers, and of what they are."""
    _KEPT[image] = values, series


def csv_of(fig: Figure) -> str:
    """The numbers of a figure as CSV text, with a header line; columns without numbers left out.

    Args:
      fig: a figure of this package, or any other.

    Returns:
      The text; empty if nothing is drawn.

    Example:
      >>> from jaxsens.figures import bars
      >>> print(csv_of(bars(["ViT", "CNN"], [0.1, 0.3], [0.0, 0.2], [0.2, 0.4], [0.02, None])))
      panel,series,x,y,low,high
      Sensitivity,ViT,ViT,0.1,0.0,0.2
      Sensitivity,paper,ViT,0.02,,
      Sensitivity,CNN,CNN,0.3,0.2,0.4
    """
    points = [*_points_of(fig)]
    fields = [field.name for field in dataclasses.fields(PlottedPoint)]
    used = [name for name in fields if any(getattr(p, name) not in (None, "") for p in points)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if points:
        writer.writerow(used)
    for point in points:
        writer.writerow([_cell(getattr(point, name)) for name in used])
    return text.getvalue().rstrip("\n")


def _points_of(fig: Figure) -> Iterator[PlottedPoint]:
    """All points, panel by panel."""
    drawn = [axes for axes in fig.axes if axes.get_label() != _COLORBAR]
    names = _panel_names(drawn)
    series = _series_by_colour(fig)
    for axes, panel in zip(drawn, names, strict=True):
        found = [*_bars_of(axes, panel)]
        of_errors = {id(line) for each in axes.containers for line in _lines_of(each)}
        for container in axes.containers:
            if isinstance(container, ErrorbarContainer):
                found += _with_errors(found, _errors_of(panel, container, series))
        for line in axes.lines:
            if id(line) not in of_errors:
                found += _unseen(found, _line_of(axes, panel, line, series))
        for band in axes.collections:
            if isinstance(band, PolyCollection):
                _add_band(found, band, series)
        for image in axes.images:
            found += _cells_of(panel, image)
        x_names, y_names = _categories(axes.xaxis), _categories(axes.yaxis)
        for point in found:
            # Bars of one category stand beside each other, less than half a place from its tick.
            point.x = x_names.get(_place(point.x), point.x)
            point.y = y_names.get(_place(point.y), point.y)
        yield from found


def _panel_names(drawn: Sequence[Axes]) -> list[str]:
    """Title and axes of each panel, numbered where that does not tell them apart."""
    names = []
    for axes in drawn:
        texts = (axes.get_title(), axes.get_ylabel(), axes.get_xlabel())
        names.append("; ".join(" ".join(text.split()) for text in texts if text))
    return [
        f"{name} ({i + 1})".strip() if names.count(name) > 1 else name
        for i, name in enumerate(names)
    ]


def _series_by_colour(fig: Figure) -> dict[str, str]:
    """The label of each colour that has one only."""
    labels: dict[str, set[str]] = {}
    artists: list[Any] = [line for axes in fig.axes for line in axes.lines]
    artists += [c for axes in fig.axes for c in axes.containers]
    for artist in artists:
        if not str(artist.get_label()).startswith("_"):
            labels.setdefault(_colour(artist), set()).add(str(artist.get_label()))
    return {colour: min(found) for colour, found in labels.items() if len(found) == 1}


def _colour(artist: Any) -> str:
    if isinstance(artist, BarContainer):
        return to_hex(artist.patches[0].get_facecolor())
    if isinstance(artist, ErrorbarContainer):
        return _colour(artist.lines[0]) if artist.lines[0] else _colour(artist.lines[2][0])
    if isinstance(artist, Line2D):
        return to_hex(artist.get_color())
    is_band = isinstance(artist, PolyCollection)
    colours: Any = artist.get_facecolor() if is_band else artist.get_color()
    return to_hex(colours[0])


def _name_of(artist: Any, series: dict[str, str]) -> str:
    label = str(artist.get_label())
    if not _UNNAMED.fullmatch(label):
        return label.removeprefix("_")
    return series.get(_colour(artist), "")


def _bars_of(axes: Axes, panel: str) -> Iterator[PlottedPoint]:
    for container in axes.containers:
        if isinstance(container, BarContainer):
            name = _name_of(container, {})
            for bar in container.patches:
                middle = bar.get_x() + bar.get_width() / 2
                yield PlottedPoint(panel, name, middle, bar.get_height())


def _errors_of(
    panel: str, container: ErrorbarContainer, series: dict[str, str]
) -> list[PlottedPoint]:
    """The points of an errorbar with the ends of their bars."""
    across = [*container.lines[2]][: 1 if container.has_xerr else 0]
    up = [*container.lines[2]][len(across) :]
    name = _name_of(container, series)
    ends_x = [segment[:, 0] for each in across for segment in each.get_segments()]
    ends_y = [segment for each in up for segment in each.get_segments()]
    line = container.lines[0]
    if line is not None:
        points = np.asarray(line.get_xydata())
    else:
        points = np.array([segment.mean(axis=0) for segment in ends_y]).reshape(-1, 2)
    found = []
    for i, (x, y) in enumerate(points):
        point = PlottedPoint(panel, name, x, y if line is not None else None)
        if ends_y:
            point.low, point.high = ends_y[i][0, 1], ends_y[i][1, 1]
        if ends_x:
            point.x_low, point.x_high = ends_x[i]
        found.append(point)
    return found


def _with_errors(
    bars: Sequence[PlottedPoint], errors: Sequence[PlottedPoint]
) -> Iterator[PlottedPoint]:
    """Gives bars the intervals that stand on them; yields those that stand alone."""
    for error in errors:
        below = [
            bar
            for bar in bars
            if bar.low is None and abs(bar.x - error.x) < 1e-9 and error.y in (None, bar.y)
        ]
        if below:
            below[0].low, below[0].high = error.low, error.high
        else:
            yield error


def _line_of(
    axes: Axes, panel: str, line: Line2D, series: dict[str, str]
) -> Iterator[PlottedPoint]:
    """The points of a line; of one that marks a value of one axis, that value."""
    in_x, in_y = line.get_transform().contains_branch_seperately(axes.transData)
    name = _name_of(line, series)
    for x, y in zip(np.asarray(line.get_xdata()), np.asarray(line.get_ydata()), strict=True):
        if in_x or in_y:
            yield PlottedPoint(panel, name, x if in_x else None, y if in_y else None)


def _unseen(found: list[PlottedPoint], points: Iterator[PlottedPoint]) -> list[PlottedPoint]:
    """A mark of two points, or of a line and an arrow, is one number."""
    fresh: list[PlottedPoint] = []
    for point in points:
        if None not in (point.x, point.y) or point not in (*found, *fresh):
            fresh.append(point)
    return fresh


def _add_band(found: Sequence[PlottedPoint], band: PolyCollection, series: dict[str, str]) -> None:
    """Gives the points of the line of the band's colour the ends of the band."""
    name = _name_of(band, series)
    vertices = np.concatenate([path.vertices for path in band.get_paths()] or [np.empty((0, 2))])
    for point in found:
        ends = vertices[vertices[:, 0] == point.x, 1] if point.series == name else ()
        if len(ends) and point.low is None and point.x is not None:
            point.low, point.high = float(min(ends)), float(max(ends))


def _cells_of(panel: str, image: AxesImage) -> Iterator[PlottedPoint]:
    """The numbers of an image; one of colours alone has none unless they were kept."""
    values, name = _KEPT.get(image, (np.asarray(image.get_array()), ""))
    if values.ndim != 2:
        return
    for (row, column), value in np.ndenumerate(values):
        yield PlottedPoint(panel, name, column, row, value=float(value))


def _place(coordinate: Any) -> int:
    return -1 if coordinate is None or not math.isfinite(coordinate) else round(coordinate)


def _categories(axis: Axis) -> dict[int, str]:
    """The names of the places 0, 1, …, if these are the ticks of an axis and have other names."""
    if not isinstance(axis.get_major_locator(), FixedLocator):
        return {}
    places = [float(place) for place in axis.get_majorticklocs()]
    names = [" ".join(label.get_text().split()) for label in axis.get_majorticklabels()]
    if places != [float(i) for i in range(len(places))]:
        return {}
    return {i: name for i, name in enumerate(names) if name != str(i)}


def _lines_of(container: Any) -> list[Artist]:
    """The lines that belong to an errorbar."""
    if not isinstance(container, ErrorbarContainer):
        return []
    line, caps, _ = container.lines
    return [*([line] if line is not None else []), *caps]


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    return value if isinstance(value, int) else repr(float(value))
