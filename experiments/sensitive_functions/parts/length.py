"""Length: PARITY, MAJORITY and FIRST trained up to one length and asked at longer ones (Section 5).

How inputs stand among the model's positions is in `lengths.py`: no code was released. A run has
learnt if it is right in 99 % of the cases at every length of training; the others are shown, but
say nothing about longer inputs.
"""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure as Drawing

from jaxsens.core.intervals import Interval, independent_difference
from jaxsens.figures.style import GREY, PALETTE, new_figure, styled
from jaxsens.reporting.results import Claim, Figure, Table
from jaxsens.reporting.run_folder import RunFolder

from ..._common.claims import number_or_none
from ..._common.figures import saved_figure
from ..config import Config
from ..functions import LABELS, Function
from ..lengths import ASKED_FUNCTIONS, LengthRun, base_rate, trained_lengths
from ..outcome import PartFindings, mean_over_seeds, text_of

#: A run with less skill than this does not generalise: nearer to a constant than to the function.
GENERALISES = 0.5
#: Skill is at most 1; the worst is that of always being wrong.
_BOUNDS = (-math.inf, 1.0)


def run(config: Config, folder: RunFolder) -> PartFindings:
    """Trains, asks, draws."""
    runs = trained_lengths(config, folder)
    longest = max(config.length_asked)
    skills = {function: skill_at(runs, function, longest) for function in ASKED_FUNCTIONS}
    parts = [
        f"{LABELS[function]} {text_of(skills[function], 2)} "
        f"({len(_learnt(runs, function))} of {len(_of(runs, function))} learnt)"
        for function in ASKED_FUNCTIONS
    ]
    return PartFindings(
        summary=f"Trained on up to {config.length_trained} bits and asked at {longest}, the skill "
        f"is: {'; '.join(parts)}.",
        claims=(
            parity_fails(runs, longest),
            *(
                generalises_better(runs, function, longest)
                for function in ASKED_FUNCTIONS
                if function != "parity"
            ),
        ),
        tables=(_table(config, runs),),
        figures=(_figure(config, runs, folder),),
        values={
            "runs": [
                {
                    "function": each.function,
                    "seed": each.seed,
                    "learnt": each.learnt,
                    "accuracy": {str(n): value for n, value in each.accuracies.items()},
                }
                for each in runs
            ]
        },
    )


def skill_at(runs: Sequence[LengthRun], function: Function, n: int) -> Interval:
    """Mean skill at a length of the runs that learnt, over seeds."""
    return mean_over_seeds([each.skill(n) for each in _learnt(runs, function)], _BOUNDS)


def parity_fails(runs: Sequence[LengthRun], longest: int) -> Claim:
    """Whether PARITY, learnt at short lengths, is lost at longer ones."""
    skill, num = skill_at(runs, "parity", longest), len(_learnt(runs, "parity"))
    total = len(_of(runs, "parity"))
    return Claim(
        statement=f"PARITY that was learnt up to {runs[0].longest} bits is not generalised to "
        f"{longest}",
        paper="does not generalise to longer inputs (Section 5; no code released)",
        measured=f"skill {text_of(skill, 2)} of {num} runs that learnt, of {total}; generalised "
        f"would be {GENERALISES} or more",
        holds=num > 1 and skill.high < GENERALISES,
        values={"skill": number_or_none(skill.mean), "runs that learnt": num, "runs": total},
        decided_by="skill",
        interval=skill.ends if num else None,
        num_seeds=num,
    )


def generalises_better(runs: Sequence[LengthRun], function: Function, longest: int) -> Claim:
    """Whether a function that is not sensitive is kept better than PARITY."""
    parity, other = (skill_at(runs, each, longest) for each in ("parity", function))
    learnt = {each: len(_learnt(runs, each)) for each in ("parity", function)}
    difference = independent_difference(other, parity)
    return Claim(
        statement=f"{LABELS[function]} is generalised to {longest} bits better than PARITY",
        paper="less sensitive functions generalise to longer inputs (Section 5; no code released)",
        measured=f"skill {text_of(other, 2)} against {text_of(parity, 2)}; difference "
        f"{text_of(difference, 2)}; learnt by {learnt[function]} of {len(_of(runs, function))} and "
        f"{learnt['parity']} of {len(_of(runs, 'parity'))} runs",
        holds=min(learnt.values()) > 1 and difference.low > 0,
        values={
            LABELS[function]: number_or_none(other.mean),
            "PARITY": number_or_none(parity.mean),
            "difference": number_or_none(difference.mean),
        },
        decided_by="difference",
        interval=difference.ends if min(learnt.values()) else None,
        num_seeds=sum(learnt.values()),
    )


def _of(runs: Sequence[LengthRun], function: Function) -> list[LengthRun]:
    return [each for each in runs if each.function == function]


def _learnt(runs: Sequence[LengthRun], function: Function) -> list[LengthRun]:
    return [each for each in _of(runs, function) if each.learnt]


def _table(config: Config, runs: Sequence[LengthRun]) -> Table:
    rows = []
    for function in ASKED_FUNCTIONS:
        mine, learnt = _of(runs, function), _learnt(runs, function)
        for n in (config.length_trained, *sorted(config.length_asked)):
            rows.append(
                (
                    LABELS[function],
                    n,
                    "trained" if n <= config.length_trained else "longer",
                    f"{len(learnt)} of {len(mine)}",
                    text_of(mean_over_seeds([each.accuracies[n] for each in learnt], (0.0, 1.0))),
                    text_of(skill_at(runs, function, n), 2),
                    float(np.mean([each.accuracies[n] for each in mine])),
                    base_rate(function, n),
                )
            )
    return Table(
        f"length: trained on 1 to {config.length_trained} bits",
        (
            "function",
            "n",
            "length",
            "learnt",
            "accuracy of these (95 %)",
            "skill of these (95 %)",
            "accuracy of all",
            "better constant",
        ),
        tuple(rows),
        note="Skill is 0 for the better constant and 1 for the function. Inputs stand at random "
        "places of the positions, so that all of these are trained; at the longest length there "
        "is one place only, which makes FIRST easier there.",
    )


def _figure(config: Config, runs: Sequence[LengthRun], folder: RunFolder) -> Figure:
    return saved_figure(
        _draw(config, runs),
        folder,
        "length",
        "Accuracy by length, a line for every run: solid if it learnt all lengths of training, "
        "dashed if not. Left of the vertical line are lengths of training; dotted is what the "
        "better constant gets.",
    )


@styled
def _draw(config: Config, runs: Sequence[LengthRun]) -> Drawing:
    fig = new_figure(9.6, 3.2)
    grid = fig.subplots(1, len(ASKED_FUNCTIONS), sharey=True)
    for axes, function, color in zip(grid, ASKED_FUNCTIONS, PALETTE, strict=False):
        mine = _of(runs, function)
        for each in mine:
            n, accuracy = [*each.accuracies], [*each.accuracies.values()]
            style = "-" if each.learnt else "--"
            axes.plot(n, accuracy, style, color=color, marker="o", ms=3, lw=1.1, alpha=0.8)
        lengths = [*mine[0].accuracies]
        axes.plot(lengths, [base_rate(function, n) for n in lengths], ":", color=GREY, lw=1)
        axes.axvline(config.length_trained + 0.5, color=GREY, lw=0.8)
        learnt = f"{len(_learnt(runs, function))} of {len(mine)} learnt"
        axes.set(title=f"{LABELS[function]}, {learnt}", xlabel="Bits n", ylim=(0, 1.03))
    grid[0].set_ylabel("Accuracy")
    return fig
