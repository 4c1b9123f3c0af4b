"""Stages: runs of named functions of one length, trained and measured, kept in the run's folder."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxsens.reporting.run_folder import RunFolder

from .config import Config
from .functions import FUNCTIONS, Function
from .measuring import Measurement, Noise, Record, draws_of, measured_stage
from .training import LEARNT, BitTask, Run, make_lanes, require_some_finite, train_stage


@dataclass(frozen=True)
class TrainedModel:
    """A run that has been trained and measured.

    Attributes:
      stage: where it was trained.
      n: bits of its inputs.
      run: how.
      record: what `jaxsens` measured of it, see `measuring.measure_lane`.
    """

    stage: str
    n: int
    run: Run
    record: Record

    @property
    def finite(self) -> bool:
        """Whether it has a loss and a sharpness: it did not diverge."""
        return self.record["loss"] is not None and math.isfinite(self.sharpness("definition"))

    @property
    def learnt(self) -> bool:
        """Whether it passes the paper's filter: a final loss below 1e-3, on all inputs."""
        return self.finite and self.record["loss"] < LEARNT

    @property
    def exact(self) -> bool:
        """Whether it was measured on all inputs."""
        return "sensitivity" in self.record

    def draws(self, field: str, noise: Noise) -> np.ndarray:
        """One value per direction."""
        return np.asarray(draws_of(self.record, field, noise))

    def sharpness(self, kind: str, *, matched: bool = False) -> float:
        """By definition, on a sphere, or as released, by Gaussians; at ε√p or at the paper's ρ."""
        field = {"definition": "change", "released": "increase"}[kind]
        noise: Noise = "sphere" if kind == "definition" else "gaussian"
        return float(self.draws(field, "matched" if matched else noise).mean())

    def sharpness_error(self) -> float:
        """Standard error of the definition over directions."""
        draws = self.draws("change", "sphere")
        return float(draws.std(ddof=1) / math.sqrt(len(draws)))


@dataclass(frozen=True)
class Point:
    """All runs of a function at a length."""

    function: Function
    n: int
    models: tuple[TrainedModel, ...]

    @property
    def learnt(self) -> list[TrainedModel]:
        """Those that pass the paper's filter."""
        return [model for model in self.models if model.learnt]


def points_of(models: Sequence[TrainedModel]) -> list[Point]:
    """The runs by function and length, in this order."""
    groups: dict[tuple[int, int], list[TrainedModel]] = {}
    for model in models:
        key = (FUNCTIONS.index(model.run.function), model.n)
        groups.setdefault(key, []).append(model)
    return [Point(FUNCTIONS[f], n, tuple(each)) for (f, n), each in sorted(groups.items())]


def even_blocks(num: int, largest: int) -> int:
    """Lanes of a block, so that an even number of full blocks holds them all.

    Two cores then have equally much to do. The number of cores itself may not decide: blocks of
    another size have other bits.

    >>> even_blocks(10, 8), even_blocks(15, 8), even_blocks(3, 8), even_blocks(1, 8)
    (5, 8, 2, 1)
    """
    if num == 1:
        return 1
    blocks = 2 * math.ceil(num / (2 * largest))
    return math.ceil(num / blocks)


def trained_models(
    config: Config,
    folder: RunFolder,
    stage: str,
    task: BitTask,
    runs: Sequence[Run],
    steps: int,
) -> list[TrainedModel]:
    """Trains and measures runs of one shape, or reads what the folder has of them.

    Raises:
      TrainingDivergedError: all of them diverged.
    """
    lanes = make_lanes(runs)
    state = train_stage(
        folder,
        stage,
        task,
        lanes,
        runs=runs,
        steps=steps,
        block=even_blocks(len(runs), config.block),
    )
    spec = Measurement(task.model, config.epsilon, config.num_directions, config.num_inputs)
    found = measured_stage(folder, stage, spec, lanes, state.params, seed=config.seed)
    require_some_finite(stage, [record["loss"] for record in found], lanes, steps)
    n = task.model.length
    return [TrainedModel(stage, n, run, rec) for run, rec in zip(runs, found, strict=True)]


def model_values(model: TrainedModel) -> dict[str, Any]:
    """The numbers of a model for programs; None for what is not finite."""
    numbers = {
        "sharpness": model.sharpness("definition"),
        "sharpness, standard error": model.sharpness_error(),
        "sharpness, released": model.sharpness("released"),
        "sharpness, paper's radius": model.sharpness("definition", matched=True),
    }
    return {
        "function": model.run.function,
        "n": model.n,
        "seed": model.run.seed,
        "learning_rate": model.run.learning_rate,
        "weight_decay": model.run.weight_decay,
        "learnt": model.learnt,
        **{name: value if math.isfinite(value) else None for name, value in numbers.items()},
        **{
            name: model.record.get(name)
            for name in ("loss", "norm", "blowup", "blowup_released", "sensitivity")
        },
    }
