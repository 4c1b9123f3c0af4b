"""Claims and tables of the experiment `grokking`, from its raw curves."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxsens.results import Cell, Claim, Table

from .grokking_leads import GENERALISED, SHARES, Interval, Measure, Run, analyse, largest_rise
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
_ALARM = len(SHARES)


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
        first, *others = (curves[arm.name] for arm in training.arms)
        return cls(training, title, measures, curves, analyse(measures, first, others))

    @property
    def first(self) -> dict[str, np.ndarray]:
        """The curves of the runs that should generalise."""
        return self.curves[self.training.arms[0].name]

    @property
    def jumps(self) -> list[tuple[int, Run]]:
        """The runs that generalised, with their places."""
        return [(i, run) for i, run in enumerate(self.runs) if run.jump is not None]

    def leads(self, measure: str, column: int) -> list[float | None]:
        """Of the runs that generalised: at a share of `SHARES`, or the alarm."""
        return [run.leads[measure][column] for _, run in self.jumps]

    def between(self, measure: str) -> list[np.ndarray]:
        """The curves from memorised to jump, of the runs that generalised."""
        epochs = self.first["epochs"]
        return [
            self.first[measure][i][(epochs >= run.memorised) & (epochs <= run.jump)]
            for i, run in self.jumps
        ]


def early_alarms(outcome: Outcome, measure: str) -> int:
    """How many runs gave the alarm before the jump."""
    return sum(lead is not None and lead > 0 for lead in outcome.leads(measure, _ALARM))


def is_progress_measure(outcome: Outcome, measure: str) -> bool:
    """Whether every run gave the alarm before the jump, with a lead whose interval is above 0."""
    lead = Interval.of(outcome.leads(measure, _ALARM))
    every = early_alarms(outcome, measure) == len(outcome.jumps) > 1
    return every and lead is not None and lead.positive


def grokking_claims(outcome: Outcome) -> list[Claim]:
    """Whether the runs generalised late, and the controls not at all."""
    runs, total = [run for _, run in outcome.jumps], len(outcome.runs)
    late = [run for run in runs if run.plateau is not None and run.plateau < 0.6]
    # Fewer than 0.6 when memorised: sparse parity starts at 0.5, addition at the mirrored pairs.
    finals = [run.final for run in outcome.runs]
    claims = [
        Claim(
            statement=f"{outcome.title}: test accuracy jumps above {GENERALISED} long after the "
            "training set is memorised",
            paper="yes, for 3 of 3 seeds" if outcome.title.startswith("Addition") else "–",
            measured=f"{len(late)} of {total} runs; memorised at {_span(runs, 'memorised')}, test "
            f"accuracy then {_span(runs, 'plateau', 3)}; jump at {_span(runs, 'jump')}; final "
            f"{min(finals):.3f} to {max(finals):.3f}",
            holds=len(late) == total
            and all((run.jump or 0) >= 2 * max(run.memorised or 0, 1) for run in late),
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
            holds=absolute.low is not None and absolute.low > 0.1,
        ),
        Claim(
            statement="Addition: the hump is an artefact of the noise's unit: smaller with noise "
            "relative to the embedding, and there below 0.1",
            paper="–",
            measured=f"{measured}; difference {difference.text(2)}",
            holds=difference.positive and relative.high is not None and relative.high < 0.1,
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
        lead = Interval.of(outcome.leads(measure.name, 0))
        alarm = Interval.of(outcome.leads(measure.name, _ALARM))
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
        early = early_alarms(outcome, measure.name)
        claims.append(
            Claim(
                statement=f"{outcome.title}: {measure.label}: a progress measure, beyond every "
                "control before the jump",
                paper="yes, without controls" if measure.name == "authors" else "–",
                measured=f"alarm before the jump in {early} of {len(outcome.jumps)} runs; lead "
                + (f"{alarm.text()} epochs in {alarm.num} with an alarm" if alarm else "none"),
                holds=is_progress_measure(outcome, measure.name),
            )
        )
    return claims


def verdict(outcome: Outcome) -> str:
    """The plain answer, for the summary."""
    if not outcome.jumps:
        return f"{outcome.title}: no run generalised, so nothing can be said about leads."
    good = [m.label for m in outcome.measures if is_progress_measure(outcome, m.name)]
    parts = []
    for m in outcome.measures:
        if m.sensitivity:
            word = "is" if is_progress_measure(outcome, m.name) else "is not"
            lead = Interval.of(outcome.leads(m.name, 0))
            parts.append(
                f"{m.label} {word} (10 % lead {lead.text() if lead else 'none'} epochs, alarm "
                f"before the jump in {early_alarms(outcome, m.name)} of {len(outcome.jumps)} runs)"
            )
    return (
        f"{outcome.title}: a progress measure is one that, before the jump, goes beyond all that "
        f"it does in runs that do not generalise. {'; '.join(parts)}. All that are: "
        f"{', '.join(good) or 'none'}."
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
        leads = [Interval.of(outcome.leads(m.name, column)) for column in range(_ALARM + 1)]
        cells = [None if lead is None else lead.text() for lead in leads]
        early = f"{early_alarms(outcome, m.name)} of {len(outcome.jumps)}"
        progress = "yes" if is_progress_measure(outcome, m.name) else "no"
        rows.append((m.label, *cells, early, progress))
    shares = (f"lead at {share:.0%}" for share in SHARES)
    return Table(
        title=f"{outcome.title}: epochs by which measures lead the jump of test accuracy",
        columns=("measure", *shares, "lead of the alarm", "alarm before jump", "progress measure"),
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
            " / ".join("–" if lead is None else f"{lead:.0f}" for lead in run.leads[m.name])
            for _, run in outcome.jumps
        ]
        rows.append((m.label, *cells))
    seeds = (f"seed {outcome.training.seeds[i]}" for i, _ in outcome.jumps)
    return Table(
        title=f"{outcome.title}: the same, run by run",
        columns=("measure", *seeds),
        rows=tuple(rows),
        note="Leads at 10 % / at 50 % / of the alarm, in epochs; a dash for what never came.",
    )


def values(outcome: Outcome) -> dict:
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


def _span(runs: Sequence[Run], name: str, digits: int = 0) -> str:
    return _numbers(np.array([getattr(run, name) for run in runs], float), digits)


def _numbers(found: np.ndarray, digits: int) -> str:
    if not len(found):
        return "–"
    low, high = f"{found.min():.{digits}f}", f"{found.max():.{digits}f}"
    return low if low == high else f"{low} to {high}"
