"""Estimates of disjoint parts of a dataset, put together."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxsens.measurement.estimate import SensitivityEstimate


def merged(parts: Sequence["SensitivityEstimate"]) -> "SensitivityEstimate":
    """The estimate over the examples of all parts, as `SensitivityEstimate.merge` has it of two.

    Args:
      parts: at least one.

    Raises:
      ValueError: two of them were not measured in the same way.
    """
    first, *others = parts
    for other in others:
        _check_mergeable(first, other)
    made = [part.provenance for part in parts]
    seeds = dict.fromkeys(seed for each in made for seed in (each.seed, *each.merged_seeds))
    seeds.pop(made[0].seed)
    return replace(
        first,
        totals=np.concatenate([part.totals for part in parts]),
        counts=np.concatenate([part.counts for part in parts]),
        provenance=replace(
            made[0],
            seconds=math.fsum(each.seconds for each in made),
            num_passes=sum(each.num_passes for each in made),
            exhaustive_passes=sum(each.exhaustive_passes for each in made),
            incremental=all(each.incremental for each in made),
            self_check=min(each.self_check for each in made),  # "failed" before all others
            merged_seeds=tuple(seeds),
            population_size=None
            if made[0].population_size is None
            else sum(each.population_size or 0 for each in made),
            near_ties=max(
                (each.near_ties for each in made if each.near_ties is not None), default=None
            ),
        ),
    )


def _check_mergeable(mine: "SensitivityEstimate", other: "SensitivityEstimate") -> None:
    fields = ("metric", "perturbation", "num_samples", "exact", "positions", "precision")
    for field in (*fields, "population"):
        here, there = getattr(mine.provenance, field), getattr(other.provenance, field)
        if here != there:
            raise ValueError(f"cannot merge estimates with {field}={here!r} and {there!r}")
    if mine.bounds != other.bounds:
        raise ValueError(f"cannot merge estimates with bounds={mine.bounds} and {other.bounds}")
    if mine.num_positions != other.num_positions:
        raise ValueError(
            f"cannot merge estimates with T={mine.num_positions} and T={other.num_positions}"
        )
