"""Sharpness (Table 2): does training for low sensitivity also find flatter minima?

A ViT is trained as it is and with the interventions of `robustness`. Then Gaussian noise goes on
every weight, and what changes is counted: the L1 change of the logits (the paper's ShOp) and of the
prediction (ShPred), and beyond the paper the squared change and the loss.

    python -m jaxsens.run --exp sharpness
        digits, 3 min 7 s on one core: ShOp 1.32, with the regulariser 0.69, with augmentation
        1.35; ShPred at most 0.001 for all three
    python -m jaxsens.run --exp sharpness --preset small --data-dir DATA --seeds 1
        CIFAR-10, 8 epochs of reduced models, 66 min on 2 cores beside other work: ShOp 0.72, with
        the regulariser 0.53; ShPred 0.037 and 0.034, no clear difference
    python -m jaxsens.run --exp sharpness --preset paper --data-dir DATA
        not run: CIFAR-10, 50 epochs of full-size models, for one GPU or TPU

All models get the same noise, so differences are paired by draw and by image. The code released
with the paper compares the clean model in eval mode with a noisy copy in training mode (dropout on,
BatchNorm with the statistics of the batch): `--released` measures that too, in batches as large as
those of training.
"""

import functools

from jaxsens import data
from jaxsens.reporting.arms import arms
from jaxsens.reporting.papers import SIMPLICITY_BIAS
from jaxsens.reporting.results import Findings, grouped
from jaxsens.reporting.run_folder import RunFolder

from .._common.claims import less_sensitive_over_seeds
from .._common.equal_accuracy import (
    accuracy_figure,
    at_equal_accuracy,
    equal_accuracy_table,
    equally_accurate_claim,
)
from .._common.figures import training_figure
from .._common.seeds import all_trainings, by_seed
from .._images.loading import Images, load
from .._images.measuring import estimate_of
from .._images.patch_maps import write_patch_maps
from .._images.tables import sensitivity_table
from .._images.training import train_model
from .claims import flatter_claim
from .config import Config
from .figures import along_training_figure, change_interval, sharpness_figure
from .measuring import (
    CHANGES,
    final_sharpness,
    released_sharpness,
    sharpness_along_training,
)
from .tables import sharpness_table

__all__ = ["COST", "PAPERS", "PRESETS", "Config", "load", "run"]

#: The two kinds of change that the paper has.
SHOP, SHPRED = "l1", "flips"

PRESETS = {
    "quick": Config(epochs=20, num_measured=500),
    "small": Config(dataset="cifar10", num_seeds=3),
    "paper": Config(dataset="cifar10", num_seeds=5),
}

PAPERS = (SIMPLICITY_BIAS,)

COST = {
    "quick": "handwritten digits (embedded), 3 CPU minutes",
    "small": "CIFAR-10, reduced models, 8 epochs, 3 seeds: about 3 hours and a half on 2 busy "
    "cores (one: 66 minutes)",
    "paper": "CIFAR-10, 50 epochs, all training images: for a GPU or TPU",
}


def run(config: Config, images: Images, folder: RunFolder) -> Findings:
    """Trains, measures, compares: at the end of training, and at equal training accuracy."""
    specs, num_seeds = config.model_specs(), config.num_seeds
    trainings = all_trainings(specs, num_seeds)
    found, as_released = {}, {}
    for spec in arms(folder, trainings):
        along = functools.partial(sharpness_along_training, config, images, spec, folder)
        variables = train_model(config, images, spec, folder, along).variables
        found[spec.name] = final_sharpness(config, images, spec, folder, variables)
        if config.released:
            as_released[spec.name] = released_sharpness(config, images, spec, folder, variables)
    all_estimates = {spec.name: estimate_of(folder, spec) for spec in trainings}
    sensitivity = by_seed(specs, num_seeds, all_estimates)
    sharpness = by_seed(specs, num_seeds, found)
    pairs = config.pairs(specs)
    accuracy = config.until_accuracy
    there = at_equal_accuracy(specs, num_seeds, folder, accuracy)
    changes = {
        kind: at_equal_accuracy(specs, num_seeds, folder, accuracy, CHANGES[kind])
        for kind in (SHOP, SHPRED)
    }
    write_patch_maps(config, images, specs, all_estimates, folder)
    tables = {"noise on the weights, eval mode": sharpness}
    if as_released:
        how = "as released: noisy copy in training mode"
        tables[how] = by_seed(specs, num_seeds, as_released)
    return Findings(
        title=f"Sharpness: {data.spec(config.dataset).title}",
        summary="; ".join(
            f"{spec.label}: ShOp {change_interval(sharpness[spec.name], SHOP).mean:.3f}, "
            f"ShPred {change_interval(sharpness[spec.name], SHPRED).mean:.4f}"
            for spec in specs
        )
        + ".",
        claims=(
            *grouped(
                "Sensitivity",
                (less_sensitive_over_seeds(*pair, sensitivity) for pair in pairs),
            ),
            *grouped(
                "Sharpness",
                (
                    flatter_claim(*pair, sharpness, kind)
                    for pair in pairs
                    for kind in (SHOP, SHPRED)
                ),
            ),
            *grouped(
                "At equal training accuracy",
                (
                    equally_accurate_claim(*pair, each)
                    for pair in pairs
                    for each in (there, *changes.values())
                ),
            ),
        ),
        tables=(
            *(sharpness_table(config, images, specs, each, how) for how, each in tables.items()),
            equal_accuracy_table(
                "Sharpness at equal training accuracy", specs, [*changes.values()]
            ),
            sensitivity_table(config, images, specs, sensitivity, folder),
        ),
        figures=(
            *(sharpness_figure(specs, sharpness, kind, folder) for kind in (SHOP, SHPRED)),
            along_training_figure(specs, num_seeds, folder),
            training_figure(specs, folder, "sensitivity along training", num_seeds=num_seeds),
            accuracy_figure(specs, num_seeds, there, folder),
            accuracy_figure(specs, num_seeds, changes[SHOP], folder, "equal_accuracy_shop"),
        ),
        values={name: estimate.summary() for name, estimate in found.items()},
    )
