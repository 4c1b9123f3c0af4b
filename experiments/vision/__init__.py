"""Vision (Figs 4, 5, 6 and 11): is a ViT less sensitive than MLPs and convolutional networks?

Trains each model on images with SGD and measures, along training and at its end, how often noise on
one patch of a training image changes the model's own prediction.

    python -m jaxsens.run --exp vision
        digits, 1 min 20 s on 2 cores: ViT 0.032 < CNN 0.081 < MLPs 0.102 and 0.118
    python -m jaxsens.run --exp vision --preset small --epochs 10 --data-dir DATA
        Fashion-MNIST, 3 seeds, 1 h 50 min on one core: noise that one token sees: ViT 0.012; on the
        pixels: ViT without shifts 0.014 < ViT 0.031 < MLPs 0.045, 0.048 and CNN 0.052
    python -m jaxsens.run --exp vision --preset small --seeds 1 --token-noise False --data-dir DATA
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

The times of `small` are of one seed; by default it trains three, and a ViT without shifts. The
tokeniser of ViT-small looks at the pixels beside a patch, so noise on one patch reaches several
tokens. `--token-noise True` (default in `small` and `paper`) also measures noise that one token
alone sees, on the pixels of its patch and on its embedding, and trains a ViT without shifts.

`--estimator random-patches` and `--estimator scattered-pixels` measure the same models in the two
other ways that `estimators` compares.

A claim holds if the 95 % interval of the difference between the two models excludes zero on the
right side: image by image or, with several seeds (`--seeds`), of the differences of each seed. The
paper compares models whose training accuracies match; whether they do is a claim of its own, and
every order is asked again at equal training accuracy (`--until-accuracy`).
"""

import dataclasses
from dataclasses import dataclass
from typing import Literal

import numpy as np

from jaxsens import data
from jaxsens.cli.config import Preset
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
from .._common.seeds import all_trainings, by_seed
from .._images.claims import matched_claim
from .._images.config import ComparisonConfig, SeveralSeeds
from .._images.figures import patch_figure
from .._images.loading import Images, load
from .._images.models import ModelSpec
from .._images.paper import ModelName
from .._images.patch_maps import write_patch_maps
from .._images.tables import sensitivity_table
from .._images.token_noise import one_token_specs
from .._images.training import train_and_measure
from .claims import one_token_claims

__all__ = ["COST", "PAPERS", "PRESETS", "Config", "load", "run"]


@dataclass(frozen=True)
class Config(SeveralSeeds, ComparisonConfig):
    """Flags of the experiment; None means the paper's or the preset's value for the dataset."""

    dataset: Literal["digits", "shapes", "mnist", "fashion_mnist", "cifar10", "svhn"] = "digits"
    """Images to train on."""
    token_noise: bool | None = None
    """Measure vision transformers also with noise that one token alone sees: on its own patch, and
    on its embedding. If no models are named, a ViT without shifts is trained beside them. Default
    in the presets small and paper, where patches get noise."""

    def check(self) -> None:
        """Raises ValueError if noise on one token is asked for where there is none."""
        super().check()
        if self.token_noise and self.edit == "donor":
            raise ValueError("token_noise adds noise: edit must be gaussian")
        if self.token_noise and self.estimator == "scattered-pixels":
            raise ValueError(
                "token_noise needs patches: estimator must be patch-grid or random-patches"
            )

    def filled(self, preset: Preset) -> "Config":
        """The config with everything that was left open filled in."""
        config = super().filled(preset)
        token_noise = self.token_noise
        if token_noise is None:
            on_patches = config.edit == "gaussian" and config.estimator != "scattered-pixels"
            token_noise = preset != "quick" and on_patches
        plain: tuple[ModelName, ...] = ()
        if token_noise and not self.models and "vit-plain" in config.setting.available:
            plain = ("vit-plain",)
        models = (*config.models, *plain)
        return dataclasses.replace(config, models=models, token_noise=token_noise)

    def others(self, spec: ModelSpec) -> list[ModelSpec]:
        """A model with noise that one token alone sees, if that is asked for."""
        return one_token_specs(spec) if self.token_noise else []


PRESETS = {
    "quick": Config(dataset="digits"),
    "small": Config(dataset="fashion_mnist", num_seeds=3),
    "paper": Config(dataset="fashion_mnist", num_seeds=5),
}

PAPERS = (SIMPLICITY_BIAS,)

COST = {
    "quick": "handwritten digits (embedded), a minute and a half on 2 cores",
    "small": "Fashion-MNIST, 60,000 images, 20 epochs, 3 seeds and a ViT without shifts: about 3 "
    "hours on one core (an hour and 20 minutes for --epochs 10)",
    "paper": "Fashion-MNIST, 50 epochs, every patch of every training image: for a GPU or TPU",
}


def run(config: Config, images: Images, folder: RunFolder) -> Findings:
    """Trains, measures, compares: at the end of training, and at equal training accuracy."""
    specs, num_seeds = config.model_specs(), config.num_seeds
    trainings = all_trainings(specs, num_seeds)
    estimates = train_and_measure(config, images, trainings, folder, config.others)
    shown = [each for spec in specs for each in (spec, *config.others(spec))]
    of_seeds = by_seed(shown, num_seeds, estimates)
    means = {spec.name: np.mean([each.mean for each in of_seeds[spec.name]]) for spec in specs}
    least = min(specs, key=lambda spec: means[spec.name])
    by_name = {spec.name: spec for spec in specs}
    orderings = [
        (by_name[lesser], by_name[greater])
        for lesser, greater in config.setting.orderings_of(by_name)
    ]
    there = at_equal_accuracy(shown, num_seeds, folder, config.until_accuracy)
    on_grid = config.estimator == "patch-grid"
    write_patch_maps(config, images, specs, estimates, folder)
    return Findings(
        title=f"Sensitivity to one patch: {data.spec(config.dataset).title}",
        # Whether it is less sensitive than the others is for the claims, with their intervals.
        summary=f"Of {', '.join(spec.label for spec in specs)}, {least.label} has the lowest "
        f"sensitivity measured: a random change of one {config.patch}×{config.patch} patch "
        f"changes its prediction in {means[least.name]:.1%} of the draws.",
        claims=(
            *grouped(
                "Which model is less sensitive",
                (less_sensitive_over_seeds(*models, of_seeds) for models in orderings),
            ),
            *grouped(
                "At equal training accuracy",
                (equally_accurate_claim(*models, there) for models in orderings),
            ),
            *grouped(
                "Noise that one token alone sees",
                one_token_claims(shown, orderings, of_seeds, there),
            ),
            *grouped(
                "Whether they are comparable", [matched_claim(specs, num_seeds, config, folder)]
            ),
        ),
        tables=(sensitivity_table(config, images, shown, of_seeds, folder),),
        figures=(
            training_figure(shown, folder, config.setting.figure, num_seeds=num_seeds),
            final_figure(config.epochs, shown, of_seeds, folder),
            accuracy_figure(shown, num_seeds, there, folder),
            *([patch_figure(config, images, specs, estimates, folder)] if on_grid else []),
        ),
        values={name: estimate.summary() for name, estimate in estimates.items()},
    )
