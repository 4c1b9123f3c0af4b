"""Records of the experiment `synthetic` over seeds: means, intervals, what counts as holding."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxsens.core.intervals import REAL_LINE, Bounds, Interval, mean_interval, student_interval

from .theory import SETTINGS

Record = Mapping[str, Any]
RecordsBySetting = Mapping[int, Sequence[Record]]

#: Where a number can lie, if not between 0 and 1.
BOUNDS: dict[str, Bounds] = {"alignment": (-1.0, 1.0), "attention_per_token": (0.0, math.inf)}
#: An accuracy up to this counts as 0, one from 1 − this on as 1.
NEAR = 0.05


class MeanOverSeeds(Interval):
    """A number over seeds: mean and ends of its 95 % interval; nan if all models diverged."""

    __slots__ = ()

    def __str__(self) -> str:
        return self.text(3)

    def text(self, digits: int) -> str:
        """The numbers with that many decimals."""
        if math.isnan(self.mean):
            return "diverged"
        return f"{self.mean:.{digits}f} ({self.low:.{digits}f} to {self.high:.{digits}f})"


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


def mean_over_seeds(values: Sequence[float | None], bounds: Bounds = REAL_LINE) -> MeanOverSeeds:
    """Mean and Student-t interval, cut off at the bounds, of the models that did not diverge.

    Where all seeds agree the interval has no width: look at `share_following` too.
    """
    finite = np.array([v for v in values if v is not None], np.float64)
    if len(finite) < 2:
        return MeanOverSeeds(*3 * [float(finite[0]) if len(finite) else math.nan])
    return MeanOverSeeds(*student_interval(finite, bounds))


def final_value(records: Sequence[Record], name: str, index: int | None = None) -> MeanOverSeeds:
    """A number after the last epoch, over seeds; of one type of token, if it has three."""
    return mean_over_seeds(final_values(records, name, index), BOUNDS.get(name, (0.0, 1.0)))


def final_values(
    records: Sequence[Record], name: str, index: int | None = None
) -> list[float | None]:
    """The number after the last epoch, of every model."""
    ends = [r[name][-1] if isinstance(r[name], list) else r[name] for r in records]
    return ends if index is None else [end[index] for end in ends]


def share_following(records: Sequence[Record]) -> MeanOverSeeds:
    """The share of seeds that follow, with the Wilson interval: each seed is one draw."""
    follow = np.array([float(follows(record)) for record in records])
    return MeanOverSeeds(*mean_interval(follow, (0.0, 1.0)))


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
