"""Spectrum (Section 3, Appendix B): where does Proposition 3.1 hold, and do networks follow it?

The proposition says that the conjugate and the tangent kernel of a transformer with linear
attention on {±1}^d are functions Ψ(⟨x,y⟩/d), that the characters χ_U are their eigenfunctions, and
that the eigenvalues fall with the degree: μ_0 ≥ μ_2 ≥ …, μ_1 ≥ μ_3 ≥ …. Here kernels are enumerated
and checked for every tokenisation, scaling and readout; nothing is assumed. Then: the univariate
spectrum at d = 128, all degrees, how fast finite networks approach the limit, and how many steps
they need to fit a character.

    python -m jaxsens.run --exp spectrum
        1 CPU minute; the table is in README.md
    python -m jaxsens.run --exp spectrum --preset small
        about 7 CPU minutes, in two sittings; the same, for 1,008 kernels

Found: it holds for one token, whatever the layers; for tokens of one bit with the flatten readout,
unless attention comes after an MLP (then it fails from d = 2 on); it fails for every kernel of
several tokens of several bits, from d = 4 on. There the weaker ordering, of the means over each
degree, holds for attention alone and fails for some kernels with ReLU MLPs, also from d = 4 on.
"""

import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import numpy as np

from jaxsens import boolean, spectrum
from jaxsens.cli.bounds import LARGEST, Count, Range, Runs, Seed, Several
from jaxsens.cli.config import ExperimentConfig
from jaxsens.core import memory
from jaxsens.reporting.environment import environment
from jaxsens.reporting.results import Results
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.spectrum import MLP, Transformer
from jaxsens.spectrum.architectures import Architecture
from jaxsens.spectrum.exact import eigenvalues_if_diagonal

from .._common.study import records, stage
from . import claims as views
from . import figures as drawings
from . import scan
from .training import Task, train_characters

__all__ = ["COST", "PRESETS", "Config", "load", "run"]

#: Of a cube that is enumerated; beyond 64 not even its points can be numbered.
Coordinates = Annotated[int, Range(2, 64)]
Width = Annotated[int, Range(2, LARGEST, because="a single unit has no layer norm")]


@dataclass(frozen=True)
class Config(ExperimentConfig):
    """Flags of the experiment."""

    d: Annotated[int, Range(4, 64)] = 8
    """Coordinates of the kernels that are drawn."""
    scan_pure: Annotated[tuple[Coordinates, ...], Several()] = (2, 3, 4, 6, 8)
    """Dimensions of the search among single attention layers."""
    scan_stacks: Annotated[tuple[Coordinates, ...], Several()] = (2, 3, 4, 6)
    """Dimensions of the search among all other stacks of layers."""
    univariate_d: Count = 128
    """Coordinates of the univariate spectrum."""
    finite_d: Coordinates = 6
    """Coordinates of the finite networks whose kernels are compared with the limit."""
    widths: Annotated[tuple[Width, ...], Several(at_least=2)] = (16, 48, 144)
    """Widths of the finite networks."""
    num_seeds: Runs = 8
    """Finite networks of each width."""
    train_d: Coordinates = 6
    """Coordinates of the networks that are trained on characters."""
    train_width: Width = 64
    """Width of the networks that are trained on characters."""
    max_steps: Count = 1_500
    """Steps after which a character counts as not fitted."""
    sets_per_degree: Count = 2
    """Characters of each degree to train on, where their eigenvalues differ."""
    precision: Literal["float32", "float64"] = "float64"
    """Of the infinite-width kernels."""
    seed: Seed = 0
    """Of the finite networks."""

    def check(self) -> None:
        """Raises ValueError for a cube that cannot be cut into tokens or held in memory."""
        if 4 not in self.scan_pure:
            raise ValueError(
                "scan_pure must contain 4 (the smallest d with several wide tokens); "
                f"got {self.scan_pure}"
            )
        if self.d % 2 or self.finite_d % 2 or self.train_d % 2:
            raise ValueError(
                "d, finite_d and train_d must be even, to cut them into two tokens; "
                f"got {self.d}, {self.finite_d} and {self.train_d}"
            )
        largest = max(self.d, self.finite_d, self.train_d, *self.scan_pure, *self.scan_stacks)
        memory.require(6 * 8 * 4**largest, f"the kernel matrix of d={largest}")
        d = self.univariate_d
        # The moments of all powers: see `spectrum.eigenvalues_from_taylor`.
        memory.require(
            8 * min(64 * d, 2**17) * (d + 1),
            f"the univariate spectrum of univariate_d={d}",
            remedy="choose a smaller --univariate-d",
        )
        for name, width in (("widths", max(self.widths)), ("train_width", self.train_width)):
            # The weights of one layer and their gradients.
            memory.require(
                8 * width**2,
                f"a network of width {width}",
                remedy=f"choose smaller {name}",
            )


PRESETS = {
    "quick": Config(),
    "small": Config(
        d=10,
        scan_pure=(2, 3, 4, 5, 6, 8, 9, 10),
        scan_stacks=(2, 3, 4, 5, 6, 8),
        finite_d=8,
        widths=(16, 32, 64, 128, 256),
        num_seeds=8,
        # `train_d` stays 6: characters that are never fitted take all the steps.
        train_width=128,
        max_steps=5_000,
        sets_per_degree=3,
    ),
    "paper": Config(
        d=12,
        scan_pure=(2, 3, 4, 5, 6, 7, 8, 9, 10, 12),
        scan_stacks=(2, 3, 4, 5, 6, 8, 9, 10),
        univariate_d=512,
        finite_d=8,
        train_d=8,
        widths=(16, 32, 64, 128, 256, 512, 1024),
        num_seeds=16,
        train_width=1024,
        max_steps=100_000,
        sets_per_degree=4,
    ),
}

COST = {
    "quick": "kernels up to d = 8 by enumeration, univariate d = 128; 1 CPU minute",
    "small": "kernels up to d = 10, wider networks; 7 CPU minutes",
    "paper": "kernels up to d = 12, univariate d = 512, networks of width 1024",
}

#: Networks whose univariate spectrum is drawn.
UNIVARIATE: tuple[Architecture, ...] = (
    MLP(depth=1, activation="relu"),
    MLP(depth=3, activation="relu"),
    MLP(depth=3, activation="erf"),
    MLP(depth=3, activation="gelu"),
    Transformer(tokens=1, embed=False),
    Transformer(tokens=1, depth=2, activation="relu", residual=True, layer_norm=True),
)
#: Networks that are made finite and trained.
TRAINED: dict[str, Architecture] = {
    "MLP": MLP(depth=2, activation="relu"),
    "transformer": Transformer(
        tokens=2, depth=1, activation="relu", residual=True, layer_norm=True
    ),
}
#: Kernels for which neural-tangents is asked too.
CROSS_CHECKED: tuple[Architecture, ...] = (
    MLP(depth=2, activation="relu"),
    MLP(depth=2, activation="erf"),
    MLP(depth=1, activation="gelu"),
    Transformer(tokens=2, embed=False),
    Transformer(tokens=2, scaling="linear", readout="mean", embed=False),
)


def load(config: Config, data_dir: Path | None) -> None:
    """Nothing to load: the cube is enumerated."""


def run(config: Config, data: None, folder: RunFolder) -> Results:
    """Searches, checks, trains, draws."""
    rows: list[scan.Row] = []
    for stack in scan.STACKS:
        dimensions = config.scan_pure if stack == scan.PURE else config.scan_stacks
        checked = functools.partial(scan.scan, dimensions, stack, config.precision)
        rows += stage(folder, f"scan: {stack}", checked)
    crossed = stage(folder, "neural-tangents", lambda: cross_checks(config))
    univariate = stage(folder, "univariate", lambda: univariate_spectra(config))
    widths = stage(folder, "finite width", lambda: finite_widths(config))
    trained = stage(folder, "characters", lambda: characters(config))
    exact = [str(mu) for mu in eigenvalues_if_diagonal(Transformer(tokens=1, embed=False), 6) or []]
    counterexamples = {
        readout: scan.smallest_counterexample(max(config.scan_pure), readout)
        for readout in scan.READOUTS
    }
    one_token = scan.where(rows, tokenisation=scan.ONE_TOKEN)
    one_bit = scan.where(rows, tokenisation=scan.ONE_BIT, readout="flatten")
    wide = scan.where(rows, tokenisation=scan.WIDE)
    drawn = drawn_kernels(config)
    return Results(
        experiment="spectrum",
        title="Spectra on the Boolean cube: Proposition 3.1 by computation",
        summary=f"Proposition 3.1 holds as stated for {scan.count(rows, 'proposition')} kernels: "
        f"{scan.count(one_token, 'proposition')} with one token, "
        f"{scan.count(one_bit, 'proposition')} with tokens of one bit and the flatten readout, "
        f"{scan.count(wide, 'proposition')} with several tokens of several bits. Of these last, "
        f"{scan.count(wide, 'ordered_on_average')} still have eigenvalues whose means over each "
        f"degree are ordered. Kernels in {config.precision}.",
        claims=(
            *views.proposition_claims(rows),
            views.weak_claim(wide),
            views.parity_claim(rows),
            views.exact_claim(exact),
            *views.cross_claims(crossed),
            views.univariate_claim(univariate, config.univariate_d),
            *views.width_claims(widths),
            *views.training_claims(trained),
        ),
        tables=(
            views.holds_table(rows),
            views.stack_table(rows),
            *(views.counterexample_table(c) for c in counterexamples.values() if c is not None),
            views.degree_table(drawn),
            views.training_table(trained),
        ),
        figures=(
            drawings.eigenvalue_figure(univariate, drawn, folder),
            drawings.fourier_figure(drawn, folder),
            drawings.spread_figure(drawn, folder),
            drawings.width_figure(widths, folder),
            drawings.training_figure(trained, folder),
        ),
        values={
            "precision": config.precision,
            "scan": rows,
            "neural_tangents": crossed,
            "univariate": univariate,
            "finite_width": widths,
            "characters": trained,
            "exact_t1_d6": exact,
            "counterexamples": {
                k: None if c is None else str(c) for k, c in counterexamples.items()
            },
        },
        config=dataclasses.asdict(config),
        environment=environment(),
        seconds=sum(record["seconds"] for record in records(folder) if "stage" in record),
    )


def drawn_kernels(config: Config) -> list[drawings.Drawn]:
    """The conjugate kernels that are drawn: one attention layer on 1, 2, d/2 and d tokens."""
    found = []
    for tokens in sorted({1, 2, config.d // 2, config.d}):
        architecture = Transformer(tokens=tokens, embed=False)
        kernel = spectrum.cube_kernels(architecture, config.d, precision=config.precision)["ck"]
        label = f"T = {tokens}, width {config.d // tokens}"
        found.append(drawings.Drawn(label, kernel, spectrum.check(kernel, tokens=tokens)))
    return found


def cross_checks(config: Config) -> list[dict[str, Any]]:
    """Largest difference between the recursion and neural-tangents; empty without it."""
    found = []
    for architecture in CROSS_CHECKED:
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
    for architecture in UNIVARIATE:
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
    for name, architecture in TRAINED.items():
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
    """Both kernels of a finite network on the whole cube, one pair a seed."""
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


def characters(config: Config) -> dict[str, list[dict[str, Any]]]:
    """Steps to fit characters of every degree."""
    return {
        name: train_characters(
            Task(
                architecture=architecture,
                d=config.train_d,
                width=config.train_width,
                max_steps=config.max_steps,
                sets_per_degree=config.sets_per_degree,
                seed=config.seed,
            )
        )
        for name, architecture in TRAINED.items()
    }
