"""How the language experiment tells what it found: claims, tables and figures."""

import math
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from jaxsens import SensitivityEstimate, figures
from jaxsens.buckets import into_buckets, padding_share
from jaxsens.data.text import text_spec
from jaxsens.estimate import confidence_interval
from jaxsens.results import Claim, Figure, Table
from jaxsens.runfolder import RunFolder

from .language_study import Config, TextArm, TextData
from .study import records_of
from .views import Estimates, less_sensitive

#: For every way of measuring, the estimates by model.
Measured = Mapping[str, Mapping[str, SensitivityEstimate]]
Pairs = Sequence[tuple[TextArm, TextArm]]


def same_order_claims(pairs: Pairs, measured: Measured) -> list[Claim]:
    """Whether RoBERTa stays below the LSTM for other noise and other texts (Figs 16 and 17)."""
    claims = []
    for how, estimates in measured.items():
        if how not in ("validation", "whole text", "other words") and "variance" not in how:
            continue
        for less, more in pairs:
            if (less.name, more.name) == ("roberta-softmax", "lstm"):
                claim = less_sensitive(less, more, estimates)
                paper = "same order" if how == "validation" or "variance" in how else "not shown"
                claims.append(
                    Claim(f"{claim.statement}: {how}", paper, claim.measured, claim.holds)
                )
    return claims


def depth_claims(arms: Sequence[TextArm], main: Estimates) -> list[Claim]:
    """Whether every LSTM lies above every RoBERTa, whatever their depths (Fig. 19)."""
    lstms = [each for each in arms if each.name.startswith("lstm")]
    robertas = [each for each in arms if each.name.startswith("roberta-softmax")]
    if min(len(lstms), len(robertas)) < 2:
        return []
    lowest = min(lstms, key=lambda each: main[each.name].mean)
    highest = max(robertas, key=lambda each: main[each.name].mean)
    claim = less_sensitive(highest, lowest, main)
    return [
        Claim(
            "Every RoBERTa is less sensitive than every LSTM, whatever their depths",
            "in its Fig. 19",
            f"highest RoBERTa ({highest.label}) and lowest LSTM ({lowest.label}): {claim.measured}",
            claim.holds,
        )
    ]


def position_claims(arms: Sequence[TextArm], main: Estimates) -> list[Claim]:
    """Whether the LSTM is most sensitive to the later tokens (Fig. 8)."""
    claims = []
    for each in arms:
        if each.name != "lstm":
            continue
        early, late = _halves(main[each.name])
        low, high = confidence_interval(late - early, (-math.inf, math.inf), 0.95)
        claims.append(
            Claim(
                f"{each.label} is more sensitive to the second half of a text than to the first",
                "rises towards the end, a hump 4 to 10 tokens before it",
                f"{late.mean():.4f} against {early.mean():.4f}; difference "
                f"{(late - early).mean():.4f}, 95 % interval {low:.4f} to {high:.4f}",
                low > 0,
            )
        )
    return claims


def _halves(estimate: SensitivityEstimate) -> tuple[np.ndarray, np.ndarray]:
    lengths = (estimate.counts > 0).sum(axis=1)[:, None]
    places = np.arange(estimate.num_positions)[None]
    changes = estimate.per_example_position
    early = np.where(places < lengths / 2, changes, np.nan)
    late = np.where(places >= lengths / 2, changes, np.nan)
    return np.nanmean(early, axis=1), np.nanmean(late, axis=1)


def sensitivity_table(
    config: Config, data: TextData, arms: Sequence[TextArm], main: Estimates, folder: RunFolder
) -> Table:
    """The models at the end of training, beside the paper's numbers."""
    rows = []
    for each in arms:
        estimate, record = main[each.name], records_of(folder, each.name)[-1]
        low, high = estimate.ci()
        pooled, pooled_low, pooled_high = estimate.pooled()
        rows.append(
            (
                each.label,
                f"{_num_parameters(each):,}",
                each.paper,
                f"{estimate.mean:.4f}",
                f"{low:.4f} – {high:.4f}",
                f"{pooled:.4f} ({pooled_low:.4f} – {pooled_high:.4f})",
                f"{record['train_accuracy']:.3f}",
                f"{record['test_accuracy']:.3f}",
            )
        )
    estimate = main[arms[0].name]
    tokens = np.concatenate([b.lengths for b in data.measured["train"].buckets])
    padding = padding_share(into_buckets(data.train.sequences, data.train.training_lengths))
    return Table(
        title=f"Sensitivity after {config.epochs} epochs on {text_spec(config.dataset).title}",
        columns=(
            *("model", "parameters", "paper", "measured", "95 % interval", "token-weighted"),
            *("train acc.", "validation acc."),
        ),
        rows=tuple(rows),
        note=f"Noise of variance {config.variances[0]:g} on one layer-normed embedding; "
        f"n={estimate.num_examples} training texts of {tokens.mean():.1f} tokens on average, "
        f"S={config.num_samples} draws a token. Measured: mean over texts of the mean over tokens "
        "(the definition); token-weighted: over all tokens, as the authors report. "
        f"Vocabulary {data.vocab_size:,}; padding in training {padding:.0%} of all places.",
    )


def _num_parameters(arm: TextArm) -> int:
    tokens = jax.ShapeDtypeStruct((1, 8), np.int32)
    shapes = jax.eval_shape(arm.model.init, jax.random.key(0), tokens)
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))


def _in_all_ways(arms: Sequence[TextArm], measured: Measured) -> list[TextArm]:
    return [each for each in arms if all(each.name in found for found in measured.values())]


def ways_table(config: Config, arms: Sequence[TextArm], measured: Measured) -> Table:
    """Other noise, other texts, other edits."""
    rows = []
    for each in _in_all_ways(arms, measured):
        estimates = (found[each.name] for found in measured.values())
        rows.append((each.label, *(_with_interval(estimate) for estimate in estimates)))
    return Table(
        title="Other noise, other texts, other edits",
        columns=("model", *measured),
        rows=tuple(rows),
        note=f"main: as above. validation: on texts not trained on. whole text: noise of variance "
        f"{config.variances[0]:g} on all embeddings at once. other words: one token replaced by a "
        "random one. renormalised: noisy embeddings layer-normed again, for all models alike. "
        "authors: as in their code, where RoBERTa's noisy embeddings are embedded again.",
    )


def _with_interval(estimate: SensitivityEstimate) -> str:
    low, high = estimate.ci()
    return f"{estimate.mean:.4f} ({low:.4f} – {high:.4f})"


def authors_tables(by_name: Mapping[str, TextArm], measured: Measured) -> list[Table]:
    """How much of the gap between LSTM and RoBERTa comes from treating them differently."""
    if not {"lstm", "lstm-frozen", "roberta-softmax"} <= by_name.keys():
        return []
    lstm, frozen = measured["main"]["lstm"], measured["main"]["lstm-frozen"]
    roberta, twice = (measured[how]["roberta-softmax"] for how in ("main", "authors"))
    authors_gap = frozen.mean - twice.mean
    rows = []
    for label, of_lstm, of_roberta in (
        ("authors: LSTM frozen, RoBERTa embedded twice", frozen, twice),
        ("LSTM trained, RoBERTa embedded twice", lstm, twice),
        ("LSTM frozen, RoBERTa embedded once", frozen, roberta),
        ("the same for both", lstm, roberta),
        (
            "the same for both, noise layer-normed",
            measured["renormalised"]["lstm"],
            measured["renormalised"]["roberta-softmax"],
        ),
    ):
        difference = of_lstm.per_example - of_roberta.per_example
        low, high = confidence_interval(difference, (-math.inf, math.inf), 0.95)
        gap = float(difference.mean())
        share = f"{gap / authors_gap:.2f}" if authors_gap > 0 else "–"
        cells = (f"{of_lstm.mean:.4f}", f"{of_roberta.mean:.4f}", f"{gap:.4f}")
        rows.append((label, *cells, f"{low:.4f} – {high:.4f}", share))
    return [
        Table(
            title="How much of the gap between LSTM and RoBERTa is the authors' asymmetry?",
            columns=("treatment", "LSTM", "RoBERTa", "gap", "95 % interval", "of the authors' gap"),
            rows=tuple(rows),
            note="The last column divides by the gap in the first row: what is missing to 1 comes "
            "from treating the models differently. Intervals are paired by text.",
        )
    ]


def position_figure(arms: Sequence[TextArm], main: Estimates, folder: RunFolder) -> Figure:
    """Sensitivity of each place, counted from the end as in Fig. 8, and from the beginning."""
    curves = {}
    for each in arms:
        estimate = main[each.name]
        right, left = estimate.right_aligned().per_position, estimate.per_position
        curves[each.label] = (np.arange(len(left)), [right, left])
    titles = ["aligned at the end", "aligned at the beginning"]
    fig = figures.panels(titles, curves, xlabel="Place", ylabel="Sensitivity", num_columns=2)
    figures.save(fig, folder.figures, "positions")
    return Figure(
        "figures/positions.png",
        "Sensitivity of each place (Fig. 8), mean over the texts that have it: the places at the "
        "far ends are those of a few long texts.",
    )


def ways_figure(arms: Sequence[TextArm], measured: Measured, folder: RunFolder) -> Figure:
    """Every way of measuring, side by side (Figs 16 to 18)."""
    shown = _in_all_ways(arms, measured)
    series = {}
    for how, found in measured.items():
        estimates = [found[each.name] for each in shown]
        series[how] = [(estimate.mean, *estimate.ci()) for estimate in estimates]
    fig = figures.grouped_bars([each.label for each in shown], series)
    figures.save(fig, folder.figures, "ways")
    return Figure(
        "figures/ways.png", "Every way of measuring (Figs 16 to 18), with 95 % intervals."
    )
