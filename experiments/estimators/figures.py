"""Figures of the experiment `estimators`."""

from collections.abc import Mapping, Sequence

from jaxsens import figures
from jaxsens.reporting.results import Figure
from jaxsens.reporting.run_folder import RunFolder

from .._common.figures import saved_figure
from .._images.models import ModelSpec
from .measuring import ByWay


def ways_figure(
    specs: Sequence[ModelSpec], measured: Mapping[str, ByWay], folder: RunFolder
) -> Figure:
    """Every way to measure, side by side."""
    series = {
        way: [(e.mean, *e.ci()) for e in (measured[spec.name][way] for spec in specs)]
        for way in measured[specs[0].name]
    }
    return saved_figure(
        figures.grouped_bars([spec.label for spec in specs], series),
        folder,
        "estimators",
        "The same trained models measured in every way, with 95 % intervals.",
    )
