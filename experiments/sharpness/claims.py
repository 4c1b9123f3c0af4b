"""Claims of the experiment `sharpness`."""

import numpy as np

import jaxsens
from jaxsens.reporting.results import Claim

from .._common.claims import claim_over_seeds
from .._images.models import ModelSpec
from .measuring import SharpnessBySeed
from .paper import KINDS, TABLE_2


def flatter_claim(
    changed: ModelSpec, base: ModelSpec, sharpness: SharpnessBySeed, kind: str
) -> Claim:
    """Whether an intervention lowers one kind of change."""
    means = {
        spec.label: [getattr(each, kind).mean for each in sharpness[spec.name]]
        for spec in (base, changed)
    }
    before, after = (getattr(sharpness[spec.name][0], kind) for spec in (base, changed))
    difference = jaxsens.compare(before, after)
    mean, low, high = difference.interval()
    given = base.name in TABLE_2 and changed.name in TABLE_2
    claim = Claim(
        statement=f"{changed.label} has a lower {KINDS[kind]} than {base.label}",
        paper=" → ".join(str(getattr(TABLE_2[spec.name], kind)) for spec in (base, changed))
        + " (CIFAR-10)"
        if given
        else "no numbers given",
        measured=f"{before.mean:.4f} → {after.mean:.4f}; difference {mean:.4f}, 95 % "
        f"interval {low:.4f} to {high:.4f}",
        holds=low > 0,
        values={base.label: before.mean, changed.label: after.mean, "difference": mean},
        decided_by="difference",
        interval=(low, high),
        num_examples=len(difference.values),
        num_seeds=1,
    )
    return claim_over_seeds(claim, means, np.subtract(means[base.label], means[changed.label]))
