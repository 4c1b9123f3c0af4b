"""The flags of the experiment `robustness`, and the corruptions there are."""

from dataclasses import dataclass
from typing import Annotated, Literal

from jaxsens import corruptions
from jaxsens.cli.bounds import Count, OneOf, Range, Several

from .._images.config import SeveralSeeds
from .._images.interventions import InterventionConfig

#: Fig. 9's fourteen corruptions and JPEG, which Fig. 14 adds.
CORRUPTIONS = (
    *("gaussian_noise", "shot_noise", "impulse_noise"),
    *("gaussian_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness", "contrast"),
    *("elastic_transform", "pixelate", "jpeg_compression"),
)
#: All of them: a corruption draws from the key of its place here, whichever are asked for.
KEY_ORDER = (*CORRUPTIONS, *(name for name in corruptions.NAMES if name not in CORRUPTIONS))

Corruption = Annotated[str, OneOf(KEY_ORDER)]
Severity = Annotated[int, Range(1, 5)]


@dataclass(frozen=True)
class Config(SeveralSeeds, InterventionConfig):
    """Flags of the experiment; None means the paper's or the preset's value for the dataset."""

    dataset: Literal["shapes", "cifar10"] = "shapes"
    """Images to train on."""
    corruptions: Annotated[tuple[Corruption, ...], Several()] = CORRUPTIONS
    """Corruptions to test on."""
    severity: Severity = 2
    """1 to 5; the paper's main figure has 2, Fig. 14 has 1."""
    other_severities: Annotated[tuple[Severity, ...], Several(at_least=0)] = ()
    """Severities to test too, at the end of training; `severity` is not tested twice."""
    num_corrupted: Count | None = None
    """Test images of each corruption; default all."""
    until_accuracy: Annotated[float, Range(0, 1, "()")] | None = None
    """Accuracy at which models are compared, beside the end of training: sensitivities at this
    training accuracy, errors at this clean accuracy; default for either the largest that every
    training reaches."""
