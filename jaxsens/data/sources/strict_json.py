"""JSON out of files that may hold anything."""

import json
from typing import Any


def parse(content: bytes) -> Any:
    """Returns the value of JSON in UTF-8 in which no key of an object stands twice.

    Of a key that stands twice Python would take the last value, others the first, so that a checked
    file could mean something else to its next reader.

    Raises:
      ValueError: it is something else, or nested too deeply; the message says what was got.

    Example:
      >>> parse(b'{"a": {"b": 1}}')
      {'a': {'b': 1}}
    """
    try:
        return json.loads(content.decode("utf-8-sig"), object_pairs_hook=_without_doubles)
    except json.JSONDecodeError as error:
        raise ValueError(f"{content[:40]!r} ({error.msg})") from None
    except RecursionError:
        raise ValueError("one that is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"what is not UTF-8 ({error.reason} at byte {error.start})") from None


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        doubled = next(key for i, key in enumerate(keys) if key in keys[:i])
        raise ValueError(f"one with the key {doubled[:40]!r} twice")
    return value
