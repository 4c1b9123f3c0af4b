"""Figures of the experiment `spectrum`, from the numbers that it found."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure as Drawing
from scipy import stats

from jaxsens import spectrum
from jaxsens.boolean import degrees
from jaxsens.core.intervals import student_half_width
from jaxsens.figures.style import GREY, look_of, new_figure, styled
from jaxsens.reporting.results import Figure
from jaxsens.reporting.run_folder import RunFolder

from .._common.figures import saved_figure
from .measuring import DrawnKernel, by_curve


def eigenvalue_figure(
    univariate: Sequence[Mapping[str, Any]], drawn: Sequence[DrawnKernel], folder: RunFolder
) -> Figure:
    """Eigenvalues by degree: univariate at a large d, and several tokens at the drawn d."""
    return saved_figure(
        _draw_eigenvalues(univariate, drawn),
        folder,
        "eigenvalues",
        "Eigenvalues by degree. Left: tangent kernels of functions of ⟨x,y⟩, every degree of d = "
        f"{len(univariate[0]['mu']) - 1}. Right: conjugate kernels of one attention layer, d = "
        f"{drawn[0].found.d}; mean over the sets of a degree, bars from least to largest.",
    )


@styled
def _draw_eigenvalues(
    univariate: Sequence[Mapping[str, Any]], drawn: Sequence[DrawnKernel]
) -> Drawing:
    fig = new_figure(9.6, 4.4)
    left, right = fig.subplots(1, 2, width_ratios=(1.4, 1.0))
    for i, row in enumerate(r for r in univariate if r["kind"] == "ntk"):
        mu = np.array(row["mu"])
        k = np.flatnonzero(mu > 0)
        left.plot(k, mu[k], label=row["label"], **look_of(i, len(k)))
    for i, each in enumerate(drawn):
        found = each.found
        k = np.flatnonzero(found.mu_mean > 1e-12 * found.mu_mean.max())
        below = found.mu_mean[k] - np.maximum(found.mu_min[k], 1e-6 * found.mu_mean.max())
        above = found.mu_max[k] - found.mu_mean[k]
        look = look_of(i, 1)
        right.errorbar(
            k + 0.08 * i,
            found.mu_mean[k],
            # A mean of equal numbers may lie a rounding error outside of them.
            np.maximum([below, above], 0),
            color=look["color"],
            marker=look["marker"],
            linestyle="none",
            capsize=3,
            label=each.label,
        )
    for axes in (left, right):
        axes.set(yscale="log", xlabel="degree |U|", ylabel="eigenvalue μ")
    right.set_xlim(-0.5, drawn[0].found.d + 0.5)
    left.legend(fontsize=8)
    right.legend(fontsize=8)
    return fig


def fourier_figure(drawn: Sequence[DrawnKernel], folder: RunFolder) -> Figure:
    """The kernel in the Fourier basis."""
    return saved_figure(
        _draw_fourier(drawn),
        folder,
        "fourier",
        f"|⟨χ_U, K χ_V⟩| of one attention layer, d = {drawn[0].found.d}, the sets U and V in the "
        "order of their degree (grey lines). The proposition has only the diagonal.",
    )


@styled
def _draw_fourier(drawn: Sequence[DrawnKernel]) -> Drawing:
    degree = degrees(drawn[0].found.d)
    # One attention layer on raw tokens is a polynomial of degree 3: nothing lies above.
    order = np.argsort(degree, kind="stable")
    order = order[degree[order] <= 3]
    edges = np.cumsum(np.bincount(degree[order]))[:-1] - 0.5
    fig = new_figure(3.0 * len(drawn) + 0.8, 3.4)
    grid = fig.subplots(1, len(drawn), squeeze=False)[0]
    matrices = [
        np.abs(spectrum.fourier_matrix(each.kernel))[np.ix_(order, order)] for each in drawn
    ]
    top = max(float(matrix.max()) for matrix in matrices)
    for axes, each, matrix in zip(grid, drawn, matrices, strict=True):
        image = axes.imshow(
            np.maximum(matrix, 1e-6 * top), norm=LogNorm(1e-5 * top, top), cmap="viridis"
        )
        axes.hlines(edges, -0.5, len(order) - 0.5, color=GREY, linewidth=0.5)
        axes.vlines(edges, -0.5, len(order) - 0.5, color=GREY, linewidth=0.5)
        axes.set(title=each.label, xticks=[], yticks=[], xlabel="V")
        axes.grid(False)
    grid[0].set_ylabel("U, degrees 0 to 3")
    fig.colorbar(image, ax=grid, label="|⟨χ_U, K χ_V⟩|", shrink=0.9)
    return fig


def spread_figure(drawn: Sequence[DrawnKernel], folder: RunFolder) -> Figure:
    """Least and largest K at each inner product."""
    return saved_figure(
        _draw_spread(drawn),
        folder,
        "spread",
        "Least and largest K(x,y)/max |K| among all pairs with one ⟨x,y⟩, one attention layer, "
        f"d = {drawn[0].found.d}. A kernel that is a function of ⟨x,y⟩ has no band.",
    )


@styled
def _draw_spread(drawn: Sequence[DrawnKernel]) -> Drawing:
    fig = new_figure(2.6 * len(drawn) + 0.6, 3.0)
    grid = fig.subplots(1, len(drawn), squeeze=False, sharey=True)[0]
    d = drawn[0].found.d
    products = d - 2 * np.arange(d + 1)
    for i, (axes, each) in enumerate(zip(grid, drawn, strict=True)):
        found = each.found
        low, high = found.smallest_at / found.largest, found.largest_at / found.largest
        look = look_of(i, d + 1)
        axes.fill_between(products, low, high, color=look["color"], alpha=0.25, linewidth=0)
        axes.plot(products, low, **look)
        axes.plot(products, high, **look)
        axes.set(title=f"{each.label}\nspread {found.spread:.2f}", xlabel="⟨x, y⟩")
    grid[0].set_ylabel("K(x, y) / max |K|")
    return fig


def width_figure(widths: Sequence[Mapping[str, Any]], folder: RunFolder) -> Figure:
    """Distance of the finite kernels from the limit."""
    return saved_figure(
        _draw_widths(widths),
        folder,
        "width",
        "Distance of the kernel of a finite network at initialisation from its limit, "
        "‖K_width − K‖/‖K‖ (Frobenius), mean over seeds with 95 % intervals; dashed: the slope "
        "width^(−1/2).",
    )


@styled
def _draw_widths(widths: Sequence[Mapping[str, Any]]) -> Drawing:
    fig = new_figure(6.4, 3.8)
    axes = fig.subplots()
    for i, ((network, kind), rows) in enumerate(by_curve(widths).items()):
        errors = np.array([row["errors"] for row in rows])
        half = student_half_width(stats.sem(errors, axis=1), errors.shape[1] - 1)
        across = [row["width"] for row in rows]
        axes.errorbar(
            across,
            errors.mean(axis=1),
            half,
            capsize=3,
            label=f"{network}, {kind.upper()}",
            **look_of(i, 1),
        )
    ends = np.array([min(across), max(across)], float)
    axes.plot(ends, ends**-0.5, linestyle="--", color=GREY, label="width$^{-1/2}$")
    axes.set(xscale="log", yscale="log", xlabel="width", ylabel="relative distance from the limit")
    axes.set_xticks(across, [str(width) for width in across])
    axes.minorticks_off()
    axes.legend()
    return fig


def training_figure(
    trained: Mapping[str, Sequence[Mapping[str, Any]]], folder: RunFolder
) -> Figure:
    """Steps to fit against the eigenvalue."""
    return saved_figure(
        _draw_training(trained),
        folder,
        "characters",
        "Steps of gradient descent until a finite network fits χ_U, against the μ_U of its "
        "infinite-width tangent kernel; numbers are degrees, open marks were not fitted. "
        "Characters with μ_U = 0 are left out.",
    )


@styled
def _draw_training(trained: Mapping[str, Sequence[Mapping[str, Any]]]) -> Drawing:
    fig = new_figure(4.2 * len(trained) + 0.4, 3.8)
    grid = fig.subplots(1, len(trained), squeeze=False)[0]
    for i, (axes, (name, rows)) in enumerate(zip(grid, trained.items(), strict=True)):
        look = look_of(i, 1)
        rows = [row for row in rows if row["by_mu"] is not None]
        line = sorted((row["mu"], row["by_mu"]) for row in rows)
        limit = {"color": GREY, "label": "infinite width, if χ_U were an eigenfunction"}
        axes.plot(*zip(*line, strict=True), linestyle="--", **limit)
        for row in rows:
            steps = max(row["steps"], 1)
            face = look["color"] if row["fitted"] else "white"
            axes.plot(row["mu"], steps, look["marker"], color=look["color"], markerfacecolor=face)
            if row["by_kernel"] is not None:
                axes.plot(row["mu"], row["by_kernel"], "x", color=GREY)
            axes.annotate(
                str(row["degree"]),
                (row["mu"], steps),
                (4, 3),
                textcoords="offset points",
                fontsize=8,
            )
        axes.plot([], [], look["marker"], color=look["color"], label="trained, finite width")
        axes.plot([], [], "x", color=GREY, label="infinite width, whole kernel")
        axes.legend(fontsize=8)
        axes.set(xscale="log", yscale="log", title=name, xlabel="μ_U of the NTK")
    grid[0].set_ylabel("steps to fit χ_U")
    return fig
