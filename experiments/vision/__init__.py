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
from typing import Annotated, Literal

import numpy as np

from jaxsens import data
from jaxsens.cli.bounds import Range
from jaxsens.reporting.papers import SIMPLICITY_BIAS
from jaxsens.reporting.results import Findings, grouped
from jaxsens.reporting.run_folder import RunFolder

from .._common.claims import less_sensitive_over_seeds
from .._common.equal_accuracy import (
    accuracy_figure,
    at_equal_accuracy,
    equally_accurate_claim,
)
from .._common.figures import final_figure, training_figure
from .._common.seeds import Seeds, check_seeds, with_seed, with_seeds
from .._images.claims import matched_claim
from .._images.config import ComparisonConfig
from .._images.figures import patch_figure
from .._images.loading import Images, load
from .._images.patch_maps import write_patch_maps
from .._images.tables import image_seeds_table, sensitivity_table
from .._images.training import train_and_measure

__all__ = ["COST", "PAPERS", "PRESETS", "Config", "load", "run"]


@dataclass(frozen=True)
class Config(ComparisonConfig):
    """Flags of the experiment; None means the paper's or the preset's value for the dataset."""

    dataset: Literal["digits", "shapes", "mnist", "fashion_mnist", "cifar10", "svhn"] = "digits"
    """Images to train on."""
    num_seeds: Seeds = 1
    """Trainings of each model, from the seed on; `--seeds` is the same."""
    until_accuracy: Annotated[float, Range(0, 1, "()")] | None = None
    """Training accuracy at which models are compared, beside the end of training; default the
    largest that every training reaches."""

    def check(self) -> None:
        """Raises ValueError if there are not so many seeds."""
        super().check()
        check_seeds(self.seed, self.num_seeds)


PRESETS = {
    "quick": Config(dataset="digits"),
    "small": Config(dataset="fashion_mnist", num_seeds=3),
    "paper": Config(dataset="fashion_mnist", num_seeds=5),
}

PAPERS = (SIMPLICITY_BIAS,)

COST = {
    "quick": "handwritten digits (embedded), a minute and a half on 2 cores",
    "small": "Fashion-MNIST, 60,000 images, 20 epochs, an hour and a quarter on 2 cores",
    "paper": "Fashion-MNIST, 50 epochs, every patch of every training image: for a GPU or TPU",
}


def run(config: Config, images: Images, folder: RunFolder) -> Findings:
    """Trains, measures, compares: at the end of training, and at equal training accuracy."""
    specs, num_seeds = config.model_specs(), config.num_seeds
    by_name = {spec.name: spec for spec in specs}
    trainings = [with_seed(spec, number) for number in range(num_seeds) for spec in specs]
    estimates = train_and_measure(config, images, trainings, folder)
    of_seeds = {
        spec.name: [estimates[each.name] for each in with_seeds(spec, num_seeds)] for spec in specs
    }
    means = {spec.name: np.mean([each.mean for each in of_seeds[spec.name]]) for spec in specs}
    least = min(specs, key=lambda spec: means[spec.name])
    orderings = [
        (by_name[lesser], by_name[greater])
        for lesser, greater in config.setting.orderings
        if {lesser, greater} <= by_name.keys()
    ]
    there = at_equal_accuracy(specs, num_seeds, folder, config.until_accuracy)
    table = sensitivity_table(config, images, specs, estimates, folder)
    if num_seeds > 1:
        table = image_seeds_table(config, images, specs, of_seeds, folder)
    on_grid = config.estimator == "patch-grid"
    write_patch_maps(config, images, specs, estimates, folder)
    return Findings(
        title=f"Sensitivity to one patch: {data.spec(config.dataset).title}",
        summary=f"Of {', '.join(spec.label for spec in specs)}, {least.label} is the least "
        f"sensitive: a random change of one {config.patch}×{config.patch} patch changes its "
        f"prediction in {means[least.name]:.1%} of the draws.",
        claims=(
            *grouped(
                "Which model is less sensitive",
                (less_sensitive_over_seeds(*models, of_seeds) for models in orderings),
            ),
            *grouped(
                "At equal training accuracy",
                (equally_accurate_claim(*models, there) for models in orderings),
            ),
            *grouped("Whether they are comparable", [matched_claim(config, specs, folder)]),
        ),
        tables=(table,),
        figures=(
            training_figure(
                specs,
                folder,
                config.setting.figure,
                names=lambda spec: [each.name for each in with_seeds(spec, num_seeds)],
            ),
            final_figure(config.epochs, specs, of_seeds, folder),
            accuracy_figure(specs, num_seeds, there, folder),
            *([patch_figure(config, images, specs, estimates, folder)] if on_grid else []),
        ),
        values={name: estimate.summary() for name, estimate in estimates.items()},
    )
