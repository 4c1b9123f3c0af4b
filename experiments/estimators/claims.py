"""Claims of the experiment `estimators`."""

import itertools
import math
from collections.abc import Mapping, Sequence

from jaxsens.core.intervals import (
    Interval,
    independent_difference,
    paired_difference,
    ratio_of_means,
)
from jaxsens.reporting.results import Claim

from .._common.claims import number_or_none
from .._images.models import ModelSpec
from .measuring import DEFINITION, RELEASED, ByWay

#: Of the interval of a difference that must hold 0: three standard errors of a normal one.
AGREEMENT_LEVEL = 0.997


def released_ratio(measured: ByWay) -> Interval:
    """Released estimator over definition, paired by image; its interval is not below 0."""
    ratio, low, high = ratio_of_means(
        measured[RELEASED].per_example, measured[DEFINITION].per_example
    )
    return Interval(ratio, max(0.0, low), high)


def same_quantity_claim(spec: ModelSpec, way: str, measured: ByWay) -> Claim:
    """Whether a way to measure agrees with the definition."""
    one, other = measured[DEFINITION], measured[way]
    # As if the images were independent. To a tolerance some are others; where all are the same the
    # interval is, if anything, too wide.
    larger, smaller = sorted((one, other), key=lambda each: each.mean, reverse=True)
    gap = independent_difference(
        *(Interval(each.mean, *each.ci(AGREEMENT_LEVEL)) for each in (larger, smaller))
    )
    return Claim(
        statement=f"{spec.label}: {way} estimate the same quantity as the patch grid",
        paper="unbiased by construction",
        measured=f"{other.mean:.4f} against {one.mean:.4f}, difference {gap.mean:.4f}, "
        f"{AGREEMENT_LEVEL:.1%} interval {gap.low:.4f} to {gap.high:.4f}; "
        f"{other.provenance.num_passes} against {one.provenance.num_passes} forward passes",
        holds=gap.low <= 0 <= gap.high,
        values={way: other.mean, DEFINITION: one.mean, "difference": gap.mean},
        decided_by="difference",
        interval=gap.ends,
        level=AGREEMENT_LEVEL,
        num_examples=one.num_examples,
        num_seeds=1,
    )


def released_agrees_claim(spec: ModelSpec, measured: ByWay) -> Claim:
    """Whether the released code's estimator agrees with the definition."""
    ratio = released_ratio(measured)
    exists = not math.isnan(ratio.mean)
    text = f"ratio {ratio.mean:.3f}, 95 % interval {ratio.low:.3f} to {ratio.high:.3f}"
    return Claim(
        statement=f"{spec.label}: the released code's estimator agrees with the definition",
        paper="taken for granted",
        measured=text if exists else "no ratio: the definition gives 0",
        holds=ratio.low <= 1 <= ratio.high,
        values={
            RELEASED: measured[RELEASED].mean,
            DEFINITION: measured[DEFINITION].mean,
            "ratio": number_or_none(ratio.mean),
        },
        decided_by="ratio",
        interval=ratio.ends if exists else None,
        num_examples=measured[DEFINITION].num_examples,
        num_seeds=1,
    )


def same_order_claims(specs: Sequence[ModelSpec], measured: Mapping[str, ByWay]) -> list[Claim]:
    """Whether every two models that the definition tells apart come out in the same order.

    No claim where it tells none apart.
    """
    pairs = list(itertools.combinations(specs, 2))

    def differences(way: str) -> dict[str, Interval]:
        """Of every two models, image by image."""
        return {
            f"{one.label} − {other.label}": paired_difference(
                measured[one.name][way].per_example,
                measured[other.name][way].per_example,
                (0.0, 1.0),
            )
            for one, other in pairs
        }

    both = (DEFINITION, RELEASED)
    found = {way: differences(way) for way in both}
    apart = [pair for pair, difference in found[DEFINITION].items() if _sign(difference)]
    if not apart:
        return []
    alike = [p for p in apart if _sign(found[DEFINITION][p]) == _sign(found[RELEASED][p])]
    means = {way: {spec.label: measured[spec.name][way].mean for spec in specs} for way in both}
    orders = (
        f"{way}: {' < '.join(sorted(of_way, key=lambda label: of_way[label]))}"
        for way, of_way in means.items()
    )
    claim = Claim(
        statement="The released code's estimator orders the models as the definition does",
        paper="taken for granted",
        measured=f"{'; '.join(orders)}; of {len(pairs)} pairs the definition tells {len(apart)} "
        f"apart (95 % intervals), the released code {len(alike)} of these in the same order",
        holds=len(apart) == len(alike),
        values={
            **means,
            "differences, 95 % intervals": {
                way: {pair: difference.ends for pair, difference in of_way.items()}
                for way, of_way in found.items()
            },
            "pairs told apart": len(apart),
            "pairs in the same order": len(alike),
        },
        decided_by="pairs in the same order",
        num_seeds=1,
    )
    return [claim]


def _sign(difference: Interval) -> int:
    """-1 or 1 where the interval excludes 0."""
    return int(difference.low > 0) - int(difference.high < 0)
