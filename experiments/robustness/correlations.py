"""Rank correlations of sensitivity and mean corruption error, over models and over trainings.

Trainings of one model are nearer to each other than to those of another, so their p-value is too
small: the correlation of the models' means over seeds is the one that counts models.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxsens.core.intervals import RankCorrelation, partial_rank_correlation, rank_correlation
from jaxsens.reporting.results import Claim

from .._common.claims import SeedEstimates
from .._images.models import ModelSpec
from .claims import rank_claim
from .measuring import RecognisedBySeed

#: With fewer trainings no partial correlation is asked for.
_FEWEST = 12

ByImage = list[Float[np.ndarray, " n"]]


@dataclass(frozen=True)
class Correlations:
    """Of sensitivity and mean corruption error.

    Attributes:
      num_seeds: trainings of each model.
      of_models: of the means over seeds.
      of_trainings: every training counts as a model; None of a single seed, where it is the same.
      given_clean: the same given clean accuracy; None of few trainings.
    """

    num_seeds: int
    of_models: RankCorrelation
    of_trainings: RankCorrelation | None
    given_clean: RankCorrelation | None

    def values(self) -> dict[str, Any]:
        """For programs."""
        found = {
            "rank_correlation": self.of_models,
            "rank_correlation_of_trainings": self.of_trainings,
            "partial_rank_correlation": self.given_clean,
        }
        return {n: dataclasses.asdict(each) for n, each in found.items() if each is not None}


def rank_correlations(
    specs: Sequence[ModelSpec], estimates: SeedEstimates, recognised: RecognisedBySeed
) -> Correlations:
    """All correlations of a run at one severity."""
    num_seeds = len(recognised[specs[0].name])
    sensitivities = [[each.per_example for each in estimates[spec.name]] for spec in specs]
    errors = [[1 - each[1:].mean(axis=0) for each in recognised[spec.name]] for spec in specs]
    clean = [[1 - each[0].astype(float) for each in recognised[spec.name]] for spec in specs]
    means = ([np.mean(of_seeds, axis=0) for of_seeds in each] for each in (sensitivities, errors))
    of_trainings = [_flat(each) for each in (sensitivities, errors, clean)]
    return Correlations(
        num_seeds,
        rank_correlation(*means),
        rank_correlation(*of_trainings[:2]) if num_seeds > 1 else None,
        partial_rank_correlation(*of_trainings) if len(of_trainings[0]) >= _FEWEST else None,
    )


def _flat(by_model: list[ByImage]) -> ByImage:
    return [values for of_seeds in by_model for values in of_seeds]


def correlation_claims(found: Correlations, num_examples: int) -> list[Claim]:
    """Do sensitivity and corruption error order the models alike?

    Args:
      found: their correlations.
      num_examples: images that the errors are of.
    """
    claims = [rank_claim(found.of_models, num_examples, found.num_seeds)]
    if found.of_trainings is not None:
        which = ", every training counts"
        claims.append(rank_claim(found.of_trainings, num_examples, 1, which))
    if found.given_clean is not None:
        which = ", every training counts, given clean accuracy"
        claims.append(rank_claim(found.given_clean, num_examples, 1, which))
    return claims
