"""What a part of the experiment hands over, and how numbers over seeds are written."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jaxsens.core.intervals import REAL_LINE, Bounds, Interval, mean_interval, student_interval
from jaxsens.reporting.results import Claim, Figure, Table

#: Where norms, blow-ups and mean squares can lie.
POSITIVE: Bounds = (0.0, math.inf)


@dataclass(frozen=True)
class PartFindings:
    """What a part found.

    Attributes:
      summary: one or two sentences.
      claims: of the paper, or ours.
      tables: for readers.
      figures: of the run's folder.
      values: for programs.
    """

    summary: str
    claims: tuple[Claim, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    values: dict[str, Any] = field(default_factory=dict)


def mean_over_seeds(values: Sequence[float] | np.ndarray, bounds: Bounds = REAL_LINE) -> Interval:
    """Mean and Student's 95 % interval: all of `bounds` for a single value, and nan for none."""
    if not len(values):
        return Interval(math.nan, *bounds)
    return student_interval(np.asarray(values, np.float64), bounds)


def share(hits: Sequence[bool] | np.ndarray) -> Interval:
    """The share of runs that hit, with an interval that is right also if none or all do."""
    return mean_interval(np.asarray(hits, np.float64), (0.0, 1.0))


def claim_ends(interval: Interval) -> tuple[float, float] | None:
    """The interval of a claim; None where there is no value."""
    return None if math.isnan(interval.mean) else interval.ends


def plain_ends(interval: Interval) -> list[float | None]:
    """The ends for programs; None for those that are infinite.

    >>> plain_ends(Interval(0.5, 0.25, math.inf))
    [0.25, None]
    """
    return [end if math.isfinite(end) else None for end in interval.ends]


def text_of(interval: Interval, digits: int = 3) -> str:
    """The mean with its interval, or without it where there is none.

    >>> text_of(Interval(0.5, 0.25, 0.75), 2), text_of(Interval(0.5, -math.inf, math.inf), 1)
    ('0.50 (0.25 to 0.75)', '0.5')
    """
    if math.isnan(interval.mean):
        return "no run"
    mean = f"{interval.mean:.{digits}f}"
    if not math.isfinite(interval.low) or not math.isfinite(interval.high):
        return mean
    return f"{mean} ({interval.low:.{digits}f} to {interval.high:.{digits}f})"
