"""Writes the tables of benchmarks/README.md from benchmarks/results: `python -m benchmarks.page`.

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`; what is between them is
replaced, everything else is left as it is. A test fails where the page and the data differ.
"""

import functools
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import devices, foreign, many_runs, occlusion, pytorch, start, worst_case
from benchmarks.compare import BASELINE, PLAIN
from benchmarks.frame import Column, Row, markdown_table
from benchmarks.sensitivity import DEFAULT_METHODS, milliseconds
from benchmarks.targets import JUDGED, verdicts
from benchmarks.training import SIDES as TRAINED_BY
from jaxsens.core.files import write_atomic

FOLDER = Path(__file__).parent
PAGE, RESULTS = FOLDER / "README.md", FOLDER / "results"

_TABLE = re.compile(r"(<!-- table: (\w+) -->\n\n).*?(\n\n<!-- end of table -->)", re.DOTALL)

_COMPARED = (
    Column("against the best torch", "against_torch", lambda text: text),
    Column(f"against {BASELINE}", "vs_loop", "{:.2f}×".format),
    Column("against plain", "against_plain", lambda text: text),
)
_COSTS = (
    Column("compile s, plain / jaxsens", "compile_seconds", lambda text: text),
    Column("peak MB, loop / plain / jaxsens", "peak_mb", lambda text: text),
    Column("draws/s", "draws_per_second", "{:,.0f}".format),
    Column("of matmul peak, plain / jaxsens", "of_peak", lambda text: text),
)


def read(name: str) -> dict:
    """What `--json` kept of a run."""
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


def sensitivity_table() -> str:
    """Every model by every method that ran, and what the default costs."""
    run = read("sensitivity")
    ran = {row["method"] for row in run["rows"]}
    model, *methods = _methods(tuple(name for name in DEFAULT_METHODS if name in ran))
    size = Column("n", "num_images", "{:d}".format)
    return markdown_table((model, size, *methods, *_COMPARED, *_COSTS), _models(run))


def headline_table() -> str:
    """The fastest PyTorch of each model, the default, and what of the difference is reuse."""
    run = read("sensitivity")
    rows = []
    for verdict in verdicts(run["rows"]):
        cells = {row["method"]: row for row in run["rows"] if row["model"] == verdict["model"]}
        peer, same = verdict["best_torch"], verdict["plain_verdict"] == "the same program"
        rows.append(
            {
                "model": verdict["model"],
                "peer": f"{milliseconds(cells[peer]['ms_per_image'])} ({peer})",
                "ours": cells[JUDGED]["ms_per_image"],
                "faster": _bold_if_short(verdict, "torch"),
                "reuse": "same program" if same else _bold_if_short(verdict, "plain"),
            }
        )
    columns = (
        Column("model", "model"),
        Column("times as fast", "faster", lambda text: text),
        Column("of which by reuse", "reuse", lambda text: text),
        Column("jaxsens, ms", "ours", milliseconds),
        Column("fastest PyTorch, ms", "peer", lambda text: text),
    )
    return markdown_table(columns, rows)


def targets_line() -> str:
    """How many targets are reached, and which are not."""
    found = verdicts(read("sensitivity")["rows"])
    judged = [
        (whom, row)
        for whom in ("torch", "plain")
        for row in found
        if row[f"{whom}_verdict"] != "the same program"
    ]
    short: dict[str, list[str]] = {"torch": [], "plain": []}
    for whom, row in judged:
        if row[f"{whom}_verdict"] != "reached":
            ratio, target = row[f"vs_{whom}"], row[f"{whom}_target"]
            short[whom].append(f"`{row['model']}` {ratio:.4g}× for {target:.4g}×")
    reached = len(judged) - sum(map(len, short.values()))
    missed = [
        f"against {name} {', '.join(short[whom])}"
        for whom, name in (("torch", "the fastest PyTorch"), ("plain", f"`{PLAIN}`"))
        if short[whom]
    ]
    line = f"{reached} of {len(judged)} targets are reached."
    return f"{line} **Missed:** {'; '.join(missed)}." if missed else line


def runs_table() -> str:
    """The machine of every run that is recorded."""
    rows = []
    for name in TABLES:
        if name in SOURCES or not (RESULTS / f"{name}.json").exists():
            continue
        run = read(name)
        machine, threads = run["machine"], run["options"]["threads"]
        made = {"run": name, "commit": None, "threads": threads}
        rows.append(made | machine | machine["versions"])
    columns = (
        Column("run", "run"),
        Column("commit", "commit"),
        Column("processor", "cpu"),
        Column("cores", "cores", "{:d}".format),
        Column("threads of a cell", "threads", "{:d}".format),
        Column("load before", "load", "{:.1f}".format),
        *(Column(name, name) for name in ("jax", "torch", "captum", "python")),
    )
    return markdown_table(columns, rows)


def again_table() -> str:
    """Four models once more."""
    columns = (*_methods((BASELINE, PLAIN, JUDGED)), *_COMPARED)
    return markdown_table(columns, _models(read("again")))


def training_table() -> str:
    """A step of every model by every method, and jaxsens beside the fastest PyTorch."""
    run = read("training")
    rows: dict[str, Row] = {}
    for row in run["rows"]:
        line = rows.setdefault(row["model"], {"model": row["model"]})
        line[row["method"]] = row.get("ms_per_step")
        line[f"compile {row['method']}"] = row.get("compile_seconds")
    for verdict in run["tables"]["Against the fastest PyTorch"]:
        rows[verdict["model"]]["against"] = _against_torch(verdict)
    costs = [
        Column(f"compile s, {name}", f"compile {name}", "{:.1f}".format)
        for name in TRAINED_BY
        if name != "torch"
    ]
    columns = (
        *_methods(tuple(TRAINED_BY)),
        Column("against the best torch", "against", lambda text: text),
        *costs,
    )
    return markdown_table(columns, list(rows.values()))


def training_line() -> str:
    """How many models are trained no slower than by the fastest PyTorch, and which are not."""
    rows = read("training")["tables"]["Against the fastest PyTorch"]
    short = [
        f"`{row['model']}` ({row['ratio']:.2f}×)" for row in rows if row["verdict"] != "reached"
    ]
    line = (
        f"The goal, no slower than the fastest PyTorch, is reached for {len(rows) - len(short)} of "
        f"{len(rows)} models."
    )
    return f"{line} **Missed:** {', '.join(short)}." if short else line


def scaling_table() -> str:
    """How the cost of each method grows along each axis."""
    grown = [row for row in read("scaling")["rows"] if "growth" in row]
    names = {"T": "T, {:.0f} to {:.0f}", "S": "S, {:.0f} to {:.0f}", "n": "n, {:.0f} to {:.0f}"}
    names["model"] = "forward pass, {:.1f} to {:.1f} MFLOP"
    rows: dict[str, Row] = {}
    for row in grown:
        axis = names[row["along"]].format(row["from"], row["to"])
        rows.setdefault(axis, {"axis": axis})[row["method"]] = row["growth"]
    methods = dict.fromkeys(row["method"] for row in grown)
    columns = [Column(method, method, "{:.2f}".format) for method in methods]
    return markdown_table(
        [Column("growth (1: in proportion)", "axis"), *columns], list(rows.values())
    )


def tolerance_table() -> str:
    """Every tolerance beside the exhaustive measurement."""
    rows = [
        row
        | {
            "mode": row["mode"].removeprefix("tolerance "),
            "interval": f"{row['sensitivity']:.4f} ± {row['half_width']:.4f}",
        }
        for row in read("tolerance")["rows"]
    ]
    columns = (
        Column("model", "model"),
        Column("n", "num_images", "{:,d}".format),
        Column("mode", "mode"),
        Column("measured", "positions"),
        Column("passes", "num_passes", "{:,d}".format),
        Column("seconds", "best_seconds", "{:.2f}".format),
        Column("speed vs exhaustive", "ratio", "{:.2f}×".format),
        Column("sensitivity ± 95 %", "interval", lambda text: text),
        Column("difference, in standard errors", "z", "{:.1f}".format),
    )
    return markdown_table(columns, rows)


def own_table(name: str, columns: Sequence[Column]) -> str:
    """The table that the suite prints."""
    return markdown_table(columns, read(name)["rows"])


#: By the name of the table, which is that of the file of its data but for `SOURCES`.
TABLES: dict[str, Callable[[], str]] = {
    "sensitivity": sensitivity_table,
    "again": again_table,
    "training": training_table,
    "scaling": scaling_table,
    "tolerance": tolerance_table,
    **{
        name: functools.partial(own_table, name, suite.COLUMNS)
        for name, suite in {
            "many_runs": many_runs,
            "worst_case": worst_case,
            "pytorch": pytorch,
            "foreign": foreign,
            "occlusion": occlusion,
            "start": start,
            "devices": devices,
        }.items()
    },
    "headline": headline_table,
    "targets": targets_line,
    "training_goal": training_line,
    "runs": runs_table,
}
#: The data of those that have no file of their name.
SOURCES = dict.fromkeys(("headline", "targets", "runs"), "sensitivity") | {
    "training_goal": "training"
}


def table(name: str) -> str:
    """The table of that name, or that there is no data for it."""
    recorded = (RESULTS / f"{SOURCES.get(name, name)}.json").exists()
    return TABLES[name]() if recorded else "No run is recorded yet."


def written(page: str) -> str:
    """The page with every table made anew.

    Raises:
      ValueError: it has other tables than there are results.
    """
    found = [match[2] for match in _TABLE.finditer(page)]
    if sorted(found) != sorted(TABLES):
        raise ValueError(f"{PAGE} should have the tables {', '.join(TABLES)} once; it has {found}")
    return _TABLE.sub(lambda match: match[1] + table(match[2]) + match[3], page)


def _methods(names: tuple[str, ...]) -> tuple[Column, ...]:
    """A column for the model, and one for the milliseconds per image of each method."""
    return Column("model", "model"), *(Column(name, name, milliseconds) for name in names)


def _models(run: dict) -> list[Row]:
    """A row for each model of a run of the suite sensitivity."""
    found = []
    for verdict in verdicts(run["rows"]):
        cells = {row["method"]: row for row in run["rows"] if row["model"] == verdict["model"]}

        def both(key: str, form: str, *methods: str, cells: dict[str, Row] = cells) -> str:
            return " / ".join(form.format(cells[method][key]) for method in methods)

        found.append(
            {
                "model": verdict["model"],
                "num_images": cells[JUDGED]["num_images"],
                **{method: row["ms_per_image"] for method, row in cells.items()},
                "against_torch": _against(verdict, "torch"),
                "vs_loop": verdict["vs_loop"],
                "against_plain": _against(verdict, "plain"),
                "compile_seconds": both("compile_seconds", "{:.1f}", PLAIN, JUDGED),
                "peak_mb": both("peak_mb", "{:.0f}", BASELINE, PLAIN, JUDGED),
                "draws_per_second": cells[JUDGED]["draws_per_second"],
                "of_peak": both("of_peak", "{:.0%}", PLAIN, JUDGED),
            }
        )
    return found


def _against(verdict: Row, whom: str) -> str:
    """How many times as fast, with the target, bold where it was missed."""
    ratio, target = verdict[f"vs_{whom}"], verdict[f"{whom}_target"]
    outcome = verdict[f"{whom}_verdict"]
    if outcome == "the same program":
        return f"{ratio:.2f}×, same program"
    named = f"target {target:.3g}"
    return f"{ratio:.2f}× ({named if outcome == 'reached' else f'**{named}**'})"


def _bold_if_short(verdict: Row, whom: str) -> str:
    """How many times as fast, bold below the target."""
    ratio = f"{verdict[f'vs_{whom}']:.2f}×"
    return ratio if verdict[f"{whom}_verdict"] == "reached" else f"**{ratio}**"


def _against_torch(verdict: Row) -> str:
    """How many times as fast as the fastest PyTorch, bold where it is slower."""
    ratio = f"{verdict['ratio']:.2f}×"
    return ratio if verdict["verdict"] == "reached" else f"**{ratio}**"


def main() -> int:
    """Writes the page; the exit status."""
    write_atomic(PAGE, written(PAGE.read_text("utf-8")))
    print(f"{PAGE}: {len(TABLES)} tables")
    return 0


if __name__ == "__main__":
    sys.exit(main())
