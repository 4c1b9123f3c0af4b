"""How the robustness experiment tells what it found: claims, tables and figures.

Errors are Boolean tables (corruptions, n): every corruption on the same n test images, so intervals
are clustered by image. Outcomes are right answers, the clean images in the first row.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool

from jaxsens import figures
from jaxsens.core.intervals import Interval, RankCorrelation, mean_interval, paired_difference
from jaxsens.reporting.results import Claim, Figure, Table
from jaxsens.reporting.run_folder import RunFolder

from .._common.study import records_of
from .._common.views import Estimates, less_sensitive
from .._images.paper import LABELS
from .._images.study import Arm

Errors = Mapping[str, Bool[np.ndarray, "corruptions n"]]
Outcomes = Mapping[str, Bool[np.ndarray, "rows n"]]


def _is_noise_or_blur(name: str) -> bool:
    return name.endswith(("_noise", "_blur"))


def _is_transformer(arm: Arm) -> bool:
    return arm.name.startswith("vit")


def _positive(statement: str, paper: str, gain: Interval, what: str) -> Claim:
    return Claim(
        statement=statement,
        paper=paper,
        measured=f"{what} {gain.mean:+.4f}, 95 % interval {gain.low:+.4f} to {gain.high:+.4f}",
        holds=gain.low > 0,
    )


def intervention_claims(
    pairs: Sequence[tuple[Arm, Arm]],
    estimates: Estimates,
    errors: Errors,
    corruptions: Sequence[str],
) -> list[Claim]:
    """Does what lowers sensitivity raise robustness, and most of all to noise and blur?"""
    local = np.array([_is_noise_or_blur(name) for name in corruptions])
    claims = []
    for changed, base in pairs:
        gains = errors[base.name].astype(float) - errors[changed.name].astype(float)
        claims += [
            less_sensitive(changed, base, estimates),
            _positive(
                f"{changed.label} is more accurate on corrupted images than {base.label}",
                "better, by eye in the figures",
                mean_interval(gains.mean(axis=0), (-1.0, 1.0)),
                "mean gain in accuracy",
            ),
        ]
        if local.any() and not local.all():
            claims.append(
                _positive(
                    f"{changed.label} gains more on noise and blur than on other corruptions",
                    "helps noise and blur most",
                    paired_difference(
                        gains[local].mean(axis=0), gains[~local].mean(axis=0), (-1.0, 1.0)
                    ),
                    "difference of the gains",
                )
            )
    return claims


def transformer_claims(arms: Sequence[Arm], errors: Errors) -> list[Claim]:
    """Are ViTs better than other models on almost all corruptions?"""
    claims = []
    for vit in (each for each in arms if _is_transformer(each) and each.name in LABELS):
        for other in (each for each in arms if not _is_transformer(each) and each.name in LABELS):
            mine, theirs = (errors[each.name].mean(axis=1) for each in (vit, other))
            wins = int((mine < theirs).sum())
            of_vit, of_other = (errors[each.name].mean(axis=0) for each in (vit, other))
            less, low, high = paired_difference(of_other, of_vit, (0.0, 1.0))
            claims.append(
                Claim(
                    statement=f"{vit.label} is more accurate than {other.label} on almost all "
                    "corruptions (at least four of five)",
                    paper="almost all, by eye in the figures",
                    measured=f"on {wins} of {len(mine)}; mean error {mine.mean():.4f} against "
                    f"{theirs.mean():.4f}, less by {less:.4f}, 95 % interval {low:.4f} to "
                    f"{high:.4f}",
                    holds=wins >= 0.8 * len(mine),
                )
            )
    return claims


def rank_claim(rank: RankCorrelation) -> Claim:
    """Do sensitivity and corruption error order the models alike?"""
    return Claim(
        statement="More sensitive models have a larger mean corruption error (rank correlation)",
        paper="no number given",
        measured=str(rank),
        # Well measured is not enough: few models may line up by chance.
        holds=rank.low > 0 and rank.p_value < 0.05,
    )


def error_table(arms: Sequence[Arm], estimates: Estimates, outcomes: Outcomes, note: str) -> Table:
    """Sensitivity beside clean accuracy and mean corruption error."""
    rows = []
    for each in arms:
        estimate, (clean, *corrupted) = estimates[each.name], outcomes[each.name]
        low, high = estimate.ci()
        per_image = 1 - np.mean(corrupted, axis=0)
        _, error_low, error_high = mean_interval(per_image, (0.0, 1.0))
        rows.append(
            (
                each.label,
                f"{estimate.mean:.4f}",
                f"{low:.4f} – {high:.4f}",
                _accuracy(clean),
                f"{per_image.mean():.4f}",
                f"{error_low:.4f} – {error_high:.4f}",
            )
        )
    return Table(
        title="Sensitivity and mean corruption error",
        columns=(
            *("model", "sensitivity", "95 % interval", "clean accuracy"),
            *("mean corr. error", "95 % interval"),
        ),
        rows=tuple(rows),
        note=f"{note}.",
    )


def accuracy_table(
    corruptions: Sequence[str], arms: Sequence[Arm], outcomes: Outcomes, note: str
) -> Table:
    """Accuracy, with its interval, on the same images clean and with every corruption."""
    return Table(
        title="Accuracy on each corruption",
        columns=("corruption", *(each.label for each in arms)),
        rows=tuple(
            (name.replace("_", " "), *(_accuracy(outcomes[each.name][i]) for each in arms))
            for i, name in enumerate(("clean", *corruptions))
        ),
        note=f"In brackets 95 % (Wilson) intervals; {note}.",
    )


def _accuracy(outcomes: Bool[np.ndarray, " n"]) -> str:
    mean, low, high = mean_interval(outcomes.astype(float), (0.0, 1.0))
    return f"{mean:.3f} ({low:.3f} – {high:.3f})"


def panels(corruptions: Sequence[str], arms: Sequence[Arm], folder: RunFolder) -> Figure:
    """Accuracy on each corruption along training, like Fig. 9."""
    curves = {}
    for each in arms:
        mine = records_of(folder, each.name)
        rows = [[r["corrupted"][name] for r in mine] for name in corruptions]
        curves[each.label] = ([r["epoch"] for r in mine], rows)
    fig = figures.panels([name.replace("_", " ") for name in corruptions], curves)
    figures.save(fig, folder.figures, "corruptions")
    return Figure(
        "figures/corruptions.png",
        "Test accuracy on each corruption against epochs (like Figs 9, 14 and 15).",
    )


def scatter(arms: Sequence[Arm], estimates: Estimates, errors: Errors, folder: RunFolder) -> Figure:
    """Sensitivity against mean corruption error, a point for each model."""
    across = [(estimates[each.name].mean, *estimates[each.name].ci()) for each in arms]
    up = [mean_interval(errors[each.name].mean(axis=0), (0.0, 1.0)) for each in arms]
    fig = figures.scatter(
        [each.label for each in arms],
        across,
        up,
        xlabel="Sensitivity",
        ylabel="Mean corruption error",
    )
    figures.save(fig, folder.figures, "sensitivity_and_error")
    return Figure(
        "figures/sensitivity_and_error.png",
        "Sensitivity and mean corruption error of every model, with 95 % intervals.",
    )
