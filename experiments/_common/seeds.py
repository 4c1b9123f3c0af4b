"""Several trainings of each model, one for each seed, and tables of them.

One training says nothing of how far another would be away. The first seed is the run's own, and its
models keep their names; those of the others say which they are of.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

import numpy as np

from jaxsens.cli.bounds import Range
from jaxsens.reporting.results import Table
from jaxsens.reporting.run_folder import RunFolder

from .claims import SeedEstimates, mean_over_seeds
from .training_records import training_records

#: Trainings of each model.
Seeds = Annotated[int, Range(1, 1_000)]

#: A dataclass with `name`, `label`, and `seed`, which is added to the run's seed.
SpecT = TypeVar("SpecT", bound=Any)
FoundT = TypeVar("FoundT")


def check_seeds(seed: int, num_seeds: int) -> None:
    """Raises ValueError if there are not so many seeds."""
    if seed + num_seeds > 2**32:
        raise ValueError(
            f"seed={seed} and num_seeds={num_seeds} go beyond the last seed, {2**32 - 1}; choose a "
            "smaller --seed"
        )


def with_seed(spec: SpecT, number: int) -> SpecT:
    """The same model trained once more, from other weights and in another order.

    Number 0 is the model itself.
    """
    if not number:
        return spec
    name, label = f"{spec.name}-seed-{number}", f"{spec.label}, seed {number}"
    return dataclasses.replace(spec, name=name, label=label, seed=number)


def with_seeds(spec: SpecT, num_seeds: int) -> list[SpecT]:
    """All trainings of a model."""
    return [with_seed(spec, number) for number in range(num_seeds)]


def all_trainings(specs: Sequence[SpecT], num_seeds: int) -> list[SpecT]:
    """All models with the first seed, then all with the second, and so on."""
    return [with_seed(spec, number) for number in range(num_seeds) for spec in specs]


def by_seed(
    specs: Sequence[Any], num_seeds: int, found: Mapping[str, FoundT]
) -> dict[str, list[FoundT]]:
    """What was found of every training, seed after seed, by the name of the model.

    Args:
      specs: the models, as trained with the first seed.
      num_seeds: trainings of each.
      found: by the name of the training.
    """
    return {spec.name: [found[each.name] for each in with_seeds(spec, num_seeds)] for spec in specs}


def seed_cells(values: Sequence[float]) -> tuple[str, str, str]:
    """Cells of a table over seeds: mean, 95 % interval over seeds, range; shares of [0, 1].

    >>> seed_cells([0.1, 0.3])
    ('0.2000', '0.0000 – 1.0000', '0.1000 – 0.3000')
    """
    mean, low, high = mean_over_seeds(values)
    return f"{mean:.4f}", f"{low:.4f} – {high:.4f}", f"{min(values):.4f} – {max(values):.4f}"


def seeds_table(
    title: str, specs: Sequence[Any], estimates: SeedEstimates, folder: RunFolder, note: str
) -> Table:
    """Mean over seeds, its interval, smallest and largest, beside the paper's numbers.

    Args:
      title: what is measured, when and on what.
      specs: the models, as trained with the first seed.
      estimates: of every seed at the end of training.
      folder: the run's folder, with their records.
      note: how it was measured.
    """
    rows = []
    num_seeds = len(estimates[specs[0].name])
    for spec in specs:
        means = [estimate.mean for estimate in estimates[spec.name]]
        last = [training_records(folder, each)[-1] for each in with_seeds(spec, num_seeds)]
        ends = [estimate.ci() for estimate in estimates[spec.name]]
        widest = max(upper - lower for lower, upper in ends)
        rows.append(
            (
                spec.label,
                spec.paper,
                *seed_cells(means),
                f"± {widest / 2:.4f}",
                f"{np.mean([record['train_accuracy'] for record in last]):.3f}",
                f"{np.mean([record['test_accuracy'] for record in last]):.3f}",
            )
        )
    return Table(
        title=f"{title}, {num_seeds} seeds",
        columns=(
            *("model", "paper", "mean", "95 % interval over seeds", "range"),
            *("interval over examples", "train acc.", "test acc."),
        ),
        rows=tuple(rows),
        note=f"The interval over examples is the widest of any seed. {note}",
    )
