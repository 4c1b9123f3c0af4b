"""Claims of all experiments that compare trained models."""

import math
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import jaxsens
from jaxsens import SensitivityEstimate
from jaxsens.reporting.results import Claim

#: Sensitivities by the names of the models.
Estimates = Mapping[str, SensitivityEstimate]


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
