"""Robustness (Figs 9, 14 and 15): are less sensitive models more robust to corrupted images?

Models are trained as in `vision`, the ViT also with two interventions that lower its sensitivity,
and all are tested on corrupted images: the official CIFAR-10-C files if they are in the data
folder, otherwise the same corruptions made anew from the clean test images with its constants.

    python -m jaxsens.run --exp robustness
        generated shapes, 7 min on one core: reg. and aug. lower the ViT's sensitivity (0.178 →
        0.136, 0.123), but not clearly its corruption error (0.531 → 0.551, 0.511); the least
        sensitive model, ResNet, is the most robust
    python -m jaxsens.run --exp robustness --preset small --data-dir DATA --seeds 1
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

Of several seeds (`--seeds`), claims are decided by the differences of each seed, with an interval
over seeds; the rank correlation is that of the models' means over seeds, and beside it one in which
every training counts as a model. With at least 12 trainings there is also the partial correlation
given clean accuracy. Models are compared a second time at equal accuracy (`--until-accuracy`).
"""

from jaxsens import data
from jaxsens.reporting.arms import arms
from jaxsens.reporting.papers import SIMPLICITY_BIAS
from jaxsens.reporting.results import Findings, grouped
from jaxsens.reporting.run_folder import RunFolder

from .._common.equal_accuracy import (
    accuracy_figure,
    at_equal_accuracy,
    equal_accuracy_table,
    equally_accurate_claim,
)
from .._common.figures import training_figure
from .._common.seeds import all_trainings, by_seed
from .._images.measuring import estimate_of
from .._images.patch_maps import write_patch_maps
from .._images.tables import sensitivity_table
from .._images.training import train_model
from .claims import (
    accuracy_claim,
    intervention_claims,
    severity_claims,
    transformer_claims,
    transformer_pairs,
)
from .config import Config
from .correlations import correlation_claims, rank_correlations
from .figures import corruptions_figure, error_figure
from .loading import CorruptedImages, load
from .measuring import ERROR, corruption_test, final_recognised
from .tables import accuracy_table, corruption_note, error_table, severities_table

__all__ = ["COST", "PAPERS", "PRESETS", "Config", "load", "run"]

PRESETS = {
    "quick": Config(),
    "small": Config(dataset="cifar10", num_corrupted=1000, other_severities=(1,), num_seeds=3),
    "paper": Config(dataset="cifar10", other_severities=(1,), num_seeds=5),
}

PAPERS = (SIMPLICITY_BIAS,)

COST = {
    "quick": "generated shapes, 7 minutes on one core",
    "small": "CIFAR-10, reduced models, 8 epochs, 3 seeds: about 5 hours and a half on 2 busy "
    "cores (one: 104 minutes)",
    "paper": "CIFAR-10, 50 epochs, every corruption in full: for a GPU or TPU",
}


def run(config: Config, loaded: CorruptedImages, folder: RunFolder) -> Findings:
    """Trains, measures, corrupts, compares: at the end of training, and at equal accuracy."""
    specs, images, num_seeds = config.model_specs(), loaded.images, config.num_seeds
    trainings = all_trainings(specs, num_seeds)
    found: dict[int, dict] = {severity: {} for severity in (config.severity, *loaded.others)}
    for spec in arms(folder, trainings):
        test = corruption_test(config, loaded, spec, folder)
        variables = train_model(config, images, spec, folder, test).variables
        found[config.severity][spec.name] = final_recognised(loaded, spec, folder, variables)
        for severity in loaded.others:
            table = final_recognised(loaded, spec, folder, variables, severity)
            found[severity][spec.name] = table
    by_severity = {severity: by_seed(specs, num_seeds, each) for severity, each in found.items()}
    recognised = by_severity[config.severity]
    all_estimates = {spec.name: estimate_of(folder, spec) for spec in trainings}
    estimates = by_seed(specs, num_seeds, all_estimates)
    errors = {
        severity: {name: [~each[1:] for each in of_seeds] for name, of_seeds in tables.items()}
        for severity, tables in by_severity.items()
    }
    related = rank_correlations(specs, estimates, recognised)
    there = at_equal_accuracy(specs, num_seeds, folder, config.until_accuracy)
    errors_there = at_equal_accuracy(specs, num_seeds, folder, config.until_accuracy, ERROR)
    pairs = config.pairs(specs)
    source = next(iter(loaded.tests.values())).source
    note = corruption_note(config, loaded)
    write_patch_maps(config, images, specs, all_estimates, folder)
    return Findings(
        title=f"Robustness: {data.spec(config.dataset).title}, {source}, severity "
        f"{config.severity}",
        summary="Spearman's rank correlation between sensitivity and mean corruption error is "
        f"{related.of_models}.",
        claims=(
            *grouped(
                "Interventions",
                intervention_claims(pairs, estimates, errors[config.severity], config.corruptions),
            ),
            *grouped("Transformers and others", transformer_claims(specs, errors[config.severity])),
            *grouped("Over all models", correlation_claims(related, len(loaded.clean[1]))),
            *grouped(
                "At equal accuracy",
                (
                    *(equally_accurate_claim(*pair, there) for pair in pairs),
                    *(
                        equally_accurate_claim(*pair, errors_there)
                        for pair in (*pairs, *transformer_pairs(specs))
                    ),
                ),
            ),
            *(
                claim
                for severity in loaded.others
                for claim in grouped(
                    f"Severity {severity}",
                    severity_claims(
                        severity,
                        (
                            *(accuracy_claim(*pair, errors[severity]) for pair in pairs),
                            *transformer_claims(specs, errors[severity]),
                            *correlation_claims(
                                rank_correlations(specs, estimates, by_severity[severity]),
                                len(loaded.clean[1]),
                            ),
                        ),
                    ),
                )
            ),
        ),
        tables=(
            error_table(
                specs, estimates, recognised, f"Rank correlation {related.of_models}; {note}"
            ),
            accuracy_table(config.corruptions, specs, recognised, note),
            *([severities_table(config, specs, by_severity, note)] if loaded.others else []),
            equal_accuracy_table("At equal clean accuracy", specs, [errors_there]),
            sensitivity_table(config, images, specs, estimates, folder),
        ),
        figures=(
            corruptions_figure(config.corruptions, specs, num_seeds, folder),
            error_figure(specs, estimates, errors[config.severity], folder),
            training_figure(specs, folder, "sensitivity along training", num_seeds=num_seeds),
            accuracy_figure(specs, num_seeds, there, folder),
            accuracy_figure(specs, num_seeds, errors_there, folder, "equal_clean_accuracy"),
        ),
        values={
            spec.name: all_estimates[spec.name].summary()
            | {"mean_corruption_error": float(1 - found[config.severity][spec.name][1:].mean())}
            | {"clean_error": float(1 - found[config.severity][spec.name][0].mean())}
            for spec in trainings
        }
        | related.values(),
    )
