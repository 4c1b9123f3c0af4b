"""Suite "start": from a new process to its first result, with and without kept programs.

Every model is measured twice on a few images, each time by a new process that calls
`jaxsens.keep_compiled_programs`: cold, with an empty folder, and warm, with what the first one
left there. The rest of a start (imports, tracing, lowering) is the same for both.
"""

import tempfile
from pathlib import Path

from benchmarks import cell
from benchmarks.compare import make_workload, of_each_model, prepare
from benchmarks.frame import Column, Options, Result, Row
from benchmarks.models import SETTINGS

COLUMNS = (
    Column("model", "model"),
    Column("imports s", "import_seconds", "{:.1f}".format),
    Column("first result s, cold", "cold_seconds", "{:.1f}".format),
    Column("first result s, warm", "warm_seconds", "{:.1f}".format),
    Column("cold / warm", "ratio", "{:.1f}×".format),
    Column("second result s", "second_seconds", "{:.2f}".format),
    Column("kept MB", "kept_mb", "{:.1f}".format),
)

NOTES = [
    "the second result is that of the same process, in which everything is compiled; results were "
    "the same to the last flip, cold and warm",
]


def run(options: Options) -> Result:
    """Every model, cold and warm."""
    rows, failures = of_each_model(started, options, SETTINGS)
    same = all(row["agree"] for row in rows)
    return Result(rows, COLUMNS, [*NOTES, *failures], agree=same and not failures)


def started(model: str, options: Options) -> list[Row]:
    """The row of one model."""
    setting = SETTINGS[model]
    with tempfile.TemporaryDirectory(prefix="jaxsens-bench-") as name:
        folder = Path(name)
        weights, _ = prepare(setting, options, folder)
        workload = make_workload(setting, weights, options)
        workload.save(folder / "workload.npz")
        programs = folder / "programs"
        job = {
            "workload": str(folder / "workload.npz"),
            "spec": workload.spec(),
            "seed": options.seed,
            "num_threads": options.num_threads,
            "programs": str(programs),
        }
        cold, warm = (
            cell.found_by(
                "benchmarks.start_cell",
                job,
                folder,
                num_threads=options.num_threads,
                JAX_ENABLE_COMPILATION_CACHE="true",
            )
            for _ in range(2)
        )
        kept = sum(file.stat().st_size for file in programs.rglob("*") if file.is_file())
    row = {
        "model": model,
        "import_seconds": warm["import_seconds"],
        "cold_seconds": cold["first_seconds"],
        "warm_seconds": warm["first_seconds"],
        "ratio": cold["first_seconds"] / warm["first_seconds"],
        "second_seconds": warm["second_seconds"],
        "kept_mb": kept / 1e6,
        "agree": cold["num_flips"] == warm["num_flips"],
    }
    return [row]
