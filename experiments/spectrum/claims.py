"""Claims of the experiment `spectrum`, from the numbers that it found."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from jaxsens.core.intervals import Interval, student_half_width
from jaxsens.reporting.results import Claim

from .._common.claims import number_or_none
from . import scan
from .measuring import by_curve

_PROPOSITION = "Proposition 3.1: univariate, χ_U eigenfunctions, μ_k ≥ μ_{k+2}"


def summary(rows: Sequence[scan.Row], precision: str) -> str:
    """The main outcome in words."""
    one_token = scan.where(rows, tokenisation=scan.ONE_TOKEN)
    one_bit = scan.where(rows, tokenisation=scan.ONE_BIT, readout="flatten")
    wide = scan.where(rows, tokenisation=scan.WIDE)
    return (
        f"Proposition 3.1 holds as stated for {scan.count(rows, 'proposition')} kernels: "
        f"{scan.count(one_token, 'proposition')} with one token, "
        f"{scan.count(one_bit, 'proposition')} with tokens of one bit and the flatten readout, "
        f"{scan.count(wide, 'proposition')} with several tokens of several bits. Of these last, "
        f"{scan.count(wide, 'ordered_on_average')} still have eigenvalues whose means over each "
        f"degree are ordered. Kernels in {precision}."
    )


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
            f"one ⟨x,y⟩ {scan.largest(part, 'spread'):.3g} of max |K|, largest off-diagonal mass "
            f"{scan.largest(part, 'off_diagonal_mass'):.3g}",
            holds=all(row["proposition"] for row in part),
            values={
                "kernels as stated": scan.number(part, "proposition"),
                "kernels": len(part),
                "largest spread": scan.largest(part, "spread"),
                "largest off-diagonal mass": scan.largest(part, "off_diagonal_mass"),
            },
            decided_by="kernels as stated",
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
        values={
            "kernels with ordered means": scan.number(wide, "ordered_on_average"),
            "kernels": len(wide),
        },
        decided_by="kernels with ordered means",
    )


def parity_claim(rows: Sequence[scan.Row]) -> Claim:
    """Which characters can mix at all."""
    worst = scan.largest(rows, "cross_parity_mass")
    return Claim(
        statement="Characters mix only with characters of the same parity in every column "
        "(coordinate i of all tokens); even and odd degrees never mix",
        paper="not stated",
        measured=f"{scan.count(rows, 'column_parities')} kernels, share of the "
        f"squared Fourier mass elsewhere at most {worst:.1g}",
        holds=all(row["column_parities"] for row in rows),
        values={
            "kernels without other mixing": scan.number(rows, "column_parities"),
            "kernels": len(rows),
            "largest share elsewhere": worst,
        },
        decided_by="kernels without other mixing",
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
        values={f"μ_{k}": "/".join(values) for k, values in by_degree.items()},
        decided_by="all of them, in exact arithmetic",
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
            values={row["label"]: {"ck": row["ck"], "ntk": row["ntk"]} for row in crossed}
            | {"largest relative difference": worst},
            decided_by="largest relative difference",
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
        values={
            "ordered kernels": len(univariate) - len(failing),
            "kernels": len(univariate),
            "smallest eigenvalue": smallest,
        },
        decided_by="ordered kernels",
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
                values={f"error at width {row['width']}": np.mean(row["errors"]) for row in rows}
                | {"exponent": slope},
                decided_by="exponent",
                interval=(low, high),
                num_seeds=len(rows[0]["errors"]),
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
        numbers = {"characters": len(rows), "not fitted": sum(not row["fitted"] for row in rows)}
        about = f"over {numbers['characters']} characters, {numbers['not fitted']} not fitted"
        claims += [
            Claim(
                statement=f"{name}: characters with a smaller μ_U take more steps to fit",
                paper="the spectral bias behind Section 3",
                measured=f"rank correlation of −μ_U and steps {by_mu:.2f} {about}",
                holds=by_mu >= 0.9,
                values={"rank correlation": number_or_none(by_mu), **numbers},
                decided_by="rank correlation",
                num_seeds=1,
            ),
            Claim(
                statement=f"{name}: the steps follow the spectrum of the whole tangent kernel",
                paper="–",
                measured=f"rank correlation with the infinite width's steps {by_kernel:.2f} {about}"
                + (f"; {min(ratios):.2f} to {max(ratios):.2f} times as many" if ratios else ""),
                holds=by_kernel >= 0.9,
                values={"rank correlation": number_or_none(by_kernel), **numbers},
                decided_by="rank correlation",
                num_seeds=1,
            ),
        ]
    return claims


def _place(row: scan.Row) -> str:
    return (
        f"{row['kind'].upper()} of {row['stack']}, d={row['d']}, T={row['tokens']}, "
        f"{row['scaling']}, {row['readout']}"
    )


def _slope(rows: Sequence[Mapping[str, Any]]) -> Interval:
    """Exponent of the error in the width, with its 95 % interval."""
    x = [math.log(row["width"]) for row in rows for _ in row["errors"]]
    y = [math.log(error) for row in rows for error in row["errors"]]
    fit = stats.linregress(x, y)
    slope, half = float(fit.slope), student_half_width(float(fit.stderr), len(x) - 2)
    return Interval(slope, slope - half, slope + half)
