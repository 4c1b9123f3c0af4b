"""Claims of the experiment `language`."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from jaxsens import SensitivityEstimate
from jaxsens.core.intervals import Interval, mean_interval, paired_difference
from jaxsens.reporting.records import records_of
from jaxsens.reporting.results import Claim
from jaxsens.reporting.run_folder import RunFolder

from .._common.claims import (
    Estimates,
    SeedEstimates,
    less_sensitive,
    less_sensitive_over_seeds,
)
from .loading import Encoded, TextData
from .measuring import Measured
from .models import TextModelSpec
from .paper import ORDERINGS

#: Ways to measure that the paper has no figure of, for which the order is claimed all the same.
_ALSO_CLAIMED = ("validation", "whole text", "other words")


def constant_accuracy(texts: Encoded) -> float:
    """Accuracy of always predicting the more frequent label."""
    share = float(texts.labels.mean())
    return max(share, 1 - share)


def validation_accuracy(spec: TextModelSpec, data: TextData, folder: RunFolder) -> Interval:
    """Of a trained model, with its 95 % interval."""
    accuracy, n = records_of(folder, spec.name)[-1]["test_accuracy"], len(data.validation.labels)
    hits = (np.arange(n) < round(accuracy * n)).astype(float)
    return Interval(accuracy, *mean_interval(hits, (0.0, 1.0)).ends)


def unlearnt(specs: Sequence[TextModelSpec], data: TextData, folder: RunFolder) -> set[str]:
    """Models whose 95 % interval of the validation accuracy does not lie above a constant's."""
    constant = constant_accuracy(data.validation)
    return {s.name for s in specs if validation_accuracy(s, data, folder).low <= constant}


def orderings(by_name: Mapping[str, TextModelSpec]) -> list[tuple[TextModelSpec, TextModelSpec]]:
    """The orders that the paper shows, of models that were trained: (less, more sensitive)."""
    return [
        (by_name[less], by_name[more]) for less, more in ORDERINGS if {less, more} <= by_name.keys()
    ]


def order_claims(
    by_name: Mapping[str, TextModelSpec],
    of_seeds: SeedEstimates,
    measured: Measured,
    unlearnt: Collection[str],
) -> list[Claim]:
    """The orders that the paper shows, over seeds if there are several.

    That of RoBERTa and LSTM also for other noise and texts, with the first seed.
    """
    claims = [_order_claim(*models, of_seeds, unlearnt) for models in orderings(by_name)]
    if not {"roberta-softmax", "lstm"} <= by_name.keys():
        return claims
    for way, estimates in measured.items():
        of_paper = way == "validation" or "variance" in way
        if of_paper or way in _ALSO_CLAIMED:
            alone = {name: [estimate] for name, estimate in estimates.items()}
            claim = _order_claim(by_name["roberta-softmax"], by_name["lstm"], alone, unlearnt)
            paper = "same order" if of_paper else "not shown"
            statement = f"{claim.statement}: {way}"
            claims.append(dataclasses.replace(claim, statement=statement, paper=paper))
    return claims


def _order_claim(
    less: TextModelSpec, more: TextModelSpec, of_seeds: SeedEstimates, unlearnt: Collection[str]
) -> Claim:
    claim = less_sensitive_over_seeds(less, more, of_seeds)
    empty = [spec.label for spec in (less, more) if spec.name in unlearnt]
    warning = "".join(f"; {label} predicts no better than a constant" for label in empty)
    return dataclasses.replace(claim, measured=claim.measured + warning)


def depth_claims(specs: Sequence[TextModelSpec], main: Estimates) -> list[Claim]:
    """Whether every LSTM lies above every RoBERTa, whatever their depths (Fig. 19)."""
    lstms = [spec for spec in specs if spec.name.startswith("lstm")]
    robertas = [spec for spec in specs if spec.name.startswith("roberta-softmax")]
    if min(len(lstms), len(robertas)) < 2:
        return []
    lowest = min(lstms, key=lambda spec: main[spec.name].mean)
    highest = max(robertas, key=lambda spec: main[spec.name].mean)
    claim = less_sensitive(highest, lowest, main)
    return [
        dataclasses.replace(
            claim,
            statement="Every RoBERTa is less sensitive than every LSTM, whatever their depths",
            paper="in its Fig. 19",
            measured=f"highest RoBERTa ({highest.label}) and lowest LSTM ({lowest.label}): "
            f"{claim.measured}",
        )
    ]


def position_claims(specs: Sequence[TextModelSpec], main: Estimates) -> list[Claim]:
    """Whether the LSTM is most sensitive to the later tokens (Fig. 8)."""
    return [_later_claim(spec, main[spec.name]) for spec in specs if spec.name == "lstm"]


def _later_claim(spec: TextModelSpec, estimate: SensitivityEstimate) -> Claim:
    early, late = _halves(estimate)
    more = paired_difference(late, early, estimate.bounds)
    return Claim(
        statement=f"{spec.label} is more sensitive to the second half of a text than to the first",
        paper="rises towards the end, a hump 4 to 10 tokens before it",
        measured=f"{late.mean():.4f} against {early.mean():.4f}; difference "
        f"{more.mean:.4f}, 95 % interval {more.low:.4f} to {more.high:.4f}",
        holds=more.low > 0,
        values={
            "second half": late.mean(),
            "first half": early.mean(),
            "difference": more.mean,
        },
        decided_by="difference",
        interval=more.ends,
        num_examples=len(late),
        num_seeds=1,
    )


def _halves(estimate: SensitivityEstimate) -> tuple[np.ndarray, np.ndarray]:
    lengths = (estimate.counts > 0).sum(axis=1)[:, None]
    places = np.arange(estimate.num_positions)[None]
    changes = estimate.per_example_position
    early = np.where(places < lengths / 2, changes, np.nan)
    late = np.where(places >= lengths / 2, changes, np.nan)
    return np.nanmean(early, axis=1), np.nanmean(late, axis=1)
