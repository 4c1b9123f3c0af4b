"""Records of the experiment `synthetic` over seeds: means, intervals, what counts as holding."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxsens.estimate import confidence_interval

from .synthetic_theory import SETTINGS

Record = Mapping[str, Any]
Found = Mapping[int, Sequence[Record]]

#: An accuracy up to this counts as 0, one from 1 − this on as 1.
NEAR = 0.05


class Over(NamedTuple):
    """A number over seeds: mean and ends of its 95 % interval; nan if all models diverged."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return self.text(3)

    def text(self, digits: int) -> str:
        """The numbers with that many decimals."""
        if math.isnan(self.mean):
            return "diverged"
        return f"{self.mean:.{digits}f} ({self.low:.{digits}f} to {self.high:.{digits}f})"

    def drawn(self) -> tuple[float, float, float]:
        """For bars: no bar where all models diverged."""
        return (0.0, 0.0, 0.0) if math.isnan(self.mean) else (self.mean, self.low, self.high)


def by_setting(records: Sequence[Record]) -> dict[int, list[Record]]:
    """The records of each setting."""
    groups: dict[int, list[Record]] = {}
    for record in records:
        groups.setdefault(record["setting"], []).append(record)
    return groups


def by_cell(cells: Sequence[Record]) -> dict[tuple[int, float, float], list[Record]]:
    """The records of each setting, initial scale and learning rate."""
    groups: dict[tuple[int, float, float], list[Record]] = {}
    for record in cells:
        key = (record["setting"], record["sigma"], record["rate"])
        groups.setdefault(key, []).append(record)
    return groups


def over(values: Sequence[float | None]) -> Over:
    """Mean and interval of the models that did not diverge."""
    finite = np.array([v for v in values if v is not None], np.float64)
    if len(finite) < 2:
        return Over(*3 * [float(finite[0]) if len(finite) else math.nan])
    low, high = confidence_interval(finite, (-math.inf, math.inf), 0.95)
    return Over(float(finite.mean()), low, high)


def last(records: Sequence[Record], name: str, index: int | None = None) -> list[float | None]:
    """The number after the last epoch, of every model; of one type of token, if it has three."""
    ends = [record[name][-1] for record in records]
    return ends if index is None else [end[index] for end in ends]


def reaches(value: float, favours: str) -> bool:
    """Whether an accuracy on exchanged sparse tokens says that the favoured tokens are used."""
    return value <= NEAR if favours == "sparse" else value >= 1 - NEAR


def fits(record: Record) -> bool:
    """Whether a model has learned the task; one that diverged has not."""
    return record["loss"][-1] is not None and record["test_accuracy"][-1] >= 1 - NEAR


def follows(record: Record) -> bool:
    """Whether a model has learned the task and uses the favoured tokens."""
    favours = SETTINGS[record["setting"]].favours
    return fits(record) and reaches(record["ood_accuracy"][-1], favours)
