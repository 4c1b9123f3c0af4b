"""Tables of the experiment `spectrum`, from the numbers that it found."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxsens import spectrum
from jaxsens.reporting.results import Cell, Table
from jaxsens.spectrum.exact import token_products

from . import scan
from .measuring import DrawnKernel

_VERDICTS = {
    "proposition": "as stated",
    "univariate": "univariate",
    "eigenfunctions": "eigenfunctions",
    "one_per_degree": "one μ a degree",
    "ordered": "ordered",
    "ordered_on_average": "means ordered",
}


def holds_table(rows: Sequence[scan.Row]) -> Table:
    """For which tokenisations, scalings and readouts the proposition holds."""
    body: list[tuple[Cell, ...]] = []
    for tokens in scan.TOKENISATIONS:
        for readout in scan.READOUTS:
            for scaling in scan.SCALINGS:
                part = scan.where(rows, tokenisation=tokens, readout=readout, scaling=scaling)
                if part:
                    numbers = (
                        f"{scan.largest(part, k):.3f}" for k in ("spread", "off_diagonal_mass")
                    )
                    verdicts = (scan.share(part, verdict) for verdict in _VERDICTS)
                    body.append((tokens, readout, scaling, len(part), *verdicts, *numbers))
    dimensions = sorted({row["d"] for row in rows})
    return Table(
        title="Where Proposition 3.1 holds",
        columns=(
            *("tokens", "readout", "scaling", "kernels"),
            *_VERDICTS.values(),
            *("largest spread", "largest off-diag."),
        ),
        rows=tuple(body),
        note=f"All tokenisations of d = {', '.join(map(str, dimensions))}, CK and NTK, "
        f"{len(scan.STACKS)} stacks of layers, whole cube enumerated in {rows[0]['precision']}. "
        "Spread: largest difference of K at one ⟨x,y⟩ over max |K|. Off-diag.: Frobenius norm of "
        "the off-diagonal part of K in the Fourier basis over that of K.",
    )


def stack_table(rows: Sequence[scan.Row]) -> Table:
    """The same by stack of layers."""
    body: list[tuple[Cell, ...]] = []
    for stack in scan.STACKS:
        for tokens in scan.TOKENISATIONS:
            for readout in scan.READOUTS:
                part = scan.where(rows, stack=stack, tokenisation=tokens, readout=readout)
                verdicts = (scan.share(part, verdict) for verdict in _VERDICTS)
                if part:
                    fails = min((r["d"] for r in part if not r["proposition"]), default=None)
                    first = None if fails is None else f"d = {fails}"
                    body.append((stack, tokens, readout, len(part), *verdicts, first))
    return Table(
        title="Where Proposition 3.1 holds, by layers",
        columns=("layers", "tokens", "readout", "kernels", *_VERDICTS.values(), "fails from"),
        rows=tuple(body),
        note="Fails from: the smallest d at which a kernel of the row is not as stated.",
    )


def counterexample_table(found: spectrum.Counterexample) -> Table:
    """Two pairs of points in full."""
    width = found.architecture.width(found.d)
    body: list[tuple[Cell, ...]] = []
    for (x, y), value in zip(found.pairs, found.values, strict=True):
        products = token_products(np.array([x]), np.array([y]), found.architecture.tokens)
        points = (
            " | ".join(
                " ".join(f"{v:+d}" for v in p[i : i + width]) for i in range(0, found.d, width)
            )
            for p in (x, y)
        )
        body.append((*points, found.inner_product, str(products[0, 0].tolist()), str(value)))
    sets = (
        ""
        if found.coupled is None
        else (
            f" ⟨χ_U, K χ_V⟩ = {found.coupling} for U = {set(found.coupled[0]) or '∅'}, "
            f"V = {set(found.coupled[1]) or '∅'}: not eigenfunctions."
        )
    )
    return Table(
        title=f"Smallest counterexample with the {found.architecture.readout} readout: "
        f"d = {found.d}, T = {found.architecture.tokens}, one attention layer, CK, scaling "
        f"{found.architecture.scaling}",
        columns=("x", "y", "⟨x,y⟩", "⟨x_c,y_d⟩", "K(x,y)"),
        rows=tuple(body),
        note=f"The same ⟨x,y⟩ and different K, in exact arithmetic.{sets} For one attention layer "
        "no smaller d has one; for other layers see the table above.",
    )


def degree_table(drawn: Sequence[DrawnKernel]) -> Table:
    """Eigenvalues' means, least and largest, and fraction of the trace, by degree."""
    body: list[tuple[Cell, ...]] = []
    for each in drawn:
        found = each.found
        for k in np.flatnonzero(found.trace_fraction > 1e-12):
            mu = (f"{m[k]:.5g}" for m in (found.mu_mean, found.mu_min, found.mu_max))
            body.append((each.label, int(k), *mu, f"{found.trace_fraction[k]:.4f}"))
    return Table(
        title=f"One attention layer, CK, d = {found.d}: diagonal in the Fourier basis",
        columns=("tokens", "degree", "mean μ_U", "least", "largest", "fraction of trace"),
        rows=tuple(body),
        note=f"Degrees without a share of the trace are left out; {found.precision}.",
    )


def training_table(trained: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
    """Steps to fit each character."""
    body: list[tuple[Cell, ...]] = []
    for name, rows in trained.items():
        for row in rows:
            steps = f"{row['steps']}" if row["fitted"] else f"> {row['steps']}"
            members = "{" + ",".join(map(str, row["coordinates"])) + "}"
            limits = (
                None if row[way] is None else f"{row[way]:.1f}" for way in ("by_mu", "by_kernel")
            )
            body.append((name, row["degree"], members, f"{row['mu']:.4g}", steps, *limits))
    return Table(
        title="Steps of gradient descent to fit a character χ_U (mean squared error 0.1)",
        columns=("network", "degree", "U", "μ_U of the NTK", "steps", "by μ_U", "by whole NTK"),
        rows=tuple(body),
        note="By …: steps of the infinitely wide network if χ_U were an eigenfunction, and from "
        "all eigenvalues; a dash where it never fits χ_U.",
    )
