"""Claims of the experiment `vision` about noise that one token alone sees."""

import dataclasses
from collections.abc import Sequence

from jaxsens.reporting.results import Claim

from .._common.claims import SeedEstimates, less_sensitive_over_seeds
from .._common.equal_accuracy import EqualAccuracy, equally_accurate_claim
from .._images.models import ModelSpec

#: A model and one that should be more sensitive.
Ordering = tuple[ModelSpec, ModelSpec]


def one_token_claims(
    shown: Sequence[ModelSpec],
    orderings: Sequence[Ordering],
    estimates: SeedEstimates,
    there: EqualAccuracy,
) -> list[Claim]:
    """How much it matters whether other tokens see the noise, and what that does to the orders.

    Args:
      shown: the models, and those with noise at other places.
      orderings: the orders that are asked of the models.
      estimates: of every seed, by the name of the model.
      there: the same models at equal training accuracy.
    """
    by_name = {spec.name: spec for spec in shown}
    own = [spec for spec in shown if spec.noise_on == "own-token"]
    alone: list[Claim] = []
    for spec in own:
        base = by_name[spec.training]
        claim = less_sensitive_over_seeds(spec, base, estimates)
        statement = f"{base.label} is less sensitive where a patch's own token alone sees the noise"
        alone.append(dataclasses.replace(claim, statement=statement, paper="not compared so"))
    if {"vit-small", "vit-plain"} <= by_name.keys():
        pair = by_name["vit-plain"], by_name["vit-small"]
        alone.append(less_sensitive_over_seeds(*pair, estimates))
        alone.append(equally_accurate_claim(*pair, there))
    pairs = [
        (spec, greater)
        for spec in own
        for lesser, greater in orderings
        if lesser.name == spec.training
    ]
    return [
        *alone,
        *(less_sensitive_over_seeds(*pair, estimates) for pair in pairs),
        *(equally_accurate_claim(*pair, there) for pair in pairs),
    ]
