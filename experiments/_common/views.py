"""How experiments that compare trained models tell what they found: claims and figures."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import jaxsens
from jaxsens import SensitivityEstimate, figures
from jaxsens.reporting.results import Claim, Figure
from jaxsens.reporting.run_folder import RunFolder

from .study import records_of

Estimates = Mapping[str, SensitivityEstimate]


@runtime_checkable
class Compared(Protocol):
    """A trained model in a comparison: its key, its name for readers, the paper's sensitivity."""

    @property
    def name(self) -> str:
        """Its key in records and estimates."""

    @property
    def label(self) -> str:
        """Its name in tables and figures."""

    @property
    def paper(self) -> float | None:
        """The paper's sensitivity, if it gives one."""


def less_sensitive(lesser: Compared, greater: Compared, estimates: Estimates) -> Claim:
    """Whether one model is less sensitive than another, example by example."""
    # The same examples for both: a difference leaves out how hard the example is.
    difference = jaxsens.compare(estimates[greater.name], estimates[lesser.name])
    mean, low, high = difference.interval()
    measured = (estimates[lesser.name].mean, estimates[greater.name].mean)
    given = None not in (lesser.paper, greater.paper)
    return Claim(
        statement=f"{lesser.label} is less sensitive than {greater.label}",
        paper=f"{lesser.paper} < {greater.paper}" if given else "no numbers given",
        measured=f"{measured[0]:.4f} against {measured[1]:.4f}; difference "
        f"{mean:.4f}, 95 % interval {low:.4f} to {high:.4f}",
        holds=low > 0,
    )


def training_figure(
    models: Sequence[Compared],
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
    fig = figures.training_curves(curves, accuracy_label=accuracy)
    figures.save(fig, folder.figures, name)
    with_paper = any(model.paper is not None for model in models)
    return Figure(
        f"figures/{name}.png",
        f"{accuracy} and sensitivity against epochs, with 95 % intervals ({figure})"
        + (" and the paper's final values." if with_paper else "."),
    )


def final_figure(
    epochs: int | None, models: Sequence[Compared], estimates: Estimates, folder: RunFolder
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
    figures.save(bars, folder.figures, "final")
    return Figure("figures/final.png", f"Sensitivity after {epochs} epochs, with 95 % intervals.")
