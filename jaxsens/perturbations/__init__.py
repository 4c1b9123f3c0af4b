"""Random changes of one window of an input (a grid and an edit), and of a model's weights."""

from jaxsens.perturbations.ball import Ball
from jaxsens.perturbations.coverage import spread
from jaxsens.perturbations.edits import (
    CheckedEdit,
    Donor,
    Edit,
    FiniteEdit,
    Flip,
    Gaussian,
    ReferencedEdit,
    Resample,
    ScatteredPixels,
)
from jaxsens.perturbations.grids import Bits, Grid, OverlappingPatches, Patches, Tokens, Whole
from jaxsens.perturbations.perturbation import Perturbation
from jaxsens.perturbations.replacement import Replace
from jaxsens.perturbations.weight_noise import Relative, Sphere, WeightNoise

__all__ = [
    "Ball",
    "Bits",
    "CheckedEdit",
    "Donor",
    "Edit",
    "FiniteEdit",
    "Flip",
    "Gaussian",
    "Grid",
    "OverlappingPatches",
    "Patches",
    "Perturbation",
    "ReferencedEdit",
    "Relative",
    "Replace",
    "Resample",
    "ScatteredPixels",
    "Sphere",
    "Tokens",
    "WeightNoise",
    "Whole",
    "spread",
]
