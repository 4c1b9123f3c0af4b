"""The rooms of jaxsens and what they import, as a picture: `python -m tools.import_graph`.

Reads the import statements of jaxsens/**/*.py, without running them, and writes
docs/pictures/rooms.svg. A room's level is one more than the highest level that it imports, so that
arrows go up. Arrows that follow from others (a uses b, b uses c, so a may use c) are left out.
"""

import ast
import sys
from collections.abc import Iterable, Mapping
from html import escape
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "pictures" / "rooms.svg"
#: What a room is for, in a few words.
SAYS = {
    "core": "intervals, keys, files",
    "perturbations": "grids and edits",
    "data": "datasets by name",
    "boolean": "functions of bits",
    "text": "token ids, buckets",
    "incremental": "exact reuse",
    "models": "networks",
    "measurement": "sensitivity & co.",
    "corruptions": "fog, blur, noise",
    "training": "optax, checkpoints",
    "adapters": "PyTorch, Keras, …",
    "spectrum": "kernels on the cube",
    "reporting": "run folders, reports",
    "figures": "plots",
    "cli": "flags, signals",
    "sweeps": "many runs",
    "measuring": "models of users",
    "experiments": "one a paper's claim",
}
COMMANDS = ("gallery", "measure", "record", "run", "sweep")
_BOX_WIDTH, _BOX_HEIGHT, _GAP, _ROW = 216, 44, 14, 84

Graph = Mapping[str, frozenset[str]]


def rooms(package: Path) -> dict[str, frozenset[str]]:
    """Each room, and the rooms that its files import; the command lines count as one room."""
    found: dict[str, set[str]] = {}
    for file in sorted(package.rglob("*.py")):
        room = file.relative_to(package).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        found.setdefault(_named(room), set()).update(_imported(file.read_text("utf-8")))
    known = set(found)
    return {room: frozenset(used & known - {room}) for room, used in sorted(found.items())}


def _imported(source: str) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    inside = (name.split(".")[1] for name in names if name.startswith("jaxsens."))
    return {_named(room) for room in inside}


def _named(room: str) -> str:
    return "commands" if room in COMMANDS else room


def levels(graph: Graph) -> list[list[str]]:
    """The rooms row by row: each in the first row below all that it imports.

    >>> levels({"a": frozenset(), "b": frozenset("a"), "c": frozenset("ab"), "d": frozenset("a")})
    [['a'], ['b', 'd'], ['c']]
    """
    rows: list[list[str]] = []
    left = dict(graph)
    placed: set[str] = set()
    while left:
        row = sorted(room for room, used in left.items() if used <= placed)
        if not row:
            raise ValueError(f"rooms import each other in a circle: {', '.join(sorted(left))}")
        rows.append(row)
        placed.update(row)
        left = {room: used for room, used in left.items() if room not in placed}
    return rows


def reduced(graph: Graph) -> dict[str, frozenset[str]]:
    """The graph without arrows that follow from others.

    >>> sorted(reduced({"a": frozenset(), "b": frozenset("a"), "c": frozenset("ab")})["c"])
    ['b']
    """

    def reached(room: str) -> frozenset[str]:
        return graph[room].union(*(reached(used) for used in graph[room]))

    return {
        room: frozenset(u for u in used if not any(u in reached(v) for v in used - {u}))
        for room, used in graph.items()
    }


def svg(graph: Graph) -> str:
    """The picture as text: the same graph gives the same bytes."""
    rows = levels(graph)
    width = max(len(row) for row in rows) * (_BOX_WIDTH + _GAP) + _GAP
    place: dict[str, tuple[float, float]] = {}
    for level, row in enumerate(_untangled(rows, reduced(graph))):
        left = (width - len(row) * (_BOX_WIDTH + _GAP) + _GAP) / 2
        for column, room in enumerate(row):
            place[room] = left + column * (_BOX_WIDTH + _GAP), _GAP + level * _ROW
    height = _GAP + len(rows) * _ROW
    arrows = [
        _arrow(place[room], place[used])
        for room, all_used in sorted(reduced(graph).items())
        for used in sorted(all_used)
    ]
    boxes = [_box(room, *place[room]) for room in sorted(place)]
    return "\n".join([_HEAD.format(width=width, height=height), *arrows, *boxes, "</svg>", ""])


_HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" \
font-family="system-ui, sans-serif" text-anchor="middle">
<title>The rooms of jaxsens and what they import</title>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" \
orient="auto"><path d="M0 0L8 4L0 8z" fill="#8a94a6"/></marker></defs>
<rect width="100%" height="100%" fill="#fff"/>"""


def _untangled(rows: list[list[str]], arrows: Graph) -> Iterable[list[str]]:
    """Each row sorted by where the rooms it uses stand, so that few arrows cross."""
    share = {room: (i + 0.5) / len(rows[0]) for i, room in enumerate(rows[0])}
    yield rows[0]
    for _, row in pairwise(rows):
        middle = {
            room: sum(share[used] for used in arrows[room]) / max(len(arrows[room]), 1)
            for room in row
        }
        ordered = sorted(row, key=lambda room: (middle[room], room))
        share |= {room: (i + 0.5) / len(ordered) for i, room in enumerate(ordered)}
        yield ordered


def _arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    """From the upper edge of one box to the lower edge of one above it."""
    x1, y1 = start[0] + _BOX_WIDTH / 2, start[1]
    x2, y2 = end[0] + _BOX_WIDTH / 2, end[1] + _BOX_HEIGHT
    bend = (y1 - y2) / 2
    path = f"M{x1:g} {y1:g}C{x1:g} {y1 - bend:g} {x2:g} {y2 + bend:g} {x2:g} {y2:g}"
    return (
        f'<path d="{path}" fill="none" stroke="#8a94a6" stroke-width="1.3" marker-end="url(#tip)"/>'
    )


def _box(room: str, x: float, y: float) -> str:
    says = ", ".join(COMMANDS) if room == "commands" else SAYS.get(room, "")
    middle = x + _BOX_WIDTH / 2
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="7" '
        'fill="#eef1fb" stroke="#3f51b5"/>'
        f'<text x="{middle:g}" y="{y + 18:g}" font-size="13" font-weight="600" fill="#1b1f24">'
        f"{escape(room)}</text>"
        f'<text x="{middle:g}" y="{y + 34:g}" font-size="10.5" fill="#4a5462">{escape(says)}</text>'
    )


def main() -> int:
    """Writes the picture."""
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(svg(rooms(ROOT / "jaxsens")), "utf-8")
    print(PICTURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
