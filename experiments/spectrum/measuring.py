"""What the experiment `spectrum` computes of kernels beside its search (`scan`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxsens import boolean, spectrum
from jaxsens.spectrum import MLP, Transformer
from jaxsens.spectrum.architectures import Architecture

from . import networks, scan
from .config import Config


@dataclass(frozen=True)
class DrawnKernel:
    """A kernel that is drawn, and what was found about it."""

    label: str
    kernel: np.ndarray
    found: spectrum.Check


def drawn_kernels(config: Config) -> list[DrawnKernel]:
    """The conjugate kernels that are drawn: one attention layer on 1, 2, d/2 and d tokens."""
    found = []
    for tokens in sorted({1, 2, config.d // 2, config.d}):
        architecture = Transformer(tokens=tokens, embed=False)
        kernel = spectrum.cube_kernels(architecture, config.d, precision=config.precision)["ck"]
        label = f"T = {tokens}, width {config.d // tokens}"
        found.append(DrawnKernel(label, kernel, spectrum.check(kernel, tokens=tokens)))
    return found


def cross_checks(config: Config) -> list[dict[str, Any]]:
    """Largest difference between the recursion and neural-tangents; empty without it."""
    found = []
    for architecture in networks.CROSS_CHECKED:
        own = spectrum.cube_kernels(architecture, 6, precision=config.precision)
        try:
            theirs = spectrum.cube_kernels(
                architecture, 6, precision=config.precision, backend="neural-tangents"
            )
        except spectrum.NeuralTangentsMissingError:
            return []
        gaps = {
            kind: float(np.abs(own[kind] - theirs[kind]).max() / np.abs(theirs[kind]).max())
            for kind in own
        }
        found.append({"label": architecture.label, "ck": gaps["ck"], "ntk": gaps["ntk"]})
    return found


def univariate_spectra(config: Config) -> list[dict[str, Any]]:
    """Eigenvalues of every degree at a large d."""
    found = []
    for architecture in networks.UNIVARIATE:
        for kind in scan.KINDS:
            if isinstance(architecture, MLP):
                profile = spectrum.mlp_profile(architecture, kind)
            else:
                profile = spectrum.transformer_profile(architecture, kind)
            mu = spectrum.eigenvalues_by_series(profile, config.univariate_d)
            ordered = bool((mu[:-2] >= mu[2:]).all())
            found.append({"label": architecture.label, "kind": kind, "mu": mu, "ordered": ordered})
    return found


def finite_widths(config: Config) -> list[dict[str, Any]]:
    """‖K_width − K‖_F / ‖K‖_F of finite networks, one number per seed."""
    found = []
    for name, architecture in networks.TRAINED.items():
        limits = spectrum.cube_kernels(architecture, config.finite_d)
        for width in config.widths:
            kernels = _finite_kernels(config, architecture, width)
            for kind in scan.KINDS:
                gaps = [np.linalg.norm(each[kind] - limits[kind]) for each in kernels]
                errors = [float(gap / np.linalg.norm(limits[kind])) for gap in gaps]
                found.append({"network": name, "kind": kind, "width": width, "errors": errors})
    return found


def _finite_kernels(
    config: Config, architecture: Architecture, width: int
) -> list[dict[str, np.ndarray]]:
    """Both kernels of a finite network on the whole cube, one pair per seed."""
    model, x = spectrum.finite_network(architecture, width), boolean.cube(config.finite_d)

    def features(params: Any, x: jax.Array) -> jax.Array:
        return model.apply(params, x, method="features")

    @jax.jit
    def both(key: jax.Array) -> dict[str, jax.Array]:
        params = model.init(key, x)
        return {
            "ck": spectrum.empirical_ck(features, params, x),
            "ntk": spectrum.empirical_ntk(model.apply, params, x),
        }

    keys = jax.random.split(jax.random.key(config.seed), config.num_seeds)
    return [
        {kind: np.asarray(kernel, np.float64) for kind, kernel in both(key).items()} for key in keys
    ]


def by_curve(widths: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    """The rows of each network and kind of kernel."""
    curves: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in widths:
        curves.setdefault((row["network"], row["kind"]), []).append(row)
    return curves
