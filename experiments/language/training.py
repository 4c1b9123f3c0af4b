"""Training of the models of the experiment `language`, measured on the way."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxsens.reporting.records import Record
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.training.bucketed import BucketTrainer
from jaxsens.training.trainer import TrainState, correct

from .._common.training import train_and_record
from .config import Config
from .loading import Encoded, TextData
from .measuring import measure
from .models import TextModelSpec


def measured_along(config: Config, spec: TextModelSpec) -> dict[str, tuple[str, float]]:
    """Split and variance of each sensitivity that is measured along training, by field."""
    found = {"sensitivity": ("train", config.variances[0])}
    if not spec.in_full or spec.seed:
        return found  # figures along training show the first seed
    other = {f"variance {v:g}": ("train", v) for v in config.variances[1:]}
    return found | other | {"validation": ("validation", config.variances[0])}


def train_model(
    config: Config, data: TextData, spec: TextModelSpec, folder: RunFolder
) -> TrainState:
    """Trains one model to its end, recording every evaluation; the state after the last epoch."""
    key = jax.random.fold_in(jax.random.key(config.seed + spec.seed), spec.key_index)
    train_key, measure_key = jax.random.split(key)
    some = data.train.subset(np.arange(min(1000, len(data.train.labels))))

    def evaluate(epoch: int, variables: Any) -> Record:
        epoch_key = jax.random.fold_in(measure_key, epoch)
        record = {
            name: measure(
                *(config, spec, variables, data.along[split]), key=epoch_key, variance=variance
            ).summary()
            for name, (split, variance) in measured_along(config, spec).items()
        }
        return record | {
            "train_accuracy": _accuracy(spec, variables, some),
            "test_accuracy": _accuracy(spec, variables, data.validation),
        }

    return train_and_record(
        folder,
        spec.name,
        spec.label,
        BucketTrainer(
            spec.model, spec.recipe, config.epochs or 1, lengths=data.train.training_lengths
        ),
        data.train.padded,
        data.train.labels,
        key=train_key,
        every=config.evaluate_every or 1,
        evaluate=evaluate,
    )


def _accuracy(spec: TextModelSpec, variables: Any, texts: Encoded) -> float:
    hits: Sequence[np.ndarray] = [
        correct(spec.model.apply, variables, b.tokens, texts.labels[b.example_ids], batch_size=100)
        for b in texts.buckets
    ]
    return float(np.concatenate(hits).mean())
