"""Figures of the experiment `language`."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxsens import SensitivityEstimate, figures
from jaxsens.core.intervals import mean_interval
from jaxsens.reporting.results import Figure
from jaxsens.reporting.run_folder import RunFolder

from .._common.claims import Estimates
from .._common.figures import saved_figure, training_figure
from .config import Config
from .measuring import Measured, in_all_ways
from .models import TextModelSpec, with_depth
from .paper import paper_values

#: A place is shown if at least this share of the texts have it.
_SHOWN_PLACES = 0.1


def training_figures(
    config: Config, specs: Sequence[TextModelSpec], folder: RunFolder
) -> list[Figure]:
    """What happens along training (Figs 7 and 18), and for other noise and texts (16 and 17)."""
    shown = [spec for spec in specs if spec.in_full]
    found = [training_figure(shown, folder, "Fig. 7; Fig. 18 is GPT-2's")]
    for variance in config.variances[1:]:
        paper = {str(name): v for name, v in paper_values(config.dataset, variance).items()}
        of_paper = [dataclasses.replace(spec, paper=paper.get(spec.name)) for spec in shown]
        way = f"variance {variance:g}"
        title = f"Fig. 16: noise of {way}"
        name = f"training_{way.replace(' ', '_')}"
        found.append(training_figure(of_paper, folder, title, name, field=way))
    without = [dataclasses.replace(spec, paper=None) for spec in shown]
    found.append(
        training_figure(
            *(without, folder, "Fig. 17: on texts not trained on", "training_validation"),
            split="test",
            field="validation",
        )
    )
    return found + _depth_figures(config, specs, folder)


def _depth_figures(
    config: Config, specs: Sequence[TextModelSpec], folder: RunFolder
) -> list[Figure]:
    depths = [
        dataclasses.replace(
            spec, label=with_depth(spec.label, config.depth or 1) if spec.in_full else spec.label
        )
        for base in ("roberta-softmax", "lstm")
        for spec in specs
        if spec.name == base or spec.name.startswith(f"{base}-depth-")
    ]
    if all("-depth-" not in spec.name for spec in depths):
        return []
    depths = [dataclasses.replace(spec, paper=None) for spec in depths]
    return [training_figure(depths, folder, "Fig. 19: other depths", "training_depths")]


def position_figure(specs: Sequence[TextModelSpec], main: Estimates, folder: RunFolder) -> Figure:
    """Sensitivity of each place, counted from the end as in Fig. 8, and from the beginning."""
    shown = [spec for spec in specs if spec.in_full]
    panels: dict[str, dict[str, figures.Band]] = {
        "Place, counted from the last token": {},
        "Place, counted from the first token": {},
    }
    for spec in shown:
        estimate = main[spec.name]
        ends = (estimate.right_aligned(), 1 - estimate.num_positions), (estimate, 0)
        for curves, (aligned, first) in zip(panels.values(), ends, strict=True):
            curves[spec.label] = _band(aligned, first)
    return saved_figure(
        figures.bands(panels),
        folder,
        "positions",
        f"Sensitivity of each place (Fig. 8), mean over the texts that have it, with 95 % "
        f"intervals; places that fewer than {_SHOWN_PLACES:.0%} of the texts have are left out.",
    )


def _band(estimate: SensitivityEstimate, first: int) -> figures.Band:
    """The places that enough texts have, numbered from `first` on."""
    values = estimate.per_example_position
    places = np.flatnonzero((estimate.counts > 0).mean(axis=0) >= _SHOWN_PLACES)
    columns = [values[estimate.counts[:, place] > 0, place] for place in places]
    found = [mean_interval(column, estimate.bounds) for column in columns]
    return figures.Band(
        x=places + first,
        y=[each.mean for each in found],
        low=[each.low for each in found],
        high=[each.high for each in found],
    )


def ways_figure(specs: Sequence[TextModelSpec], measured: Measured, folder: RunFolder) -> Figure:
    """Every way of measuring, side by side."""
    shown = in_all_ways(specs, measured)
    series = {}
    for way, found in measured.items():
        estimates = [found[spec.name] for spec in shown]
        series[way] = [(estimate.mean, *estimate.ci()) for estimate in estimates]
    return saved_figure(
        figures.grouped_bars([spec.label for spec in shown], series),
        folder,
        "ways",
        "Every way of measuring after the last epoch, with 95 % intervals.",
    )
