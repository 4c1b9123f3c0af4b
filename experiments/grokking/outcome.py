"""What a task of the experiment `grokking` gave: curves, and when each run did what."""

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .leads import ALARM, SHARES, MeanOverRuns, Measure, Run, analyse
from .training import Training

_RIVALS = (
    Measure("weight_norm", "weight norm", -1),
    Measure("test_loss", "test loss", -1),
    Measure("test_accuracy", "test accuracy", 1),
)
ADDITION: tuple[Measure, ...] = (
    Measure("authors", "sensitivity, authors': both operands, absolute", -1, True),
    Measure("definition", "sensitivity, Def. 4.3: one operand, absolute", -1, True),
    Measure("authors_relative", "sensitivity: both operands, relative", -1, True),
    Measure("definition_relative", "sensitivity: one operand, relative", -1, True),
    Measure("concentration", "Fourier concentration of the embedding", 1),
    Measure("embedding_rms", "RMS of the embedding", -1),
    *_RIVALS,
)
PARITY: tuple[Measure, ...] = (
    Measure("definition", "sensitivity, Def. 4.3: one bit flipped", -1, True),
    Measure("concentration", "weight on the relevant bits", 1),
    *_RIVALS,
)


class Jump(NamedTuple):
    """A run that generalised: its place among the seeds, when it memorised and jumped, its leads.

    Leads are those of `Run`.
    """

    place: int
    memorised: int
    epoch: int
    plateau: float
    leads: dict[str, dict[str, float | None]]


@dataclass(frozen=True)
class Outcome:
    """What a task gave: curves of every arm, the runs of the first one, which has a rule.

    Attributes:
      training: what was trained.
      title: the task for readers.
      measures: what may announce the jump.
      curves: by arm, "epochs" and measures (seeds, evaluations).
      runs: of the first arm, one per seed.
    """

    training: Training
    title: str
    measures: tuple[Measure, ...]
    curves: dict[str, dict[str, np.ndarray]]
    runs: list[Run]

    @classmethod
    def of(
        cls,
        training: Training,
        title: str,
        measures: tuple[Measure, ...],
        curves: dict[str, dict[str, np.ndarray]],
    ) -> "Outcome":
        """Times the runs of the first arm against those of all others."""
        first, *others = (arm.name for arm in training.arms)
        controls = {name: curves[name] for name in others}
        return cls(training, title, measures, curves, analyse(measures, curves[first], controls))

    @property
    def columns(self) -> dict[str, str]:
        """Columns of the leads with their titles."""
        controls = {arm.name: f"alarm: {arm.label}" for arm in self.training.arms[1:]}
        shares = {name: f"lead at {name}" for name in SHARES}
        return shares | (controls if len(controls) > 1 else {}) | {ALARM: "alarm: all controls"}

    @property
    def first(self) -> dict[str, np.ndarray]:
        """The curves of the runs that should generalise."""
        return self.curves[self.training.arms[0].name]

    @property
    def jumps(self) -> list[Jump]:
        """The runs that generalised."""
        return [
            Jump(i, run.memorised, run.jump, run.plateau, run.leads)
            for i, run in enumerate(self.runs)
            if run.memorised is not None and run.jump is not None and run.plateau is not None
        ]

    def leads(self, measure: str, column: str) -> list[float | None]:
        """Of the runs that generalised."""
        return [jump.leads[measure][column] for jump in self.jumps]

    def from_accuracy(self, measure: str, accuracy: float) -> list[np.ndarray]:
        """The curves from the first time that the training accuracy is so high up to the jump."""
        reached = np.argmax(self.first["train_accuracy"] >= accuracy, axis=1)
        ends = [int(np.argmax(self.first["epochs"] == jump.epoch)) for jump in self.jumps]
        return [
            self.first[measure][jump.place][reached[jump.place] : end + 1]
            for jump, end in zip(self.jumps, ends, strict=True)
        ]


def early_alarms(outcome: Outcome, measure: str, column: str = ALARM) -> int:
    """How many runs gave an alarm before the jump."""
    return sum(lead is not None and lead > 0 for lead in outcome.leads(measure, column))


def is_progress_measure(outcome: Outcome, measure: str) -> bool:
    """Whether every run gave the alarm before the jump, with a lead whose interval is above 0."""
    lead = MeanOverRuns.of(outcome.leads(measure, ALARM))
    every = early_alarms(outcome, measure) == len(outcome.jumps) > 1
    return every and lead is not None and lead.positive


def beyond_accuracy(outcome: Outcome, measure: str) -> MeanOverRuns | None:
    """Epochs by which the alarm precedes that of test accuracy itself, run by run."""
    pairs = zip(outcome.leads(measure, ALARM), outcome.leads("test_accuracy", ALARM), strict=True)
    return MeanOverRuns.of([a - b if a is not None and b is not None else None for a, b in pairs])


def outcome_values(outcome: Outcome) -> dict[str, Any]:
    """All that was found, for programs."""
    return {
        "runs": [dataclasses.asdict(run) for run in outcome.runs],
        "progress_measures": [
            m.name for m in outcome.measures if is_progress_measure(outcome, m.name)
        ],
        "final": {
            arm: {name: v[..., -1] for name, v in curves.items()}
            for arm, curves in outcome.curves.items()
        },
    }
