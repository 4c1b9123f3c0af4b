"""Claims of all experiments that compare trained models."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

import jaxsens
from jaxsens import SensitivityEstimate
from jaxsens.core.intervals import Interval, student_interval
from jaxsens.reporting.results import Claim

#: Sensitivities by the names of the models.
Estimates = Mapping[str, SensitivityEstimate]
#: Those of every seed, by the names of the models.
SeedEstimates = Mapping[str, Sequence[SensitivityEstimate]]


@runtime_checkable
class ComparedModel(Protocol):
    """A trained model in a comparison: its key, its name for readers, the paper's sensitivity."""

    @property
    def name(self) -> str:
        """Its key in records and estimates."""

    @property
    def label(self) -> str:
        """Its name in tables and figures."""

    @property
    def paper(self) -> float | None:
        """The paper's sensitivity, if it gives one."""


def number_or_none(value: float) -> float | None:
    """The value for a claim's `values`, None where there is none: nan.

    >>> number_or_none(float("nan")), number_or_none(0.5)
    (None, 0.5)
    """
    return None if math.isnan(value) else float(value)


def less_sensitive(lesser: ComparedModel, greater: ComparedModel, estimates: Estimates) -> Claim:
    """Whether one model is less sensitive than another, example by example."""
    # The same examples for both: a difference leaves out how hard the example is.
    difference = jaxsens.compare(estimates[greater.name], estimates[lesser.name])
    mean, low, high = difference.interval()
    measured = {model.label: estimates[model.name].mean for model in (lesser, greater)}
    given = None not in (lesser.paper, greater.paper)
    return Claim(
        statement=f"{lesser.label} is less sensitive than {greater.label}",
        paper=f"{lesser.paper} < {greater.paper}" if given else "no numbers given",
        measured=f"{measured[lesser.label]:.4f} against {measured[greater.label]:.4f}; difference "
        f"{mean:.4f}, 95 % interval {low:.4f} to {high:.4f}",
        holds=low > 0,
        values=measured | {"difference": mean},
        decided_by="difference",
        interval=(low, high),
        num_examples=len(difference.values),
        num_seeds=1,
    )


def less_sensitive_over_seeds(
    lesser: ComparedModel, greater: ComparedModel, estimates: SeedEstimates
) -> Claim:
    """Whether one model is less sensitive than another, training after training."""
    claim = less_sensitive(lesser, greater, {name: each[0] for name, each in estimates.items()})
    means = {m.label: [e.mean for e in estimates[m.name]] for m in (lesser, greater)}
    return claim_over_seeds(claim, means, np.subtract(means[greater.label], means[lesser.label]))


def claim_over_seeds(
    claim: Claim, compared: Mapping[str, Sequence[float]], by_seed: Sequence[float] | np.ndarray
) -> Claim:
    """A claim of one training, decided by the differences that all trainings give.

    The interval is Student's, over seeds; that of the first seed's examples stands beside it. A
    single seed has only the latter, and its claim is left as it is.

    Args:
      claim: of the first seed; it holds if what decides it lies above 0.
      compared: the numbers that are compared, one for each seed.
      by_seed: what decides the claim, for each seed.
    """
    num_seeds = len(by_seed)
    if num_seeds == 1:
        return claim
    averages = {label: float(np.mean(values)) for label, values in compared.items()}
    mean, low, high = student_interval(np.asarray(by_seed))
    of_examples = claim.interval or (None, None)
    what = claim.decided_by
    return dataclasses.replace(
        claim,
        measured=f"{' against '.join(f'{value:.4f}' for value in averages.values())}, means over "
        f"{num_seeds} seeds; {what} {mean:.4f}, 95 % interval over seeds {low:.4f} to "
        f"{high:.4f}; of the first seed, over examples: {claim.measured.rpartition('; ')[2]}",
        holds=low > 0,
        values=averages
        | {what: mean, f"{what} by seed": np.asarray(by_seed).tolist()}
        | {"interval over examples, first seed": list(of_examples)},
        interval=(low, high),
        num_seeds=num_seeds,
    )


def mean_over_seeds(values: Sequence[float]) -> Interval:
    """Mean of shares and its interval over seeds; of a single one the interval is all of [0, 1].

    >>> mean_over_seeds([0.5])
    Interval(mean=0.5, low=0.0, high=1.0)
    """
    return student_interval(np.asarray(values), (0.0, 1.0))
