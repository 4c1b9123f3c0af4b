"""Estimators: how far is the released code's estimator from the paper's definition?

The definition edits every patch of the grid. The code released with the paper edits as many single
pixels, scattered over the image, and uses the number called variance as a standard deviation. Here
models are trained as in `vision`, and each trained model is measured in all these ways:

    patch grid         every patch × S draws: Definition 4.3
    random patches     S random patches an image: the same quantity, 1/T of the passes
    to a tolerance     random draws until the interval is narrow enough: the same quantity
    patch, any place   S random patches an image that need not lie on the grid
    patch, σ = v       every patch, with the variance used as a standard deviation
    pixels, σ² = v     S draws of p² scattered pixels
    pixels, σ = v      the released code as it stands

    python -m jaxsens.run --exp estimators
        digits, 3 min on one core: the released code gives 3.0 to 3.3 times the definition,
        because of σ = v; it orders the models alike
    python -m jaxsens.run --exp estimators --preset small --models mlp-leaky mlp-sigmoid
        Fashion-MNIST, 20 epochs, 2 CPU minutes: the definition gives 0.056 and 0.057 (the paper has
        0.056 and 0.051), the released code 0.165 and 0.166. With the CNN and the ViT too it takes
        more than an hour unless they come from a run of vision (--reuse); that was not run
    python -m jaxsens.run --exp estimators --preset paper --data-dir DATA
        not run: CIFAR-10, 50 epochs, every patch of every training image, for one GPU or TPU
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax

import jaxsens
from jaxsens import (
    Gaussian,
    OverlappingPatches,
    Patches,
    Perturbation,
    SensitivityEstimate,
    data,
    figures,
)
from jaxsens.core.intervals import (
    Interval,
    independent_difference,
    paired_difference,
    ratio_of_means,
)
from jaxsens.reporting.environment import environment
from jaxsens.reporting.results import Claim, Figure, Results, Table
from jaxsens.reporting.run_folder import RunFolder

from .._common import views
from .._common.study import kept, seconds
from .._images.study import (
    Arm,
    ComparisonConfig,
    Images,
    estimate_of,
    load,
    scattered_pixels,
    train,
)
from .._images.views import training_note

__all__ = ["COST", "PRESETS", "Config", "load", "run"]

#: Of the interval of a difference that must hold 0: three standard errors of a normal one.
AGREEMENT_LEVEL = 0.997
DEFINITION, RELEASED = "patch grid", "pixels, σ = v"
#: Estimators of the definition's own quantity: they must agree with it.
UNBIASED = ("random patches", "to a tolerance")


@dataclass(frozen=True)
class Config(ComparisonConfig):
    """Flags of the experiment; None means the paper's or the preset's value for the dataset."""

    dataset: Literal["digits", "shapes", "fashion_mnist", "cifar10", "svhn"] = "digits"
    """Images to train on."""

    def check(self) -> None:
        """Raises ValueError for what would leave nothing to compare."""
        super().check()
        if self.edit == "donor":
            raise ValueError("estimators compares ways to add noise: edit must be gaussian")
        if self.estimator != "patch-grid":
            raise ValueError("estimators compares all estimators: estimator must be patch-grid")


PRESETS = {
    "quick": Config(epochs=20),
    "small": Config(dataset="fashion_mnist"),
    "paper": Config(dataset="cifar10"),
}

COST = {
    "quick": "handwritten digits (embedded), 3 CPU minutes",
    "small": "Fashion-MNIST, 60,000 images, 20 epochs, on a CPU; minutes with --reuse",
    "paper": "CIFAR-10, 50 epochs, every patch of every training image: for a GPU or TPU",
}


@dataclass(frozen=True)
class Way:
    """A way to measure: the edit, and which positions are drawn."""

    perturbation: Perturbation
    options: dict[str, Any]


def ways(config: Config) -> dict[str, Way]:
    """Every way to measure but the definition, which `_images.study.train` has done."""
    patch, variance = config.patch or 1, config.variance or 0.0
    on_grid, noise = Patches(patch), Gaussian(variance=variance)
    misread = Gaussian(sigma=variance)
    at_random: dict[str, Any] = {"positions": "random"}
    found = {
        "random patches": Way(Perturbation(on_grid, noise), at_random),
        "to a tolerance": Way(Perturbation(on_grid, noise), {"tolerance": config.tolerance}),
        "patch, any place": Way(Perturbation(OverlappingPatches(patch), noise), at_random),
    }
    if noise != misread:  # at variance 1 the misreading changes nothing
        found["patch, σ = v"] = Way(Perturbation(on_grid, misread), {})
        found["pixels, σ² = v"] = Way(scattered_pixels(patch, noise), {})
    found[RELEASED] = Way(scattered_pixels(patch, misread), {})
    return found


def run(config: Config, images: Images, folder: RunFolder) -> Results:
    """Trains, measures in every way, compares."""
    arms = config.arms()
    measured = {each.name: _measured(config, images, each, folder) for each in arms}
    factor = {each.name: _ratio(measured[each.name]) for each in arms}
    title = data.spec(config.dataset).title
    return Results(
        experiment="estimators",
        title=f"Estimators of sensitivity: {title}",
        summary="The released code's estimator gives "
        + ", ".join(f"{factor[each.name][0]:.2f}× for {each.label}" for each in arms)
        + " of what the definition gives.",
        claims=(
            *(_agree(each, name, measured[each.name]) for each in arms for name in UNBIASED),
            *(_released_agrees(each, factor[each.name]) for each in arms),
            *_same_order(arms, measured),
        ),
        tables=(_table(config, images, arms, measured),),
        figures=(_figure(arms, measured, folder), views.training_figure(arms, folder, "training")),
        values={
            each.name: {name: e.summary() for name, e in measured[each.name].items()}
            for each in arms
        },
        config=dataclasses.asdict(config),
        environment=environment(),
        seconds=seconds(folder),
    )


def _measured(
    config: Config, images: Images, each: Arm, folder: RunFolder
) -> dict[str, SensitivityEstimate]:
    """The trained arm measured in every way; kept on disk, so that a resumed run goes on."""
    variables = train(config, images, each, folder).variables
    estimates = {DEFINITION: estimate_of(folder, each)}
    for index, (name, way) in enumerate(ways(config).items()):
        measure = functools.partial(
            jaxsens.sensitivity,
            each.model.apply,
            variables,
            images.x if "tolerance" in way.options else images.x[: config.num_measured],
            way.perturbation,
            config.num_samples,
            key=jax.random.fold_in(jax.random.key(config.seed + 1), index),
            **way.options,
        )
        estimates[name] = kept(folder, f"{each.name}-{index}", measure)
    return estimates


def _ratio(measured: Mapping[str, SensitivityEstimate]) -> Interval:
    """Released estimator over definition, paired by image; its interval is not below 0."""
    ratio, low, high = ratio_of_means(
        measured[RELEASED].per_example, measured[DEFINITION].per_example
    )
    return Interval(ratio, max(0.0, low), high)


def _agree(each: Arm, name: str, measured: Mapping[str, SensitivityEstimate]) -> Claim:
    one, other = measured[DEFINITION], measured[name]
    # As if the images were independent. To a tolerance some are others; where all are the same the
    # interval is, if anything, too wide.
    larger, smaller = sorted((one, other), key=lambda each: each.mean, reverse=True)
    gap = independent_difference(
        *(Interval(each.mean, *each.ci(AGREEMENT_LEVEL)) for each in (larger, smaller))
    )
    return Claim(
        statement=f"{each.label}: {name} estimate the same quantity as the patch grid",
        paper="unbiased by construction",
        measured=f"{other.mean:.4f} against {one.mean:.4f}, difference {gap.mean:.4f}, "
        f"{AGREEMENT_LEVEL:.1%} interval {gap.low:.4f} to {gap.high:.4f}; "
        f"{other.provenance.num_passes} against {one.provenance.num_passes} forward passes",
        holds=gap.low <= 0 <= gap.high,
    )


def _released_agrees(each: Arm, ratio: Interval) -> Claim:
    value, low, high = ratio
    text = f"ratio {value:.3f}, 95 % interval {low:.3f} to {high:.3f}"
    return Claim(
        statement=f"{each.label}: the released code's estimator agrees with the definition",
        paper="taken for granted",
        measured="no ratio: the definition gives 0" if math.isnan(value) else text,
        holds=low <= 1 <= high,
    )


def _same_order(arms: list[Arm], measured: Mapping[str, Mapping[str, Any]]) -> list[Claim]:
    """Whether every two models that the definition tells apart come out in the same order.

    No claim where it tells none apart.
    """

    def order(name: str, pair: tuple[Arm, Arm]) -> int:
        """-1 or 1 where the 95 % interval of the difference, image by image, excludes 0."""
        one, other = (measured[each.name][name].per_example for each in pair)
        difference = paired_difference(one, other, (0.0, 1.0))
        return int(difference.low > 0) - int(difference.high < 0)

    pairs = list(itertools.combinations(arms, 2))
    apart = [pair for pair in pairs if order(DEFINITION, pair)]
    if not apart:
        return []
    alike = [pair for pair in apart if order(DEFINITION, pair) == order(RELEASED, pair)]
    orders = (
        f"{name}: {' < '.join(e.label for e in sorted(arms, key=lambda e: found[e.name]))}"
        for name in (DEFINITION, RELEASED)
        for found in [{each.name: measured[each.name][name].mean for each in arms}]
    )
    claim = Claim(
        statement="The released code's estimator orders the models as the definition does",
        paper="taken for granted",
        measured=f"{'; '.join(orders)}; of {len(pairs)} pairs the definition tells {len(apart)} "
        f"apart (95 % intervals), the released code {len(alike)} of these in the same order",
        holds=len(apart) == len(alike),
    )
    return [claim]


def _table(
    config: Config,
    images: Images,
    arms: list[Arm],
    measured: Mapping[str, Mapping[str, SensitivityEstimate]],
) -> Table:
    rows = []
    for each in arms:
        base = measured[each.name][DEFINITION].mean
        for name, estimate in measured[each.name].items():
            low, high = estimate.ci()
            rows.append(
                (
                    each.label,
                    name,
                    each.paper,
                    f"{estimate.mean:.4f}",
                    f"{low:.4f} – {high:.4f}",
                    f"{estimate.mean / base:.2f}" if base else None,
                    estimate.provenance.num_passes,
                )
            )
    return Table(
        title=f"Ways to measure, after {config.epochs} epochs on {data.spec(config.dataset).title}",
        columns=("model", "estimator", "paper", "measured", "95 % interval", "ratio", "passes"),
        rows=tuple(rows),
        note=f"v = {config.variance:g}, p = {config.patch}, S = {config.num_samples}; ratio to the "
        f"patch grid; {'first ' + str(config.num_measured) if config.num_measured else 'all'} "
        "training images, all of them for 'to a tolerance'; "
        f"{training_note(config, images)}.",
    )


def _figure(
    arms: list[Arm], measured: Mapping[str, Mapping[str, SensitivityEstimate]], folder: RunFolder
) -> Figure:
    names = list(measured[arms[0].name])
    series = {
        name: [(e.mean, *e.ci()) for e in (measured[each.name][name] for each in arms)]
        for name in names
    }
    fig = figures.grouped_bars([each.label for each in arms], series)
    figures.save(fig, folder.figures, "estimators")
    return Figure(
        "figures/estimators.png",
        "The same trained models measured in every way, with 95 % intervals.",
    )
