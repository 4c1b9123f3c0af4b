"""Parts of the report page that are made from its data: maps of examples, CSV, groups of claims."""

from __future__ import annotations

import base64
import csv
import dataclasses
import io
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import UInt8

from jaxsens.reporting.example_maps import ExampleMap, ExampleMaps, png_uri
from jaxsens.reporting.results import Claim, Table

#: From no change to the largest value: matplotlib's "Reds" at 0, ¼, ½, ¾ and 1.
_COLOURS = ((255, 245, 240), (252, 190, 165), (251, 112, 80), (212, 32, 32), (103, 0, 13))
_NOT_MEASURED = (190, 190, 190)


@dataclasses.dataclass(frozen=True)
class ClaimGroup:
    """Claims under one heading; an empty one for those without."""

    name: str
    claims: tuple[Claim, ...]

    @property
    def num_holds(self) -> int:
        """How many of them hold."""
        return sum(claim.holds for claim in self.claims)


def claim_groups(claims: Iterable[Claim]) -> list[ClaimGroup]:
    """The claims by their groups, in the order in which the groups come first.

    Example:
      >>> claims = [Claim(name, "", "", True, group=name[0]) for name in ("x1", "y1", "x2")]
      >>> [(group.name, len(group.claims)) for group in claim_groups(claims)]
      [('x', 2), ('y', 1)]
    """
    found: dict[str, list[Claim]] = {}
    for claim in claims:
        found.setdefault(claim.group, []).append(claim)
    return [ClaimGroup(name, tuple(each)) for name, each in found.items()]


def csv_uri(text: str | bytes) -> str:
    """A CSV file as a data URI."""
    data = text.encode() if isinstance(text, str) else text
    return "data:text/csv;charset=utf-8;base64," + base64.b64encode(data).decode("ascii")


def table_csv(table: Table) -> str:
    """A table's cells as they are, not rounded for readers."""
    return _csv([table.columns, *table.rows])


def maps_csv(maps: ExampleMaps) -> str:
    """Every value of every model: a row for each position of each example."""
    columns = 1 if maps.layout is None else maps.layout[1]
    place = ("position", "token") if maps.layout is None else ("row", "column")
    rows: list[Sequence[Any]] = [("example", *place, *maps.models)]
    for example in maps.examples:
        for i, values in enumerate(zip(*example.values.values(), strict=True)):
            where = (i, example.tokens[i]) if maps.layout is None else divmod(i, columns)
            rows.append((example.label, *where, *values))
    return _csv(rows)


def heat_uri(example: ExampleMap, model: str, maps: ExampleMaps) -> str:
    """The heat map of one model on one picture: a pixel for each window, as a data URI."""
    if maps.layout is None:
        raise ValueError("expected maps of pictures, got maps of texts, which have no layout")
    pixels = heat_colours(example.values[model], maps.largest)
    return png_uri(pixels.reshape(*maps.layout, 3))


def heat_colours(values: Sequence[float | None], largest: float) -> UInt8[np.ndarray, "T 3"]:
    """The colour of each value on the scale from 0 to the largest; grey where there is none.

    Example:
      >>> heat_colours((0.0, None, 0.5), 0.5).tolist()
      [[255, 245, 240], [190, 190, 190], [103, 0, 13]]
    """
    known = np.array([np.nan if value is None else value for value in values], np.float64)
    share = np.clip(np.nan_to_num(known) / largest, 0, 1)
    places = np.linspace(0, 1, len(_COLOURS))
    channels = [np.interp(share, places, channel) for channel in zip(*_COLOURS, strict=True)]
    pixels = np.round(np.stack(channels, axis=-1)).astype(np.uint8)
    pixels[np.isnan(known)] = _NOT_MEASURED
    return pixels


def for_script(maps: Sequence[ExampleMaps]) -> list[dict[str, Any]]:
    """What the page's script shows under the pointer."""
    return [
        {
            "columns": None if each.layout is None else each.layout[1],
            "rows": None if each.layout is None else each.layout[0],
            "models": each.models,
            "examples": [
                {"values": list(example.values.values()), "tokens": example.tokens}
                for example in each.examples
            ],
        }
        for each in maps
    ]


def _csv(rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
