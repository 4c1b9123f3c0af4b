"""The report of a finished run: one HTML page that needs nothing but itself.

The page holds the claims with a verdict in words, the tables with the paper's numbers beside ours,
the figures (as embedded PNG, with their numbers as CSV), maps of single examples if the run keeps
any, what it takes to reproduce them, and what to cite. It makes no request, follows the reader's
light or dark setting, and is a pure function of results.json, maps.json, figures/ and the papers:
the same run gives the same bytes. A small script of its own sorts tables, chooses examples and
tells the number under the pointer; without it the page shows everything.

Everything that comes from the run is escaped by Jinja2. The verdicts are those of the results: a
`Claim` whose `holds` was computed wrongly is reported wrongly.
"""

from __future__ import annotations

import base64
import dataclasses
import shlex
import struct
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

import jinja2

from jaxsens import __version__
from jaxsens.core import storage
from jaxsens.reporting import report_parts
from jaxsens.reporting.example_maps import read_maps
from jaxsens.reporting.papers import Paper, software_bibtex
from jaxsens.reporting.results import FEW_SENTENCES, Figure, Results

_TEMPLATE = "report.html.jinja"
#: Larger CSV files stay in the run folder, which the page says.
MAX_CSV = 200_000
#: Figures of more pixels are too wide to be read on a phone that shows them whole.
MAX_WIDTH = 1100


@dataclasses.dataclass(frozen=True)
class _ShownFigure:
    """A figure of the page: its picture, and its numbers if there are not too many.

    One of more pixels than a phone can show, such as panels side by side, keeps half as many there.
    """

    figure: Figure
    image: str
    width: int
    csv: str | None
    csv_file: str


def render(results: Results, folder: PurePath | str, papers: Sequence[Paper] = ()) -> str:
    """The page as text.

    Args:
      results: what the run found. If they do not say which command made them, the page shows that
        of all fields (`command`).
      folder: the run folder, below which the figures lie.
      papers: those that the run is about, to be cited.

    Returns:
      A complete HTML document.

    Raises:
      FileNotFoundError: a figure is missing.
      ValueError: maps.json is damaged.

    Example:
      >>> made_by = {"experiment": "demo", "config": {}, "environment": {}, "seconds": 1.0}
      >>> results = Results("A demo", "It ran.", (), (), (), values={}, **made_by)
      >>> "<h1>A demo</h1>" in render(results, ".")
      True
    """
    place = storage.at(folder)
    maps = read_maps(folder)
    made_by = {name: str(results.environment.get(name, "")) for name in ("jaxsens", "commit")}
    return template(_TEMPLATE).render(
        results=results,
        few_sentences=FEW_SENTENCES,
        groups=report_parts.claim_groups(results.claims),
        figures=[_shown_figure(place, figure) for figure in results.figures],
        max_width=MAX_WIDTH,
        maps=maps,
        maps_data=report_parts.for_script(maps),
        heat_uri=report_parts.heat_uri,
        csv_uri=report_parts.csv_uri,
        table_csv=report_parts.table_csv,
        maps_csv=report_parts.maps_csv,
        num_holds=sum(claim.holds for claim in results.claims),
        duration=duration(results.seconds),
        config=dict(_dotted(results.config)),
        command=results.command or command(results.experiment, results.config),
        citations=[
            software_bibtex(made_by["jaxsens"] or __version__, made_by["commit"]),
            *(paper.bibtex() for paper in papers),
        ],
    )


def _shown_figure(place: storage.Storage, figure: Figure) -> _ShownFigure:
    picture = place.read(figure.file)
    csv_file = figure.file.removesuffix(".png") + ".csv"
    # Runs of earlier versions have none.
    there = place.exists(csv_file)
    small = there and place.size(csv_file) <= MAX_CSV
    csv = report_parts.csv_uri(place.read(csv_file)) if small else None
    (width,) = struct.unpack(">I", picture[16:20].ljust(4, b"\0"))  # where PNG has it
    return _ShownFigure(figure, _data_uri(picture), width, csv, csv_file if there else "")


def write(results: Results, folder: PurePath | str, papers: Sequence[Paper] = ()) -> PurePath:
    """Writes report.html into the run folder, before results.json marks the run as finished.

    Args:
      results: what the run found. If they do not say which command made them, the page shows that
        of all fields (`command`).
      folder: the run folder, below which the figures lie.
      papers: those that the run is about, to be cited.

    Returns:
      The path of the page.

    Raises:
      FileNotFoundError: a figure is missing; nothing is written.
      ValueError: maps.json is damaged; nothing is written.
    """
    place = storage.at(folder)
    place.write("report.html", render(results, folder, papers))
    return place.location / "report.html"


def template(name: str) -> jinja2.Template:
    """A template of this folder, which escapes all that comes from a run and knows every name."""
    jinja = jinja2.Environment(
        loader=jinja2.PackageLoader("jaxsens.reporting", package_path=""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return jinja.get_template(name)


def command(experiment: str, config: dict[str, Any]) -> str:
    """The command that runs an experiment with these fields given as flags.

    Example:
      >>> print(command("fig4", {"epochs": 5, "model": {"bias": False}, "widths": [8, 16]}))
      python -m jaxsens.run --exp fig4 --epochs 5 --model.no-bias --widths 8 16
    """
    words = ["python", "-m", "jaxsens.run", "--exp", experiment]
    for name, value in _dotted(config):
        words += _flag(name.replace("_", "-"), value)
    return shlex.join(words)


def duration(seconds: float) -> str:
    """A duration for readers, in two units at most.

    Example:
      >>> [duration(s) for s in (0.42, 59.6, 75.0, 7260.0)]
      ['0.4 s', '1 min 0 s', '1 min 15 s', '2 h 1 min']
    """
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def _dotted(config: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if isinstance(value, dict):
            yield from _dotted(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _flag(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        group, _, field = name.rpartition(".")
        return ["--" + ".".join(filter(None, [group, field if value else f"no-{field}"]))]
    values = value if isinstance(value, list | tuple) else [value]
    return [f"--{name}", *map(str, values)]
