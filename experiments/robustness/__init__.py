"""Robustness (Figs 9, 14 and 15): are less sensitive models more robust to corrupted images?

Models are trained as in `vision`, the ViT also with two interventions that lower its sensitivity,
and all are tested on corrupted images: the official CIFAR-10-C files if they are in the data
folder, otherwise the same corruptions made anew from the clean test images with its constants.

    python -m jaxsens.run --exp robustness
        generated shapes, 7 min on one core: reg. and aug. lower the ViT's sensitivity (0.178 →
        0.136, 0.123), but not clearly its corruption error (0.531 → 0.551, 0.511); the least
        sensitive model, ResNet, is the most robust
    python -m jaxsens.run --exp robustness --preset small --data-dir DATA
        CIFAR-10, 8 epochs of reduced models, 104 min on 2 cores beside other work: mean corruption
        error 0.49 (ViT + aug.) to 0.68 (ResNet); rank correlation with sensitivity 0.43, p = 0.18
    python -m jaxsens.run --exp robustness --preset paper --data-dir DATA
        not run: CIFAR-10, 50 epochs of full-size models, for one GPU or TPU

The mean corruption error is the plain mean over corruptions, as is usual for CIFAR-10-C (ImageNet-C
divides by the errors of AlexNet first). Its interval is clustered by image: every corruption is
applied to the same images. Rank correlation is Spearman's over the models; its interval resamples
images, so it tells how well the models were measured, not how other models would behave. Its
p-value is exact over all orders of up to seven models, beyond that from random orders. Models with
an intervention count among the models, though they are not independent of those without.
"""

import dataclasses

from jaxsens import data
from jaxsens.core.intervals import rank_correlation
from jaxsens.reporting.papers import SIMPLICITY_BIAS
from jaxsens.reporting.progress import steps
from jaxsens.reporting.results import Findings, grouped
from jaxsens.reporting.run_folder import RunFolder

from .._common.figures import training_figure
from .._images.measuring import estimate_of
from .._images.patch_maps import write_patch_maps
from .._images.tables import sensitivity_table
from .._images.training import train_model
from .claims import intervention_claims, rank_claim, transformer_claims
from .config import Config
from .figures import corruptions_figure, error_figure
from .loading import CorruptedImages, load
from .measuring import corruption_test, final_recognised
from .tables import accuracy_table, corruption_note, error_table

__all__ = ["COST", "PAPERS", "PRESETS", "Config", "load", "run"]

PRESETS = {
    "quick": Config(),
    "small": Config(dataset="cifar10", num_corrupted=1000),
    "paper": Config(dataset="cifar10"),
}

PAPERS = (SIMPLICITY_BIAS,)

COST = {
    "quick": "generated shapes, 7 minutes on one core",
    "small": "CIFAR-10, reduced models, 8 epochs, an hour and three quarters on 2 busy cores",
    "paper": "CIFAR-10, 50 epochs, every corruption in full: for a GPU or TPU",
}


def run(config: Config, loaded: CorruptedImages, folder: RunFolder) -> Findings:
    """Trains, measures, corrupts, compares."""
    specs, images = config.model_specs(), loaded.images
    recognised = {}
    for spec in steps(specs, lambda spec: spec.label):
        test = corruption_test(config, loaded, spec, folder)
        variables = train_model(config, images, spec, folder, test).variables
        recognised[spec.name] = final_recognised(loaded, spec, folder, variables)
    estimates = {spec.name: estimate_of(folder, spec) for spec in specs}
    errors = {name: ~found[1:] for name, found in recognised.items()}
    rank = rank_correlation(
        [estimates[spec.name].per_example for spec in specs],
        [errors[spec.name].mean(axis=0) for spec in specs],
    )
    source = next(iter(loaded.tests.values())).source
    note = corruption_note(config, loaded)
    write_patch_maps(config, images, specs, estimates, folder)
    return Findings(
        title=f"Robustness: {data.spec(config.dataset).title}, {source}, severity "
        f"{config.severity}",
        summary="Spearman's rank correlation between sensitivity and mean corruption error is "
        f"{rank}.",
        claims=(
            *grouped(
                "Interventions",
                intervention_claims(config.pairs(specs), estimates, errors, config.corruptions),
            ),
            *grouped("Transformers and others", transformer_claims(specs, errors)),
            *grouped("Over all models", [rank_claim(rank, len(loaded.clean[1]))]),
        ),
        tables=(
            error_table(specs, estimates, recognised, f"Rank correlation {rank}; {note}"),
            accuracy_table(config.corruptions, specs, recognised, note),
            sensitivity_table(config, images, specs, estimates, folder),
        ),
        figures=(
            corruptions_figure(config.corruptions, specs, folder),
            error_figure(specs, estimates, errors, folder),
            training_figure(specs, folder, "sensitivity along training"),
        ),
        values={
            spec.name: estimates[spec.name].summary()
            | {"mean_corruption_error": float(errors[spec.name].mean())}
            | {"clean_error": float(1 - recognised[spec.name][0].mean())}
            for spec in specs
        }
        | {"rank_correlation": dataclasses.asdict(rank)},
    )
