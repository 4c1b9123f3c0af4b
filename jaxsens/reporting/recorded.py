"""Recorded runs: the results that the project publishes, as data, and the pages made of them.

A recorded run is the results.json of a finished run, kept as `experiments/NAME/recorded/LABEL.json`
with the command, the commit and the machine that made it. Pages are functions of these files: one
per experiment, and one with every claim of every recorded run. Nothing on them is typed by hand.
"""

import dataclasses
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from jaxsens.core.files import write_atomic
from jaxsens.reporting.report import duration
from jaxsens.reporting.results import Claim, Results, Table

#: Values for programs that are longer than this stay in the run folder.
MAX_VALUES = 100_000

#: The first line of every page, so that nobody edits one.
GENERATED = "<!-- Made by `make results` from experiments/*/recorded/*.json; do not edit. -->"


@dataclasses.dataclass(frozen=True)
class RecordedRun:
    """A recorded run: its label, such as "small-cifar10", and its results."""

    label: str
    results: Results


class NotRecordableError(ValueError):
    """The run cannot be published; the message says why."""


def record(run: Path, experiments: Path) -> Path:
    """Copies the results of a finished run to where recorded runs lie.

    Args:
      run: its folder.
      experiments: the folder of all experiments.

    Returns:
      The new file.

    Raises:
      NotRecordableError: the run is not finished, or does not say which commit or command made it.
    """
    file = run / "results.json"
    if not file.exists():
        raise NotRecordableError(f"{run} is not the folder of a finished run: no results.json")
    results = Results.from_json(file.read_text("utf-8"))
    commit = results.environment.get("commit", "")
    if not commit or commit.endswith("+"):
        raise NotRecordableError(
            f"{run} was made by {f'commit {commit}, with changes' if commit else 'no checkout'}; "
            "commit everything and run it again, so that others can repeat it"
        )
    if not results.command:
        raise NotRecordableError(f"{run} does not say which command made it; run it again")
    if len(results.to_json()) > MAX_VALUES:
        results = dataclasses.replace(results, values={})
    folder = experiments / results.experiment / "recorded"
    folder.mkdir(exist_ok=True)
    target = folder / f"{label_of(results.command)}.json"
    write_atomic(target, results.to_json())
    return target


def label_of(command: str) -> str:
    """A short name for a run: its preset, and the values of the other flags.

    >>> label_of("python -m jaxsens.run --exp vision --preset small --dataset cifar10 --no-reduced")
    'small-cifar10-no-reduced'
    >>> label_of("python -m jaxsens.run --exp vision")
    'quick'
    """
    flags: list[list[str]] = []
    for word in shlex.split(command)[3:]:
        if word.startswith("--"):
            flags.append([word])
        else:
            flags[-1].append(word)
    values = {flag: given or [flag.removeprefix("--")] for flag, *given in flags}
    del values["--exp"]
    preset = values.pop("--preset", ["quick"])
    parts = [*preset, *(value for given in values.values() for value in given)]
    return "-".join(re.sub(r"[^\w.-]+", "_", part) for part in parts)


def load(experiments: Path) -> dict[str, list[RecordedRun]]:
    """All recorded runs, by experiment, in the order of their files' names.

    Args:
      experiments: the folder of all experiments.
    """
    found: dict[str, list[RecordedRun]] = {}
    for file in sorted(experiments.glob("*/recorded/*.json")):
        run = RecordedRun(file.stem, Results.from_json(file.read_text("utf-8")))
        found.setdefault(file.parents[1].name, []).append(run)
    return found


def pages(experiments: Path) -> dict[str, str]:
    """Every page by the name of its file: one per experiment, and `README.md` with all claims.

    An experiment's `remarks.md`, if there is one, stands before its runs: what a reader must know
    of choices that no number shows, such as those made after an outcome had been seen.

    Args:
      experiments: the folder of all experiments.
    """
    recorded = load(experiments)
    found = {"README.md": _claims_page(recorded)}
    for name, runs in recorded.items():
        remarks = experiments / name / "remarks.md"
        known = [remarks.read_text("utf-8").strip()] if remarks.exists() else []
        found[f"{name}.md"] = _page(f"`{name}`", *known, *(p for r in runs for p in _run_parts(r)))
    return found


def _claims_page(recorded: Mapping[str, Sequence[RecordedRun]]) -> str:
    rows = [
        (
            f"[{name}]({name}.md)",
            run.label,
            claim.statement,
            _verdict(claim),
            claim.paper,
            claim.measured,
            interval_text(claim),
            _or_dash(claim.num_examples),
            _or_dash(claim.num_seeds),
            run.results.environment["commit"],
        )
        for name, runs in recorded.items()
        for run in runs
        for claim in run.results.claims
    ]
    columns = (
        *("experiment", "run", "claim", "", "paper", "measured here", "interval of what decides"),
        *("n", "seeds", "commit"),
    )
    holds = sum(row[3] == "holds" for row in rows)
    return _page(
        "Every claim of every recorded run",
        f"{len(rows)} claims of {sum(map(len, recorded.values()))} runs; {holds} hold, "
        f"{len(rows) - holds} do not. `n` counts the examples that the interval is about, `seeds` "
        "the independently trained models behind each value: where it is 1, the interval says "
        "nothing about another training run. Runs marked quick are small and made to show a "
        "direction within minutes. What earlier versions of the code measured, on larger data, is "
        "kept in [earlier/](earlier/README.md).",
        markdown_table(columns, rows),
    )


def _run_parts(run: RecordedRun) -> Iterable[str]:
    results = run.results
    made = results.environment
    yield f"## {run.label}: {results.title}"
    yield f"    {results.command}"
    yield (
        f"{results.summary} Commit {made['commit']}, {duration(results.seconds)} on "
        f"{made['num_cpus']} cores ({made['cpu']}), jax {made['jax']}."
    )
    for table in results.tables:
        yield _table(table)
    rows = [
        (claim.statement, claim.paper, claim.measured, _verdict(claim)) for claim in results.claims
    ]
    yield markdown_table(("claim", "paper", "measured here", ""), rows)


def _table(table: Table) -> str:
    body = markdown_table(table.columns, table.cells(), table.numeric())
    return "\n\n".join(filter(None, [f"**{table.title}**", body, table.note]))


def markdown_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], numeric: Sequence[bool] | None = None
) -> str:
    r"""A table in Markdown.

    >>> print(markdown_table(("model", "ours"), [("ViT | CNN", "0.03")], (False, True)))
    | model | ours |
    |---|---:|
    | ViT \| CNN | 0.03 |
    """

    def line(cells: Iterable[str]) -> str:
        escaped = (cell.replace("|", r"\|").replace("\n", " ") for cell in cells)
        return f"| {' | '.join(escaped)} |"

    rule = ["---:" if right else "---" for right in numeric or [False] * len(columns)]
    return "\n".join([line(columns), f"|{'|'.join(rule)}|", *map(line, rows)])


def interval_text(claim: Claim) -> str:
    """The interval of what decides a claim, in words.

    >>> interval_text(Claim("a < b", "", "", True, {}, "difference", (0.01, None)))
    'difference: 0.01 to ∞ (95 %)'
    """
    if claim.interval is None:
        return "–"
    low, high = claim.interval
    ends = f"{'−∞' if low is None else f'{low:.4g}'} to {'∞' if high is None else f'{high:.4g}'}"
    ends = f"{ends} ({100 * claim.level:.3g} %)"
    return f"{claim.decided_by}: {ends}" if claim.decided_by else ends


def _verdict(claim: Claim) -> str:
    return "holds" if claim.holds else "**does not hold**"


def _or_dash(number: int | None) -> str:
    return "–" if number is None else str(number)


def _page(title: str, *parts: str) -> str:
    return "\n\n".join([GENERATED, f"# {title}", *parts]) + "\n"
