"""The ways to measure one trained model that the experiment `estimators` compares."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax

import jaxsens
from jaxsens import Gaussian, OverlappingPatches, Patches, Perturbation, SensitivityEstimate
from jaxsens.reporting.cached import cached_estimate_stage
from jaxsens.reporting.run_folder import RunFolder

from .._images.config import scattered_pixels
from .._images.loading import Images
from .._images.measuring import estimate_of
from .._images.models import ModelSpec
from .._images.training import train_model
from .config import Config

DEFINITION, RELEASED = "patch grid", "pixels, σ = v"
#: Estimators of the definition's own quantity: they must agree with it.
UNBIASED = ("random patches", "to a tolerance")
#: The estimates of one model, by the way to measure.
ByWay = Mapping[str, SensitivityEstimate]


@dataclass(frozen=True)
class Way:
    """A way to measure: the edit, and which positions are drawn."""

    perturbation: Perturbation
    options: dict[str, Any]


def ways(config: Config) -> dict[str, Way]:
    """Every way to measure but the definition, which training has done."""
    patch, variance = config.patch or 1, config.variance or 0.0
    on_grid, noise = Patches(patch), Gaussian(variance=variance)
    misread = Gaussian(sigma=variance)
    at_random: dict[str, Any] = {"positions": "random"}
    found = {
        "random patches": Way(Perturbation(on_grid, noise), at_random),
        "to a tolerance": Way(Perturbation(on_grid, noise), {"tolerance": config.tolerance}),
        "patch, any place": Way(Perturbation(OverlappingPatches(patch), noise), at_random),
    }
    if noise != misread:  # at variance 1 the misreading changes nothing
        found["patch, σ = v"] = Way(Perturbation(on_grid, misread), {})
        found["pixels, σ² = v"] = Way(scattered_pixels(patch, noise), {})
    found[RELEASED] = Way(scattered_pixels(patch, misread), {})
    return found


def train_and_measure_every_way(
    config: Config, images: Images, spec: ModelSpec, folder: RunFolder
) -> dict[str, SensitivityEstimate]:
    """The trained model measured in every way; files keep what was measured."""
    variables = train_model(config, images, spec, folder).variables
    estimates = {DEFINITION: estimate_of(folder, spec)}
    for index, (name, way) in enumerate(ways(config).items()):
        measure = functools.partial(
            jaxsens.sensitivity,
            spec.model.apply,
            variables,
            images.x if "tolerance" in way.options else images.x[: config.num_measured],
            way.perturbation,
            config.num_samples,
            key=jax.random.fold_in(jax.random.key(config.seed + 1), index),
            **way.options,
        )
        estimates[name] = cached_estimate_stage(
            folder, f"estimates/{spec.name}-{index}", SensitivityEstimate, measure
        )
    return estimates
