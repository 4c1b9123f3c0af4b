"""Docstrings on the site: what Python's tools read and Markdown would not.

A griffe extension, named in mkdocs.yml. Doctests become fenced code, which Markdown would take for
quotations. A comment `#: …` above a constant is its docstring. Source files are only read.
"""

from collections.abc import Sequence
from typing import Any

from griffe import Attribute, Docstring, Extension, Object


def fenced(text: str) -> str:
    r"""The text with every doctest, down to the next empty line, inside a fence.

    >>> print(fenced("Claim.\n\n  >>> 1 + 1\n  2\n\nMore."))
    Claim.
    <BLANKLINE>
      ```pycon
      >>> 1 + 1
      2
      ```
    <BLANKLINE>
    More.
    """
    lines: list[str] = []
    indent: str | None = None
    for line in [*text.split("\n"), ""]:
        bare = line.lstrip()
        if indent is None and bare.startswith(">>> "):
            indent = line[: len(line) - len(bare)]
            lines.append(f"{indent}```pycon")
        elif indent is not None and not bare:
            lines.append(f"{indent}```")
            indent = None
        lines.append(line)
    return "\n".join(lines[:-1])


def comment_above(lines: Sequence[str], number: int) -> str:
    """The comment `#: …` right above line `number` of a file, from 1.

    >>> comment_above(["x = 1", "#: How long,", "#: in metres.", "y = 2"], 4)
    'How long, in metres.'
    """
    start = number - 1
    while start > 0 and lines[start - 1].startswith("#: "):
        start -= 1
    return " ".join(line.removeprefix("#: ") for line in lines[start : number - 1])


class SiteDocstrings(Extension):
    """Applies both to what is documented."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called once for every module, class, function and attribute."""
        if obj.docstring is None and isinstance(obj, Attribute) and obj.lineno:
            lines = obj.lines_collection[obj.filepath]
            if text := comment_above(lines, obj.lineno):
                obj.docstring = Docstring(text, parent=obj)
        if obj.docstring is not None and ">>> " in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)
