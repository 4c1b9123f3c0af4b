"""Figures of the experiment `robustness`."""

from collections.abc import Sequence

import numpy as np

from jaxsens import figures
from jaxsens.core.intervals import mean_interval
from jaxsens.reporting.results import Figure
from jaxsens.reporting.run_folder import RunFolder

from .._common.claims import SeedEstimates
from .._common.figures import saved_figure
from .._common.seeds import with_seeds
from .._common.training_records import training_records
from .._images.models import ModelSpec
from .measuring import ErrorsBySeed


def corruptions_figure(
    corruptions: Sequence[str], specs: Sequence[ModelSpec], num_seeds: int, folder: RunFolder
) -> Figure:
    """Accuracy on each corruption along training, like Fig. 9; of several seeds the mean."""
    curves = {}
    for spec in specs:
        of_seeds = [training_records(folder, each) for each in with_seeds(spec, num_seeds)]
        rows = np.mean(
            [[[r["corrupted"][name] for r in mine] for name in corruptions] for mine in of_seeds],
            axis=0,
        )
        curves[spec.label] = ([r["epoch"] for r in of_seeds[0]], rows.tolist())
    return saved_figure(
        figures.panels([name.replace("_", " ") for name in corruptions], curves),
        folder,
        "corruptions",
        "Test accuracy on each corruption against epochs (like Figs 9, 14 and 15)"
        + (f", mean over {num_seeds} seeds." if num_seeds > 1 else "."),
    )


def error_figure(
    specs: Sequence[ModelSpec], estimates: SeedEstimates, errors: ErrorsBySeed, folder: RunFolder
) -> Figure:
    """Sensitivity against mean corruption error, a point for each training."""
    pairs = [
        (spec.label, estimate, table)
        for spec in specs
        for estimate, table in zip(estimates[spec.name], errors[spec.name], strict=True)
    ]
    points = figures.scatter(
        [label for label, _, _ in pairs],
        [(estimate.mean, *estimate.ci()) for _, estimate, _ in pairs],
        [mean_interval(table.mean(axis=0), (0.0, 1.0)) for _, _, table in pairs],
        xlabel="Sensitivity",
        ylabel="Mean corruption error",
    )
    each = "model" if len(pairs) == len(specs) else "training"
    return saved_figure(
        points,
        folder,
        "sensitivity_and_error",
        f"Sensitivity and mean corruption error of every {each}, with 95 % intervals.",
    )
