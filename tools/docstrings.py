"""Docstrings on the site: what Python's tools read and Markdown would not.

A griffe extension, named in mkdocs.yml. Doctests become fenced code, which Markdown would take for
quotations. A comment `#: …` above a constant is its docstring. What a function returns is given its
type, so that a sentence with a colon is not cut in two. A Flax module is shown with its fields.
Source files are only read.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from griffe import (
    Attribute,
    Class,
    Docstring,
    Extension,
    Function,
    Module,
    Object,
    Parameter,
    ParameterKind,
    Parameters,
)

_RETURNS = re.compile(r"^( *Returns:\n +)(?=\S)", re.MULTILINE)


def fenced(text: str) -> str:
    r"""The text with every doctest, down to the next empty line, inside a fence.

    >>> fenced("Claim.\n\n  >>> 1 + 1\n  2\n\nMore.")
    'Claim.\n\n  ```pycon\n  >>> 1 + 1\n  2\n  ```\n\nMore.'
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


def typed(text: str, annotation: str) -> str:
    r"""The text with the type of what is returned before the sentence about it.

    >>> print(typed("Claim.\n\nReturns:\n  Two panels: left and right.", "Figure"))
    Claim.
    <BLANKLINE>
    Returns:
      Figure: Two panels: left and right.
    """
    return _RETURNS.sub(lambda match: f"{match[1]}{annotation}: ", text)


def fields_of(made: Class) -> list[Parameter]:
    """The fields of a class that Flax makes a dataclass, those of its bases first; else nothing."""
    family = [*reversed(made.mro()), made]
    if not any(str(base).endswith("nn.Module") for each in family for base in each.bases):
        return []
    fields: dict[str, Parameter] = {}
    for each in family:
        for name, member in each.members.items():
            if isinstance(member, Attribute) and member.annotation is not None:
                kind = ParameterKind.positional_or_keyword
                fields[name] = Parameter(
                    name, annotation=member.annotation, kind=kind, default=member.value
                )
    return list(fields.values())


def classes_of(module: Module) -> Iterator[Class]:
    """All classes of a module and of those below it."""
    for member in module.members.values():
        if isinstance(member, Class):
            yield member
        elif isinstance(member, Module):
            yield from classes_of(member)


class SiteDocstrings(Extension):
    """Applies all four to what is documented."""

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """Called when a package has been read."""
        for made in classes_of(pkg):
            if "__init__" not in made.members and (fields := fields_of(made)):
                made.set_member("__init__", Function("__init__", parameters=Parameters(*fields)))

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called once for every module, class, function and attribute."""
        if obj.docstring is None and isinstance(obj, Attribute) and obj.lineno:
            lines = obj.lines_collection[obj.filepath]
            if text := comment_above(lines, obj.lineno):
                obj.docstring = Docstring(text, parent=obj)
        if obj.docstring is not None and ">>> " in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)
        if obj.docstring is not None and isinstance(obj, Function) and obj.returns is not None:
            obj.docstring.value = typed(obj.docstring.value, str(obj.returns))
