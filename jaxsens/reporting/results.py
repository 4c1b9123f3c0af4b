"""What a finished run says: claims, tables, figures, numbers, and what they were made with.

Everything here is plain JSON once it is made: NumPy and JAX numbers become Python numbers, tuples
lists, and NaN and infinity are refused by name, so that results survive a round trip to disk.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jaxsens.reporting.plain_json import dumps, plain

Cell = str | float | int | None

_NO_VALUE = "–"
_DIGITS = r"\s.,;+\-−–±×%/()\[\]e\d"
#: "0.1", "1.2e-05", "0.1 (0.0 – 0.2)", "0.1 (0.0 to 0.2)", "0.1 (one run)", "2 of 3".
_NUMERIC_TEXT = re.compile(
    rf"{_NO_VALUE}|[{_DIGITS}≈<>≤≥]*\d(?:[{_DIGITS}∞]|\b(?:to|of|one run)\b)*"
)

#: More of them than these are easier to read as a list.
FEW_SENTENCES = 3
#: "Def. 4.3" goes on, and so does "a ≥ 0.1. in".
_BETWEEN_SENTENCES = re.compile(r"(?<=\.) (?=[A-Z])|(?<=\?) ")

#: The ends of an interval; None for an end that is infinite.
Ends = tuple[float | None, float | None]


@dataclasses.dataclass(frozen=True)
class Claim:
    """One statement of a paper (an ordering or an inequality) and whether we see it too.

    Attributes:
      statement: the claim in words.
      paper: what the paper gives for it.
      measured: what we measured, in words.
      holds: whether we see it too.
      values: the numbers that are compared, each under the name of what it is of.
      decided_by: the number that decides, in words, such as "difference".
      interval: its confidence interval; an end that is infinite is stored as None.
      level: of the interval.
      num_examples: independent examples that the interval is about.
      num_seeds: independently trained models that the claim rests on.
      group: a heading that it shares with other claims of the run; empty for none.

    Example:
      >>> claim = Claim("ViT < CNN", "0.02 < 0.06", "0.03 < 0.06", True, interval=(0.01, math.inf))
      >>> claim.holds, claim.interval
      (True, (0.01, None))
    """

    statement: str
    paper: str
    measured: str
    holds: bool
    values: dict[str, Any] = dataclasses.field(default_factory=dict)
    decided_by: str = ""
    interval: Ends | None = None
    level: float = 0.95
    num_examples: int | None = None
    num_seeds: int | None = None
    group: str = ""

    def __post_init__(self) -> None:
        where = f"claim {self.statement!r}"
        object.__setattr__(self, "holds", bool(self.holds))
        object.__setattr__(self, "values", plain(self.values, where))
        if self.interval is not None:
            low, high = (float(end) if end is not None else math.inf for end in self.interval)
            ends = tuple(end if math.isfinite(end) else None for end in (low, high))
            object.__setattr__(self, "interval", ends)


def grouped(group: str, claims: Iterable[Claim]) -> tuple[Claim, ...]:
    """The claims under one heading.

    Example:
      >>> (claim,) = grouped("Depth", [Claim("a < b", "1 < 2", "1.1 < 2.1", True)])
      >>> claim.group
      'Depth'
    """
    return tuple(dataclasses.replace(claim, group=group) for claim in claims)


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of results; cells are text, numbers, or None for "no value".

    Example:
      >>> rows = (("ViT", 0.02, 0.0312), ("CNN", None, 0.06))
      >>> table = Table("Sensitivity", ("model", "paper", "ours"), rows)
      >>> print(table.as_text())
      Sensitivity
      model  paper    ours
      -----  -----  ------
      ViT     0.02  0.0312
      CNN        –  0.0600
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        where, width = f"table {self.title!r}", len(self.columns)
        rows = tuple(tuple(row) for row in plain(self.rows, where))
        for i, row in enumerate(rows):
            if len(row) != width:
                raise ValueError(
                    f"{where}: expected {width} cells in every row, got {len(row)} in row {i}; "
                    "use None for a cell without a value"
                )
        object.__setattr__(self, "rows", rows)

    def cells(self) -> tuple[tuple[str, ...], ...]:
        """The rows as text: floats with equally many decimals in a column, None as a dash."""
        columns = [_column_text(column) for column in zip(*self.rows, strict=True)]
        return tuple(zip(*columns, strict=True))

    def numeric(self) -> tuple[bool, ...]:
        """For every column, whether all its values read as numbers, to be aligned right."""
        columns = zip(*self.cells(), strict=True) if self.rows else [()] * len(self.columns)
        return tuple(all(map(_NUMERIC_TEXT.fullmatch, column)) for column in columns)

    def as_text(self) -> str:
        """The table for a terminal: title, aligned columns, note."""
        lines = [self.columns, *self.cells()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        numeric = self.numeric()

        def aligned(line: tuple[str, ...]) -> str:
            cells = zip(line, widths, numeric, strict=True)
            return "  ".join(c.rjust(w) if right else c.ljust(w) for c, w, right in cells).rstrip()

        head, *body = map(aligned, lines)
        rule = "  ".join("-" * width for width in widths)
        return "\n".join(filter(None, [self.title, head, rule, *body, self.note]))


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure of the run: a PNG file below the run folder, and its caption.

    Example:
      >>> Figure("figures/fig4.png", "Sensitivity along training").file
      'figures/fig4.png'
    """

    file: str
    caption: str

    def __post_init__(self) -> None:
        if Path(self.file).is_absolute() or not self.file.endswith(".png"):
            raise ValueError(f'expected a PNG such as "figures/fig4.png", got {self.file!r}')


@dataclasses.dataclass(frozen=True)
class Findings:
    """What an experiment found: claims, tables and figures for readers, `values` for programs.

    Example:
      >>> found = Findings("Two models", "In all. No, by Def. 4.3.", (), (), (), {"p": (0.1, 0.2)})
      >>> found.values, found.sentences
      ({'p': [0.1, 0.2]}, ('In all.', 'No, by Def. 4.3.'))
    """

    title: str
    summary: str
    claims: tuple[Claim, ...]
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...]
    values: dict[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", plain(self.values, "values"))

    @property
    def sentences(self) -> tuple[str, ...]:
        """Those of the summary, for a page that shows many of them as a list."""
        return tuple(_BETWEEN_SENTENCES.split(self.summary))


@dataclasses.dataclass(frozen=True)
class Results(Findings):
    """What an experiment found, and what made it: all that a finished run says.

    `values`, `config` and `environment` are stored as plain JSON (tuples become lists, NumPy and
    JAX numbers Python numbers), so that `Results.from_json(r.to_json()) == r` always holds.

    Example:
      >>> found = Findings("Two models", "One sentence.", (), (), (), {"ViT": 0.02})
      >>> config, versions = {"seed": 0}, {"jax": "0.10.2"}
      >>> results = Results.of(
      ...     found, experiment="vision", config=config, environment=versions, seconds=1.5
      ... )
      >>> Results.from_json(results.to_json()) == results
      True
    """

    experiment: str
    config: dict[str, Any]
    environment: dict[str, Any]
    seconds: float
    command: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("config", "environment", "seconds"):
            object.__setattr__(self, name, plain(getattr(self, name), name))

    @classmethod
    def of(cls, findings: Findings, **made_by: Any) -> Results:
        """The findings of a run, with its experiment, config, environment, seconds and command."""
        fields = dataclasses.fields(Findings)
        return cls(**{field.name: getattr(findings, field.name) for field in fields}, **made_by)

    def to_json(self) -> str:
        """The results as indented JSON text."""
        return dumps(dataclasses.asdict(self), "results", indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Results:
        """The inverse of `to_json`.

        Raises:
          ValueError: the text is not what `to_json` of this version writes.
        """
        try:
            fields = json.loads(text)
            claims = tuple(_claim(**claim) for claim in fields.pop("claims"))
            tables = tuple(
                Table(t["title"], tuple(t["columns"]), tuple(map(tuple, t["rows"])), t["note"])
                for t in fields.pop("tables")
            )
            figures = tuple(Figure(**figure) for figure in fields.pop("figures"))
            return cls(claims=claims, tables=tables, figures=figures, **fields)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not the results of this version of jaxsens: {error}") from error


def _claim(*, interval: list[float | None] | None = None, **fields: Any) -> Claim:
    """A claim from JSON; one that an earlier version wrote has fewer fields."""
    return Claim(**fields, interval=None if interval is None else (interval[0], interval[1]))


def _column_text(column: tuple[Cell, ...]) -> list[str]:
    """Four significant digits for the float that needs most decimals, as many for the others."""
    short = [f"{cell:.4g}" for cell in column if isinstance(cell, float)]
    decimals = max((len(text.partition(".")[2]) for text in short), default=0)
    form = ".4g" if any("e" in text for text in short) else f".{decimals}f"
    texts = (format(cell, form) if isinstance(cell, float) else str(cell) for cell in column)
    return [_NO_VALUE if cell is None else text for cell, text in zip(column, texts, strict=True)]
