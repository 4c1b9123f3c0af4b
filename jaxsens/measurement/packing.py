"""Estimates as text, read back with suspicion: files are cut short, edited and mixed up.

A text that `to_json` did not write gives one ValueError, which says what is wrong. Tables are
compared with their shapes before they take memory, then with each other, with the range of what was
measured and with the summary beside them: damage that still reads as numbers shows there.
"""

import base64
import binascii
import contextlib
import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any

import numpy as np

from jaxsens.core.scalars import one_line
from jaxsens.core.user_code import first_line

#: Deflate shrinks nothing to less than this share: a table that claims more is damaged.
_SMALLEST_SHARE = 1 / 1100
#: Sums of rounded numbers may lie beyond their bounds by this share of the range.
_ROUNDING = 1e-4


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """Turns whatever reading a damaged text raises into a ValueError of one line."""
    try:
        yield
    except (
        ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
        zlib.error,
    ) as error:  # fmt: skip
        said = first_line(error)
        if isinstance(error, KeyError):
            said = f"{said} is missing"
        raise ValueError(f"not an estimate of jaxsens: {said}") from error


def record_of(text: Any) -> dict[str, Any]:
    """The JSON object in a text."""
    if not isinstance(text, str | bytes | bytearray):
        raise ValueError(f"expected the text that to_json wrote, got {one_line(text)}")
    try:
        record = json.loads(text)
    except ValueError as error:
        raise ValueError(
            f"expected the text that to_json wrote, got {one_line(text[:40])} ({first_line(error)})"
        ) from None
    if not isinstance(record, dict):
        raise ValueError(f"expected a JSON object, got {type(record).__name__}")
    return record


def pack(array: np.ndarray) -> dict[str, Any]:
    """A table as compressed text: counts shrink fifty-fold, where a plain list would be 20 MB."""
    data = base64.b64encode(zlib.compress(np.ascontiguousarray(array).tobytes())).decode()
    return {"shape": array.shape, "dtype": array.dtype.str, "zlib_base64": data}


def unpack(packed: Mapping[str, Any], kind: str) -> np.ndarray:
    """The table that `pack` wrote, of whole numbers (kind "i") or floating-point ones ("f")."""
    shape, written = packed["shape"], packed["dtype"]
    # As `pack` writes it: NumPy knows many other spellings, some of them with a warning.
    if not (isinstance(written, str) and re.fullmatch(r"[<>|][bifu][1248]", written)):
        raise ValueError(f"expected a dtype such as '<i8', got {written!r}")
    dtype = np.dtype(written)
    if not isinstance(shape, list) or [type(n) for n in shape] != [int, int] or min(shape) < 1:
        raise ValueError(f"expected a table of two axes, got shape {one_line(shape)}")
    if dtype.kind != kind:
        raise ValueError(f"expected a table of dtype kind {kind!r}, got {dtype.str}")
    size = math.prod(shape) * dtype.itemsize
    try:
        data = base64.b64decode(packed["zlib_base64"], validate=True)
    except binascii.Error as error:
        raise ValueError(f"a table is damaged ({error})") from None
    if len(data) < size * _SMALLEST_SHARE:
        raise ValueError(f"a table of shape {shape} does not fit into {len(data)} bytes")
    decompressor = zlib.decompressobj()
    # One byte more than expected tells too long from just right, however long it is.
    content = decompressor.decompress(data, size + 1)
    if len(content) != size or not decompressor.eof or decompressor.unused_data:
        raise ValueError(f"a table of shape {shape} needs {size} bytes; got another number")
    return np.frombuffer(content, dtype).reshape(shape).copy()


def fields_of(kind: type, record: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a dataclass from JSON; ValueError if one is not of its declared type."""
    known = {field.name: field for field in fields(kind)}
    strange = [name for name in record if name not in known]
    if strange:
        raise ValueError(f"provenance has an unknown field {one_line(strange[0])}")
    values = {}
    for name, field in known.items():
        if name not in record and field.default is not MISSING:
            continue
        value = _tuples(record[name])
        declared = field.type.__name__ if isinstance(field.type, type) else str(field.type)
        if not _READERS[declared](value):
            raise ValueError(f"provenance has {name}={one_line(value)}")
        values[name] = value
    return values


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_words(value: Any) -> bool:
    return type(value) is tuple and all(map(_is_count, value))


#: What the fields of a provenance may hold, by their declared types.
_READERS = {
    "str": lambda value: type(value) is str,
    "bool": lambda value: type(value) is bool,
    "int": _is_count,
    "float": _is_number,
    "str | None": lambda value: value is None or type(value) is str,
    "int | None": lambda value: value is None or _is_count(value),
    "float | None": lambda value: value is None or _is_number(value),
    "tuple[int, ...]": _is_words,
    "tuple[tuple[int, ...], ...]": lambda value: (
        type(value) is tuple and all(map(_is_words, value))
    ),
}


def first_out_of_bounds(
    totals: np.ndarray, counts: np.ndarray, bounds: tuple[float, float]
) -> tuple[int, ...] | None:
    """The first index at which a total cannot be the sum of `counts` numbers within `bounds`."""
    lower, upper = bounds
    scale = upper - lower
    if not math.isfinite(scale):
        scale = float(np.max(np.abs(totals) / np.maximum(counts, 1)))
    slack = counts * scale * _ROUNDING
    with np.errstate(invalid="ignore"):
        # 0 draws times an infinite bound are nan, and no comparison with nan is true.
        strange = (totals < counts * lower - slack) | (totals > counts * upper + slack)
    if not strange.any():
        return None
    return tuple(int(at) for at in np.argwhere(strange)[0])


def check_table(totals: np.ndarray, counts: np.ndarray, bounds: tuple[float, float]) -> None:
    """Raises ValueError for totals that are no sums of `counts` numbers within `bounds`."""
    if totals.shape != counts.shape:
        raise ValueError(f"totals have shape {totals.shape}, counts {counts.shape}")
    if counts.min() < 0:
        raise ValueError(f"a count of draws is negative: {counts.min()}")
    if not np.isfinite(totals).all():
        raise ValueError("a total is not finite")
    place = first_out_of_bounds(totals, counts, bounds)
    if place is not None:
        raise ValueError(
            f"the total of {counts[place]} draws at {place} is {totals[place]:g}, outside of the "
            f"bounds [{bounds[0]:g}, {bounds[1]:g}] of each"
        )


def check_summary(written: Any, now: Mapping[str, Any]) -> None:
    """Raises ValueError if a written summary disagrees with that of the tables beside it."""
    parts = {name for name, value in written.items() if isinstance(value, Mapping)}
    if parts - set(now):
        raise ValueError(f"its summary has {min(parts - set(now))}, its tables have not")
    for name, value in now.items():
        if isinstance(value, Mapping):
            check_summary(written[name], value)
        elif not math.isclose(written[name], value, rel_tol=1e-6, abs_tol=1e-12):
            raise ValueError(f"its summary says {name}={written[name]!r}, its tables {value!r}")
