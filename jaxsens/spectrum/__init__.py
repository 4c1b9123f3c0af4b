"""Conjugate and tangent kernels on the Boolean cube, and Proposition 3.1 on their spectra.

    architectures   MLPs and transformers with linear attention, as values
    recursion       their infinite-width kernels, derived here
    limits          the same by neural-tangents, and whole kernel matrices on the cube
    finite          finite networks of the architectures;  empirical: kernels of any finite network
    flax_kernels    those of a Flax model, averaged over seeds
    krawtchouk      eigenvalues of kernels of ⟨x, y⟩ alone, for any d
    checks          what is true of a kernel, by enumeration;  exact: in rational arithmetic

The only room that knows neural-tangents, which is optional: without it everything works but
`backend="neural-tangents"`.
"""

from jaxsens.spectrum.architectures import MLP, Transformer
from jaxsens.spectrum.checks import Check, check, fourier_matrix
from jaxsens.spectrum.empirical import SeedAverage, empirical_ck, empirical_ntk, over_seeds
from jaxsens.spectrum.exact import Counterexample, counterexample
from jaxsens.spectrum.finite import finite
from jaxsens.spectrum.flax_kernels import flax_kernels, readout_features
from jaxsens.spectrum.krawtchouk import Eigenvalues, eigenvalues, eigenvalues_by_series, krawtchouk
from jaxsens.spectrum.limits import cube_kernels, kernels, profile_values
from jaxsens.spectrum.neural_tangents_import import NeuralTangentsMissingError
from jaxsens.spectrum.recursion import mlp_profile, transformer_profile

__all__ = [
    "MLP",
    "Check",
    "Counterexample",
    "Eigenvalues",
    "NeuralTangentsMissingError",
    "SeedAverage",
    "Transformer",
    "check",
    "counterexample",
    "cube_kernels",
    "eigenvalues",
    "eigenvalues_by_series",
    "empirical_ck",
    "empirical_ntk",
    "finite",
    "flax_kernels",
    "fourier_matrix",
    "kernels",
    "krawtchouk",
    "mlp_profile",
    "over_seeds",
    "profile_values",
    "readout_features",
    "transformer_profile",
]
