"""Claims of the experiment `ablations`."""

import math
from collections.abc import Sequence

from jaxsens.core.intervals import bonferroni, mean_interval, paired_difference
from jaxsens.reporting.results import Claim

from .._common.claims import Estimates, less_sensitive
from .._images.models import ModelSpec
from .variants import Variants


def below_reference_claims(variants: Variants, estimates: Estimates) -> list[Claim]:
    """Whether every ViT is less sensitive than the convolutional network."""
    reference = variants.reference
    vits = [spec for spec in variants.all() if spec is not reference]
    return [less_sensitive(vit, reference, estimates) for vit in vits]


def effect_claims(
    what: str, variants: Sequence[ModelSpec], reference: ModelSpec, estimates: Estimates
) -> list[Claim]:
    """The paper's claim, no effect, and the weaker one that the effect is small."""
    means = {spec.label: estimates[spec.name].mean for spec in variants}
    least, most = (pick(variants, key=lambda s: estimates[s.name].mean) for pick in (min, max))
    low_v, high_v, reference_v = (
        estimates[spec.name].per_example for spec in (least, most, reference)
    )
    # The largest of all differences is rarely 0: its interval allows for the choice (Bonferroni).
    num_pairs = max(1, math.comb(len(variants), 2))
    effect = paired_difference(high_v, low_v, (0.0, 1.0), bonferroni(0.95, num_pairs))
    gap = paired_difference(reference_v, high_v, (0.0, 1.0))
    less = mean_interval(reference_v - 2 * high_v + low_v, (-2.0, 2.0))
    listed = ", ".join(f"{label} {mean:.4f}" for label, mean in means.items())
    return [
        Claim(
            statement=f"{what} has no effect on the ViT's sensitivity that shows",
            paper="no effect, by eye in the figures",
            measured=f"{listed}; largest difference {effect.mean:.4f}, 95 % interval, corrected "
            f"for {num_pairs} pairs, {effect.low:.4f} to {effect.high:.4f}",
            holds=effect.low <= 0,
            values=means | {"largest difference": effect.mean},
            decided_by="largest difference",
            interval=effect.ends,
            num_examples=len(high_v),
            num_seeds=1,
        ),
        Claim(
            statement=f"{what} moves the ViT's sensitivity by less than the gap to "
            f"{reference.label}",
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
        ),
    ]
