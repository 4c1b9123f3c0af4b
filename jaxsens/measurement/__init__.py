"""Measurements: how far a change of an input, or of the weights, changes the output.

`sensitivity`, `worst_case` and `sharpness` check their arguments, make a job of them, cut it into
batches that fit a byte budget, and give estimates with intervals.
"""

from jaxsens.measurement._blowup import Blowup, blowup
from jaxsens.measurement._occlusion import occlusion
from jaxsens.measurement._sensitivity import sensitivity
from jaxsens.measurement._sharpness import sharpness
from jaxsens.measurement._worst_case import worst_case
from jaxsens.measurement.comparison import Difference, changed_draws, compare
from jaxsens.measurement.estimate import SensitivityEstimate
from jaxsens.measurement.explanation import Explanation, explain
from jaxsens.measurement.metrics import (
    Metric,
    label_flip,
    logit_drop,
    probability_drop,
    relative_l2,
    squared_change,
)
from jaxsens.measurement.place_metrics import label_flip_any, label_flip_at, label_flip_mean
from jaxsens.measurement.ragged import ragged_sensitivity
from jaxsens.measurement.sharpness_estimate import SharpnessEstimate
from jaxsens.measurement.worst_case_estimate import WorstCaseEstimate

__all__ = [
    "Blowup",
    "Difference",
    "Explanation",
    "Metric",
    "SensitivityEstimate",
    "SharpnessEstimate",
    "WorstCaseEstimate",
    "blowup",
    "changed_draws",
    "compare",
    "explain",
    "label_flip",
    "label_flip_any",
    "label_flip_at",
    "label_flip_mean",
    "logit_drop",
    "occlusion",
    "probability_drop",
    "ragged_sensitivity",
    "relative_l2",
    "sensitivity",
    "sharpness",
    "squared_change",
    "worst_case",
]
