"""One page over all cells of a sweep: what holds with which seed, means over seeds, links.

Cells that differ by their seed alone are a group. Each claim of a group has one column a seed, and
each estimate among its results, and each number that its claims compare, has its mean over the
seeds with Student's 95 % interval: of other seeds, not of other examples, which the intervals in
the reports are about. Experiments that run many seeds themselves have their own intervals over them
in their reports.

Assumption: a claim has the same statement with every seed. One whose words depend on the seed is
shown once for each of its wordings.
"""

import dataclasses
import math
import os
import urllib.parse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxsens.core.files import write_atomic
from jaxsens.core.intervals import student_interval
from jaxsens.reporting import report
from jaxsens.reporting.results import Claim
from jaxsens.sweeps.cells import Cell
from jaxsens.sweeps.states import State, state_of

_TEMPLATE = "sweep.html.jinja"
_NO_VALUE = "–"


@dataclasses.dataclass(frozen=True)
class Row:
    """A cell of the sweep on the page.

    Attributes:
      index: its number, as `--index` takes it.
      cell: what was asked for.
      state: how far it is.
      link: from the page to the cell's report; None if there is none.
    """

    index: int
    cell: Cell
    state: State
    link: str | None


@dataclasses.dataclass(frozen=True)
class ClaimRow:
    """A claim of a group: whether it holds with each seed; None where the seed has no such claim.

    Attributes:
      statement: the claim in words.
      holds: for each seed.
      measured: what was measured with each seed, in words.
    """

    statement: str
    holds: tuple[bool | None, ...]
    measured: tuple[str, ...]

    @property
    def count(self) -> str:
        """How many of how many seeds."""
        known = [each for each in self.holds if each is not None]
        return f"{sum(known)} of {len(known)}"


@dataclasses.dataclass(frozen=True)
class NumberRow:
    """A number: its value with each seed, its mean and interval over them."""

    name: str
    values: tuple[str, ...]
    mean: str
    interval: str


@dataclasses.dataclass(frozen=True)
class Group:
    """The finished cells that differ by their seed alone.

    Attributes:
      title: what they share.
      summary: the title of their results.
      rows: the cells.
      claims: their claims.
      tables: titles, and the numbers under them.
    """

    title: str
    summary: str
    rows: tuple[Row, ...]
    claims: tuple[ClaimRow, ...]
    tables: dict[str, tuple[NumberRow, ...]]


def collect(name: str, cells: Sequence[Cell], page: Path) -> str:
    """Writes the page and says in one line what is on it.

    Args:
      name: of the sweep, for the title.
      cells: all of its cells.
      page: the file, from which the links go to the reports.

    Raises:
      ValueError: no cell is finished.
    """
    rows = []
    for index, cell in enumerate(cells):
        state, file = state_of(cell), cell.folder / "report.html"
        link = _link(page.parent, file) if state.results and file.exists() else None
        rows.append(Row(index, cell, state, link))
    finished = [row for row in rows if row.state.results is not None]
    if not finished:
        raise ValueError(f"none of the {len(cells)} cells is finished; there is nothing to collect")
    by_group: dict[tuple[Any, ...], list[Row]] = {}
    for row in finished:
        by_group.setdefault(row.cell.group, []).append(row)
    groups = [_group(each[0].cell.group_label, tuple(each)) for each in by_group.values()]
    counts = {word: sum(row.state.word == word for row in rows) for word in _words(rows)}
    said = ", ".join(f"{num} {word}" for word, num in counts.items())
    text = report.template(_TEMPLATE).render(name=name, rows=rows, groups=groups, said=said)
    write_atomic(page, text)
    return f"{len(cells)} cells: {said}; page: {page}"


def _words(rows: Iterable[Row]) -> list[str]:
    order = ("finished", "failed", "begun", "not begun")
    found = {row.state.word for row in rows}
    return [word for word in order if word in found]


def _group(title: str, rows: tuple[Row, ...]) -> Group:
    """What the cells of a group say of each claim and number, in the order of their seeds."""
    results = [row.state.results for row in rows if row.state.results is not None]
    claims = [{claim.statement: claim for claim in each.claims} for each in results]
    statements = list(dict.fromkeys(statement for each in claims for statement in each))
    found = [[each.get(statement) for each in claims] for statement in statements]
    return Group(
        title=title,
        summary=results[0].title,
        rows=rows,
        claims=tuple(map(_claim_row, statements, found)),
        tables={
            "Estimates": tuple(_estimate_rows([each.values for each in results])),
            "Numbers that the claims compare": tuple(_number_rows(statements, found)),
        },
    )


def _estimate_rows(values: Sequence[dict[str, Any]]) -> Iterator[NumberRow]:
    """Every estimate among the results: what has a mean."""
    found = [dict(_means(each)) for each in values]
    for name in dict.fromkeys(name for each in found for name in each):
        yield _number_row(name, [each.get(name) for each in found])


def _means(values: dict[str, Any], name: str = "") -> Iterator[tuple[str, float]]:
    mean = _number(values.get("mean"))
    if mean is not None:
        yield name, mean
    for key, inner in values.items():
        if isinstance(inner, dict):
            yield from _means(inner, f"{name}, {key}" if name else key)


def _claim_row(statement: str, claims: Sequence[Claim | None]) -> ClaimRow:
    return ClaimRow(
        statement,
        tuple(None if claim is None else claim.holds for claim in claims),
        tuple(_NO_VALUE if claim is None else claim.measured for claim in claims),
    )


def _number_rows(
    statements: Sequence[str], found: Sequence[Sequence[Claim | None]]
) -> list[NumberRow]:
    """Every number of the claims once: several claims may compare the same one."""
    series: dict[tuple[str, tuple[float | None, ...]], str] = {}
    for statement, claims in zip(statements, found, strict=True):
        names = dict.fromkeys(name for claim in claims if claim for name in claim.values)
        for name in names:
            values = tuple(_number(claim.values.get(name)) if claim else None for claim in claims)
            if any(value is not None for value in values):
                series.setdefault((name, values), statement)
    names_used = [name for name, _ in series]
    return [
        _number_row(name if names_used.count(name) == 1 else f"{name} ({statement})", values)
        for (name, values), statement in series.items()
    ]


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None


def _number_row(name: str, values: Sequence[float | None]) -> NumberRow:
    known = np.array([value for value in values if value is not None])
    mean, low, high = student_interval(known)
    return NumberRow(
        name=name,
        values=tuple(_NO_VALUE if value is None else f"{value:.4g}" for value in values),
        mean=f"{mean:.4g}",
        interval=f"{low:.4g} to {high:.4g}" if len(known) > 1 else _NO_VALUE,
    )


def _link(start: Path, file: Path) -> str:
    return urllib.parse.quote(Path(os.path.relpath(file, start)).as_posix())
