"""Suite "many-runs": trainings that two cores finish in an hour, PARITY by a small transformer.

The setting is that of *Why are Sensitive Functions Hard for Transformers?* at a width of 32: 2
layers, 2 heads, AdamW with rate 5e-4 and weight decay 0.1, a fresh batch of uniform inputs for
every step, squared error. Both sides train the same network by the same optimiser on inputs of the
same distribution; only training is timed.

    torch            as the authors do it: one run after the other, on all threads
    torch-processes  the same, as many runs at a time as there are threads, a process for each
    jaxsens          `jaxsens.training.lanes`: all runs in blocks of lanes; where there are no more
                     different inputs than draws, each goes through the model once, weighted by how
                     often it was drawn
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import cell
from benchmarks.compare import chosen_methods
from benchmarks.frame import Column, Options, Result, Row

#: Steps of a run, by which steps per second become runs per hour.
RUN_STEPS = 3_000

#: The ratios are against the first.
SIDES = {
    "torch": "benchmarks.torch_many_runs:one_after_the_other",
    "torch-processes": "benchmarks.torch_many_runs:side_by_side",
    "jaxsens": "benchmarks.lane_runs:measure",
}

COLUMNS = (
    Column("n", "length", "{:d}".format),
    Column("batch", "batch", "{:,d}".format),
    Column("method", "method"),
    Column("inputs of a pass", "num_inputs", "{:,d}".format),
    Column("steps/s of all runs", "steps_per_second", "{:,.0f}".format),
    Column(f"runs/h of {RUN_STEPS:,d} steps", "runs_per_hour", "{:,.1f}".format),
    Column("vs torch", "vs_torch", "{:.1f}×".format),
    Column("vs torch-processes", "vs_processes", "{:.1f}×".format),
    Column("spread", "spread", "{:.0%}".format),
    Column("compile s", "compile_seconds", "{:.1f}".format),
    Column("runs at a time", "num_runs", "{:d}".format),
    Column("last loss", "loss", "{:.3f}".format),
)

NOTES = [
    "steps/s counts a step of every run; the best timed stretch counts, after one that compiles or "
    "warms up and is not counted. Compiling is paid once for all runs of a length and batch. "
    "Evaluations and measurements are not timed. The target, set before anything was measured: 5 "
    "times as many runs as torch",
]


def run(options: Options) -> Result:
    """Every length and batch by every method, each cell in a process of its own."""
    methods, missing = chosen_methods(options, SIDES)
    rows: list[Row] = []
    failures: list[str] = []
    for length in options.lengths:
        for batch in options.batches:
            mine: list[Row] = []
            for method in methods:
                try:
                    mine.append(measured(method, length, batch, options))
                except cell.CellError as error:
                    failures.append(f"n={length} batch={batch} {method} failed: {error}")
            if len({row["num_parameters"] for row in mine}) > 1:
                failures.append(f"n={length} batch={batch}: the networks have different sizes")
            rows += against(mine)
    return Result(rows, COLUMNS, [*NOTES, *missing, *failures], agree=not failures)


def measured(method: str, length: int, batch: int, options: Options) -> Row:
    """The row of a cell."""
    with tempfile.TemporaryDirectory(prefix="jaxsens-bench-") as folder:
        job = {
            "factory": SIDES[method],
            "length": length,
            "batch": batch,
            "steps": options.steps,
            "num_lanes": options.lanes,
            "block": options.block,
            "repeats": options.repeats,
            "seed": options.seed,
            "num_threads": options.num_threads,
        }
        found: Row = cell.found_by(
            "benchmarks.many_runs_cell", job, Path(folder), num_threads=options.num_threads
        )
    seconds = found["seconds"]
    per_second = found["num_runs"] * options.steps / min(seconds)
    return {
        "length": length,
        "batch": batch,
        "method": method,
        **found,
        "spread": max(seconds) / min(seconds) - 1,
        "steps_per_second": per_second,
        "runs_per_hour": 3_600 * per_second / RUN_STEPS,
    }


def against(rows: Sequence[Row]) -> list[Row]:
    """The rows of one length and batch, with their ratios to both ways of PyTorch."""
    by_method = {row["method"]: row for row in rows}

    def ratio(row: Row, method: str) -> float | None:
        if method not in by_method or row["method"] == method:
            return None
        return row["steps_per_second"] / by_method[method]["steps_per_second"]

    return [
        {**row, "vs_torch": ratio(row, "torch"), "vs_processes": ratio(row, "torch-processes")}
        for row in rows
    ]
