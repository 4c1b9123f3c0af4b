"""Figures of all experiments that compare trained models, and how any figure is saved."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure as Drawing

from jaxsens import SensitivityEstimate, figures
from jaxsens.core.intervals import Interval
from jaxsens.reporting.results import Figure
from jaxsens.reporting.run_folder import RunFolder

from .claims import ComparedModel, SeedEstimates, mean_over_seeds
from .seeds import with_seeds
from .training_records import training_records


def saved_figure(drawing: Drawing, folder: RunFolder, name: str, caption: str) -> Figure:
    """Saves a drawing in the run's folder under that name."""
    figures.save(drawing, folder.figures, name)
    return Figure(f"figures/{name}.png", caption)


def training_figure(
    models: Sequence[ComparedModel],
    folder: RunFolder,
    figure: str,
    name: str = "training_curves",
    *,
    split: str = "train",
    field: str = "sensitivity",
    num_seeds: int = 1,
) -> Figure:
    """Accuracy and sensitivity along training, like the paper's Figs 4 to 6.

    Args:
      models: those to show.
      folder: the run's folder, with their records.
      figure: which of the paper's figures it is, for the caption.
      name: of the file.
      split: "train" or "test", of which the accuracy is.
      field: of the records, with the sensitivity.
      num_seeds: trainings of each; of several the mean is shown, with its interval over seeds.
    """
    curves = [_curve(model, num_seeds, folder, f"{split}_accuracy", field) for model in models]
    accuracy = {"train": "Training accuracy", "test": "Validation accuracy"}[split]
    over = over_text(num_seeds)
    with_paper = any(model.paper is not None for model in models)
    return saved_figure(
        figures.training_curves(curves, accuracy_label=accuracy),
        folder,
        name,
        f"{accuracy} and sensitivity against epochs, with 95 % intervals{over} ({figure})"
        + (" and the paper's final values." if with_paper else "."),
    )


def _curve(
    model: ComparedModel, num_seeds: int, folder: RunFolder, accuracy: str, field: str
) -> figures.Curve:
    """One training, or the mean over several, which are evaluated at the same epochs."""
    of_seeds = [training_records(folder, each) for each in with_seeds(model, num_seeds)]
    epochs = [record["epoch"] for record in of_seeds[0]]
    at_epochs = list(zip(*of_seeds, strict=True))
    intervals = [
        mean_over_seeds([record[field]["mean"] for record in records])
        if len(records) > 1
        else Interval(*(records[0][field][end] for end in ("mean", "low", "high")))
        for records in at_epochs
    ]
    return figures.Curve(
        label=model.label,
        epochs=tuple(epochs),
        accuracy=tuple(float(np.mean([r[accuracy] for r in records])) for records in at_epochs),
        sensitivity=tuple(interval.mean for interval in intervals),
        low=tuple(interval.low for interval in intervals),
        high=tuple(interval.high for interval in intervals),
        paper=model.paper,
    )


def over_text(num_seeds: int) -> str:
    """What an interval is over, if there are several seeds, for a caption."""
    return f" over {num_seeds} seeds" if num_seeds > 1 else ""


def final_figure(
    epochs: int | None, models: Sequence[ComparedModel], estimates: SeedEstimates, folder: RunFolder
) -> Figure:
    """The final values as bars, beside the paper's: of one training, or means over seeds."""
    intervals = [final_interval(estimates[model.name]) for model in models]
    paper = [model.paper for model in models]
    bars = figures.bars(
        [model.label for model in models],
        [interval.mean for interval in intervals],
        [interval.low for interval in intervals],
        [interval.high for interval in intervals],
        paper if any(value is not None for value in paper) else None,
    )
    over = over_text(len(estimates[models[0].name]))
    caption = f"Sensitivity after {epochs} epochs, with 95 % intervals{over}."
    return saved_figure(bars, folder, "final", caption)


def final_interval(estimates: Sequence[SensitivityEstimate]) -> Interval:
    """Of one training over examples, of several over seeds."""
    if len(estimates) == 1:
        return Interval(estimates[0].mean, *estimates[0].ci())
    return mean_over_seeds([estimate.mean for estimate in estimates])
