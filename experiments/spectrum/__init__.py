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

import functools
from pathlib import PurePath

from jaxsens.reporting.cached import cached_stage
from jaxsens.reporting.papers import SIMPLICITY_BIAS
from jaxsens.reporting.results import Findings, grouped
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.spectrum import Transformer
from jaxsens.spectrum.exact import eigenvalues_if_diagonal

from . import claims, figures, measuring, scan, tables, training
from .config import Config

__all__ = ["COST", "PAPERS", "PRESETS", "Config", "load", "run"]

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

PAPERS = (SIMPLICITY_BIAS,)

COST = {
    "quick": "kernels up to d = 8 by enumeration, univariate d = 128; 1 CPU minute",
    "small": "kernels up to d = 10, wider networks; 7 CPU minutes",
    "paper": "kernels up to d = 12, univariate d = 512, networks of width 1024",
}


def load(config: Config, data_dir: PurePath | None) -> None:
    """Nothing to load: the cube is enumerated."""


def run(config: Config, data: None, folder: RunFolder) -> Findings:
    """Searches, checks, trains, draws."""
    rows: list[scan.Row] = []
    for stack in scan.STACKS:
        dimensions = config.scan_pure if stack == scan.PURE else config.scan_stacks
        checked = functools.partial(scan.scan, dimensions, stack, config.precision)
        rows += cached_stage(folder, f"scan: {stack}", checked)
    crossed = cached_stage(folder, "neural-tangents", lambda: measuring.cross_checks(config))
    univariate = cached_stage(folder, "univariate", lambda: measuring.univariate_spectra(config))
    widths = cached_stage(folder, "finite width", lambda: measuring.finite_widths(config))
    trained = cached_stage(folder, "characters", lambda: training.characters(config))
    exact = [str(mu) for mu in eigenvalues_if_diagonal(Transformer(tokens=1, embed=False), 6) or []]
    counterexamples = {
        readout: scan.smallest_counterexample(max(config.scan_pure), readout)
        for readout in scan.READOUTS
    }
    wide = scan.where(rows, tokenisation=scan.WIDE)
    drawn = measuring.drawn_kernels(config)
    return Findings(
        title="Spectra on the Boolean cube: Proposition 3.1 by computation",
        summary=claims.summary(rows, config.precision),
        claims=(
            *grouped(
                "Proposition 3.1",
                (
                    *claims.proposition_claims(rows),
                    claims.weak_claim(wide),
                    claims.parity_claim(rows),
                ),
            ),
            *grouped(
                "Other ways to the same kernels",
                (
                    claims.exact_claim(exact),
                    *claims.cross_claims(crossed),
                    claims.univariate_claim(univariate, config.univariate_d),
                ),
            ),
            *grouped("Networks of finite width", claims.width_claims(widths)),
            *grouped("Networks in training", claims.training_claims(trained)),
        ),
        tables=(
            tables.holds_table(rows),
            tables.stack_table(rows),
            *(tables.counterexample_table(c) for c in counterexamples.values() if c is not None),
            tables.degree_table(drawn),
            tables.training_table(trained),
        ),
        figures=(
            figures.eigenvalue_figure(univariate, drawn, folder),
            figures.fourier_figure(drawn, folder),
            figures.spread_figure(drawn, folder),
            figures.width_figure(widths, folder),
            figures.training_figure(trained, folder),
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
    )
