"""What an estimate says of itself beside its number and its interval."""

import math

#: If fewer examples than this change at all, a printed estimate says so.
FEW_SENSITIVE = 5


def few_sensitive(num: int, num_examples: int) -> str:
    """A note for the reader, which no interval can give, if few of many examples changed at all.

    >>> few_sensitive(3, 1000), few_sensitive(0, 1000), few_sensitive(3, 3)
    (', few sensitive examples (3)', '', '')
    """
    few = 0 < num < min(FEW_SENSITIVE, num_examples)
    return f", few sensitive examples ({num})" if few else ""


def half_precision(near_ties: float | None) -> str:
    """A note for the reader of a model in half precision: how often rounding decides.

    >>> half_precision(0.125), half_precision(None)
    (', half precision: 12.5 % of draws near a tie', '')
    """
    return (
        ""
        if near_ties is None
        else f", half precision: {100 * near_ties:.3g} % of draws near a tie"
    )


def finite_or_none(value: float) -> float | None:
    """The value, or None if it is nan or infinite, for which JSON has no word."""
    return value if math.isfinite(value) else None
