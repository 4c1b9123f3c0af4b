"""Estimators: how far is the released code's estimator from the paper's definition?

The definition edits every patch of the grid. The code released with the paper edits as many single
pixels, scattered over the image, and uses the number called variance as a standard deviation. Here
models are trained as in `vision`, and each trained model is measured in all these ways:

    patch grid         every patch × S draws: Definition 4.3
    random patches     S random patches per image: the same quantity, 1/T of the passes
    to a tolerance     random draws until the interval is narrow enough: the same quantity
    patch, any place   S random patches per image that need not lie on the grid
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

import math
from collections.abc import Mapping

from jaxsens import data
from jaxsens.reporting.papers import SIMPLICITY_BIAS
from jaxsens.reporting.progress import steps
from jaxsens.reporting.results import Findings, grouped
from jaxsens.reporting.run_folder import RunFolder

from .._common.figures import training_figure
from .._images.loading import Images, load
from .claims import released_agrees_claim, released_ratio, same_order_claims, same_quantity_claim
from .config import Config
from .figures import ways_figure
from .measuring import UNBIASED, train_and_measure_every_way
from .tables import ways_table

__all__ = ["COST", "PAPERS", "PRESETS", "Config", "load", "run"]

PRESETS = {
    "quick": Config(epochs=20),
    "small": Config(dataset="fashion_mnist"),
    "paper": Config(dataset="cifar10"),
}

PAPERS = (SIMPLICITY_BIAS,)

COST = {
    "quick": "handwritten digits (embedded), 3 CPU minutes",
    "small": "Fashion-MNIST, 60,000 images, 20 epochs, on a CPU; minutes with --reuse",
    "paper": "CIFAR-10, 50 epochs, every patch of every training image: for a GPU or TPU",
}


def _in_words(ratios: Mapping[str, float]) -> str:
    """What the estimator gives; there is no ratio where the definition gives 0.

    >>> _in_words({"MLP": 1.84, "ViT": float("nan")})
    "The released code's estimator gives 1.84× for MLP of what the definition gives, which is 0 for
    ViT."
    """
    known = ", ".join(f"{r:.2f}× for {label}" for label, r in ratios.items() if not math.isnan(r))
    zero = ", ".join(label for label, r in ratios.items() if math.isnan(r))
    if not known:
        return f"The definition gives 0 for {zero}."
    says = f"The released code's estimator gives {known} of what the definition gives"
    return f"{says}, which is 0 for {zero}." if zero else f"{says}."


def run(config: Config, images: Images, folder: RunFolder) -> Findings:
    """Trains, measures in every way, compares."""
    specs = config.model_specs()
    measured = {
        spec.name: train_and_measure_every_way(config, images, spec, folder)
        for spec in steps(specs, lambda spec: spec.label)
    }
    ratios = {spec.label: released_ratio(measured[spec.name]).mean for spec in specs}
    return Findings(
        title=f"Estimators of sensitivity: {data.spec(config.dataset).title}",
        summary=_in_words(ratios),
        claims=(
            *grouped(
                "Estimators of the definition agree with it",
                (
                    same_quantity_claim(spec, way, measured[spec.name])
                    for spec in specs
                    for way in UNBIASED
                ),
            ),
            *grouped(
                "The released code agrees with the definition",
                (released_agrees_claim(spec, measured[spec.name]) for spec in specs),
            ),
            *grouped("All of them order the models alike", same_order_claims(specs, measured)),
        ),
        tables=(ways_table(config, images, specs, measured),),
        figures=(
            ways_figure(specs, measured, folder),
            training_figure(specs, folder, "training"),
        ),
        values={
            model: {way: estimate.summary() for way, estimate in by_way.items()}
            for model, by_way in measured.items()
        },
    )
