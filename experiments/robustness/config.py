"""The flags of the experiment `robustness`, and the corruptions there are."""

from dataclasses import dataclass
from typing import Annotated, Literal

from jaxsens import corruptions
from jaxsens.cli.bounds import Count, OneOf, Range, Several

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


@dataclass(frozen=True)
class Config(InterventionConfig):
    """Flags of the experiment; None means the paper's or the preset's value for the dataset."""

    dataset: Literal["shapes", "cifar10"] = "shapes"
    """Images to train on."""
    corruptions: Annotated[tuple[Corruption, ...], Several()] = CORRUPTIONS
    """Corruptions to test on."""
    severity: Annotated[int, Range(1, 5)] = 2
    """1 to 5; the paper's main figure has 2, Fig. 14 has 1."""
    num_corrupted: Count | None = None
    """Test images of each corruption; default all."""
