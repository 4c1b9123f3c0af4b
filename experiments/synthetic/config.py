"""The flags of the experiment `synthetic`, and the models that a config asks for."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated

from jaxsens.cli.bounds import Count, Epochs, Range, Rate, Runs, Seed, Several
from jaxsens.cli.config import ExperimentConfig
from jaxsens.core import memory

from . import theory
from .training import TrainingJob, TrainingPlan

#: Standard deviation of initial weights.
Scale = Annotated[float, Range(1e-30, 1e3)]
#: A setting, as a column of Table 3.
Column = Annotated[int, Range(0, len(theory.SETTINGS) - 1)]


@dataclass(frozen=True)
class Config(ExperimentConfig):
    """Flags of the experiment."""

    epochs: Epochs = 60
    """Passes over the training sequences."""
    every: Epochs = 4
    """Epochs between two evaluations."""
    sigma: Scale = 0.01
    """Standard deviation of the initial weights."""
    learning_rate: Rate = 0.3
    """Of SGD, for attention."""
    mlp_rate: Rate = 0.1
    """The same for the MLP."""
    summing_rate: Rate = 0.03
    """The same for the summing MLP."""
    num_seeds: Runs = 10
    """Models of each setting and head; each has its own data."""
    phase_sigmas: Annotated[tuple[Scale, ...], Several()] = (0.01, 0.1, 0.3)
    """Initial scales of the phase diagram."""
    phase_rates: Annotated[tuple[Rate, ...], Several()] = (0.1, 0.3, 1.0)
    """Learning rates of the phase diagram."""
    phase_seeds: Annotated[int, Range(1, 10_000)] = 3
    """Models in each cell of the phase diagram."""
    phase_settings: Annotated[tuple[Column, ...], Several()] = theory.MIDDLE
    """Settings of the phase diagram, as columns 0 to 5 of Table 3."""
    squared_rate: Rate = 0.04
    """Learning rate of attention with the squared loss."""
    squared_epochs: Epochs = 200
    """Its epochs."""
    squared_every: Epochs = 40
    """Its epochs between two evaluations."""
    num_train: Count = 1_000
    """Training sequences."""
    num_test: Count = 500
    """Test sequences."""
    batch_size: Count = 100
    """Sequences of a step."""
    num_measured: Count = 50
    """Training sequences whose sensitivity is measured along training."""
    num_final: Count = 200
    """Training sequences whose sensitivity is measured at the end."""
    num_enumerated: Count = 100
    """Sequences on which the closed forms are enumerated."""
    num_checked: Count = 3
    """Sequences on which the program's sensitivity is checked against the library's."""
    block: Count = 6
    """Models trained side by side; as many as the cache holds, on an accelerator all."""
    seed: Seed = 0
    """Of data, weights and order."""

    def check(self) -> None:
        """Raises ValueError for numbers that do not divide each other, or too many sequences."""
        divisors = {
            "every": "epochs",
            "squared_every": "squared_epochs",
            "batch_size": "num_train",
        }
        for name, whole in divisors.items():
            if getattr(self, whole) % getattr(self, name):
                raise ValueError(
                    f"{name}={getattr(self, name)} does not divide {whole}={getattr(self, whole)}; "
                    "choose a divisor"
                )
        for name in ("num_measured", "num_final", "num_checked"):
            if getattr(self, name) > self.num_train:
                raise ValueError(
                    f"{name} must lie between 1 and num_train={self.num_train}; got "
                    f"{getattr(self, name)}"
                )
        # Token ids of training and test sequences, as int32, of all models of a head; by epochs the
        # training sequences are copied for the models that are trained side by side.
        cells = len(self.phase_settings) * len(self.phase_sigmas) * len(self.phase_rates)
        models = self.num_seeds * len(theory.SETTINGS) + self.phase_seeds * cells
        sequences = (models + self.block) * (self.num_train + self.num_test) + self.num_enumerated
        memory.require(
            4 * theory.LENGTH * sequences,
            f"{sequences} sequences ({models} models, num_train={self.num_train}, "
            f"num_test={self.num_test}, num_enumerated={self.num_enumerated})",
            remedy="choose smaller ones",
        )

    def plan(self, head: str) -> TrainingPlan:
        """The static half of the training program."""
        return TrainingPlan(
            head=head,
            num_train=self.num_train,
            num_test=self.num_test,
            batch=self.batch_size,
            epochs=self.epochs,
            every=self.every,
            num_measured=self.num_measured,
            num_final=self.num_final,
        )

    def main_jobs(self, head: str) -> list[TrainingJob]:
        """All settings × seeds, the first seed of all settings first."""
        rates = {"MLP": self.mlp_rate, "summing MLP": self.summing_rate}
        rate = rates.get(head, self.learning_rate)
        return [
            TrainingJob(setting, seed, self.sigma, rate)
            for seed in range(self.num_seeds)
            for setting in range(len(theory.SETTINGS))
        ]

    def squared_plan(self) -> TrainingPlan:
        """Attention once more, with the squared loss."""
        return dataclasses.replace(
            self.plan("attention"),
            objective="squared",
            epochs=self.squared_epochs,
            every=self.squared_every,
        )

    def squared_jobs(self) -> list[TrainingJob]:
        """The same models and data, with the rate of that loss."""
        jobs = self.main_jobs("attention")
        return [dataclasses.replace(job, rate=self.squared_rate) for job in jobs]

    def phase_jobs(self) -> list[TrainingJob]:
        """The cells of the phase diagram × seeds."""
        return [
            TrainingJob(setting, seed, sigma, rate)
            for setting in self.phase_settings
            for sigma in self.phase_sigmas
            for rate in self.phase_rates
            for seed in range(self.phase_seeds)
        ]
