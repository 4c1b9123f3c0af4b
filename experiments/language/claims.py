"""Claims of the experiment `language`."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from jaxsens import SensitivityEstimate
from jaxsens.core.intervals import Interval, mean_interval, paired_difference
from jaxsens.reporting.records import records_of
from jaxsens.reporting.results import Claim
from jaxsens.reporting.run_folder import RunFolder

from .._common.claims import SeedEstimates, claim_over_seeds, less_sensitive_over_seeds
from .loading import Encoded, TextData
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
    of_seeds: Mapping[str, SeedEstimates],
    unlearnt: Collection[str],
) -> list[Claim]:
    """The orders that the paper shows, over seeds if there are several.

    That of RoBERTa and LSTM also for other noise and texts.

    Args:
      by_name: the models.
      of_seeds: what every seed of them gave, by the way of measuring.
      unlearnt: models that predict no better than a constant.
    """
    pairs, main = orderings(by_name), of_seeds["main"]
    claims = [_order_claim(*models, main, unlearnt) for models in pairs]
    if not {"roberta-softmax", "lstm"} <= by_name.keys():
        return claims
    for way, estimates in of_seeds.items():
        of_paper = way == "validation" or "variance" in way
        if of_paper or way in _ALSO_CLAIMED:
            pair = by_name["roberta-softmax"], by_name["lstm"]
            claim = _order_claim(*pair, estimates, unlearnt)
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


def depth_claims(specs: Sequence[TextModelSpec], of_seeds: SeedEstimates) -> list[Claim]:
    """Whether every LSTM lies above every RoBERTa, whatever their depths (Fig. 19)."""
    lstms = [spec for spec in specs if spec.name.startswith("lstm")]
    robertas = [spec for spec in specs if spec.name.startswith("roberta-softmax")]
    if min(len(lstms), len(robertas)) < 2:
        return []

    def mean(spec: TextModelSpec) -> float:
        return float(np.mean([estimate.mean for estimate in of_seeds[spec.name]]))

    lowest, highest = min(lstms, key=mean), max(robertas, key=mean)
    claim = less_sensitive_over_seeds(highest, lowest, of_seeds)
    return [
        dataclasses.replace(
            claim,
            statement="Every RoBERTa is less sensitive than every LSTM, whatever their depths",
            paper="in its Fig. 19",
            measured=f"highest RoBERTa ({highest.label}) and lowest LSTM ({lowest.label}): "
            f"{claim.measured}",
        )
    ]


def position_claims(specs: Sequence[TextModelSpec], of_seeds: SeedEstimates) -> list[Claim]:
    """Whether the LSTM is most sensitive to the later tokens (Fig. 8)."""
    return [_later_claim(spec, of_seeds[spec.name]) for spec in specs if spec.name == "lstm"]


def _later_claim(spec: TextModelSpec, estimates: Sequence[SensitivityEstimate]) -> Claim:
    early, late = _halves(estimates[0])
    more = paired_difference(late, early, estimates[0].bounds)
    claim = Claim(
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
    halves = np.array([[half.mean() for half in _halves(each)] for each in estimates])
    compared = {"second half": halves[:, 1].tolist(), "first half": halves[:, 0].tolist()}
    return claim_over_seeds(claim, compared, halves[:, 1] - halves[:, 0])


def _halves(estimate: SensitivityEstimate) -> tuple[np.ndarray, np.ndarray]:
    lengths = (estimate.counts > 0).sum(axis=1)[:, None]
    places = np.arange(estimate.num_positions)[None]
    changes = estimate.per_example_position
    early = np.where(places < lengths / 2, changes, np.nan)
    late = np.where(places >= lengths / 2, changes, np.nan)
    return np.nanmean(early, axis=1), np.nanmean(late, axis=1)
