"""Models compared where they fit their training examples equally well.

At the end of training one model may have learnt more than another, and then be more or less
sensitive for that reason. So each is also looked at where its training accuracy first passes A:

    S(A) = (1 - w) S_before + w S_after,    w = (A - a_before)/(a_after - a_before)

between the last evaluation below A and the first one that is not. A is what `--until-accuracy`
says or, without it, the largest accuracy that every training of the run reaches.

Assumption: between two evaluations sensitivity is near linear in accuracy.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jaxsens import figures
from jaxsens.core.intervals import Interval, independent_difference, student_interval
from jaxsens.reporting.records import Record, records_of
from jaxsens.reporting.results import Claim, Figure
from jaxsens.reporting.run_folder import RunFolder

from .claims import ComparedModel
from .figures import saved_figure
from .seeds import with_seeds


class EqualAccuracy(NamedTuple):
    """Where models are compared, and what they are there.

    Attributes:
      accuracy: A.
      found: by the name of a model, its sensitivity there in each seed, with the interval over
        examples; None where a training never reaches A.
    """

    accuracy: float
    found: Mapping[str, Sequence[Interval | None]]


def at_equal_accuracy(
    specs: Sequence[ComparedModel], num_seeds: int, folder: RunFolder, accuracy: float | None
) -> EqualAccuracy:
    """All trainings of a run at one training accuracy.

    Args:
      specs: the models.
      num_seeds: trainings of each.
      folder: the run's folder, with their records.
      accuracy: A; None for the largest that all reach.
    """
    by_name = {
        spec.name: [records_of(folder, each.name) for each in with_seeds(spec, num_seeds)]
        for spec in specs
    }
    if accuracy is None:
        every = (training for of_seeds in by_name.values() for training in of_seeds)
        accuracy = min(max(record["train_accuracy"] for record in training) for training in every)
    found = {
        name: [sensitivity_at(training, accuracy) for training in of_seeds]
        for name, of_seeds in by_name.items()
    }
    return EqualAccuracy(accuracy, found)


def sensitivity_at(training: Sequence[Record], accuracy: float) -> Interval | None:
    """S(A) of one training and both ends of its interval; None if it never reaches A.

    Args:
      training: its records, by epoch.
      accuracy: A.

    Example:
      >>> ends = {"mean": 0.4, "low": 0.3, "high": 0.5}
      >>> start = {"train_accuracy": 0.5, "sensitivity": ends}
      >>> end = {"train_accuracy": 0.9, "sensitivity": dict.fromkeys(ends, 0.2)}
      >>> round(sensitivity_at([start, end], 0.7).mean, 3)
      0.3
      >>> sensitivity_at([start, end], 0.95) is None
      True
    """
    passed = [record["train_accuracy"] >= accuracy for record in training]
    if not any(passed):
        return None
    first = passed.index(True)
    after, before = training[first], training[max(first - 1, 0)]
    gap = after["train_accuracy"] - before["train_accuracy"]
    weight = (accuracy - before["train_accuracy"]) / gap if gap > 0 else 1.0

    def between(end: str) -> float:
        return (1 - weight) * before["sensitivity"][end] + weight * after["sensitivity"][end]

    return Interval(between("mean"), between("low"), between("high"))


def equally_accurate_claim(
    lesser: ComparedModel, greater: ComparedModel, there: EqualAccuracy
) -> Claim:
    """Whether one model is less sensitive than another at the same training accuracy.

    Decided by the interval over seeds or, of a single one, by the two intervals over examples.
    """
    pairs = list(zip(there.found[lesser.name], there.found[greater.name], strict=True))
    statement = f"{lesser.label} is less sensitive than {greater.label} at equal training accuracy"
    values = {"training accuracy": there.accuracy}
    both = [(low, high) for low, high in pairs if low is not None and high is not None]
    if len(both) < len(pairs):
        never = [m.label for m in (lesser, greater) if None in there.found[m.name]]
        return Claim(
            statement=statement,
            paper="not compared so",
            measured=f"{' and '.join(never)} not always trained to {there.accuracy:.1%}",
            holds=False,
            values=values,
            decided_by="training accuracy",
            num_seeds=len(both),
        )
    means = {
        model.label: float(np.mean([pair[place].mean for pair in both]))
        for place, model in enumerate((lesser, greater))
    }
    differences = [independent_difference(high, low) for low, high in both]
    over_seeds = len(both) > 1
    mean, low, high = (
        student_interval(np.array([each.mean for each in differences]))
        if over_seeds
        else differences[0]
    )
    return Claim(
        statement=statement,
        paper="not compared so",
        measured=f"at {there.accuracy:.1%}: {means[lesser.label]:.4f} against "
        f"{means[greater.label]:.4f}; difference {mean:.4f}, 95 % interval over "
        f"{f'{len(both)} seeds' if over_seeds else 'examples'} {low:.4f} to {high:.4f}",
        holds=low > 0,
        values=values | means | {"difference": mean},
        decided_by="difference",
        interval=(low, high),
        num_seeds=len(both),
    )


def accuracy_figure(
    specs: Sequence[ComparedModel], num_seeds: int, there: EqualAccuracy, folder: RunFolder
) -> Figure:
    """Sensitivity against training accuracy, a path for every training."""
    paths = {
        spec.label: [
            (
                [record["train_accuracy"] for record in training],
                [record["sensitivity"]["mean"] for record in training],
            )
            for training in (records_of(folder, each.name) for each in with_seeds(spec, num_seeds))
        ]
        for spec in specs
    }
    return saved_figure(
        figures.sensitivity_paths(paths, at=there.accuracy),
        folder,
        "equal_accuracy",
        "Sensitivity against training accuracy, from the first evaluation to the last, a path for "
        f"every training; models are compared at {there.accuracy:.1%}.",
    )
