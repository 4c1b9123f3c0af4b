"""Claims and tables of the experiment `grokking`, from its raw curves."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from jaxsens.results import Cell, Claim, Table

from .grokking_leads import (
    ALARM,
    GENERALISED,
    SHARES,
    Interval,
    Measure,
    Run,
    analyse,
    largest_rise,
)
from .grokking_study import Training

_RIVALS = (
    Measure("weight_norm", "weight norm", -1),
    Measure("test_loss", "test loss", -1),
    Measure("test_accuracy", "test accuracy", 1),
)
ADDITION = (
    Measure("authors", "sensitivity, authors': both operands, absolute", -1, True),
    Measure("definition", "sensitivity, Def. 4.3: one operand, absolute", -1, True),
    Measure("authors_relative", "sensitivity: both operands, relative", -1, True),
    Measure("definition_relative", "sensitivity: one operand, relative", -1, True),
    Measure("concentration", "Fourier concentration of the embedding", 1),
    Measure("embedding_rms", "RMS of the embedding", -1),
    *_RIVALS,
)
PARITY = (
    Measure("definition", "sensitivity, Def. 4.3: one bit flipped", -1, True),
    Measure("concentration", "weight on the relevant bits", 1),
    *_RIVALS,
)


class Jump(NamedTuple):
    """A run that generalised: its place among the seeds, when it memorised and jumped, its leads.

    Leads are those of `Run`.
    """

    place: int
    memorised: int
    epoch: int
    plateau: float
    leads: dict[str, dict[str, float | None]]


@dataclass(frozen=True)
class Outcome:
    """What a task gave: curves of every arm, the runs of the first one, which has a rule.

    Attributes:
      training: what was trained.
      title: the task for readers.
      measures: what may announce the jump.
      curves: by arm, "epochs" and measures (seeds, evaluations).
      runs: of the first arm, one a seed.
    """

    training: Training
    title: str
    measures: tuple[Measure, ...]
    curves: dict[str, dict[str, np.ndarray]]
    runs: list[Run]

    @classmethod
    def of(
        cls,
        training: Training,
        title: str,
        measures: tuple[Measure, ...],
        curves: dict[str, dict[str, np.ndarray]],
    ) -> "Outcome":
        """Times the runs of the first arm against those of all others."""
        first, *others = (arm.name for arm in training.arms)
        controls = {name: curves[name] for name in others}
        return cls(training, title, measures, curves, analyse(measures, curves[first], controls))

    @property
    def columns(self) -> dict[str, str]:
        """Columns of the leads with their titles."""
        controls = {arm.name: f"alarm: {arm.label}" for arm in self.training.arms[1:]}
        shares = {name: f"lead at {name}" for name in SHARES}
        return shares | (controls if len(controls) > 1 else {}) | {ALARM: "alarm: all controls"}

    @property
    def first(self) -> dict[str, np.ndarray]:
        """The curves of the runs that should generalise."""
        return self.curves[self.training.arms[0].name]

    @property
    def jumps(self) -> list[Jump]:
        """The runs that generalised."""
        return [
            Jump(i, run.memorised, run.jump, run.plateau, run.leads)
            for i, run in enumerate(self.runs)
            if run.memorised is not None and run.jump is not None and run.plateau is not None
        ]

    def leads(self, measure: str, column: str) -> list[float | None]:
        """Of the runs that generalised."""
        return [jump.leads[measure][column] for jump in self.jumps]

    def between(self, measure: str) -> list[np.ndarray]:
        """The curves from memorised to jump, of the runs that generalised."""
        epochs = self.first["epochs"]
        return [
            self.first[measure][jump.place][(epochs >= jump.memorised) & (epochs <= jump.epoch)]
            for jump in self.jumps
        ]


def early_alarms(outcome: Outcome, measure: str, column: str = ALARM) -> int:
    """How many runs gave an alarm before the jump."""
    return sum(lead is not None and lead > 0 for lead in outcome.leads(measure, column))


def is_progress_measure(outcome: Outcome, measure: str) -> bool:
    """Whether every run gave the alarm before the jump, with a lead whose interval is above 0."""
    lead = Interval.of(outcome.leads(measure, ALARM))
    every = early_alarms(outcome, measure) == len(outcome.jumps) > 1
    return every and lead is not None and lead.positive


def grokking_claims(outcome: Outcome) -> list[Claim]:
    """Whether the runs generalised late, and the controls not at all."""
    jumps, total = outcome.jumps, len(outcome.runs)
    late = [jump for jump in jumps if jump.plateau < 0.6]
    # Fewer than 0.6 when memorised: sparse parity starts at 0.5, addition at the mirrored pairs.
    finals = [run.final for run in outcome.runs]
    claims = [
        Claim(
            statement=f"{outcome.title}: test accuracy jumps above {GENERALISED} long after the "
            "training set is memorised",
            paper="yes, for 3 of 3 seeds" if outcome.title.startswith("Addition") else "–",
            measured=f"{len(late)} of {total} runs; memorised at {_span(jumps, 'memorised')}, test "
            f"accuracy then {_span(jumps, 'plateau', 3)}; jump at {_span(jumps, 'epoch')}; final "
            f"{min(finals):.3f} to {max(finals):.3f}",
            holds=len(late) == total
            and all(jump.epoch >= 2 * max(jump.memorised, 1) for jump in late),
        )
    ]
    for arm in outcome.training.arms[1:]:
        final = outcome.curves[arm.name]["test_accuracy"][:, -1]
        claims.append(
            Claim(
                statement=f"{outcome.title}: control, {arm.label}, does not generalise",
                paper="–",
                measured=f"final test accuracy {final.min():.3f} to {final.max():.3f}",
                holds=bool((final < GENERALISED).all()),
            )
        )
    return claims


def mirror_claim(outcome: Outcome) -> Claim:
    """What the plateau of test accuracy is made of."""
    names = ("test_accuracy", "mirror_share", "mirrored_accuracy", "new_accuracy")
    middle = {
        name: np.array([part[len(part) // 2] for part in outcome.between(name)]) for name in names
    }
    spans = {name: _numbers(values, 3) for name, values in middle.items()}
    return Claim(
        statement=f"{outcome.title}: on the plateau only mirrored pairs are right, (b, a) of a "
        "training pair (a, b)",
        paper="–",
        measured=f"half way between memorised and jump: test accuracy {spans['test_accuracy']}, "
        f"share of mirrored pairs {spans['mirror_share']}; accuracy on these "
        f"{spans['mirrored_accuracy']}, on the others {spans['new_accuracy']}",
        holds=len(outcome.jumps) > 0
        and bool((middle["mirrored_accuracy"] > 0.9).all())
        and bool((middle["new_accuracy"] < 0.1).all()),
    )


def hump_claims(outcome: Outcome) -> list[Claim]:
    """Whether the rise of sensitivity on the plateau depends on the unit of the noise."""
    rises = {
        name: [largest_rise(part) for part in outcome.between(name)]
        for name in ("authors", "authors_relative")
    }
    absolute, relative = (Interval.of(values) for values in rises.values())
    difference = Interval.of(
        [a - r for a, r in zip(rises["authors"], rises["authors_relative"], strict=True)]
    )
    if absolute is None or relative is None or difference is None:
        return []
    measured = (
        f"largest rise between memorised and jump, over the largest value: {absolute.text(2)} with "
        f"absolute noise, {relative.text(2)} relative to the embedding's RMS"
    )
    return [
        Claim(
            statement="Addition: the authors' sensitivity has a hump between memorised and jump",
            paper="3.1 % → 8.6 % (seed 42): a rise of 0.64",
            measured=f"rise of {absolute.text(2)}",
            holds=absolute.low > 0.1,
        ),
        Claim(
            statement="Addition: the hump is an artefact of the noise's unit: smaller with noise "
            "relative to the embedding, and there below 0.1",
            paper="–",
            measured=f"{measured}; difference {difference.text(2)}",
            holds=difference.positive and relative.high < 0.1,
        ),
    ]


def hump_verdict(outcome: Outcome) -> str:
    """The plain answer about the hump, for the summary."""
    claims = hump_claims(outcome)
    if not claims:
        return ""
    if not claims[0].holds:
        return "There is no hump of the authors' sensitivity between memorised and jump."
    word = "is" if claims[1].holds else "is not, or not only,"
    return f"The hump {word} an artefact of the noise's unit: {claims[1].measured}."


def lead_claims(outcome: Outcome) -> list[Claim]:
    """Leads and alarms of every sensitivity, and of the rivals for comparison."""
    claims = []
    for measure in outcome.measures:
        if measure.name == "test_accuracy":
            continue
        lead = Interval.of(outcome.leads(measure.name, "10 %"))
        if measure.sensitivity:
            claims.append(
                Claim(
                    statement=f"{outcome.title}: {measure.label}: covers 10 % of its way before "
                    "the jump of test accuracy",
                    paper="falls steadily for about 7,000 epochs before it"
                    if measure.name == "authors"
                    else "–",
                    measured=f"lead {lead.text()} epochs" if lead else "it never does",
                    holds=lead is not None and lead.positive,
                )
            )
        claims.append(
            Claim(
                statement=f"{outcome.title}: {measure.label}: a progress measure, beyond every "
                "control before the jump",
                paper="yes, without controls" if measure.name == "authors" else "–",
                measured=_alarms(outcome, measure.name),
                holds=is_progress_measure(outcome, measure.name),
            )
        )
    return claims


def _alarms(outcome: Outcome, measure: str) -> str:
    parts = []
    for column, title in outcome.columns.items():
        if column not in SHARES:
            lead = Interval.of(outcome.leads(measure, column))
            early = early_alarms(outcome, measure, column)
            text = f", lead {lead.text()} epochs" if lead else ""
            parts.append(f"{title}: before the jump in {early} of {len(outcome.jumps)} runs{text}")
    return "; ".join(parts)


def verdict(outcome: Outcome) -> str:
    """The plain answer, for the summary."""
    if not outcome.jumps:
        return f"{outcome.title}: no run generalised, so nothing can be said about leads."
    total, parts = len(outcome.jumps), []
    for m in outcome.measures:
        if m.sensitivity:
            lead = Interval.of(outcome.leads(m.name, "10 %"))
            parts.append(
                f"{m.label}: {'yes' if is_progress_measure(outcome, m.name) else 'no'} (alarm "
                f"before the jump in {early_alarms(outcome, m.name)} of {total} runs; covers 10 % "
                f"of its way {lead.text() if lead else 'never'} epochs before)"
            )
    rivals = [
        m.label
        for m in outcome.measures
        if not m.sensitivity and is_progress_measure(outcome, m.name)
    ]
    return (
        f"{outcome.title}: is sensitivity a progress measure, that is, does it, before the jump, "
        f"go beyond all that it does in runs that do not generalise? {'; '.join(parts)}. Of the "
        f"rivals these do: {', '.join(rivals) or 'none'}."
    )


def runs_table(outcome: Outcome) -> Table:
    """When each run memorised and generalised."""
    rows: list[tuple[Cell, ...]] = []
    for seed, run in zip(outcome.training.seeds, outcome.runs, strict=True):
        rows.append((seed, run.memorised, run.plateau, run.jump, run.final))
    arms = ", ".join(f"{arm.label} (decay {arm.weight_decay:g})" for arm in outcome.training.arms)
    return Table(
        title=f"{outcome.title}: runs",
        columns=("seed", "memorised", "test acc. then", "jump", "final test acc."),
        rows=tuple(rows),
        note=f"In epochs; measured every {outcome.training.every} of {outcome.training.epochs}. "
        f"Arms: {arms}.",
    )


def lead_table(outcome: Outcome) -> Table:
    """Mean leads with intervals."""
    rows: list[tuple[Cell, ...]] = []
    for m in outcome.measures:
        leads = [Interval.of(outcome.leads(m.name, column)) for column in outcome.columns]
        cells = [None if lead is None else lead.text() for lead in leads]
        early = f"{early_alarms(outcome, m.name)} of {len(outcome.jumps)}"
        progress = "yes" if is_progress_measure(outcome, m.name) else "no"
        rows.append((m.label, *cells, early, progress))
    return Table(
        title=f"{outcome.title}: epochs by which measures lead the jump of test accuracy",
        columns=("measure", *outcome.columns.values(), "before the jump", "progress measure"),
        rows=tuple(rows),
        note="Mean over runs, 95 % t-interval, raw curves. Lead at 10 %: since when the measure "
        "has covered a tenth of its way from its worst value after memorisation to its final one. "
        "Alarm: since when it is beyond all values of the control runs after they memorised.",
    )


def seed_table(outcome: Outcome) -> Table:
    """Leads run by run."""
    rows: list[tuple[Cell, ...]] = []
    for m in outcome.measures:
        cells = [
            " / ".join(_whole(jump.leads[m.name][column]) for column in outcome.columns)
            for jump in outcome.jumps
        ]
        rows.append((m.label, *cells))
    seeds = (f"seed {outcome.training.seeds[jump.place]}" for jump in outcome.jumps)
    return Table(
        title=f"{outcome.title}: the same, run by run",
        columns=("measure", *seeds),
        rows=tuple(rows),
        note=f"In epochs: {' / '.join(outcome.columns.values())}; a dash for what never came.",
    )


def values(outcome: Outcome) -> dict[str, Any]:
    """For programs."""
    return {
        "runs": [dataclasses.asdict(run) for run in outcome.runs],
        "progress_measures": [
            m.name for m in outcome.measures if is_progress_measure(outcome, m.name)
        ],
        "final": {
            arm: {name: v[..., -1] for name, v in curves.items()}
            for arm, curves in outcome.curves.items()
        },
    }


def _whole(lead: float | None) -> str:
    return "–" if lead is None else f"{lead:.0f}"


def _span(jumps: Sequence[Jump], name: str, digits: int = 0) -> str:
    return _numbers(np.array([getattr(jump, name) for jump in jumps], float), digits)


def _numbers(found: np.ndarray, digits: int) -> str:
    if not len(found):
        return "–"
    low, high = f"{found.min():.{digits}f}", f"{found.max():.{digits}f}"
    return low if low == high else f"{low} to {high}"
