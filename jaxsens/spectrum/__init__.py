"""Conjugate and tangent kernels on the Boolean cube, and Proposition 3.1 on their spectra.

    architectures     MLPs and transformers with linear attention, as values
    recursion         their kernels at infinite width, derived here
    limits            the same by neural-tangents, and whole kernel matrices on the cube
    finite_networks   the architectures at finite width, as Flax modules
    empirical         kernels of any finite network;  flax_models: of a Flax model, over seeds
    univariate        eigenvalues of kernels that are functions of ⟨x, y⟩ alone, for any d
    checks            what is true of a kernel, by enumeration;  exact: in rational arithmetic

The only room that knows neural-tangents, which is optional: without it everything works but
`backend="neural-tangents"`.
"""

import warnings
from typing import Any

from jaxsens.spectrum.architectures import MLP, Transformer
from jaxsens.spectrum.checks import Check, check, fourier_matrix
from jaxsens.spectrum.empirical import SeedAverage, average_over_seeds, empirical_ck, empirical_ntk
from jaxsens.spectrum.exact import Counterexample, counterexample
from jaxsens.spectrum.finite_networks import finite_network
from jaxsens.spectrum.flax_models import flax_kernels, readout_features
from jaxsens.spectrum.limits import cube_kernels, kernels, profile_values
from jaxsens.spectrum.neural_tangents_import import NeuralTangentsMissingError
from jaxsens.spectrum.recursion import mlp_profile, transformer_profile
from jaxsens.spectrum.univariate import Eigenvalues, eigenvalues, eigenvalues_by_series, krawtchouk

__all__ = [
    "MLP",
    "Check",
    "Counterexample",
    "Eigenvalues",
    "NeuralTangentsMissingError",
    "SeedAverage",
    "Transformer",
    "average_over_seeds",
    "check",
    "counterexample",
    "cube_kernels",
    "eigenvalues",
    "eigenvalues_by_series",
    "empirical_ck",
    "empirical_ntk",
    "finite_network",
    "flax_kernels",
    "fourier_matrix",
    "kernels",
    "krawtchouk",
    "mlp_profile",
    "profile_values",
    "readout_features",
    "transformer_profile",
]

#: Functions that have a clearer name now, under their old ones.
_RENAMED = {"finite": "finite_network", "over_seeds": "average_over_seeds"}


def __getattr__(name: str) -> Any:
    if name not in _RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    new = _RENAMED[name]
    message = f"jaxsens.spectrum.{name} is now jaxsens.spectrum.{new}"
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    return globals()[new]
