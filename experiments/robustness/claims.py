"""Claims of the experiment `robustness`.

Errors are Boolean tables (corruptions, n): every corruption on the same n test images, so intervals
are clustered by image.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxsens.core.intervals import Interval, RankCorrelation, mean_interval, paired_difference
from jaxsens.reporting.results import Claim

from .._common.claims import Estimates, less_sensitive
from .._images.models import ModelSpec
from .._images.paper import LABELS
from .measuring import ErrorsByModel


def intervention_claims(
    pairs: Sequence[tuple[ModelSpec, ModelSpec]],
    estimates: Estimates,
    errors: ErrorsByModel,
    corruptions: Sequence[str],
) -> list[Claim]:
    """Does what lowers sensitivity raise robustness, and most of all to noise and blur?"""
    local = np.array([_is_noise_or_blur(name) for name in corruptions])
    claims = []
    for changed, base in pairs:
        gains = errors[base.name].astype(float) - errors[changed.name].astype(float)
        num_examples = gains.shape[1]
        claims += [
            less_sensitive(changed, base, estimates),
            _gain_claim(
                f"{changed.label} is more accurate on corrupted images than {base.label}",
                "better, by eye in the figures",
                mean_interval(gains.mean(axis=0), (-1.0, 1.0)),
                "mean gain in accuracy",
                {f"mean error, {s.label}": errors[s.name].mean() for s in (changed, base)},
                num_examples,
            ),
        ]
        if local.any() and not local.all():
            of_local, of_others = gains[local].mean(axis=0), gains[~local].mean(axis=0)
            claims.append(
                _gain_claim(
                    f"{changed.label} gains more on noise and blur than on other corruptions",
                    "helps noise and blur most",
                    paired_difference(of_local, of_others, (-1.0, 1.0)),
                    "difference of the gains",
                    {"noise and blur": of_local.mean(), "other corruptions": of_others.mean()},
                    num_examples,
                )
            )
    return claims


def _gain_claim(
    statement: str,
    paper: str,
    gain: Interval,
    what: str,
    compared: Mapping[str, Any],
    num_examples: int,
) -> Claim:
    return Claim(
        statement=statement,
        paper=paper,
        measured=f"{what} {gain.mean:+.4f}, 95 % interval {gain.low:+.4f} to {gain.high:+.4f}",
        holds=gain.low > 0,
        values={**compared, what: gain.mean},
        decided_by=what,
        interval=gain.ends,
        num_examples=num_examples,
        num_seeds=1,
    )


def transformer_claims(specs: Sequence[ModelSpec], errors: ErrorsByModel) -> list[Claim]:
    """Are ViTs better than other models on almost all corruptions?"""
    as_they_are = [spec for spec in specs if spec.name in LABELS]
    return [
        _transformer_claim(vit, other, errors)
        for vit in as_they_are
        if _is_transformer(vit)
        for other in as_they_are
        if not _is_transformer(other)
    ]


def _transformer_claim(vit: ModelSpec, other: ModelSpec, errors: ErrorsByModel) -> Claim:
    mine, theirs = (errors[spec.name].mean(axis=1) for spec in (vit, other))
    wins = int((mine < theirs).sum())
    of_vit, of_other = (errors[spec.name].mean(axis=0) for spec in (vit, other))
    less, low, high = paired_difference(of_other, of_vit, (0.0, 1.0))
    return Claim(
        statement=f"{vit.label} is more accurate than {other.label} on almost all "
        "corruptions (at least four of five)",
        paper="almost all, by eye in the figures",
        measured=f"on {wins} of {len(mine)}; mean error {mine.mean():.4f} against "
        f"{theirs.mean():.4f}, less by {less:.4f}, 95 % interval {low:.4f} to {high:.4f}",
        holds=wins >= 0.8 * len(mine),
        values={
            f"mean error, {vit.label}": mine.mean(),
            f"mean error, {other.label}": theirs.mean(),
            "difference of the mean errors": less,
            "corruptions on which it is more accurate": wins,
            "corruptions": len(mine),
            "difference of the mean errors, 95 % interval": (low, high),
        },
        decided_by="corruptions on which it is more accurate",
        num_examples=len(of_vit),
        num_seeds=1,
    )


def rank_claim(rank: RankCorrelation, num_examples: int) -> Claim:
    """Do sensitivity and corruption error order the models alike?"""
    return Claim(
        statement="More sensitive models have a larger mean corruption error (rank correlation)",
        paper="no number given",
        measured=str(rank),
        # Well measured is not enough: few models may line up by chance.
        holds=rank.low > 0 and rank.p_value < 0.05,
        values={
            "rank correlation": rank.value,
            "p-value": rank.p_value,
            "models": rank.num_models,
        },
        decided_by="rank correlation",
        interval=(rank.low, rank.high),
        num_examples=num_examples,
        num_seeds=1,
    )


def _is_noise_or_blur(name: str) -> bool:
    return name.endswith(("_noise", "_blur"))


def _is_transformer(spec: ModelSpec) -> bool:
    return spec.name.startswith("vit")
