"""Recorded runs: the results that the project publishes, as data, and the pages made of them.

A recorded run is the results.json of a finished run, kept as `experiments/NAME/recorded/LABEL.json`
with the command, the commit and the machine that made it. Its figures are kept, smaller, beside the
pages. Pages are functions of these files: one per experiment, and one with every claim of every
recorded run. Nothing on them is typed by hand.
"""

import dataclasses
import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from PIL import Image

from jaxsens.core.files import write_atomic
from jaxsens.reporting.plain_json import dumps
from jaxsens.reporting.report import duration
from jaxsens.reporting.results import FEW_SENTENCES, Claim, Figure, Results, Table

#: Values for programs that are longer than this stay in the run folder.
MAX_VALUES = 100_000

#: Figures are shown as wide as a page, and no wider: pixels.
MAX_WIDTH = 1200

#: The first line of every page, so that nobody edits one.
GENERATED = "<!-- Made by `make results` from experiments/*/recorded/*.json; do not edit. -->"


@dataclasses.dataclass(frozen=True)
class Changed:
    """Claims with another verdict than in the record before.

    Attributes:
      commit: the one that made the record before.
      held: whether each of them held there, by its statement.
    """

    commit: str
    held: dict[str, bool]


@dataclasses.dataclass(frozen=True)
class RecordedRun:
    """A recorded run.

    Attributes:
      label: such as "small-cifar10".
      results: its results.
      changed: what changed since the record before, if anything.
    """

    label: str
    results: Results
    changed: Changed | None = None

    @classmethod
    def read(cls, file: Path) -> "RecordedRun":
        """The run that a file records."""
        fields = json.loads(file.read_text("utf-8"))
        changed = fields.pop("changed", None)
        return cls(
            file.stem,
            Results.from_json(json.dumps(fields)),
            Changed(**changed) if changed else None,
        )

    def write(self, folder: Path) -> Path:
        """Writes the file that records the run."""
        target = folder / f"{self.label}.json"
        fields = json.loads(self.results.to_json())
        if self.changed:
            fields["changed"] = dataclasses.asdict(self.changed)
        write_atomic(target, dumps(fields, str(target), indent=2) + "\n")
        return target


class NotRecordableError(ValueError):
    """The run cannot be published; the message says why."""


def record(run: Path, experiments: Path, instead_of: str | None = None) -> Path:
    """Copies the results of a finished run to where recorded runs lie.

    Which claims have another verdict than in the record that this one replaces is kept with it.

    Args:
      run: its folder.
      experiments: the folder of all experiments.
      instead_of: the label of the record that it replaces; default its own.

    Returns:
      The new file.

    Raises:
      NotRecordableError: the run is not finished, or does not say which commit or command made it,
        or there is no record that it could replace.
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
    label = label_of(results.command)
    before = folder / f"{instead_of or label}.json"
    if instead_of and not before.exists():
        raise NotRecordableError(f"{before} does not exist, and so cannot be replaced")
    changed = _changed(RecordedRun.read(before), results) if before.exists() else None
    target = RecordedRun(label, results, changed).write(folder)
    if before != target:
        before.unlink(missing_ok=True)
    return target


def _changed(before: RecordedRun, results: Results) -> Changed | None:
    """The claims of both that have another verdict now."""
    held = {claim.statement: claim.holds for claim in before.results.claims}
    other = {
        claim.statement: held[claim.statement]
        for claim in results.claims
        if held.get(claim.statement, claim.holds) != claim.holds
    }
    return Changed(before.results.environment["commit"], other) if other else None


def keep_figures(run: Path, figures: Path) -> list[Path]:
    """Keeps the figures of a finished run where its page shows them: small PNG files.

    Args:
      run: its folder.
      figures: the folder of all figures; those of the run are in `EXPERIMENT/LABEL/`, without any
        of an earlier run of that label.

    Returns:
      The new files.
    """
    results = Results.from_json((run / "results.json").read_text("utf-8"))
    folder = figures / results.experiment / label_of(results.command)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.png"):
        old.unlink()
    found = []
    for figure in results.figures:
        with Image.open(run / figure.file) as image:
            page = Image.new("RGB", image.size, "white")
            drawn = image.convert("RGBA")
            page.paste(drawn, mask=drawn.getchannel("A"))
        page.thumbnail((MAX_WIDTH, 4 * MAX_WIDTH), Image.Resampling.LANCZOS)
        found.append(folder / Path(figure.file).name)
        page.quantize(128).save(found[-1], "PNG", optimize=True)
    return found


def label_of(command: str) -> str:
    """A short name for a run: its preset and the values of the other flags.

    A number, or None, has its flag before it.

    >>> label_of("python -m jaxsens.run --exp vision --preset small --dataset cifar10 --no-reduced")
    'small-cifar10-no-reduced'
    >>> label_of("python -m jaxsens.run --exp vision --seeds 5")
    'quick-seeds_5'
    >>> label_of("python -m jaxsens.run --exp language --depths None")
    'quick-depths_none'
    """
    flags: list[list[str]] = []
    for word in shlex.split(command)[3:]:
        if word.startswith("--"):
            flags.append([word])
        else:
            flags[-1].append(word)
    values = {flag: _parts_of(flag.removeprefix("--"), given) for flag, *given in flags}
    del values["--exp"]
    preset = values.pop("--preset", ["quick"])
    parts = [*preset, *(value for given in values.values() for value in given)]
    return "-".join(re.sub(r"[^\w.-]+", "_", part.lower()) for part in parts)


def _parts_of(flag: str, given: Sequence[str]) -> Sequence[str]:
    says_little = re.compile(r"-?\d+(\.\d+)?|None").fullmatch
    return [f"{flag}_{value}" if says_little(value) else value for value in given] or [flag]


def load(experiments: Path) -> dict[str, list[RecordedRun]]:
    """All recorded runs, by experiment, in the order of their files' names.

    Args:
      experiments: the folder of all experiments.
    """
    found: dict[str, list[RecordedRun]] = {}
    for file in sorted(experiments.glob("*/recorded/*.json")):
        found.setdefault(file.parents[1].name, []).append(RecordedRun.read(file))
    return found


def pages(experiments: Path, figures: Path | None = None) -> dict[str, str]:
    """Every page by the name of its file: one per experiment, and `README.md` with all claims.

    An experiment's `remarks.md`, if there is one, stands before its runs: what a reader must know
    of choices that no number shows, such as those made after an outcome had been seen.

    Args:
      experiments: the folder of all experiments.
      figures: the folder `figures` beside the pages; those that are kept there are shown.
    """
    recorded = load(experiments)
    found = {"README.md": _claims_page(recorded)}
    for name, runs in recorded.items():
        remarks = experiments / name / "remarks.md"
        known = [remarks.read_text("utf-8").strip()] if remarks.exists() else []
        parts = (part for run in runs for part in _run_parts(run, name, figures))
        found[f"{name}.md"] = _page(f"`{name}`", *known, *parts)
    return found


def _claims_page(recorded: Mapping[str, Sequence[RecordedRun]]) -> str:
    parts, overview = [], []
    for name, runs in recorded.items():
        for run in runs:
            claims, commit = run.results.claims, run.results.environment["commit"]
            holds = sum(claim.holds for claim in claims)
            heading = f"{name}, {run.label}"
            link = f"[{heading}](#{heading.replace(',', '').replace('.', '').replace(' ', '-')})"
            overview.append((link, str(holds), str(len(claims) - holds), commit))
            about = f"{run.results.title}. The numbers are on [its page]({name}.md)."
            parts += [f"## {heading}", about, _claims_table(run)]
    holds, fails = (sum(int(row[i]) for row in overview) for i in (1, 2))
    return _page(
        "Every claim of every recorded run",
        f"{holds + fails} claims of {len(overview)} runs; {holds} hold, {fails} do not. `n` counts "
        "the examples that the interval is about, `seeds` "
        "the independently trained models behind each value: where it is 1, the interval says "
        "nothing about another training run. Runs marked quick are small and made to show a "
        "direction within minutes. What earlier versions of the code measured, on larger data, is "
        "kept in [earlier/](earlier/README.md).",
        markdown_table(
            ("run", "hold", "do not hold", "commit"), overview, (False, True, True, False)
        ),
        *parts,
    )


def _claims_table(run: RecordedRun) -> str:
    rows = [
        (
            claim.statement,
            _verdict(claim, run.changed),
            claim.paper,
            claim.measured,
            interval_text(claim),
            _or_dash(claim.num_examples),
            _or_dash(claim.num_seeds),
        )
        for claim in run.results.claims
    ]
    columns = ("claim", "verdict", "paper", "measured here", "interval of what decides")
    numeric = [False] * len(columns) + [True, True]
    return _as_claims(markdown_table((*columns, "n", "seeds"), rows, numeric))


def _run_parts(run: RecordedRun, name: str, figures: Path | None) -> Iterable[str]:
    results = run.results
    made = results.environment
    yield f"## {run.label}: {results.title}"
    yield f"    {results.command}"
    made_by = (
        f"Commit {made['commit']}, {duration(results.seconds)} on {made['num_cpus']} cores "
        f"({made['cpu']}), jax {made['jax']}."
    )
    if len(results.sentences) > FEW_SENTENCES:
        yield "\n".join(f"- {sentence}" for sentence in results.sentences)
        yield made_by
    else:
        yield f"{results.summary} {made_by}"
    for table in results.tables:
        yield _table(table)
    rows = [
        (claim.statement, _verdict(claim, run.changed), claim.paper, claim.measured)
        for claim in results.claims
    ]
    yield _as_claims(markdown_table(("claim", "verdict", "paper", "measured here"), rows))
    folder = Path(name) / run.label
    shown = [f for f in results.figures if figures and (figures / folder / _file(f)).exists()]
    for number, figure in enumerate(shown, 1):
        path = (Path("figures") / folder / _file(figure)).as_posix()
        # A link to itself: panels side by side are too small on a phone.
        yield f"[![Figure {number} of this run; its caption is below]({path})]({path})"
        yield f"**Figure {number}.** {figure.caption}"


def _as_claims(table: str) -> str:
    """The table in a division of its own, which the site shows as a list on a phone."""
    return f'<div class="claims" markdown>\n\n{table}\n\n</div>'


def _file(figure: Figure) -> str:
    return Path(figure.file).name


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


def _verdict(claim: Claim, changed: Changed | None) -> str:
    verdict = "holds" if claim.holds else "**does not hold**"
    if changed is None or claim.statement not in changed.held:
        return verdict
    before = "held" if changed.held[claim.statement] else "did not hold"
    return f"{verdict}; {before} in the record before ({changed.commit})"


def _or_dash(number: int | None) -> str:
    return "–" if number is None else str(number)


def _page(title: str, *parts: str) -> str:
    return "\n\n".join([GENERATED, f"# {title}", *parts]) + "\n"
