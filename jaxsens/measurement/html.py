"""Estimates and explanations for notebooks: HTML that needs nothing but itself.

Pictures are drawn as SVG, without matplotlib: a small heat map of patches, or a curve over tokens.
"""

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxsens.measurement.estimate import SensitivityEstimate
    from jaxsens.measurement.explanation import Explanation

#: Longer sides are shown by the means of neighbours.
_MOST_CELLS = 48
_WIDTH, _HEIGHT = 220, 90
#: Of values above and below 0, at their largest.
_WARM, _COLD = (178, 24, 43), (33, 102, 172)


def colour(value: float, top: float) -> str:
    """White for 0, red for `top`, blue for -top; grey for nan.

    >>> colour(0.0, 1.0), colour(1.0, 1.0), colour(-1.0, 1.0), colour(float("nan"), 1.0)
    ('#ffffff', '#b2182b', '#2166ac', '#dddddd')
    """
    if not np.isfinite(value):
        return "#dddddd"
    share = min(abs(value) / top, 1.0) if top > 0 else 0.0
    end = _WARM if value >= 0 else _COLD
    return "#" + "".join(f"{round(255 + share * (channel - 255)):02x}" for channel in end)


def of_estimate(estimate: "SensitivityEstimate") -> str:
    """The line that an estimate prints, its interval, and a picture of its positions."""
    low, high = estimate.ci()
    made = estimate.provenance
    facts = (
        f"95 % CI {low:.4g} to {high:.4g} · {made.perturbation} · {estimate.num_draws:,} draws in "
        f"{made.seconds:.3g} s{', by reuse' if made.incremental else ''}"
    )
    values, layout = estimate.per_position, estimate.layout
    picture = _heat_map(values.reshape(layout)) if len(layout) == 2 else _curve(values)
    return (
        f'<div style="font-family:sans-serif"><b>{html.escape(str(estimate))}</b><br>'
        f'<small style="opacity:.75">{html.escape(facts)}</small><br>{picture}</div>'
    )


def _heat_map(values: np.ndarray) -> str:
    values = _pooled(_pooled(values).T).T
    rows, columns = values.shape
    side = max(2, _WIDTH // max(rows, columns))
    top = float(np.nanmax(np.abs(values)))
    cells = "".join(
        f'<rect x="{j * side}" y="{i * side}" width="{side}" height="{side}" '
        f'fill="{colour(value, top)}"><title>row {i}, column {j}: {value:.4g}</title></rect>'
        for i, row in enumerate(values)
        for j, value in enumerate(row)
    )
    caption = f"mean of each patch, {'±' if np.nanmin(values) < 0 else '0 to '}{top:.3g}"
    return _svg(columns * side, rows * side, cells, caption)


def _pooled(values: np.ndarray) -> np.ndarray:
    """Means of neighbours along the first axis, if it is long."""
    if len(values) <= _MOST_CELLS:
        return values
    return np.stack([part.mean(axis=0) for part in np.array_split(values, _MOST_CELLS)])


def _curve(values: np.ndarray) -> str:
    low, high = min(0.0, float(np.nanmin(values))), max(0.0, float(np.nanmax(values)))
    across, height = max(1, len(values) - 1), (high - low) or 1.0

    def at(i: int, value: float) -> str:
        return f"{i / across * _WIDTH:.1f},{(high - value) / height * _HEIGHT:.1f}"

    points = " ".join(at(i, value) for i, value in enumerate(values) if np.isfinite(value))
    zero = f"{high / height * _HEIGHT:.1f}"
    drawn = (
        f'<line x1="0" x2="{_WIDTH}" y1="{zero}" y2="{zero}" stroke="#999" stroke-width="0.5"/>'
        f'<polyline points="{points}" fill="none" stroke="#0072b2" stroke-width="1.5"/>'
    )
    caption = f"mean of positions 0 to {len(values) - 1}, {low:.3g} to {high:.3g}"
    return _svg(_WIDTH, _HEIGHT, drawn, caption)


def _svg(width: int, height: int, content: str, caption: str) -> str:
    return (
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{html.escape(caption)}" xmlns="http://www.w3.org/2000/svg">{content}</svg>'
        f'<br><small style="opacity:.75">{html.escape(caption)}</small>'
    )


def of_explanation(explanation: "Explanation") -> str:
    """The operations as a table, and the sentence below it."""
    said = str(explanation).splitlines()[-1]
    head = ("operation", "result", "edited", "plain", "edit", "")
    body = "".join(_row("td", cells) for cells in explanation.cells())
    # Some thousand operations would fill the page.
    limits = "max-height:24em;overflow:auto;display:inline-block"
    return (
        f'<div style="{limits}"><table>{_row("th", head)}{body}</table></div>'
        f"<p><b>{html.escape(said)}</b></p>"
    )


def _row(tag: str, cells: Sequence[str]) -> str:
    filled = "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)
    return f"<tr>{filled}</tr>"
