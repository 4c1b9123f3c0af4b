"""Trade-off: weight norm against layer-norm blow-up (Figs 2, 9, 10).

Rows are a function, a weight decay and a learning rate; within a row and seed the length is the
only difference. (In the released sweeps every run draws a learning rate of its own.)

Intervals are over seeds: all rows of a seed start from the same weights.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from jaxsens.core.intervals import Interval, independent_difference
from jaxsens.figures.style import GREY, PALETTE, new_figure, styled
from jaxsens.reporting.results import Cell, Claim, Table
from jaxsens.reporting.run_folder import RunFolder

from ..._common.claims import number_or_none
from ..._common.figures import saved_figure
from .. import paper
from ..config import Config
from ..functions import LABELS, Function
from ..outcome import POSITIVE, PartFindings, claim_ends, mean_over_seeds, plain_ends, text_of
from ..stages import TrainedModel, model_values, trained_models
from ..training import Run

_MARKERS = "os^vDP"


class Row(NamedTuple):
    """What a row holds fixed."""

    function: Function
    weight_decay: float
    learning_rate: float

    @property
    def place(self) -> str:
        """Decay and rate, in words."""
        return f"decay {self.weight_decay:g}, rate {self.learning_rate:g}"


Models = Sequence[TrainedModel]


def run(config: Config, folder: RunFolder) -> PartFindings:
    """Trains, measures, draws."""
    models = tradeoff_models(config, folder)
    functions = config.tradeoff_functions
    shifts = {name: shift_of(models, name, norm) for name in functions}
    texts = (f"{LABELS[name]} {text_of(shift)}" for name, shift in shifts.items())
    return PartFindings(
        summary=f"At equal decay and rate the weight norm grows per bit by {', '.join(texts)}.",
        claims=(*tradeoff_claims(models, functions), *shift_claims(models, functions)),
        tables=(table_of(models),),
        figures=(
            saved_figure(
                draw(models),
                folder,
                "tradeoff",
                "Weight norm (without positions) against layer-norm blow-up (released proxy above, "
                "definition below) for every run; colour: number of bits, marker: weight decay; "
                "hollow: runs that did not learn (Fig. 2).",
            ),
        ),
        values={"runs": [model_values(model) for model in models]},
    )


def tradeoff_models(config: Config, folder: RunFolder) -> list[TrainedModel]:
    """All runs, a stage for every length."""
    runs = [
        Run(name, config.seed + i, rate, decay)
        for name in config.tradeoff_functions
        for rate, decay in itertools.product(config.tradeoff_rates, config.tradeoff_decays)
        for i in range(config.tradeoff_seeds if name == "parity" else config.tradeoff_control_seeds)
    ]
    found = []
    for n in config.tradeoff_lengths:
        stage, task = f"tradeoff-{n}", config.task(n)
        found += trained_models(config, folder, stage, task, runs, config.tradeoff_steps)
    return found


def norm(model: TrainedModel) -> float:
    """Weight norm."""
    return float(model.record["norm"])


def log_blowup(model: TrainedModel) -> float:
    """log₁₀ of the released proxy of blow-up."""
    return math.log10(model.record["blowup_released"])


def correlations(models: Models, function: Function) -> dict[int, float]:
    """Of norm and log blow-up over weight decays: for each seed the mean over lengths and rates.

    Only runs that learnt; fewer than three of a seed, length and rate have none.
    """
    groups: dict[tuple[int, float, int], list[TrainedModel]] = {}
    for model in models:
        if model.run.function == function and model.learnt:
            key = (model.n, model.run.learning_rate, model.run.seed)
            groups.setdefault(key, []).append(model)
    return _means_by_seed(
        (seed, float(np.corrcoef([norm(m) for m in each], [log_blowup(m) for m in each])[0, 1]))
        for (_, _, seed), each in groups.items()
        if len(each) > 2
    )


def slopes_by_row(
    models: Models, function: Function, measure: Callable[[TrainedModel], float]
) -> dict[Row, dict[int, float]]:
    """Growth per bit of a measure: in each row, one for every seed that learnt two lengths.

    A row in which no seed did is there, and empty.
    """
    found: dict[Row, dict[int, float]] = {
        _row_of(model): {} for model in models if model.run.function == function
    }
    groups: dict[tuple[Row, int], list[TrainedModel]] = {}
    for model in models:
        if model.run.function == function and model.learnt:
            groups.setdefault((_row_of(model), model.run.seed), []).append(model)
    for (row, seed), each in groups.items():
        if len(each) > 1:
            slope = np.polyfit([m.n for m in each], [measure(m) for m in each], 1)[0]
            found[row][seed] = float(slope)
    return found


def shifts_by_seed(
    models: Models, function: Function, measure: Callable[[TrainedModel], float]
) -> dict[int, float]:
    """The growth per bit of each seed, the mean over its rows: these share first weights."""
    rows = slopes_by_row(models, function, measure).values()
    return _means_by_seed(item for slopes in rows for item in slopes.items())


def shift_of(
    models: Models, function: Function, measure: Callable[[TrainedModel], float]
) -> Interval:
    """The mean growth per bit, with an interval over seeds."""
    return mean_over_seeds([*shifts_by_seed(models, function, measure).values()])


def tradeoff_claims(models: Models, functions: Sequence[Function]) -> list[Claim]:
    """H2, first half, function by function."""
    claims = []
    for name in functions:
        each = correlations(models, name)
        mean = mean_over_seeds([*each.values()], (-1.0, 1.0))
        claims.append(
            Claim(
                statement=f"{LABELS[name]}: norm and log blow-up anti-correlate over weight decays",
                paper=str(paper.H2),
                measured=f"correlation {text_of(mean, 2)}, over {len(each)} seeds, each with the "
                "mean of its lengths and rates",
                holds=mean.high < 0,
                values={"correlation": number_or_none(mean.mean)},
                decided_by="correlation",
                interval=mean.ends if each else None,
                num_seeds=max(1, len(each)),
            )
        )
    return claims


def shift_claims(models: Models, functions: Sequence[Function]) -> list[Claim]:
    """H2, second half: PARITY's curve shifts outward with n, the others' do not."""
    if "parity" not in functions:
        return []
    rows = slopes_by_row(models, "parity", norm)
    means = {row: float(np.mean([*each.values()])) for row, each in rows.items() if each}
    parity, num = shift_of(models, "parity", norm), len(shifts_by_seed(models, "parity", norm))
    smallest = min(means.values(), default=math.nan)
    texts = (
        f"{means[row]:+.3f} at {row.place}" if row in means else f"not learnt at {row.place}"
        for row in rows
    )
    claims = [
        Claim(
            statement="PARITY: at equal decay and rate the weight norm grows with n, in every row",
            paper=str(paper.H2),
            measured=f"per bit {', '.join(texts)}; in the mean {text_of(parity)}, over {num} seeds",
            holds=len(means) == len(rows) and smallest > 0,
            values={
                "smallest of the rows": number_or_none(smallest),
                "rows": len(rows),
                "rows in which a seed learnt two lengths": len(means),
                "mean": number_or_none(parity.mean),
                "interval of the mean": plain_ends(parity),
            },
            decided_by="smallest of the rows",
            num_seeds=max(1, num),
        )
    ]
    for name in (each for each in functions if each != "parity"):
        other = shift_of(models, name, norm)
        difference = independent_difference(parity, other)
        claims.append(
            Claim(
                statement=f"The weight norm grows more with n for PARITY than for {LABELS[name]}",
                paper=str(paper.H2),
                measured=f"per bit {text_of(parity)} against {text_of(other)}; difference "
                f"{text_of(difference)}",
                holds=difference.low > 0,
                values={
                    "PARITY": number_or_none(parity.mean),
                    LABELS[name]: number_or_none(other.mean),
                    "difference": number_or_none(difference.mean),
                },
                decided_by="difference",
                interval=claim_ends(difference),
                num_seeds=max(1, num),
            )
        )
    return claims


def table_of(models: Models) -> Table:
    """Every row and length."""
    groups: dict[tuple[Row, int], list[TrainedModel]] = {}
    for model in models:
        groups.setdefault((_row_of(model), model.n), []).append(model)
    rows: list[tuple[Cell, ...]] = []
    for (row, n), each in sorted(groups.items(), key=lambda item: (*item[0][0], item[0][1])):
        learnt = [model for model in each if model.learnt]
        rows.append(
            (
                LABELS[row.function],
                row.weight_decay,
                row.learning_rate,
                n,
                f"{len(learnt)} of {len(each)}",
                text_of(mean_over_seeds([norm(m) for m in learnt], POSITIVE), 2),
                *(
                    text_of(mean_over_seeds([m.record[field] for m in learnt], POSITIVE), 2)
                    for field in ("blowup_released", "blowup")
                ),
                text_of(mean_over_seeds([m.sharpness("definition") for m in learnt], POSITIVE)),
            )
        )
    return Table(
        title="Weight norm and blow-up",
        columns=(
            *("function", "decay", "rate", "n", "learnt", "norm", "blow-up, released"),
            *("blow-up", "sharpness"),
        ),
        rows=tuple(rows),
        note="Means over the runs that learnt, 95 % intervals over seeds where there are two. Norm "
        "without positions. Released: Π max 1/std over both norms of every layer; the definition "
        "has Π (1 + max 1/√(variance + ε)).",
    )


def _row_of(model: TrainedModel) -> Row:
    return Row(model.run.function, model.run.weight_decay, model.run.learning_rate)


def _means_by_seed(values: Iterable[tuple[int, float]]) -> dict[int, float]:
    """One value for each seed: what a seed's runs share makes them no independent draws."""
    groups: dict[int, list[float]] = {}
    for seed, value in values:
        groups.setdefault(seed, []).append(value)
    return {seed: float(np.mean(each)) for seed, each in groups.items()}


@styled
def draw(models: Models) -> Drawing:
    """A column for each function, the released proxy above and the definition below."""
    functions = list(dict.fromkeys(model.run.function for model in models))
    decays = sorted({model.run.weight_decay for model in models})
    lengths = sorted({model.n for model in models})
    fig = new_figure(3.8 * len(functions) + 1, 6.0)
    grid = fig.subplots(2, len(functions), squeeze=False, sharex=True, sharey="row")
    colors = {n: PALETTE[i % len(PALETTE)] for i, n in enumerate(lengths)}
    markers = {decay: _MARKERS[i % len(_MARKERS)] for i, decay in enumerate(decays)}
    for model in (model for model in models if model.finite):
        column = functions.index(model.run.function)
        look = {
            "color": colors[model.n],
            "marker": markers[model.run.weight_decay],
            "mfc": colors[model.n] if model.learnt else "none",
        }
        for axes, field in zip(grid[:, column], ("blowup_released", "blowup"), strict=True):
            axes.plot(norm(model), model.record[field], linestyle="none", alpha=0.8, **look)
    for column, name in enumerate(functions):
        grid[0, column].set_title(LABELS[name])
        grid[1, column].set_xlabel("Weight norm")
    for axes, label in zip(grid[:, 0], ("Blow-up, released", "Blow-up"), strict=True):
        axes.set(ylabel=label, yscale="log")
    handles = [Line2D([], [], color=colors[n], label=f"n = {n}") for n in lengths]
    handles += [
        Line2D([], [], color=GREY, marker=markers[decay], ls="none", label=f"decay {decay:g}")
        for decay in decays
    ]
    fig.legend(handles=handles, loc="outside right center")
    return fig
