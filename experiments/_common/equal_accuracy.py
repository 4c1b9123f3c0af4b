"""Models compared where they fit their examples equally well.

At the end of training one model may have learnt more than another, and then be more or less
sensitive for that reason. So each is also looked at where its accuracy a first passes A:

    S(A) = (1 - w) S_before + w S_after,    w = (A - a_before)/(a_after - a_before)

between the last evaluation below A and the first one that is not. A is what `--until-accuracy`
says or, without it, the largest accuracy that every training of the run reaches.

Assumption: between two evaluations what is compared is near linear in accuracy.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jaxsens import figures
from jaxsens.core.intervals import Interval, independent_difference, student_interval
from jaxsens.reporting.records import Record
from jaxsens.reporting.results import Cell, Claim, Figure, Table
from jaxsens.reporting.run_folder import RunFolder

from .claims import ComparedModel
from .figures import over_text, saved_figure
from .seeds import with_seeds
from .training_records import training_records


@dataclass(frozen=True)
class Compared:
    """What is compared, and at which accuracy.

    Attributes:
      measured: its mean, low and high in a record.
      accuracy: the field of a record with the accuracy.
      relation: how a model with a smaller value is related to another, in words.
      name: of what is compared, for axes and tables.
      accuracy_name: of the accuracy.
    """

    measured: Callable[[Record], Mapping[str, float]] = operator.itemgetter("sensitivity")
    accuracy: str = "train_accuracy"
    relation: str = "is less sensitive than"
    name: str = "sensitivity"
    accuracy_name: str = "training accuracy"


#: What most experiments compare.
SENSITIVITY = Compared()


@dataclass(frozen=True)
class EqualAccuracy:
    """Where models are compared, and what they are there.

    Attributes:
      accuracy: A.
      found: by the name of a model, what is compared, in each seed, with the interval over
        examples; None where a training never reaches A.
      compared: what that is.
    """

    accuracy: float
    found: Mapping[str, Sequence[Interval | None]]
    compared: Compared = SENSITIVITY


def at_equal_accuracy(
    specs: Sequence[ComparedModel],
    num_seeds: int,
    folder: RunFolder,
    accuracy: float | None,
    compared: Compared = SENSITIVITY,
) -> EqualAccuracy:
    """All trainings of a run at one accuracy.

    Args:
      specs: the models.
      num_seeds: trainings of each.
      folder: the run's folder, with their records.
      accuracy: A; None for the largest that all reach.
      compared: what is compared.
    """
    by_name = {
        spec.name: [training_records(folder, each) for each in with_seeds(spec, num_seeds)]
        for spec in specs
    }
    if accuracy is None:
        every = (training for of_seeds in by_name.values() for training in of_seeds)
        accuracy = min(max(record[compared.accuracy] for record in one) for one in every)
    found = {
        name: [at_accuracy(training, accuracy, compared) for training in of_seeds]
        for name, of_seeds in by_name.items()
    }
    return EqualAccuracy(accuracy, found, compared)


def at_accuracy(
    training: Sequence[Record], accuracy: float, compared: Compared = SENSITIVITY
) -> Interval | None:
    """S(A) of one training and both ends of its interval; None if it never reaches A.

    Args:
      training: its records, by epoch.
      accuracy: A.
      compared: what S is.

    Example:
      >>> ends = {"mean": 0.4, "low": 0.3, "high": 0.5}
      >>> start = {"train_accuracy": 0.5, "sensitivity": ends}
      >>> end = {"train_accuracy": 0.9, "sensitivity": dict.fromkeys(ends, 0.2)}
      >>> round(at_accuracy([start, end], 0.7).mean, 3)
      0.3
      >>> at_accuracy([start, end], 0.95) is None
      True
    """
    passed = [record[compared.accuracy] >= accuracy for record in training]
    if not any(passed):
        return None
    first = passed.index(True)
    after, before = training[first], training[max(first - 1, 0)]
    gap = after[compared.accuracy] - before[compared.accuracy]
    weight = (accuracy - before[compared.accuracy]) / gap if gap > 0 else 1.0

    def between(end: str) -> float:
        ends = (compared.measured(record)[end] for record in (before, after))
        return (1 - weight) * next(ends) + weight * next(ends)

    return Interval(between("mean"), between("low"), between("high"))


def equally_accurate_claim(
    lesser: ComparedModel, greater: ComparedModel, there: EqualAccuracy
) -> Claim:
    """Whether one model has less of what is compared than another, at the same accuracy.

    Decided by the interval over seeds or, of a single one, by the two intervals over examples.
    """
    pairs = list(zip(there.found[lesser.name], there.found[greater.name], strict=True))
    compared = there.compared
    statement = (
        f"{lesser.label} {compared.relation} {greater.label} at equal {compared.accuracy_name}"
    )
    values = {compared.accuracy_name: there.accuracy}
    both = [(low, high) for low, high in pairs if low is not None and high is not None]
    if len(both) < len(pairs):
        never = [m.label for m in (lesser, greater) if None in there.found[m.name]]
        return Claim(
            statement=statement,
            paper="not compared so",
            measured=f"{' and '.join(never)} not always trained to {there.accuracy:.1%}",
            holds=False,
            values=values,
            decided_by=compared.accuracy_name,
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


def equal_accuracy_table(
    title: str, specs: Sequence[ComparedModel], all_there: Sequence[EqualAccuracy]
) -> Table:
    """What is compared at equal accuracy: of one training with its interval over examples.

    Of several the mean, its interval over seeds, and the range.

    Args:
      title: of the table.
      specs: the models.
      all_there: quantities, each at its accuracy; the accuracies are of one kind.
    """
    num_seeds = len(all_there[0].found[specs[0].name])
    over = "95 % interval" + over_text(num_seeds)
    columns = ["model"]
    for there in all_there:
        name = there.compared.name
        columns += [name, over, *(["range"] if num_seeds > 1 else [])]
    rows = [
        (spec.label, *(cell for there in all_there for cell in _cells(there.found[spec.name])))
        for spec in specs
    ]
    at = {f"{there.accuracy:.1%}" for there in all_there}
    return Table(
        title=title,
        columns=tuple(columns),
        rows=tuple(rows),
        note=f"At a {all_there[0].compared.accuracy_name} of {' and '.join(sorted(at))}, linear "
        "between the evaluations before and after it; – where a training never reaches it.",
    )


def _cells(found: Sequence[Interval | None]) -> list[Cell]:
    reached = [each for each in found if each is not None]
    if len(reached) < len(found):
        return [None] * (2 if len(found) == 1 else 3)
    if len(reached) == 1:
        return [f"{reached[0].mean:.4f}", f"{reached[0].low:.4f} – {reached[0].high:.4f}"]
    means = [each.mean for each in reached]
    mean, low, high = student_interval(np.array(means))
    ends = f"{low:.4f} – {high:.4f}", f"{min(means):.4f} – {max(means):.4f}"
    return [f"{mean:.4f}", *ends]


def accuracy_figure(
    specs: Sequence[ComparedModel],
    num_seeds: int,
    there: EqualAccuracy,
    folder: RunFolder,
    name: str = "equal_accuracy",
) -> Figure:
    """What is compared against accuracy, a path for every training.

    Args:
      specs: the models.
      num_seeds: trainings of each.
      there: what is compared, and where.
      folder: the run's folder, with their records.
      name: of the file.
    """
    compared = there.compared
    paths = {
        spec.label: [
            (
                [record[compared.accuracy] for record in training],
                [compared.measured(record)["mean"] for record in training],
            )
            for training in (training_records(folder, each) for each in with_seeds(spec, num_seeds))
        ]
        for spec in specs
    }
    labels = (text[0].upper() + text[1:] for text in (compared.accuracy_name, compared.name))
    xlabel, ylabel = labels
    return saved_figure(
        figures.sensitivity_paths(paths, at=there.accuracy, xlabel=xlabel, ylabel=ylabel),
        folder,
        name,
        f"{ylabel} against {compared.accuracy_name}, from the first evaluation to the last, a path "
        f"for every training; models are compared at {there.accuracy:.1%}.",
    )
