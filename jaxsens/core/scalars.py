"""Numbers and other plain values that users give, and how they are shown to them.

A bool is no number here: `num_samples=True` is a slip, not one sample. Numbers of NumPy and arrays
of one number count as what they hold, so that settings can come out of a file or a computation.
"""

import contextlib
import math
import numbers
from typing import Any

import numpy as np

#: Indices, ids and draws are counted in 32 bits on every device.
MOST = 2**31 - 1


def as_whole(value: Any) -> int | None:
    """The whole number that this is, or None.

    >>> as_whole(np.int64(3)), as_whole(3.0), as_whole(True), as_whole("3")
    (3, None, None, None)
    """
    number = _scalar(value)
    return int(number) if isinstance(number, numbers.Integral) else None


def as_real(value: Any) -> float | None:
    """The real number that this is, nan and infinities included, or None.

    >>> as_real(3), as_real(np.float32(0.5)), as_real(1j), as_real("0.5")
    (3.0, 0.5, None, None)
    """
    number = _scalar(value)
    if not isinstance(number, numbers.Real):
        return None
    try:
        return float(number)
    except OverflowError:
        return math.inf


def whole_number(name: str, value: Any) -> int:
    """The number; ValueError unless it is a whole one from 1 to what 32 bits hold."""
    number = as_whole(value)
    if number is None or number < 1:
        raise ValueError(f"{name} must be a whole number >= 1; got {one_line(value)}")
    if number > MOST:
        raise ValueError(f"{name} must be at most {MOST}, which 32 bits hold; got {number}")
    return number


def spread(owner: str, name: str, value: Any) -> float:
    """The size of a noise; ValueError unless it is finite and not negative."""
    number = as_real(value)
    if number is None or not 0 <= number < math.inf:
        raise ValueError(f"{owner} needs a finite {name} >= 0; got {one_line(value)}")
    return number


def one_line(value: Any) -> str:
    """Its text, shortened, in one line.

    >>> one_line(np.zeros((2, 2)))
    'array([[0., 0.], [0., 0.]])'
    """
    text = " ".join(repr(value).split())
    return text if len(text) <= 200 else text[:197] + "..."


def as_list(value: Any) -> list[Any] | None:
    """The items of a sequence, or None: an array of one number has none."""
    try:
        return list(value)
    except TypeError:
        return None


def check_hashable(name: str, value: Any) -> None:
    """Raises ValueError for what cannot be static in a compiled program."""
    try:
        hash(value)
    except TypeError:
        raise ValueError(
            f"{name} must be hashable, as programs are kept by it: use functions and frozen "
            f"dataclasses without lists, dicts or arrays inside; got {one_line(value)}"
        ) from None


def _scalar(value: Any) -> Any:
    """A number out of an array of one, if it is one; a bool is None."""
    if getattr(value, "shape", None) == () and hasattr(value, "dtype"):
        with contextlib.suppress(Exception):
            value = np.asarray(value).item()
    return None if isinstance(value, bool | np.bool_) else value
