"""jaxsens: how sensitive is a model to a random change of one token of its input?"""

import importlib
from types import ModuleType

from jaxsens.cli import start as _start  # noqa: F401  before JAX: see there

# isort: split

from jaxsens.attention import attention
from jaxsens.comparison import Difference, compare
from jaxsens.edits import Donor, Flip, Gaussian, Resample, ScatteredPixels
from jaxsens.estimate import SensitivityEstimate
from jaxsens.grids import Bits, OverlappingPatches, Patches, Tokens, Whole
from jaxsens.incremental import explain
from jaxsens.metrics import Metric, label_flip, relative_l2, squared_change
from jaxsens.perturbation import Perturbation
from jaxsens.sensitivity import sensitivity
from jaxsens.sharpness import sharpness
from jaxsens.sharpness_estimate import SharpnessEstimate
from jaxsens.weight_noise import Relative, Sphere

__version__ = "0.1.0"

__all__ = [
    "Bits",
    "Difference",
    "Donor",
    "Flip",
    "Gaussian",
    "Metric",
    "OverlappingPatches",
    "Patches",
    "Perturbation",
    "Relative",
    "Resample",
    "ScatteredPixels",
    "SensitivityEstimate",
    "SharpnessEstimate",
    "Sphere",
    "Tokens",
    "Whole",
    "attention",
    "boolean",
    "buckets",
    "compare",
    "corruptions",
    "data",
    "explain",
    "label_flip",
    "models",
    "ragged",
    "relative_l2",
    "sensitivity",
    "sharpness",
    "spectrum",
    "squared_change",
]

_ROOMS = (
    "boolean",
    "buckets",
    "corruptions",
    "data",
    "figures",
    "models",
    "ragged",
    "spectrum",
    "tokenization",
    "training",
)


def __getattr__(name: str) -> ModuleType:
    """Imports a public room when it is first used: a measurement needs none of them."""
    if name in _ROOMS:
        return importlib.import_module(f"jaxsens.{name}")
    raise AttributeError(f"module 'jaxsens' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What is there, and the rooms that are not loaded yet."""
    return sorted({*globals(), *_ROOMS})
