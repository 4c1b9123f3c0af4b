"""Suite "tolerance": stop at a tolerance, or measure every position? Passes, seconds, difference.

`jaxsens.sensitivity(..., tolerance=t)` draws random examples, and random (position, noise) draws of
each, until half of the 95 % interval is within t. How many that takes does not depend on the number
of examples, while the exhaustive measurement's passes do: the gain is a matter of many examples.
Each tolerance is measured twice: for the distribution that examples came from, and, "fixed", for
the examples themselves.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks import cell
from benchmarks.compare import make_workload, of_each_model, prepare
from benchmarks.frame import Column, Options, Result, Row
from benchmarks.models import SETTINGS

#: Examples of each model: enough for a tolerance to matter, few enough for a minute.
NUM_IMAGES = {"mlp": 20_000, "cnn": 5_000, "vit": 2_000}

COLUMNS = (
    Column("model", "model"),
    Column("n", "num_images", "{:,d}".format),
    Column("mode", "mode"),
    Column("measured", "positions"),
    Column("passes", "num_passes", "{:,d}".format),
    Column("of exhaustive", "share", "{:.1%}".format),
    Column("seconds", "best_seconds", "{:.2f}".format),
    Column("speed vs exhaustive", "ratio", "{:.2f}×".format),
    Column("sensitivity", "sensitivity", "{:.5f}".format),
    Column("± 95 %", "half_width", "{:.5f}".format),
    Column("difference", "difference", "{:+.5f}".format),
    Column("in standard errors", "z", "{:+.1f}".format),
)

NOTES = [
    "compiling is not counted: programs were compiled before the timed runs. The difference is "
    "from the exhaustive measurement of the same examples, and in standard errors of the "
    "tolerance's own estimate. A tolerance that would cost more than the exhaustive "
    "measurement, or that this many examples cannot reach, is measured exhaustively after a pilot: "
    "`measured` then says all",
]


def run(options: Options) -> Result:
    """Every model exhaustively and at every tolerance, each model in a process of its own."""
    rows, failures = of_each_model(measured, options, NUM_IMAGES)
    return Result(rows, COLUMNS, [*NOTES, *failures], agree=not failures)


def measured(model: str, options: Options) -> list[Row]:
    """A row for the exhaustive measurement and one for each tolerance."""
    setting = SETTINGS[model]
    options = replace(options, num_images=options.num_images or NUM_IMAGES[model])
    with tempfile.TemporaryDirectory(prefix="jaxsens-bench-") as folder:
        weights, _ = prepare(setting, options, Path(folder))
        workload = make_workload(setting, weights, options)
        workload.save(Path(folder) / "workload.npz")
        job = {
            "workload": str(Path(folder) / "workload.npz"),
            "spec": workload.spec(),
            "tolerances": options.tolerances,
            "repeats": options.repeats,
            "seed": options.seed,
            "num_threads": options.num_threads,
        }
        rows: list[Row] = cell.found_by(
            "benchmarks.tolerance_cell", job, Path(folder), num_threads=options.num_threads
        )
    exhaustive = rows[0]
    return [{"model": model, **row, **_against(exhaustive, row)} for row in rows]


def _against(exhaustive: Row, row: Row) -> Row:
    """How a tolerance compares with the exhaustive measurement."""
    if row is exhaustive:
        return {}
    difference = row["sensitivity"] - exhaustive["sensitivity"]
    return {
        "share": row["num_passes"] / exhaustive["num_passes"],
        "ratio": exhaustive["best_seconds"] / row["best_seconds"],
        "difference": difference,
        "z": difference / row["stderr"] if row["stderr"] else None,
    }
