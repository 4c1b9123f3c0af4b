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

import dataclasses
from dataclasses import dataclass
from typing import Literal

from jaxsens import data
from jaxsens.reporting.environment import environment
from jaxsens.reporting.results import Results
from jaxsens.reporting.run_folder import RunFolder

from .._common import views
from .._common.study import seconds
from .._images import views as image_views
from .._images.study import ComparisonConfig, Images, estimate_of, load, train

__all__ = ["COST", "PRESETS", "Config", "load", "run"]


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

COST = {
    "quick": "handwritten digits (embedded), a minute and a half on 2 cores",
    "small": "Fashion-MNIST, 60,000 images, 20 epochs, an hour and a quarter on 2 cores",
    "paper": "Fashion-MNIST, 50 epochs, every patch of every training image: for a GPU or TPU",
}


def run(config: Config, images: Images, folder: RunFolder) -> Results:
    """Trains, measures, compares."""
    compared = config.arms()
    arms = {each.name: each for each in compared}
    for each in compared:
        train(config, images, each, folder)
    estimates = {each.name: estimate_of(folder, each) for each in compared}
    orderings = [
        views.less_sensitive(arms[lesser], arms[greater], estimates)
        for lesser, greater in config.task.orderings
        if {lesser, greater} <= set(arms)
    ]
    least = min(compared, key=lambda each: estimates[each.name].mean)
    return Results(
        experiment="vision",
        title=f"Sensitivity to one patch: {data.spec(config.dataset).title}",
        summary=f"Of {', '.join(each.label for each in compared)}, {least.label} is the least "
        f"sensitive: a random change of one {config.patch}×{config.patch} patch changes its "
        f"prediction in {estimates[least.name].mean:.1%} of the draws.",
        claims=(*orderings, image_views.matched(config, compared, folder)),
        tables=(image_views.sensitivity_table(config, images, compared, estimates, folder),),
        figures=(
            views.training_figure(compared, folder, config.task.figure),
            views.final_figure(config.epochs, compared, estimates, folder),
            *(
                (image_views.patch_figure(config, images, compared, estimates, folder),)
                if config.estimator == "patch-grid"
                else ()
            ),
        ),
        values={name: estimate.summary() for name, estimate in estimates.items()},
        config=dataclasses.asdict(config),
        environment=environment(),
        seconds=seconds(folder),
    )
