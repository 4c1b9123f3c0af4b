"""Training with optax: one rectangular set or buckets of lengths, checked checkpoints."""

from jaxsens.training.bucketed import BucketTrainer
from jaxsens.training.checkpoints import Checkpoints, training_identity
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
    "Objective",
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
