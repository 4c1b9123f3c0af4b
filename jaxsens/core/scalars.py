"""Numbers and other plain values that users give, and how they are shown to them.

A bool is no number here: `num_samples=True` is a slip, not one sample. Numbers of NumPy and arrays
of one number count as what they hold, so that settings can come out of a file or a computation.
"""

import contextlib
import math
import numbers
from typing import Any

import numpy as np

#: The largest index, id or count: devices count in 32 bits.
MAX_INT32 = 2**31 - 1


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
    """The whole number that `value` is; ValueError unless it is from 1 to 2³¹ - 1."""
    number = as_whole(value)
    if number is None or number < 1:
        raise ValueError(f"{name} must be a whole number >= 1; got {one_line(value)}")
    if number > MAX_INT32:
        raise ValueError(f"{name} must be at most {MAX_INT32}, which 32 bits hold; got {number}")
    return number


def noise_size(owner: str, name: str, value: Any) -> float:
    """A standard deviation, radius or scale; ValueError unless it is finite and at least 0."""
    number = as_real(value)
    if number is None or not 0 <= number < math.inf:
        raise ValueError(f"{owner} needs a finite {name} >= 0; got {one_line(value)}")
    return number


def one_line(value: Any) -> str:
    """The `repr` of a value in one line of at most 200 characters, for error messages.

    >>> one_line(np.zeros((2, 2)))
    'array([[0., 0.], [0., 0.]])'
    """
    text = " ".join(repr(value).split())
    return text if len(text) <= 200 else text[:197] + "..."


def checked_choice(name: str, value: Any, choices: tuple[str, ...]) -> Any:
    """The value, if it is one of these words; ValueError otherwise.

    >>> checked_choice("population", "fixed", ("sample", "fixed"))
    'fixed'
    """
    if isinstance(value, str) and value in choices:
        return value
    listed = ", ".join(map(repr, choices[:-1])) + f" or {choices[-1]!r}"
    raise ValueError(f"{name} must be {listed}; got {one_line(value)}")


def as_list(value: Any) -> list[Any] | None:
    """The items of anything that can be iterated over, or None for what cannot."""
    try:
        return list(value)
    except TypeError:
        return None


def check_hashable(name: str, value: Any) -> None:
    """Raises ValueError for what cannot be hashed, since compiled programs are found by hash."""
    try:
        hash(value)
    except TypeError:
        raise ValueError(
            f"{name} must be hashable, since compiled programs are found by its hash: use "
            "functions and frozen dataclasses without lists, dicts or arrays inside; "
            f"got {one_line(value)}"
        ) from None


def _scalar(value: Any) -> Any:
    """The value itself, or the number in an array of no axes; None for a bool."""
    if getattr(value, "shape", None) == () and hasattr(value, "dtype"):
        with contextlib.suppress(Exception):
            value = np.asarray(value).item()
    return None if isinstance(value, bool | np.bool_) else value
