"""Figures of all experiments that compare trained models, and how any figure is saved."""

from collections.abc import Sequence

from matplotlib.figure import Figure as Drawing

from jaxsens import figures
from jaxsens.reporting.records import records_of
from jaxsens.reporting.results import Figure
from jaxsens.reporting.run_folder import RunFolder

from .claims import ComparedModel, Estimates


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
) -> Figure:
    """Accuracy and sensitivity along training, like the paper's Figs 4 to 6.

    Args:
      models: those to show.
      folder: the run's folder, with their records.
      figure: which of the paper's figures it is, for the caption.
      name: of the file.
      split: "train" or "test", of which the accuracy is.
      field: of the records, with the sensitivity.
    """
    curves = []
    for model in models:
        mine = records_of(folder, model.name)
        curves.append(
            figures.Curve(
                label=model.label,
                epochs=tuple(r["epoch"] for r in mine),
                accuracy=tuple(r[f"{split}_accuracy"] for r in mine),
                sensitivity=tuple(r[field]["mean"] for r in mine),
                low=tuple(r[field]["low"] for r in mine),
                high=tuple(r[field]["high"] for r in mine),
                paper=model.paper,
            )
        )
    accuracy = {"train": "Training accuracy", "test": "Validation accuracy"}[split]
    with_paper = any(model.paper is not None for model in models)
    return saved_figure(
        figures.training_curves(curves, accuracy_label=accuracy),
        folder,
        name,
        f"{accuracy} and sensitivity against epochs, with 95 % intervals ({figure})"
        + (" and the paper's final values." if with_paper else "."),
    )


def final_figure(
    epochs: int | None, models: Sequence[ComparedModel], estimates: Estimates, folder: RunFolder
) -> Figure:
    """The final values as bars, beside the paper's."""
    intervals = [estimates[model.name].ci() for model in models]
    paper = [model.paper for model in models]
    bars = figures.bars(
        [model.label for model in models],
        [estimates[model.name].mean for model in models],
        [low for low, _ in intervals],
        [high for _, high in intervals],
        paper if any(value is not None for value in paper) else None,
    )
    caption = f"Sensitivity after {epochs} epochs, with 95 % intervals."
    return saved_figure(bars, folder, "final", caption)
