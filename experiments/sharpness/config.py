"""The flags of the experiment `sharpness`."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Literal

from jaxsens.cli.bounds import LARGEST, Range, Runs, Several, Sigma
from jaxsens.cli.config import Preset

from .._images.config import SeveralSeeds
from .._images.interventions import InterventionConfig
from .._images.paper import ModelName


@dataclass(frozen=True)
class Config(SeveralSeeds, InterventionConfig):
    """Flags of the experiment; None means the paper's or the preset's value for the dataset."""

    dataset: Literal["digits", "shapes", "fashion_mnist", "cifar10", "svhn"] = "digits"
    """Images to train on."""
    models: Annotated[tuple[ModelName, ...], Several(at_least=0)] = ("vit-small",)
    """Models to measure."""
    sigma: Sigma = 0.005
    """Standard deviation of the noise on the weights (the released code has 0.05)."""
    num_draws: Runs = 5
    """Draws of the weights."""
    num_sharpness: Annotated[int, Range(2, LARGEST)] | None = None
    """Training images for sharpness; default as for sensitivity."""
    released: bool = True
    """Also measure with the noisy copy in training mode, as the released code does."""

    def filled(self, preset: Preset) -> "Config":
        """The config with everything that was left open filled in."""
        config = super().filled(preset)
        return dataclasses.replace(
            config, num_sharpness=config.num_sharpness or config.num_measured
        )
