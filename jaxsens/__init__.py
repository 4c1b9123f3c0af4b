"""jaxsens: how sensitive is a model to a random change of one token of its input?"""

import importlib
import warnings
from types import ModuleType

from jaxsens.cli import start as _start  # noqa: F401  before JAX: see there

# isort: split

from jaxsens.core.runtime import keep_compiled_programs
from jaxsens.incremental.attention_operation import attention
from jaxsens.measurement import (
    Blowup,
    Difference,
    Metric,
    SensitivityEstimate,
    SharpnessEstimate,
    WorstCaseEstimate,
    blowup,
    changed_draws,
    compare,
    explain,
    label_flip,
    label_flip_any,
    label_flip_at,
    label_flip_mean,
    logit_drop,
    occlusion,
    probability_drop,
    ragged_sensitivity,
    relative_l2,
    sensitivity,
    sharpness,
    squared_change,
    worst_case,
)
from jaxsens.perturbations import (
    Ball,
    Bits,
    Donor,
    Flip,
    Gaussian,
    OverlappingPatches,
    Patches,
    Perturbation,
    Relative,
    Replace,
    Resample,
    ScatteredPixels,
    Sphere,
    Tokens,
    Whole,
    spread,
)

__version__ = "0.1.0"

__all__ = [
    "Ball",
    "Bits",
    "Blowup",
    "Difference",
    "Donor",
    "Flip",
    "Gaussian",
    "Metric",
    "OverlappingPatches",
    "Patches",
    "Perturbation",
    "Relative",
    "Replace",
    "Resample",
    "ScatteredPixels",
    "SensitivityEstimate",
    "SharpnessEstimate",
    "Sphere",
    "Tokens",
    "Whole",
    "WorstCaseEstimate",
    "adapters",
    "attention",
    "blowup",
    "boolean",
    "changed_draws",
    "compare",
    "corruptions",
    "data",
    "explain",
    "figures",
    "keep_compiled_programs",
    "label_flip",
    "label_flip_any",
    "label_flip_at",
    "label_flip_mean",
    "logit_drop",
    "models",
    "occlusion",
    "probability_drop",
    "ragged_sensitivity",
    "relative_l2",
    "sensitivity",
    "sharpness",
    "spectrum",
    "spread",
    "squared_change",
    "text",
    "training",
    "worst_case",
]

#: Rooms that a measurement does not need: imported when they are first used.
_ROOMS = ("adapters", "boolean", "corruptions", "data", "figures", "models", "spectrum", "training")

#: Modules that stood in the package itself before there were rooms, under their old names.
_MOVED = {
    "buckets": "jaxsens.text.buckets",
    "ragged": "jaxsens.measurement.ragged",
    "tokenization": "jaxsens.text.tokenization",
}


def __getattr__(name: str) -> ModuleType:
    if name in _ROOMS:
        return importlib.import_module(f"jaxsens.{name}")
    if name in _MOVED:
        message = f"jaxsens.{name} is now {_MOVED[name]}"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return importlib.import_module(_MOVED[name])
    raise AttributeError(f"module 'jaxsens' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ROOMS})
