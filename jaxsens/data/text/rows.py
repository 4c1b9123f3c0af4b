"""The one place that decides which rows of a text dataset are good, whatever file they are from."""

import warnings
from collections.abc import Callable, Iterable
from pathlib import PurePath
from typing import NamedTuple, TypeVar

import numpy as np

from jaxsens.data.errors import CorruptDataError, one_line
from jaxsens.data.text.texts import Texts

RowT = TypeVar("RowT")
#: Bad rows that a warning lists one by one.
_NUM_LISTED = 20


class Example(NamedTuple):
    """One row that has passed every check; `second` is None for a task of single texts."""

    first: str
    second: str | None
    label: int


class BadRowError(Exception):
    """What is wrong with one row, in words. Internal: it never leaves `jaxsens.data`."""


def example(
    first: bytes | str, second: bytes | str | None, label: object, classes: tuple[str, str]
) -> Example:
    """Returns the row's texts without surrounding white space, and the label as 0 or 1.

    Args:
      first: the text, as UTF-8 if it is bytes.
      second: its partner, None for a task of single texts.
      label: 0, 1, a class name, or any of these as bytes or in other case.
      classes: the names of label 0 and label 1.

    Raises:
      BadRowError: a text is not UTF-8, empty or holds what no text has, or the label is neither
        number nor name.
    """
    text = _text(label) if isinstance(label, bytes) else str(label)
    for number, name in enumerate(classes):
        if text.strip().lower() in (str(number), name):
            partner = None if second is None else _text(second)
            return Example(_text(first), partner, number)
    raise BadRowError(
        f"expected the label 0 or 1 ({classes[0]} or {classes[1]}), got {text[:40]!r}"
    )


def decoded(content: bytes) -> str:
    """Returns UTF-8 bytes as a string.

    Raises:
      BadRowError: they are not UTF-8; the message has the first bad byte and its place.
    """
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        bad, place = content[error.start], error.start + 1
        raise BadRowError(f"expected UTF-8, got byte 0x{bad:02x} at place {place}") from None


def collect(
    source: PurePath,
    rows: Iterable[tuple[str, RowT]],
    parse: Callable[[RowT], Example],
    *,
    skip_bad_rows: bool,
) -> Texts:
    """Parses all rows of a source; the first bad one is an error unless they may be skipped.

    Args:
      source: the file or folder, for messages.
      rows: each with its place in the source in words, like "line 7".
      parse: makes an example of a row or raises `BadRowError`.
      skip_bad_rows: leave bad rows out and warn, with their number and what is wrong with each.

    Raises:
      CorruptDataError: a row is bad, or no row is left.
    """
    examples, problems = [], []
    for place, row in rows:
        try:
            examples.append(parse(row))
        except BadRowError as problem:
            problems.append(one_line(f"{place}: {problem}"))
            if not skip_bad_rows:
                raise CorruptDataError(
                    f"{source}, {problems[0]}; mend it, or leave out such rows with "
                    f"--skip-bad-rows (in Python skip_bad_rows=True)"
                ) from None
    if not examples:
        first = f" (the first of {len(problems)} bad ones: {problems[0]})" if problems else ""
        raise CorruptDataError(f"{source}: expected at least one good row, got none{first}")
    if problems:
        warnings.warn(
            f"{source}: skipped {len(problems)} bad of {len(problems) + len(examples)} rows:"
            + _listed(source, problems),
            stacklevel=2,
        )
    firsts, seconds, labels = zip(*examples, strict=True)
    pairs = None if seconds[0] is None else tuple(seconds)
    return Texts(tuple(firsts), pairs, np.array(labels, np.int32))


def _listed(source: PurePath, problems: list[str]) -> str:
    """One line for each problem, with file and place; after the first ones, how many more."""
    lines = [f"{source}, {problem}" for problem in problems[:_NUM_LISTED]]
    if len(problems) > _NUM_LISTED:
        lines.append(f"… and {len(problems) - _NUM_LISTED} more")
    return "".join(f"\n  {line}" for line in lines)


def _text(content: bytes | str) -> str:
    text = (decoded(content) if isinstance(content, bytes) else content).strip()
    if not text:
        raise BadRowError("expected a text, got an empty one")
    if "\0" in text:  # what a disk or a broken download leaves where nothing was written
        raise BadRowError(f"expected a text, got a NUL byte at place {text.index(chr(0)) + 1}")
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise BadRowError("expected a text, got half a character (a lone surrogate)")
    return text
