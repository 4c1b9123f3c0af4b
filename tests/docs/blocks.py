"""The Python blocks of a page, what they promise to print, and whether they do.

A page's blocks run one after the other with the same names. `print(…)  # this` promises a line; a
block of text right below a block of Python promises all that it prints. Indented blocks, as in
tabs, count too.
"""

import contextlib
import importlib.util
import io
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(
    r"^(?P<indent> *)```python\n(?P<code>.*?)^(?P=indent)```$"
    r"(?:\n\n(?P=indent)```text\n(?P<text>.*?)^(?P=indent)```$)?",
    re.MULTILINE | re.DOTALL,
)
_PROMISE = re.compile(r"^ *print\(.*\)  # (.*)$", re.MULTILINE)
# A label may flip by rounding on another machine: words and sizes are exact, measured digits near.
_NUMBER = re.compile(r"\d\.\d+")
#: Packages of examples that `make test` installs and that jaxsens itself does not need.
OPTIONAL = ("equinox", "haiku", "keras", "torch", "transformers")


@dataclass(frozen=True)
class Block:
    """Code, and what it promises to print; None if it promises nothing."""

    code: str
    promised: str | None

    @property
    def missing(self) -> str | None:
        """The package that the block needs and that is not here."""
        lines = re.findall(r"^import (.+)$", self.code, re.MULTILINE)
        imported = {name.split()[0] for line in lines for name in line.split(",")}
        absent = [name for name in OPTIONAL if not importlib.util.find_spec(name)]
        return next((name for name in absent if name in imported), None)


def blocks_of(text: str) -> list[Block]:
    """All Python blocks of a page."""
    found = []
    for match in _BLOCK.finditer(text):
        code = textwrap.dedent(match["code"])
        lines = _PROMISE.findall(code)
        promised = textwrap.dedent(match["text"]) if match["text"] else "\n".join(lines)
        found.append(Block(code, promised.rstrip() or None))
    return found


def output_of(block: Block, names: dict, page: Path) -> str:
    """Runs a block and returns what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block.code, str(page), "exec"), names)
    return printed.getvalue().rstrip()


def check(got: str, block: Block) -> None:
    """Fails unless a block printed what it promises, all of it."""
    promised = block.promised or ""
    assert _NUMBER.sub("#", got) == _NUMBER.sub("#", promised)
    measured = [[float(v) for v in _NUMBER.findall(text)] for text in (got, promised)]
    assert measured[0] == pytest.approx(measured[1], abs=0.002)
