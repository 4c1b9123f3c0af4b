"""Vision (Figs 4, 5, 6 and 11): is a ViT less sensitive than MLPs and convolutional networks?

Trains each model on images with SGD and measures, along training and at its end, how often noise on
one patch of a training image changes the model's own prediction.

    python -m jaxsens.run --exp vision
        digits, 1 min 20 s on 2 cores: ViT 0.032 < CNN 0.081 < MLPs 0.102 and 0.118
    python -m jaxsens.run --exp vision --preset small --data-dir DATA
        Fashion-MNIST, 20 epochs, 75 min on 2 cores: ViT 0.031 < MLPs 0.054, 0.057 < CNN 0.060
    python -m jaxsens.run --exp vision --preset small --dataset mnist --epochs 10 --data-dir DATA
        MNIST, digit < 5 against >= 5, 6 min on 2 busy cores: MLP 0.035, ViT 0.037
    python -m jaxsens.run --exp vision --preset small --dataset cifar10 --data-dir DATA
        CIFAR-10, 8 epochs of reduced models, about 67 CPU minutes: ViT-simple 0.041, ViT-small
        0.062, ConvMixer 0.206, ResNet 0.413, DenseNet 0.539
    python -m jaxsens.run --exp vision --preset small --dataset svhn --data-dir DATA
        the first 4,000 training images of SVHN, 40 epochs of reduced models, 35 CPU minutes:
        ViT-small 0.071, ResNet 0.363 (recorded on 3,999 images of the official test split)
    python -m jaxsens.run --exp vision --preset paper --data-dir DATA
        not run: Fashion-MNIST, 50 epochs, every patch of every training image, for one GPU or TPU;
        --dataset cifar10 and --dataset svhn likewise

`--estimator random-patches` and `--estimator scattered-pixels` measure the same models in the two
other ways that `estimators` compares.

A claim holds if the 95 % interval of the difference between the two models, image by image,
excludes zero on the right side. The paper compares models whose training accuracies match; whether
they do is a claim of its own.
"""

from dataclasses import dataclass
from typing import Literal

from jaxsens import data
from jaxsens.reporting.papers import SIMPLICITY_BIAS
from jaxsens.reporting.results import Findings, grouped
from jaxsens.reporting.run_folder import RunFolder

from .._common.claims import less_sensitive
from .._common.figures import final_figure, training_figure
from .._images.claims import matched_claim
from .._images.config import ComparisonConfig
from .._images.figures import patch_figure
from .._images.loading import Images, load
from .._images.patch_maps import write_patch_maps
from .._images.tables import sensitivity_table
from .._images.training import train_and_measure

__all__ = ["COST", "PAPERS", "PRESETS", "Config", "load", "run"]


@dataclass(frozen=True)
class Config(ComparisonConfig):
    """Flags of the experiment; None means the paper's or the preset's value for the dataset."""

    dataset: Literal["digits", "shapes", "mnist", "fashion_mnist", "cifar10", "svhn"] = "digits"
    """Images to train on."""


PRESETS = {
    "quick": Config(dataset="digits"),
    "small": Config(dataset="fashion_mnist"),
    "paper": Config(dataset="fashion_mnist"),
}

PAPERS = (SIMPLICITY_BIAS,)

COST = {
    "quick": "handwritten digits (embedded), a minute and a half on 2 cores",
    "small": "Fashion-MNIST, 60,000 images, 20 epochs, an hour and a quarter on 2 cores",
    "paper": "Fashion-MNIST, 50 epochs, every patch of every training image: for a GPU or TPU",
}


def run(config: Config, images: Images, folder: RunFolder) -> Findings:
    """Trains, measures, compares."""
    specs = config.model_specs()
    by_name = {spec.name: spec for spec in specs}
    estimates = train_and_measure(config, images, specs, folder)
    least = min(specs, key=lambda spec: estimates[spec.name].mean)
    on_grid = config.estimator == "patch-grid"
    write_patch_maps(config, images, specs, estimates, folder)
    return Findings(
        title=f"Sensitivity to one patch: {data.spec(config.dataset).title}",
        summary=f"Of {', '.join(spec.label for spec in specs)}, {least.label} is the least "
        f"sensitive: a random change of one {config.patch}×{config.patch} patch changes its "
        f"prediction in {estimates[least.name].mean:.1%} of the draws.",
        claims=(
            *grouped(
                "Which model is less sensitive",
                (
                    less_sensitive(by_name[lesser], by_name[greater], estimates)
                    for lesser, greater in config.setting.orderings
                    if {lesser, greater} <= by_name.keys()
                ),
            ),
            *grouped("Whether they are comparable", [matched_claim(config, specs, folder)]),
        ),
        tables=(sensitivity_table(config, images, specs, estimates, folder),),
        figures=(
            training_figure(specs, folder, config.setting.figure),
            final_figure(config.epochs, specs, estimates, folder),
            *([patch_figure(config, images, specs, estimates, folder)] if on_grid else []),
        ),
        values={name: estimate.summary() for name, estimate in estimates.items()},
    )
