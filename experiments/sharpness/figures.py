"""Figures of the experiment `sharpness`."""

from collections.abc import Mapping, Sequence

import numpy as np

from jaxsens import SharpnessEstimate, figures
from jaxsens.core.intervals import Interval, student_interval
from jaxsens.reporting.results import Figure
from jaxsens.reporting.run_folder import RunFolder

from .._common.figures import over_text, saved_figure
from .._common.seeds import with_seeds
from .._common.training_records import training_records
from .._images.models import ModelSpec
from .measuring import SharpnessBySeed, change_of
from .paper import KINDS


def sharpness_figure(
    specs: Sequence[ModelSpec], sharpness: SharpnessBySeed, kind: str, folder: RunFolder
) -> Figure:
    """One kind of change at the end of training."""
    intervals = [change_interval(sharpness[spec.name], kind) for spec in specs]
    bars = figures.bars(
        [spec.label for spec in specs],
        [interval.mean for interval in intervals],
        [interval.low for interval in intervals],
        [interval.high for interval in intervals],
        ylabel=KINDS[kind],
    )
    over = over_text(len(sharpness[specs[0].name]))
    caption = f"{KINDS[kind]} at the end, with 95 % intervals{over} (Table 2)."
    return saved_figure(bars, folder, f"sharpness_{kind}", caption)


def change_interval(of_seeds: Sequence[SharpnessEstimate], kind: str) -> Interval:
    """One kind of change: of one training over draws and examples, of several over seeds."""
    changes = [getattr(each, kind) for each in of_seeds]
    if len(changes) == 1:
        return Interval(changes[0].mean, *changes[0].ci())
    return student_interval(np.array([each.mean for each in changes]), changes[0].bounds)


def along_training_figure(specs: Sequence[ModelSpec], num_seeds: int, folder: RunFolder) -> Figure:
    """Every kind of change along training; of several seeds the mean, with its interval."""
    curves, bands = {}, {}
    for spec in specs:
        of_seeds = [training_records(folder, each) for each in with_seeds(spec, num_seeds)]
        at_epochs = list(zip(*of_seeds, strict=True))
        found = {
            kind: [_interval([change_of(record, kind) for record in each]) for each in at_epochs]
            for kind in KINDS
        }
        mean, low, high = (
            [[getattr(each, end) for each in found[kind]] for kind in KINDS]
            for end in Interval._fields
        )
        curves[spec.label] = ([record["epoch"] for record in of_seeds[0]], mean)
        bands[spec.label] = list(zip(low, high, strict=True))
    titles = list(KINDS.values())
    return saved_figure(
        figures.panels(titles, curves, bands=bands, ylabel="Change", num_columns=4),
        folder,
        "sharpness_along_training",
        "What noise on the weights changes, against epochs, with 95 % intervals"
        f"{over_text(num_seeds)}.",
    )


def _interval(changes: Sequence[Mapping[str, float]]) -> Interval:
    if len(changes) == 1:
        return Interval(*(changes[0][end] for end in Interval._fields))
    return student_interval(np.array([each["mean"] for each in changes]))
