"""How an error says what came and what may have been meant, in one line."""

import difflib
from collections.abc import Iterable
from typing import Any

# Longer values are cut in messages.
_LONGEST_SHOWN = 60


def nearest(name: str, names: Iterable[str]) -> str:
    """The end of a message about an unknown name: the one that was meant, or all of them.

    Example:
      >>> nearest("visoin", ["grokking", "vision"])
      '; did you mean vision?'
    """
    names = sorted(names)
    close = difflib.get_close_matches(name[:_LONGEST_SHOWN], names, n=1, cutoff=0.4)
    return f"; did you mean {close[0]}?" if close else f"; choose one of {', '.join(names)}"


def shown(value: Any) -> str:
    """A value for a message: cut if it is long, characters that cannot be printed escaped.

    Example:
      >>> shown(0.5), shown("digits"), shown("x" * 5000)[-17:]
      ('0.5', "'digits'", '(5002 characters)')
    """
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    if len(text) <= _LONGEST_SHOWN:
        return text
    return f"{text[: _LONGEST_SHOWN // 2]}… ({len(text)} characters)"
