"""Sensitivity of image models, along training and at its end.

Along training it is estimated from random patches until its 95 % interval is as narrow as
`tolerance`; at the end it is measured by the definition, every patch × `num_samples` draws, on the
first `num_measured` training images, or as `estimator` says.
"""

import functools
from typing import Any

import jax
from jaxtyping import PRNGKeyArray

import jaxsens
from jaxsens import Gaussian, SensitivityEstimate
from jaxsens.reporting.cached import cached_estimate
from jaxsens.reporting.progress import Bar
from jaxsens.reporting.records import Record, records
from jaxsens.reporting.run_folder import RunFolder

from .config import ImageConfig
from .loading import Images
from .models import ModelSpec
from .token_noise import measured_tokens


def measure(
    config: ImageConfig,
    images: Images,
    spec: ModelSpec,
    variables: Any,
    epoch: int,
    key: PRNGKeyArray,
) -> SensitivityEstimate:
    """The sensitivity of a model after an epoch; to a tolerance unless it is the last."""
    final = epoch == config.epochs
    x = images.x[: config.num_measured] if final else images.x
    model, given, inputs, noise = spec.model.apply, variables, x, config.perturbation
    if spec.noise_on != "patch":
        of_tokens = measured_tokens(spec, variables, x, Gaussian(variance=config.variance))
        model, given, inputs, noise = of_tokens
    # To a tolerance draws are counted, or examples if those do not suffice.
    with Bar(f"{spec.label}: measuring", "examples" if final else "") as bar:
        return jaxsens.sensitivity(
            model,
            given,
            inputs,
            noise,
            config.num_samples,
            key=jax.random.fold_in(key, epoch),
            positions="random" if config.estimator == "random-patches" else None,
            tolerance=None if final else config.tolerance,
            progress=bar.measured,
        )


def final_estimate(
    config: ImageConfig,
    images: Images,
    spec: ModelSpec,
    folder: RunFolder,
    variables: Any,
    key: PRNGKeyArray,
) -> SensitivityEstimate:
    """The sensitivity after the last epoch; a file of the run's folder keeps it."""
    epoch = config.epochs or 1
    measured = functools.partial(measure, config, images, spec, variables, epoch, key)
    return cached_estimate(folder, _file(spec), SensitivityEstimate, measured)


def estimate_of(folder: RunFolder, spec: ModelSpec) -> SensitivityEstimate:
    """The final measurement of a trained model, from its file."""
    return SensitivityEstimate.from_json(folder.read_bytes(f"{_file(spec)}.json").decode())


def final_records(config: ImageConfig, folder: RunFolder) -> dict[str, Record]:
    """The last record of every model."""
    return {r["model"]: r for r in records(folder) if r.get("epoch") == config.epochs}


def _file(spec: ModelSpec) -> str:
    return f"estimates/{spec.name}"
