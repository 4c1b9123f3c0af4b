"""Training with optax, with checkpoints that are checked when written and when read.

`Trainer` is for examples of one shape, `BucketTrainer` for texts of different lengths. `fit` trains
to the last epoch and may be stopped at any moment: started again with the same checkpoints it goes
on, and ends with the same bits.
"""

from jaxsens.training.bucketed import BucketTrainer
from jaxsens.training.checkpoints import (
    Checkpoints,
    DamagedCheckpointError,
    OtherTrainingError,
    training_identity,
)
from jaxsens.training.objectives import Objective, SensitivityRegularized, cross_entropy
from jaxsens.training.trainer import (
    Recipe,
    Trainer,
    TrainingDivergedError,
    TrainState,
    accuracy,
    correct,
    fit,
)

__all__ = [
    "BucketTrainer",
    "Checkpoints",
    "DamagedCheckpointError",
    "Objective",
    "OtherTrainingError",
    "Recipe",
    "SensitivityRegularized",
    "TrainState",
    "Trainer",
    "TrainingDivergedError",
    "accuracy",
    "correct",
    "cross_entropy",
    "fit",
    "training_identity",
]
