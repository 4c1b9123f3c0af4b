"""Scaling: sharpness against input length for the four functions (Figs 1, 5 to 8)."""

from collections.abc import Sequence
from dataclasses import replace

from jaxsens.models import BitTransformer
from jaxsens.reporting.results import Cell, Table
from jaxsens.reporting.run_folder import RunFolder

from ..._common.claims import number_or_none
from ..config import Config
from ..functions import CONTROLS, FUNCTIONS, LABELS, Function, known_sensitivity
from ..outcome import POSITIVE, PartFindings, mean_over_seeds, plain_ends, share, text_of
from ..stages import Point, TrainedModel, model_values, points_of, trained_models
from ..training import LEARNT, BitTask, Run
from .scaling_claims import claims_of, long_claims, slope_of
from .scaling_figures import figures_of


def run(config: Config, folder: RunFolder) -> PartFindings:
    """Trains, measures, draws."""
    points, long = points_of(scaling_models(config, folder)), points_of(long_models(config, folder))
    claims = [*claims_of(points, config), *long_claims(long, config.sharpness)]
    slopes = {name: slope_of(points, name, config.sharpness) for name in FUNCTIONS}
    parity = [point for point in points if point.function == "parity"]
    rates = ", ".join(f"{len(p.learnt)} of {len(p.models)} at n = {p.n}" for p in parity)
    return PartFindings(
        summary=f"Sharpness of PARITY grows by {text_of(slopes['parity'])} a bit, of MAJORITY by "
        f"{text_of(slopes['majority'])}; PARITY was learnt by {rates} runs.",
        claims=tuple(claims),
        tables=tuple(table_of(each, config) for each in (points, long) if each),
        figures=tuple(figures_of(points, long, config, folder)),
        values={
            "slopes": {
                name: [number_or_none(slope.mean), *plain_ends(slope)]
                for name, slope in slopes.items()
            },
            "runs": [model_values(m) for p in (*points, *long) for m in p.models],
        },
    )


def scaling_models(config: Config, folder: RunFolder) -> list[TrainedModel]:
    """All runs of the main sweep, a stage for every length."""
    found = []
    for n in sorted({*config.scaling_lengths, *config.scaling_control_lengths}):
        runs = [
            *(_runs(config, "parity", config.scaling_seeds) if n in config.scaling_lengths else []),
            *(
                run
                for name in CONTROLS
                if n in config.scaling_control_lengths
                for run in _runs(config, name, config.scaling_control_seeds)
            ),
        ]
        stage, task = f"scaling-{n}", config.task(n)
        found += trained_models(config, folder, stage, task, runs, config.scaling_steps)
    return found


def long_models(config: Config, folder: RunFolder) -> list[TrainedModel]:
    """The runs of the narrow model, of the functions that are not sensitive."""
    found = []
    runs = [run for name in CONTROLS for run in _runs(config, name, config.scaling_control_seeds)]
    for n in config.scaling_long_lengths:
        model = BitTransformer(n, config.scaling_long_width, config.layers, config.heads)
        task = BitTask(model, config.scaling_long_batch, config.tied)
        stage = f"scaling-long-{n}"
        found += trained_models(config, folder, stage, task, runs, config.scaling_steps)
    return found


def table_of(points: Sequence[Point], config: Config) -> Table:
    """Every point: how many runs learnt, and how sharp they are, by all measures."""
    rows: list[tuple[Cell, ...]] = []
    for point in points:
        finite = [model for model in point.models if model.finite]
        learnt = point.learnt
        columns = [
            mean_over_seeds([model.sharpness("definition") for model in models], POSITIVE)
            for models in (learnt, finite)
        ]
        released = mean_over_seeds([model.sharpness("released") for model in learnt])
        matched = [model.sharpness("definition", matched=True) for model in learnt]
        rows.append(
            (
                LABELS[point.function],
                point.n,
                known_sensitivity(point.function, point.n),
                f"{len(learnt)} of {len(point.models)}",
                text_of(share([model.learnt for model in point.models]), 2),
                *(text_of(column) for column in columns),
                text_of(released),
                text_of(mean_over_seeds(matched, POSITIVE)),
                _mean([model.record["norm"] for model in learnt]),
                _mean([model.record["blowup_released"] for model in learnt]),
                _mean([model.record["blowup"] for model in learnt]),
            )
        )
    # The variance of MEAN is 1/(4n): what a constant leaves.
    trivial = [p.n for p in points if p.function == "mean" and 1 / (4 * p.n) < LEARNT]
    beyond = f" MEAN from n = {min(trivial)} on: a constant passes this filter." if trivial else ""
    model = points[0].models[0]
    width = config.scaling_long_width if "long" in model.stage else config.width
    return Table(
        title=f"Sharpness against length, width {width}",
        columns=(
            *("function", "n", "as_n", "learnt", "share", "sharpness", "all runs", "released"),
            *("paper's ρ", "norm", "blow-up, released", "blow-up"),
        ),
        rows=tuple(rows),
        note="Means over the runs that learnt (final loss below 0.001 on all inputs measured), "
        'with 95 % intervals over seeds; "all runs" are those that did not diverge. Sharpness is '
        f"the mean squared change of ±1 outputs on the sphere of radius ε√p, ε = {config.epsilon}; "
        '"released" is 4 times the increase of the loss under Gaussian noise; "paper\'s ρ" is the '
        f"first on the sphere of radius 8.93, at which narrow models saturate.{beyond}",
    )


def _runs(config: Config, name: Function, num: int) -> list[Run]:
    first = Run(name, config.seed, config.learning_rate, config.weight_decay)
    return [replace(first, seed=config.seed + i) for i in range(num)]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
