"""Suite "foreign": what exact reuse saves in models that nobody here wrote.

Operations are counted, and draws are made with and without reuse: nothing is timed, so that it may
run on a busy machine. Each model is made in a process of its own (`benchmarks.foreign_models`).
"""

import tempfile
from pathlib import Path

from benchmarks import cell
from benchmarks.compare import check_known, installed
from benchmarks.foreign_models import CASES
from benchmarks.frame import Column, Options, Result, Row, UsageError

#: Draws at each position, unless told.
NUM_SAMPLES = 4


def operations(count: float) -> str:
    """A count in millions.

    >>> operations(1_240_000.0)
    '1.24'
    """
    return f"{count / 1e6:.3g}"


COLUMNS = (
    Column("model", "model"),
    Column("T", "num_positions", "{:d}".format),
    Column("M operations, as written", "as_written", operations),
    Column("what is needed", "plain", operations),
    Column("an edit", "edit", operations),
    Column("fewer than as written", "vs_written", "{:.2f}×".format),
    Column("than what is needed", "vs_plain", "{:.2f}×".format),
    Column("reuse", "reuse"),
    Column("draws", "num_draws", "{:d}".format),
    Column("flips", "flips", "{:d}".format),
    Column("differ with reuse", "differ", "{:d}".format),
)


def run(options: Options) -> Result:
    """Every model whose package is installed."""
    if options.methods:
        raise UsageError("the suite foreign compares models with themselves: it takes no methods")
    models = options.models or tuple(CASES)
    check_known("model", models, CASES)
    rows: list[Row] = []
    notes, failures = [], []
    for model in models:
        if not installed(CASES[model].package):
            notes.append(f"{model} is left out: {CASES[model].package} is missing")
            continue
        try:
            rows.append({"model": model} | counted(model, options))
        except cell.CellError as error:
            failures.append(f"{model} failed: {error}")
    failures += [
        f"{row['model']}: {row['differ']} draws differ with reuse, self check {row['self_check']}"
        for row in rows
        if row["differ"] or row["self_check"] != "passed"
    ]
    return Result(rows, COLUMNS, [*notes, *failures], agree=not failures)


def counted(model: str, options: Options) -> Row:
    """The row of one model."""
    with tempfile.TemporaryDirectory(prefix="jaxsens-bench-") as folder:
        job = {
            "name": model,
            "num_samples": options.num_samples or NUM_SAMPLES,
            "seed": options.seed,
        }
        found: Row = cell.found_by(
            "benchmarks.foreign_cell", job, Path(folder), num_threads=options.num_threads
        )
        return found
