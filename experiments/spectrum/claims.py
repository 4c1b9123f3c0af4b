"""Claims and tables of the experiment `spectrum`, from the numbers that it found."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from jaxsens import spectrum
from jaxsens.core.intervals import student_half_width
from jaxsens.reporting.results import Cell, Claim, Table
from jaxsens.spectrum.exact import token_products

from . import scan
from .figures import Drawn, by_curve

_VERDICTS = {
    "proposition": "as stated",
    "univariate": "univariate",
    "eigenfunctions": "eigenfunctions",
    "one_per_degree": "one μ a degree",
    "ordered": "ordered",
    "ordered_on_average": "means ordered",
}
_PROPOSITION = "Proposition 3.1: univariate, χ_U eigenfunctions, μ_k ≥ μ_{k+2}"


def proposition_claims(rows: Sequence[scan.Row]) -> list[Claim]:
    """The proposition as stated, for everything and for each kind of tokenisation."""
    parts = {
        "for every tokenisation, scaling and readout": list(rows),
        "for one token (T = 1)": scan.where(rows, tokenisation=scan.ONE_TOKEN),
        "for tokens of one bit (T = d), flatten readout": scan.where(
            rows, tokenisation=scan.ONE_BIT, readout="flatten"
        ),
        "for tokens of one bit (T = d), flatten readout, no attention after an MLP": [
            row
            for row in scan.where(rows, tokenisation=scan.ONE_BIT, readout="flatten")
            if not scan.attention_after_mlp(row["stack"])
        ],
        "for tokens of one bit (T = d), mean readout": scan.where(
            rows, tokenisation=scan.ONE_BIT, readout="mean"
        ),
        "for several tokens of several bits (1 < T < d)": scan.where(rows, tokenisation=scan.WIDE),
    }
    return [
        Claim(
            statement=f"Proposition 3.1 holds as stated {what}",
            paper=_PROPOSITION,
            measured=f"{scan.count(part, 'proposition')} kernels; largest spread at "
            f"one ⟨x,y⟩ {_largest(part, 'spread'):.3g} of max |K|, largest off-diagonal mass "
            f"{_largest(part, 'off_diagonal_mass'):.3g}",
            holds=all(row["proposition"] for row in part),
        )
        for what, part in parts.items()
        if part
    ]


def weak_claim(wide: Sequence[scan.Row]) -> Claim:
    """What is left of the ordering where the proposition fails."""
    failing = [row for row in wide if not row["ordered_on_average"]]
    examples = "; ".join(
        f"{_place(row)}: mean μ of degrees {k} and {k + 2} is {row['mu_mean'][k]:.4g} and "
        f"{row['mu_mean'][k + 2]:.4g}"
        for row in sorted(failing, key=lambda row: row["d"])[:2]
        for k in row["violations"][:1]
    )
    return Claim(
        statement="For several tokens of several bits the weaker ordering holds: the means "
        "tr(P_k K)/C(d,k) fall with the degree",
        paper="not stated",
        measured=f"{scan.count(wide, 'ordered_on_average')} kernels"
        + (f"; not for {examples}" if failing else ""),
        holds=not failing,
    )


def parity_claim(rows: Sequence[scan.Row]) -> Claim:
    """Which characters can mix at all."""
    worst = _largest(rows, "cross_parity_mass")
    return Claim(
        statement="Characters mix only with characters of the same parity in every column "
        "(coordinate i of all tokens); even and odd degrees never mix",
        paper="not stated",
        measured=f"{scan.count(rows, 'column_parities')} kernels, share of the "
        f"squared Fourier mass elsewhere at most {worst:.1g}",
        holds=all(row["column_parities"] for row in rows),
    )


def exact_claim(mu: Sequence[str]) -> Claim:
    """The eigenvalues of one token, in rational arithmetic."""
    by_degree = {k: sorted({mu[u] for u in range(len(mu)) if u.bit_count() == k}) for k in range(7)}
    expected = {k: [{1: "2/27", 3: "1/36"}.get(k, "0")] for k in range(7)}
    return Claim(
        statement="One token, d = 6, one linear-attention layer: μ_1 = 2/27, μ_3 = 1/36, others 0",
        paper="follows from K = (⟨x,y⟩/d)³",
        measured=", ".join(f"μ_{k} = {'/'.join(values)}" for k, values in by_degree.items()),
        holds=by_degree == expected,
    )


def cross_claims(crossed: Sequence[Mapping[str, Any]]) -> list[Claim]:
    """The recursion against neural-tangents; none without it."""
    if not crossed:
        return []
    worst = max(max(row["ck"], row["ntk"]) for row in crossed)
    return [
        Claim(
            statement="neural-tangents and the recursion written here give the same kernels (1e-5)",
            paper="–",
            measured=f"largest relative difference {worst:.2g} over "
            + "; ".join(row["label"] for row in crossed),
            holds=worst <= 1e-5,
        )
    ]


def univariate_claim(univariate: Sequence[Mapping[str, Any]], d: int) -> Claim:
    """The ordering at a large d, all degrees."""
    failing = [f"{row['kind']} of {row['label']}" for row in univariate if not row["ordered"]]
    smallest = min(min(value for value in row["mu"] if value > 0) for row in univariate)
    return Claim(
        statement=f"Univariate kernels at d = {d}: μ_k ≥ μ_(k+2) at every degree",
        paper="Proposition 3.1; for MLPs Yang and Salman (2019)",
        measured=f"{len(univariate) - len(failing)} of {len(univariate)} kernels, eigenvalues down "
        f"to {smallest:.1g}" + (f"; not for {', '.join(failing)}" if failing else ""),
        holds=not failing,
    )


def width_claims(widths: Sequence[Mapping[str, Any]]) -> list[Claim]:
    """How fast finite networks approach the limit."""
    claims = []
    for (network, kind), rows in by_curve(widths).items():
        slope, low, high = _slope(rows)
        claims.append(
            Claim(
                statement=f"{network}, {kind.upper()}: the wider the network, the closer its "
                "kernel to the limit",
                paper="like width^(−1/2), from the variance of a mean over units",
                measured=f"error ∝ width^{slope:.2f} (95 % interval {low:.2f} to {high:.2f}), "
                f"{np.mean(rows[0]['errors']):.3f} at {rows[0]['width']}, "
                f"{np.mean(rows[-1]['errors']):.3f} at {rows[-1]['width']}",
                holds=high < 0,
            )
        )
    return claims


def training_claims(trained: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Claim]:
    """Whether smaller eigenvalues take more steps, and whether the whole kernel explains them."""
    claims = []
    for name, rows in trained.items():
        # A character that was not fitted took at least the largest number of steps.
        steps = [row["steps"] for row in rows]
        by_mu = float(stats.spearmanr([-row["mu"] for row in rows], steps)[0])
        # Never is later than any time.
        expected = [1e30 if row["by_kernel"] is None else row["by_kernel"] for row in rows]
        by_kernel = float(stats.spearmanr(expected, steps)[0])
        # Of a prediction of one or two steps no ratio can be told.
        fitted = [row for row in rows if row["fitted"] and (row["by_kernel"] or 0) >= 3]
        ratios = [row["steps"] / row["by_kernel"] for row in fitted]
        about = f"over {len(rows)} characters, {sum(not row['fitted'] for row in rows)} not fitted"
        claims += [
            Claim(
                statement=f"{name}: characters with a smaller μ_U take more steps to fit",
                paper="the spectral bias behind Section 3",
                measured=f"rank correlation of −μ_U and steps {by_mu:.2f} {about}",
                holds=by_mu >= 0.9,
            ),
            Claim(
                statement=f"{name}: the steps follow the spectrum of the whole tangent kernel",
                paper="–",
                measured=f"rank correlation with the infinite width's steps {by_kernel:.2f} {about}"
                + (f"; {min(ratios):.2f} to {max(ratios):.2f} times as many" if ratios else ""),
                holds=by_kernel >= 0.9,
            ),
        ]
    return claims


def holds_table(rows: Sequence[scan.Row]) -> Table:
    """For which tokenisations, scalings and readouts the proposition holds."""
    body: list[tuple[Cell, ...]] = []
    for tokens in scan.TOKENISATIONS:
        for readout in scan.READOUTS:
            for scaling in scan.SCALINGS:
                part = scan.where(rows, tokenisation=tokens, readout=readout, scaling=scaling)
                if part:
                    numbers = (f"{_largest(part, k):.3f}" for k in ("spread", "off_diagonal_mass"))
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


def degree_table(drawn: Sequence[Drawn]) -> Table:
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


def _largest(rows: Sequence[scan.Row], name: str) -> float:
    return max((float(row[name]) for row in rows), default=math.nan)


def _place(row: scan.Row) -> str:
    return (
        f"{row['kind'].upper()} of {row['stack']}, d={row['d']}, T={row['tokens']}, "
        f"{row['scaling']}, {row['readout']}"
    )


def _slope(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float, float]:
    """Exponent of the error in the width, with its 95 % interval."""
    x = [math.log(row["width"]) for row in rows for _ in row["errors"]]
    y = [math.log(error) for row in rows for error in row["errors"]]
    fit = stats.linregress(x, y)
    slope, half = float(fit.slope), student_half_width(float(fit.stderr), len(x) - 2)
    return slope, slope - half, slope + half
