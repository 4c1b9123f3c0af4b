"""Sharpness of a model: what Gaussian noise on every weight changes."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
from jaxtyping import Array, PRNGKeyArray

import jaxsens
from jaxsens import Gaussian, SharpnessEstimate
from jaxsens.reporting.cached import cached_estimate, cached_estimate_stage
from jaxsens.reporting.records import Record
from jaxsens.reporting.run_folder import RunFolder

from .._common.equal_accuracy import Compared
from .._images.loading import Images
from .._images.models import ModelSpec
from .config import Config
from .paper import KINDS

#: Sharpness by the names of the models, for each seed.
SharpnessBySeed = Mapping[str, Sequence[SharpnessEstimate]]


def change_of(record: Record, kind: str) -> Mapping[str, float]:
    """One kind of change in a record, with its interval."""
    return record["sharpness"][kind]


#: What is compared at equal training accuracy, by the kind of change.
CHANGES = {
    kind: Compared(
        measured=functools.partial(change_of, kind=kind),
        relation=f"has a lower {name} than",
        name=name,
    )
    for kind, name in KINDS.items()
}


def measure_sharpness(
    config: Config, images: Images, spec: ModelSpec, variables: Any, training: bool = False
) -> SharpnessEstimate:
    """What noise on the weights changes; with the noisy copy in training mode if asked for."""
    some = slice(config.num_sharpness)
    return jaxsens.sharpness(
        spec.model.apply,
        variables,
        images.x[some],
        Gaussian(sigma=config.sigma),
        config.num_draws,
        # The same key for every model: the same noise.
        key=jax.random.key(config.seed + spec.seed + 1),
        y=images.y[some],
        mask={name: name == "params" for name in variables},
        perturbed_apply_fn=in_training_mode(spec.model) if training else None,
        perturbed_batch=spec.recipe.batch_size,
    )


@functools.lru_cache(maxsize=64)
def in_training_mode(model: nn.Module) -> Any:
    """The model with dropout on and the batch's own statistics."""

    def training_mode(variables: Any, x: Array, key: PRNGKeyArray) -> Array:
        statistics = [name for name in variables if name != "params"]
        logits, _ = model.apply(variables, x, train=True, rngs={"dropout": key}, mutable=statistics)
        return logits

    return training_mode


def sharpness_along_training(
    config: Config, images: Images, spec: ModelSpec, folder: RunFolder, epoch: int, variables: Any
) -> Record:
    """What is measured at every evaluation beside sensitivity and accuracy."""
    if epoch == config.epochs:
        estimate = final_sharpness(config, images, spec, folder, variables)
    else:
        estimate = measure_sharpness(config, images, spec, variables)
    return {"sharpness": estimate.summary()}


def final_sharpness(
    config: Config, images: Images, spec: ModelSpec, folder: RunFolder, variables: Any
) -> SharpnessEstimate:
    """Sharpness after the last epoch; a file of the run's folder keeps it."""
    measure = functools.partial(measure_sharpness, config, images, spec, variables)
    return cached_estimate(folder, f"sharpness/{spec.name}", SharpnessEstimate, measure)


def released_sharpness(
    config: Config, images: Images, spec: ModelSpec, folder: RunFolder, variables: Any
) -> SharpnessEstimate:
    """The same as the released code has it: the noisy copy is in training mode."""
    measure = functools.partial(measure_sharpness, config, images, spec, variables, training=True)
    name = f"sharpness/{spec.name}-released"
    return cached_estimate_stage(folder, name, SharpnessEstimate, measure)
