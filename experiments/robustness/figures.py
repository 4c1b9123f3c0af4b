"""Figures of the experiment `robustness`."""

from collections.abc import Sequence

from jaxsens import figures
from jaxsens.core.intervals import mean_interval
from jaxsens.reporting.records import records_of
from jaxsens.reporting.results import Figure
from jaxsens.reporting.run_folder import RunFolder

from .._common.claims import Estimates
from .._common.figures import saved_figure
from .._images.models import ModelSpec
from .measuring import ErrorsByModel


def corruptions_figure(
    corruptions: Sequence[str], specs: Sequence[ModelSpec], folder: RunFolder
) -> Figure:
    """Accuracy on each corruption along training, like Fig. 9."""
    curves = {}
    for spec in specs:
        mine = records_of(folder, spec.name)
        rows = [[r["corrupted"][name] for r in mine] for name in corruptions]
        curves[spec.label] = ([r["epoch"] for r in mine], rows)
    return saved_figure(
        figures.panels([name.replace("_", " ") for name in corruptions], curves),
        folder,
        "corruptions",
        "Test accuracy on each corruption against epochs (like Figs 9, 14 and 15).",
    )


def error_figure(
    specs: Sequence[ModelSpec], estimates: Estimates, errors: ErrorsByModel, folder: RunFolder
) -> Figure:
    """Sensitivity against mean corruption error, a point for each model."""
    across = [(estimates[spec.name].mean, *estimates[spec.name].ci()) for spec in specs]
    up = [mean_interval(errors[spec.name].mean(axis=0), (0.0, 1.0)) for spec in specs]
    points = figures.scatter(
        [spec.label for spec in specs],
        across,
        up,
        xlabel="Sensitivity",
        ylabel="Mean corruption error",
    )
    return saved_figure(
        points,
        folder,
        "sensitivity_and_error",
        "Sensitivity and mean corruption error of every model, with 95 % intervals.",
    )
