"""Figures of the experiment `sharpness`."""

from collections.abc import Sequence

from jaxsens import figures
from jaxsens.reporting.records import records_of
from jaxsens.reporting.results import Figure
from jaxsens.reporting.run_folder import RunFolder

from .._common.figures import saved_figure
from .._images.models import ModelSpec
from .measuring import SharpnessByModel
from .paper import KINDS


def sharpness_figure(
    specs: Sequence[ModelSpec], sharpness: SharpnessByModel, kind: str, folder: RunFolder
) -> Figure:
    """One kind of change at the end of training."""
    changes = [getattr(sharpness[spec.name], kind) for spec in specs]
    intervals = [change.ci() for change in changes]
    bars = figures.bars(
        [spec.label for spec in specs],
        [change.mean for change in changes],
        [low for low, _ in intervals],
        [high for _, high in intervals],
        ylabel=KINDS[kind],
    )
    caption = f"{KINDS[kind]} at the end, with 95 % intervals (Table 2)."
    return saved_figure(bars, folder, f"sharpness_{kind}", caption)


def along_training_figure(specs: Sequence[ModelSpec], folder: RunFolder) -> Figure:
    """Every kind of change along training."""
    curves, bands = {}, {}
    for spec in specs:
        mine = records_of(folder, spec.name)
        mean, low, high = (
            [[r["sharpness"][kind][field] for r in mine] for kind in KINDS]
            for field in ("mean", "low", "high")
        )
        curves[spec.label] = ([r["epoch"] for r in mine], mean)
        bands[spec.label] = list(zip(low, high, strict=True))
    titles = list(KINDS.values())
    return saved_figure(
        figures.panels(titles, curves, bands=bands, ylabel="Change", num_columns=4),
        folder,
        "sharpness_along_training",
        "What noise on the weights changes, against epochs, with 95 % intervals.",
    )
