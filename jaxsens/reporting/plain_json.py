"""JSON without surprises: plain values, no NaN, and names for what is nested."""

import json
import math
import os
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np


def plain(value: Any, where: str) -> Any:
    """The value as JSON would give it back; NaN and infinity are refused by name."""
    decoded = json.loads(json.dumps(value, default=_python_value))
    for name, leaf in leaves(decoded, where, dict, list):
        if isinstance(leaf, float) and not math.isfinite(leaf):
            raise ValueError(
                f"expected a finite number for {name}, got {leaf}; find where it comes from, or "
                "store None for a value that does not exist"
            )
    return decoded


def dumps(value: Any, where: str, **options: Any) -> str:
    """One JSON text of `plain(value, where)`; `options` are those of `json.dumps`."""
    return json.dumps(plain(value, where), ensure_ascii=False, **options)


def leaves(value: Any, name: str, *inside: type) -> Iterator[tuple[str, Any]]:
    """The values inside nested containers of the given types, with dotted names."""
    nested = bool(value) and isinstance(value, inside)
    if not nested:
        yield name, value
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield from leaves(inner, f"{name}.{key}" if name else str(key), *inside)


def _python_value(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray | jax.Array):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"expected text, numbers, lists or dicts, got {type(value).__name__}")
