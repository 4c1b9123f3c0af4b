"""jaxsens: how sensitive is a model to a random change of one token of its input?"""

from jaxsens.estimate import SensitivityEstimate
from jaxsens.metrics import Metric, label_flip, relative_l2, squared_change
from jaxsens.perturbation import (
    Bits,
    Donor,
    Flip,
    Gaussian,
    Patches,
    Perturbation,
    Resample,
    Tokens,
)
from jaxsens.sensitivity import sensitivity

__version__ = "0.1.0"

__all__ = [
    "Bits",
    "Donor",
    "Flip",
    "Gaussian",
    "Metric",
    "Patches",
    "Perturbation",
    "Resample",
    "SensitivityEstimate",
    "Tokens",
    "label_flip",
    "relative_l2",
    "sensitivity",
    "squared_change",
]
