"""Training of image models: at every evaluation a record with both accuracies and the sensitivity.

And whatever else the experiment asks for.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxsens import SensitivityEstimate
from jaxsens.reporting.arms import arms
from jaxsens.reporting.records import Record
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.training.trainer import Trainer, TrainState, accuracy

from .._common.reuse import copy_checkpoints
from .._common.training import train_and_record
from .config import ImageConfig
from .loading import Images
from .measuring import estimate_of, final_estimate, measure
from .models import ModelSpec

#: Anything else to measure: `extra(epoch, variables) -> fields of the record`.
ExtraMeasurement = Callable[[int, Any], Record]


def train_model(
    config: ImageConfig,
    images: Images,
    spec: ModelSpec,
    folder: RunFolder,
    extra: ExtraMeasurement | None = None,
    also: Sequence[ModelSpec] = (),
) -> TrainState:
    """Trains a model to its end, recording every evaluation; the state after the last epoch.

    Args:
      config: how it is trained and measured.
      images: on what.
      spec: the model.
      folder: the run's folder.
      extra: anything else to measure.
      also: the same model with noise at other places, whose sensitivity is measured too.
    """
    key = jax.random.fold_in(jax.random.key(config.seed + spec.seed), spec.key_index)
    train_key, measure_key = jax.random.split(key)

    def estimated(each: ModelSpec, epoch: int, variables: Any) -> SensitivityEstimate:
        if epoch == config.epochs:
            return final_estimate(config, images, each, folder, variables, measure_key)
        return measure(config, images, each, variables, epoch, measure_key)

    def evaluate(epoch: int, variables: Any) -> Record:
        found = {each.field: estimated(each, epoch, variables) for each in (spec, *also)}
        few = slice(config.num_accuracy)
        scores = {
            "train_accuracy": (images.x[few], images.y[few]),
            "test_accuracy": (images.x_test[few], images.y_test[few]),
        }
        record = {name: accuracy(spec.model.apply, variables, *xy) for name, xy in scores.items()}
        more = extra(epoch, variables) if extra is not None else {}
        return record | more | {name: estimate.summary() for name, estimate in found.items()}

    x: Any = images.x
    y: Any = images.y
    if spec.augment is not None:
        augment_key = jax.random.fold_in(train_key, 0)
        x, y = spec.augment(augment_key, jnp.asarray(x), jnp.asarray(y))
    if config.reuse is not None:
        copy_checkpoints(config.reuse, folder, spec.name)
    state = train_and_record(
        folder,
        spec.name,
        spec.label,
        Trainer(spec.model, spec.recipe, config.epochs or 1, spec.objective),
        x,
        y,
        key=train_key,
        every=config.evaluate_every or 1,
        evaluate=evaluate,
    )
    # A run that goes on has not evaluated this epoch, and its file may be damaged.
    for each in (spec, *also):
        final_estimate(config, images, each, folder, state.variables, measure_key)
    return state


def train_and_measure(
    config: ImageConfig,
    images: Images,
    specs: Iterable[ModelSpec],
    folder: RunFolder,
    also: Callable[[ModelSpec], Sequence[ModelSpec]] = lambda spec: (),
) -> dict[str, SensitivityEstimate]:
    """Trains all models; the sensitivity of each at the end, by name.

    Args:
      config: how they are trained and measured.
      images: on what.
      specs: the models.
      folder: the run's folder.
      also: a model with noise at other places, whose sensitivities are found too.
    """
    estimates: dict[str, SensitivityEstimate] = {}
    for spec in arms(folder, specs):
        others = also(spec)
        train_model(config, images, spec, folder, also=others)
        estimates |= {each.name: estimate_of(folder, each) for each in (spec, *others)}
    return estimates
