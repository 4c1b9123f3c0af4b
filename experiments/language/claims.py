"""How the language experiment tells what it found: claims, tables and figures."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
import numpy as np

import jaxsens
from jaxsens import SensitivityEstimate, figures
from jaxsens.core.intervals import (
    mean_interval,
    paired_difference,
    ratio_of_means,
    student_interval,
)
from jaxsens.data.text import text_spec
from jaxsens.reporting.results import Claim, Figure, Table
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.text.buckets import into_buckets, padding_share

from .._common import views
from .._common.study import records_of
from .._common.views import Estimates, less_sensitive
from .paper import paper_values
from .training import Config, Encoded, TextArm, TextData, with_depth

#: For every way of measuring, the estimates by model.
Measured = Mapping[str, Mapping[str, SensitivityEstimate]]
Pairs = Sequence[tuple[TextArm, TextArm]]


#: Ways of measuring that the paper has a figure of, and others that it has not.
_ALSO_CLAIMED = ("validation", "whole text", "other words")
_AUTHORS_NOTE = " authors: as in their code, where RoBERTa's noisy embeddings are embedded again."
#: A place is shown if at least this share of the texts have it.
_SHOWN_PLACES = 0.1


def constant_accuracy(texts: Encoded) -> float:
    """Accuracy of always predicting the more frequent label."""
    share = float(texts.labels.mean())
    return max(share, 1 - share)


def unlearnt(arms: Sequence[TextArm], data: TextData, folder: RunFolder) -> set[str]:
    """Models whose 95 % interval of the validation accuracy does not lie above a constant's."""
    constant = constant_accuracy(data.validation)
    return {each.name for each in arms if _validation_accuracy(each, data, folder)[1] <= constant}


def _validation_accuracy(
    arm: TextArm, data: TextData, folder: RunFolder
) -> tuple[float, float, float]:
    accuracy, n = records_of(folder, arm.name)[-1]["test_accuracy"], len(data.validation.labels)
    hits = (np.arange(n) < round(accuracy * n)).astype(float)
    return accuracy, *mean_interval(hits, (0.0, 1.0)).ends


def order_claims(pairs: Pairs, measured: Measured, unlearnt: Collection[str]) -> list[Claim]:
    """The orders that the paper shows; that of RoBERTa and LSTM also for other noise and texts."""
    claims = [_order(less, more, measured["main"], unlearnt) for less, more in pairs]
    for how, estimates in measured.items():
        of_paper = how == "validation" or "variance" in how
        if not of_paper and how not in _ALSO_CLAIMED:
            continue
        for less, more in pairs:
            if (less.name, more.name) == ("roberta-softmax", "lstm"):
                claim = _order(less, more, estimates, unlearnt)
                paper = "same order" if of_paper else "not shown"
                statement = f"{claim.statement}: {how}"
                claims.append(dataclasses.replace(claim, statement=statement, paper=paper))
    return claims


def _order(less: TextArm, more: TextArm, estimates: Estimates, unlearnt: Collection[str]) -> Claim:
    claim = less_sensitive(less, more, estimates)
    empty = [each.label for each in (less, more) if each.name in unlearnt]
    warning = "".join(f"; {label} predicts no better than a constant" for label in empty)
    return dataclasses.replace(claim, measured=claim.measured + warning)


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
        more = paired_difference(late, early, main[each.name].bounds)
        claims.append(
            Claim(
                f"{each.label} is more sensitive to the second half of a text than to the first",
                "rises towards the end, a hump 4 to 10 tokens before it",
                f"{late.mean():.4f} against {early.mean():.4f}; difference "
                f"{more.mean:.4f}, 95 % interval {more.low:.4f} to {more.high:.4f}",
                more.low > 0,
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
        accuracy, lowest, highest = _validation_accuracy(each, data, folder)
        rows.append(
            (
                each.label,
                f"{_num_parameters(each):,}",
                each.paper,
                f"{estimate.mean:.4f}",
                f"{low:.4f} – {high:.4f}",
                f"{pooled:.4f} ({pooled_low:.4f} – {pooled_high:.4f})",
                f"{record['train_accuracy']:.3f}",
                f"{accuracy:.3f} ({lowest:.3f} – {highest:.3f})",
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
        f"S={config.num_samples} draws per token. Measured: mean over texts of the mean over "
        "tokens (the definition); token-weighted: over all tokens, as the authors report. "
        f"A constant predictor has validation accuracy {constant_accuracy(data.validation):.3f}; "
        "the sensitivity of a model that is no better says little. "
        f"Vocabulary {data.vocab_size:,}; padding in training {padding:.0%} of all places.",
    )


def _num_parameters(arm: TextArm) -> int:
    tokens = jax.ShapeDtypeStruct((1, 8), np.int32)
    shapes = jax.eval_shape(arm.model.init, jax.random.key(0), tokens)
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))


def _in_all_ways(arms: Sequence[TextArm], measured: Measured) -> list[TextArm]:
    return [each for each in arms if all(each.name in found for found in measured.values())]


def summary(estimate: SensitivityEstimate) -> dict[str, Any]:
    """The estimate's numbers, with the token-weighted mean that the authors report."""
    mean, low, high = estimate.pooled()
    return estimate.summary() | {"token_weighted": {"mean": mean, "low": low, "high": high}}


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
        f"{config.variances[0]:g} on all embeddings at once. other words: one token, never a "
        "special one, replaced by a random one. renormalised: noisy embeddings layer-normed again, "
        "for all models alike." + _AUTHORS_NOTE * ("authors" in measured),
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
    asymmetric = jaxsens.compare(frozen, twice)
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
        gap = jaxsens.compare(of_lstm, of_roberta)
        mean, low, high = gap.interval()
        share = _share(gap.per_example, asymmetric.per_example)
        cells = (f"{of_lstm.mean:.4f}", f"{of_roberta.mean:.4f}", f"{mean:.4f}")
        rows.append((label, *cells, f"{low:.4f} – {high:.4f}", share))
    return [
        Table(
            title="How much of the gap between LSTM and RoBERTa is the authors' asymmetry?",
            columns=("treatment", "LSTM", "RoBERTa", "gap", "95 % interval", "of the authors' gap"),
            rows=tuple(rows),
            note="The last column divides by the gap in the first row: what is missing to 1 comes "
            "from treating the models differently; it is empty if that gap is not above 0. "
            "Intervals are paired by text, those of the last column Fieller's.",
        )
    ]


def _share(part: np.ndarray, whole: np.ndarray) -> str:
    """mean(part) / mean(whole) with its 95 % interval over the texts that both share."""
    if student_interval(whole).low <= 0:
        return "–"
    share, low, high = ratio_of_means(part, whole)
    return f"{share:.2f} ({low:.2f} – {high:.2f})"


def training_figures(config: Config, arms: Sequence[TextArm], folder: RunFolder) -> list[Figure]:
    """What happens along training (Figs 7 and 18), and for other noise and texts (16 and 17)."""
    shown = [each for each in arms if each.in_full]
    found = [views.training_figure(shown, folder, "Fig. 7; Fig. 18 is GPT-2's")]
    for variance in config.variances[1:]:
        paper = {str(name): v for name, v in paper_values(config.dataset, variance).items()}
        of_paper = [dataclasses.replace(each, paper=paper.get(each.name)) for each in shown]
        how = f"variance {variance:g}"
        title = f"Fig. 16: noise of {how}"
        name = f"training_{how.replace(' ', '_')}"
        found.append(views.training_figure(of_paper, folder, title, name, field=how))
    without = [dataclasses.replace(each, paper=None) for each in shown]
    found.append(
        views.training_figure(
            *(without, folder, "Fig. 17: on texts not trained on", "training_validation"),
            split="test",
            field="validation",
        )
    )
    return found + _depth_figures(config, arms, folder)


def _depth_figures(config: Config, arms: Sequence[TextArm], folder: RunFolder) -> list[Figure]:
    depths = [
        dataclasses.replace(
            each, label=with_depth(each.label, config.depth or 1) if each.in_full else each.label
        )
        for base in ("roberta-softmax", "lstm")
        for each in arms
        if each.name == base or each.name.startswith(f"{base}-depth-")
    ]
    if all("-depth-" not in each.name for each in depths):
        return []
    depths = [dataclasses.replace(each, paper=None) for each in depths]
    return [views.training_figure(depths, folder, "Fig. 19: other depths", "training_depths")]


def position_figure(arms: Sequence[TextArm], main: Estimates, folder: RunFolder) -> Figure:
    """Sensitivity of each place, counted from the end as in Fig. 8, and from the beginning."""
    shown = [each for each in arms if each.in_full]
    panels: dict[str, dict[str, figures.Band]] = {
        "Place, counted from the last token": {},
        "Place, counted from the first token": {},
    }
    for each in shown:
        estimate = main[each.name]
        ends = (estimate.right_aligned(), 1 - estimate.num_positions), (estimate, 0)
        for curves, (aligned, first) in zip(panels.values(), ends, strict=True):
            curves[each.label] = _band(aligned, first)
    figures.save(figures.bands(panels), folder.figures, "positions")
    return Figure(
        "figures/positions.png",
        f"Sensitivity of each place (Fig. 8), mean over the texts that have it, with 95 % "
        f"intervals; places that fewer than {_SHOWN_PLACES:.0%} of the texts have are left out.",
    )


def _band(estimate: SensitivityEstimate, first: int) -> figures.Band:
    """The places that enough texts have, numbered from `first` on."""
    values = estimate.per_example_position
    places = np.flatnonzero((estimate.counts > 0).mean(axis=0) >= _SHOWN_PLACES)
    columns = [values[estimate.counts[:, place] > 0, place] for place in places]
    found = [mean_interval(column, estimate.bounds) for column in columns]
    return figures.Band(
        x=places + first,
        y=[each.mean for each in found],
        low=[each.low for each in found],
        high=[each.high for each in found],
    )


def ways_figure(arms: Sequence[TextArm], measured: Measured, folder: RunFolder) -> Figure:
    """Every way of measuring, side by side."""
    shown = _in_all_ways(arms, measured)
    series = {}
    for how, found in measured.items():
        estimates = [found[each.name] for each in shown]
        series[how] = [(estimate.mean, *estimate.ci()) for estimate in estimates]
    fig = figures.grouped_bars([each.label for each in shown], series)
    figures.save(fig, folder.figures, "ways")
    return Figure(
        "figures/ways.png", "Every way of measuring after the last epoch, with 95 % intervals."
    )
