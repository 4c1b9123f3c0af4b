"""Claims of the experiment `ablations`."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from jaxsens.core.intervals import (
    bonferroni,
    mean_interval,
    paired_difference,
    student_interval,
)
from jaxsens.reporting.results import Claim

from .._common.claims import SeedEstimates, claim_over_seeds
from .._images.models import ModelSpec


def effect_claims(
    what: str, variants: Sequence[ModelSpec], reference: ModelSpec, estimates: SeedEstimates
) -> list[Claim]:
    """The paper's claim, no effect, and the weaker one that the effect is small.

    Of several seeds, the variants with the largest and the smallest mean over seeds are compared,
    seed by seed.

    Args:
      what: is varied.
      variants: the models that differ in it.
      reference: the model that all of them should stay below.
      estimates: of every seed, by the name of the model.
    """
    means = {s.name: np.array([each.mean for each in estimates[s.name]]) for s in variants}
    least, most = (pick(variants, key=lambda s: means[s.name].mean()) for pick in (min, max))
    low_v, high_v, reference_v = (
        estimates[spec.name][0].per_example for spec in (least, most, reference)
    )
    # The largest of all differences is rarely 0: its interval allows for the choice (Bonferroni).
    num_pairs = max(1, math.comb(len(variants), 2))
    level = bonferroni(0.95, num_pairs)
    effect = paired_difference(high_v, low_v, (0.0, 1.0), level)
    gap = paired_difference(reference_v, high_v, (0.0, 1.0))
    less = mean_interval(reference_v - 2 * high_v + low_v, (-2.0, 2.0))
    labels = {spec.label: float(means[spec.name].mean()) for spec in variants}
    listed = ", ".join(f"{label} {mean:.4f}" for label, mean in labels.items())
    none = Claim(
        statement=f"{what} has no effect on the ViT's sensitivity that shows",
        paper="no effect, by eye in the figures",
        measured=f"{listed}; largest difference {effect.mean:.4f}, 95 % interval, corrected "
        f"for {num_pairs} pairs, {effect.low:.4f} to {effect.high:.4f}",
        holds=effect.low <= 0,
        values=labels | {"largest difference": effect.mean},
        decided_by="largest difference",
        interval=effect.ends,
        num_examples=len(high_v),
        num_seeds=1,
    )
    small = Claim(
        statement=f"{what} moves the ViT's sensitivity by less than the gap to {reference.label}",
        paper="not stated",
        measured=f"largest difference {effect.mean:.4f}, gap {gap.mean:.4f}; gap minus "
        f"difference, 95 % interval {less.low:.4f} to {less.high:.4f}",
        holds=less.low > 0,
        values={
            "largest difference": effect.mean,
            "gap": gap.mean,
            "gap minus difference": less.mean,
        },
        decided_by="gap minus difference",
        interval=less.ends,
        num_examples=len(high_v),
        num_seeds=1,
    )
    num_seeds = len(estimates[reference.name])
    if num_seeds == 1:
        return [none, small]
    effects = means[most.name] - means[least.name]
    gaps = np.array([each.mean for each in estimates[reference.name]]) - means[most.name]
    by_seed = student_interval(effects, level=level)
    return [
        dataclasses.replace(
            none,
            measured=f"{listed}, means over {num_seeds} seeds; largest difference "
            f"{by_seed.mean:.4f}, 95 % interval over seeds, corrected for {num_pairs} pairs, "
            f"{by_seed.low:.4f} to {by_seed.high:.4f}; of the first seed, over examples: "
            f"{effect.mean:.4f}, {effect.low:.4f} to {effect.high:.4f}",
            holds=by_seed.low <= 0,
            values=labels
            | {"largest difference": by_seed.mean}
            | {"largest difference by seed": effects.tolist()}
            | {"interval over examples, first seed": list(effect.ends)},
            interval=by_seed.ends,
            num_seeds=num_seeds,
        ),
        claim_over_seeds(
            small,
            {"gap": gaps.tolist(), "largest difference": effects.tolist()},
            gaps - effects,
        ),
    ]
