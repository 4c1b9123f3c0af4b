"""Claims of the experiment `robustness`.

Errors are Boolean tables (corruptions, n): every corruption on the same n test images, so intervals
are clustered by image. Of several seeds, the differences that each of them gives decide.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from jaxsens.core.intervals import (
    RankCorrelation,
    mean_interval,
    paired_difference,
    student_interval,
)
from jaxsens.core.intervals.basics import Bounds
from jaxsens.reporting.results import Claim

from .._common.claims import SeedEstimates, claim_over_seeds, less_sensitive_over_seeds
from .._images.models import ModelSpec
from .._images.paper import LABELS
from .measuring import ErrorsBySeed

#: A ViT is better on "almost all" corruptions if on this share of them.
_ALMOST_ALL = 0.8


def intervention_claims(
    pairs: Sequence[tuple[ModelSpec, ModelSpec]],
    estimates: SeedEstimates,
    errors: ErrorsBySeed,
    corruptions: Sequence[str],
) -> list[Claim]:
    """Does what lowers sensitivity raise robustness, and most of all to noise and blur?"""
    local = np.array([_is_noise_or_blur(name) for name in corruptions])
    claims = []
    for changed, base in pairs:
        of_seeds = gains(changed, base, errors)
        claims += [
            less_sensitive_over_seeds(changed, base, estimates),
            accuracy_claim(changed, base, errors),
        ]
        if local.any() and not local.all():
            of_local = [gain[local].mean(axis=0) for gain in of_seeds]
            of_others = [gain[~local].mean(axis=0) for gain in of_seeds]
            claims.append(
                _gain_claim(
                    f"{changed.label} gains more on noise and blur than on other corruptions",
                    "helps noise and blur most",
                    [one - other for one, other in zip(of_local, of_others, strict=True)],
                    (-2.0, 2.0),
                    "difference of the gains",
                    {"noise and blur": of_local, "other corruptions": of_others},
                )
            )
    return claims


def gains(
    changed: ModelSpec, base: ModelSpec, errors: ErrorsBySeed
) -> list[Float[np.ndarray, "corruptions n"]]:
    """By how much a model errs less than another, for each seed."""
    pairs = zip(errors[base.name], errors[changed.name], strict=True)
    return [before.astype(float) - after.astype(float) for before, after in pairs]


def accuracy_claim(changed: ModelSpec, base: ModelSpec, errors: ErrorsBySeed) -> Claim:
    """Is a model more accurate than another, over all corruptions?"""
    return _gain_claim(
        f"{changed.label} is more accurate on corrupted images than {base.label}",
        "better, by eye in the figures",
        [gain.mean(axis=0) for gain in gains(changed, base, errors)],
        (-1.0, 1.0),
        "mean gain in accuracy",
        {
            f"mean error, {spec.label}": [each.mean(axis=0) for each in errors[spec.name]]
            for spec in (changed, base)
        },
    )


def _gain_claim(
    statement: str,
    paper: str,
    by_image: Sequence[Float[np.ndarray, " n"]],
    bounds: Bounds,
    what: str,
    compared: Mapping[str, Sequence[Float[np.ndarray, " n"]]],
) -> Claim:
    """Whether a gain lies above 0; it and what is compared are given image by image, by seed."""
    gain = mean_interval(by_image[0], bounds)
    means = {
        name: [float(values.mean()) for values in of_seeds] for name, of_seeds in compared.items()
    }
    claim = Claim(
        statement=statement,
        paper=paper,
        measured=f"{what} {gain.mean:+.4f}, 95 % interval {gain.low:+.4f} to {gain.high:+.4f}",
        holds=gain.low > 0,
        values={**{name: of_seeds[0] for name, of_seeds in means.items()}, what: gain.mean},
        decided_by=what,
        interval=gain.ends,
        num_examples=len(by_image[0]),
        num_seeds=1,
    )
    return claim_over_seeds(claim, means, [float(values.mean()) for values in by_image])


def transformer_pairs(specs: Sequence[ModelSpec]) -> list[tuple[ModelSpec, ModelSpec]]:
    """Every ViT with every other kind of model, both as they are."""
    as_they_are = [spec for spec in specs if spec.name in LABELS]
    return [
        (vit, other)
        for vit in as_they_are
        if _is_transformer(vit)
        for other in as_they_are
        if not _is_transformer(other)
    ]


def transformer_claims(specs: Sequence[ModelSpec], errors: ErrorsBySeed) -> list[Claim]:
    """Are ViTs better than other models on almost all corruptions?"""
    return [_transformer_claim(vit, other, errors) for vit, other in transformer_pairs(specs)]


def _transformer_claim(vit: ModelSpec, other: ModelSpec, errors: ErrorsBySeed) -> Claim:
    mine, theirs = (errors[spec.name][0].mean(axis=1) for spec in (vit, other))
    wins = int((mine < theirs).sum())
    of_vit, of_other = (errors[spec.name][0].mean(axis=0) for spec in (vit, other))
    less, low, high = paired_difference(of_other, of_vit, (0.0, 1.0))
    what, num = "corruptions on which it is more accurate", len(mine)
    claim = Claim(
        statement=f"{vit.label} is more accurate than {other.label} on almost all "
        "corruptions (at least four of five)",
        paper="almost all, by eye in the figures",
        measured=f"on {wins} of {num}; mean error {mine.mean():.4f} against "
        f"{theirs.mean():.4f}, less by {less:.4f}, 95 % interval {low:.4f} to {high:.4f}",
        holds=wins >= _ALMOST_ALL * num,
        values={
            f"mean error, {vit.label}": mine.mean(),
            f"mean error, {other.label}": theirs.mean(),
            "difference of the mean errors": less,
            what: wins,
            "corruptions": num,
            "difference of the mean errors, 95 % interval": (low, high),
        },
        decided_by=what,
        num_examples=len(of_vit),
        num_seeds=1,
    )
    num_seeds = len(errors[vit.name])
    if num_seeds == 1:
        return claim
    by_seed = [
        int((one.mean(axis=1) < another.mean(axis=1)).sum())
        for one, another in zip(errors[vit.name], errors[other.name], strict=True)
    ]
    differences = np.array([gain.mean() for gain in gains(vit, other, errors)])
    won = student_interval(np.array(by_seed, float), (0.0, float(num)))
    less, low, high = student_interval(differences)
    return dataclasses.replace(
        claim,
        measured=f"on {won.mean:.1f} of {num}, mean over {num_seeds} seeds, 95 % interval over "
        f"seeds {won.low:.1f} to {won.high:.1f}; mean error less by {less:.4f}, 95 % interval "
        f"over seeds {low:.4f} to {high:.4f}; of the first seed: {claim.measured}",
        holds=won.low >= _ALMOST_ALL * num,
        values={
            what: won.mean,
            f"{what}, by seed": by_seed,
            "corruptions": num,
            "difference of the mean errors": less,
            "difference of the mean errors by seed": differences.tolist(),
            "difference of the mean errors, 95 % interval": (low, high),
        },
        interval=won.ends,
        num_seeds=num_seeds,
    )


def rank_claim(
    rank: RankCorrelation, num_examples: int, num_seeds: int = 1, which: str = ""
) -> Claim:
    """Do sensitivity and corruption error order the models alike?

    Args:
      rank: their correlation.
      num_examples: images that the errors are of.
      num_seeds: trainings behind each value.
      which: what is special about this one, in words.
    """
    return Claim(
        statement="More sensitive models have a larger mean corruption error (rank correlation"
        f"{which})",
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
        num_seeds=num_seeds,
    )


def severity_claims(severity: int, claims: Iterable[Claim]) -> list[Claim]:
    """Claims about another severity, which say so."""
    return [
        dataclasses.replace(claim, statement=f"{claim.statement}, severity {severity}")
        for claim in claims
    ]


def _is_noise_or_blur(name: str) -> bool:
    return name.endswith(("_noise", "_blur"))


def _is_transformer(spec: ModelSpec) -> bool:
    return spec.name.startswith("vit")
