"""Dynamics: loss, sharpness, blow-up and norm along the training of PARITY (Figs 3, 12 to 14).

Runs are aligned at the first measurement with a loss below 0.01. The directions of a run are the
same at every step, so that a curve moves because its model does.
"""

import math
from collections.abc import Sequence

import numpy as np

from jaxsens.core.intervals import Interval
from jaxsens.reporting.records import records_of
from jaxsens.reporting.results import Claim, Table
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.training.lanes import LaneState

from ..._common.claims import number_or_none
from ..._common.figures import saved_figure
from .. import paper
from ..config import Config
from ..measuring import Measurement, measure_lanes, stage_key
from ..outcome import POSITIVE, PartFindings, mean_over_seeds, share, text_of
from ..stages import even_blocks
from ..training import Run, make_lanes, require_some_finite, train_stage
from .dynamics_curves import MEASURES, Curve
from .dynamics_figures import draw


def run(config: Config, folder: RunFolder) -> PartFindings:
    """Trains, measures on the way, draws."""
    found = curves(config, folder)
    kind = config.sharpness
    dropped = [curve for curve in found if curve.dropped is not None]
    n = config.dynamics_length
    rise = mean_over_seeds([curve.rise(kind) for curve in dropped], POSITIVE)
    by_decay = {
        decay: [curve for curve in found if curve.decay == decay]
        for decay in config.dynamics_decays
    }
    return PartFindings(
        summary=f"PARITY of {n} bits: {len(dropped)} of {len(found)} runs learnt; where the loss "
        f"drops, sharpness rises to {text_of(rise, 1)} times that of the plateau.",
        claims=tuple(
            claim
            for decay, each in by_decay.items()
            for claim in claims_of(each, kind, f"PARITY of {n} bits, decay {decay:g}")
        ),
        tables=(table_of(found, kind, n),),
        figures=tuple(
            saved_figure(
                draw(each, kind),
                folder,
                f"dynamics_decay_{decay:g}",
                f"PARITY of {n} bits along training with weight decay {decay:g}, steps counted "
                "from the first loss below 0.01. Thin: every run; thick: the mean where at least "
                "a quarter of the runs are; dotted: runs that did not get there, from the others' "
                "mean step on; dashed: mean end of the plateau (Fig. 3).",
            )
            for decay, each in by_decay.items()
        ),
        values={
            "runs": [
                {
                    "weight_decay": curve.decay,
                    "seed": curve.seed,
                    "steps": curve.steps,
                    "first step below 0.01": None
                    if curve.dropped is None
                    else curve.steps[curve.dropped],
                    **{
                        name: [number_or_none(value) for value in values]
                        for name, values in curve.measured.items()
                    },
                }
                for curve in found
            ]
        },
    )


def curves(config: Config, folder: RunFolder) -> list[Curve]:
    """All runs, trained to the end and measured on the way, or read from the folder."""
    stage = f"dynamics-{config.dynamics_length}"
    task = config.task(config.dynamics_length)
    runs = [
        Run("parity", config.seed + i, config.dynamics_rate, decay)
        for decay in config.dynamics_decays
        for i in range(config.dynamics_seeds)
    ]
    lanes = make_lanes(runs)
    spec = Measurement(
        task.model,
        config.epsilon,
        config.dynamics_directions,
        config.dynamics_inputs,
        noises=("sphere",),
    )

    def measure(step: int, state: LaneState) -> dict[str, list[float | None]]:
        record = measure_lanes(spec, lanes, state.params, key=stage_key(config.seed, stage))
        means = {
            name: [_mean(draws) for draws in record[field]]
            for name, field in (("sharpness", "change"), ("released", "increase"))
        }
        return {name: means.get(name, record.get(name, [])) for name in MEASURES}

    train_stage(
        folder,
        stage,
        task,
        lanes,
        runs=runs,
        steps=config.dynamics_steps,
        block=even_blocks(len(runs), config.block),
        every=config.dynamics_every,
        measure=measure,
    )
    records = records_of(folder, stage)
    require_some_finite(stage, records[-1]["measured"]["loss"], lanes, config.dynamics_steps)
    steps = np.array([record["epoch"] for record in records])
    return [
        Curve(
            run.weight_decay,
            run.seed,
            steps,
            {
                name: np.array([r["measured"][name][i] for r in records], np.float64)
                for name in MEASURES
            },
        )
        for i, run in enumerate(runs)
    ]


def claims_of(found: Sequence[Curve], kind: str, title: str) -> list[Claim]:
    """H3, by criteria fixed beforehand."""
    dropped = [curve for curve in found if curve.dropped is not None]
    rises = [curve.rise(kind) for curve in dropped]
    finals = [curve.final_share(kind) for curve in dropped]
    inside = [curve.rises_in_drop(kind) for curve in dropped]
    low, high = paper.FINAL_SHARE
    rise, final = mean_over_seeds(rises, POSITIVE), mean_over_seeds(finals, (0.0, 1.0))
    coincide = share(inside) if inside else Interval(math.nan, 0.0, 1.0)
    num = max(1, len(dropped))
    return [
        Claim(
            statement=f"{title}: at the end of the loss drop sharpness is at least "
            f"{paper.LEAST_RISE:g} times that of the plateau",
            paper=str(paper.H3),
            measured=f"{text_of(rise, 2)} times; runs: {_listed(rises)}",
            holds=rise.mean >= paper.LEAST_RISE,
            values={"rise": number_or_none(rise.mean), "runs": rises},
            decided_by="rise",
            interval=rise.ends if rises else None,
            num_seeds=num,
        ),
        Claim(
            statement=f"{title}: sharpness rises most while the loss drops, in most runs",
            paper=str(paper.H3),
            measured=f"{sum(inside)} of {len(inside)} runs, share {text_of(coincide, 2)}",
            holds=coincide.mean > 0.5,
            values={"share of runs": number_or_none(coincide.mean)},
            decided_by="share of runs",
            interval=coincide.ends if inside else None,
            num_seeds=num,
        ),
        Claim(
            statement=f"{title}: sharpness then falls and levels off above 0: at the end between "
            f"{low:g} and {high:g} times its maximum",
            paper=str(paper.H3),
            measured=f"{text_of(final, 2)} times; runs: {_listed(finals)}",
            holds=bool(finals) and low <= final.mean < high,
            values={"final share": number_or_none(final.mean), "runs": finals},
            decided_by="final share",
            interval=final.ends if finals else None,
            num_seeds=num,
        ),
    ]


def table_of(found: Sequence[Curve], kind: str, n: int) -> Table:
    """Every run: when its loss drops, and how sharp it is then."""

    def at(curve: Curve, place: int | None, name: str) -> float | None:
        return None if place is None else number_or_none(curve.measured[name][place])

    sharp = "sharpness" if kind == "definition" else "released"
    rows = []
    for curve in found:
        end, known = curve.dropped, curve.dropped is not None
        rows.append(
            (
                curve.decay,
                curve.seed,
                int(curve.steps[curve.plateau]) if known else None,
                int(curve.steps[end]) if end is not None else None,
                at(curve, -1, "loss"),
                float(curve.sharpness(kind)[: curve.plateau + 1].mean()) if known else None,
                at(curve, end, sharp),
                at(curve, -1, sharp),
                at(curve, 0, "blowup_released"),
                at(curve, -1, "blowup_released"),
                at(curve, 0, "norm"),
                at(curve, -1, "norm"),
            )
        )
    return Table(
        title=f"Along the training of PARITY of {n} bits",
        columns=(
            *("decay", "seed", "drop from step", "to step", "final loss", "S on the plateau"),
            *("S after the drop", "final S", "first blow-up", "final blow-up"),
            *("first norm", "final norm"),
        ),
        rows=tuple(rows),
        note="S: sharpness. The drop is from the last loss of at least 0.2 to the first below "
        "0.01. Blow-up by the released proxy. A dash: the loss did not drop that far.",
    )


def _mean(draws: Sequence[Sequence[float | None]]) -> float | None:
    values = np.array(draws, np.float64)
    return float(values.mean()) if np.isfinite(values).all() else None


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values) or "none"
