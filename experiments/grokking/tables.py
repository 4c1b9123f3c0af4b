"""Tables of the experiment `grokking`, from its raw curves."""

from jaxsens.reporting.results import Cell, Table

from .leads import MeanOverRuns
from .outcome import Outcome, beyond_accuracy, early_alarms, is_progress_measure


def tables_of(outcome: Outcome) -> list[Table]:
    """When each run did what and, if any generalised, what announced it."""
    if not outcome.jumps:
        return [runs_table(outcome)]
    return [runs_table(outcome), lead_table(outcome), seed_table(outcome)]


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
        leads = [MeanOverRuns.of(outcome.leads(m.name, column)) for column in outcome.columns]
        cells = [None if lead is None else lead.text() for lead in leads]
        early = f"{early_alarms(outcome, m.name)} of {len(outcome.jumps)}"
        against = beyond_accuracy(outcome, m.name)
        cells.append(None if against is None else against.text())
        progress = "yes" if is_progress_measure(outcome, m.name) else "no"
        rows.append((m.label, *cells, early, progress))
    return Table(
        title=f"{outcome.title}: epochs by which measures lead the jump of test accuracy",
        columns=(
            *("measure", *outcome.columns.values(), "before test accuracy's"),
            *("before the jump", "progress measure"),
        ),
        rows=tuple(rows),
        note="Mean over runs, 95 % t-interval, raw curves. Lead at 10 %: since when the measure "
        "has covered a tenth of its way from its worst value after memorisation to its final one. "
        "Alarm: since when it is beyond all values of the control runs after they memorised. "
        "Before test accuracy's: the alarm for all controls against test accuracy's, run by run.",
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


def _whole(lead: float | None) -> str:
    return "–" if lead is None else f"{lead:.0f}"
