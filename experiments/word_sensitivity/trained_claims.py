"""What the experiment `word_sensitivity` says of models that were trained: claims, table, figure.

The paper has only random maps. The question is whether training keeps their word sensitivity: a
claim holds if, text by text, the worst relative change after training is surely more than half of
that before.
"""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure as Drawing

from jaxsens.core.intervals import Interval, mean_interval, student_interval
from jaxsens.figures.style import look_of, new_figure, styled
from jaxsens.reporting.results import Cell, Claim, Figure, Table
from jaxsens.reporting.run_folder import RunFolder

from .._common.figures import saved_figure
from .config import Config
from .measuring import Row, of
from .tables import shown

#: The share of the untrained model's worst change that training must leave.
KEPT = 0.5


def worst_of(row: Row, metric: str) -> np.ndarray:
    """The worst change over the places of each text or image."""
    return np.array(row[metric]["worst"]).max(axis=1)


def trained_claims(rows: Sequence[Row]) -> list[Claim]:
    """One for each model."""
    claims = []
    for trained in of(list(rows), state="trained"):
        (before,) = of(list(rows), run=trained["run"], model=trained["model"], state="untrained")
        ratios = worst_of(trained, "relative_l2") / worst_of(before, "relative_l2")
        # Ratios are skewed; their logarithms less so.
        mean, low, high = (math.exp(each) for each in student_interval(np.log(ratios)))
        claims.append(
            Claim(
                statement=f"Training keeps the word sensitivity of {trained['label']} "
                f"({trained['run']}): at least {KEPT:g} of the worst relative change is left",
                paper="not in the paper, whose maps are random",
                measured=f"geometric mean of trained over untrained {mean:.2f}, 95 % interval "
                f"{low:.2f} to {high:.2f}",
                holds=low > KEPT,
                values={
                    "trained over untrained": mean,
                    "untrained": float(worst_of(before, "relative_l2").mean()),
                    "trained": float(worst_of(trained, "relative_l2").mean()),
                },
                decided_by="trained over untrained",
                interval=(low, high),
                num_examples=len(ratios),
                num_seeds=1,
            )
        )
    return claims


def trained_table(config: Config, rows: Sequence[Row]) -> Table:
    """Worst and random moves, untrained and trained, in both metrics."""
    body: list[tuple[Cell, ...]] = []
    for row in rows:
        cells: list[Cell] = [row["run"], row["label"], row["state"], f"{row['radius']:.3g}"]
        for metric, of_values in (("relative_l2", student_interval), ("label_flip", _share)):
            cells += [
                shown(of_values(worst_of(row, metric))),
                shown(of_values(np.array(row[metric]["random"]))),
            ]
        body.append((*cells, f"{row['relative_l2']['agreement']:.0%}"))
    return Table(
        title="Trained models: the worst move of one word or patch beside random ones",
        columns=(
            *("run", "model", "weights", "radius"),
            *("worst change", "random change", "worst flips", "random flips", "starts agree"),
        ),
        rows=tuple(body),
        note=f"{config.num_measured} texts or images, {config.num_places} places of each; worst: "
        "the largest over these places, random: the mean over them and over "
        f"{config.num_random} moves of the same length. Change: ‖f(x') − f(x)‖/‖f(x)‖ of the "
        "logits; flips: share of the texts whose prediction some move changes. Starts agree: "
        "share within 1 % of the best.",
    )


def _share(values: np.ndarray) -> Interval:
    return mean_interval(values, (0.0, 1.0))


def trained_figure(rows: Sequence[Row], folder: RunFolder) -> Figure:
    """Every text's worst and random change, before and after training."""
    return saved_figure(
        _draw(rows),
        folder,
        "trained",
        "Relative change of the logits by one word or patch: the worst move (filled) and the mean "
        "of random ones (open) for each text, before and after training.",
    )


@styled
def _draw(rows: Sequence[Row]) -> Drawing:
    fig = new_figure(0.9 * len(rows) + 1.6, 3.8)
    axes = fig.subplots()
    names = list(dict.fromkeys(row["model"] for row in rows))
    for i, row in enumerate(rows):
        look = look_of(names.index(row["model"]), 1)
        for offset, values, face in (
            (-0.12, worst_of(row, "relative_l2"), look["color"]),
            (0.12, np.array(row["relative_l2"]["random"]), "white"),
        ):
            axes.plot(
                np.full(len(values), i + offset),
                np.maximum(values, 1e-6),  # a logarithmic axis has no place for 0
                look["marker"],
                color=look["color"],
                markerfacecolor=face,
                alpha=0.7,
            )
    labels = [f"{row['label']}\n{row['state']}" for row in rows]
    axes.set_xticks(range(len(rows)), labels, rotation=45, ha="right", fontsize=8)
    axes.set(yscale="log", ylabel="relative change of the logits")
    return fig
