"""Suite "pytorch": a PyTorch module as it is, measured by PyTorch and by jaxsens.

The module is that of the README's five lines for PyTorch users: a convolution and a linear layer on
32×32 images, channels first.

    torch-loop     for each position and draw, one pass of all images
    torch-batched  for each image, one pass of all its edits
    jaxsens-plain  `jaxsens.sensitivity(module, x, noise, incremental=False)`
    jaxsens        `jaxsens.sensitivity(module, x, noise)` as it comes
"""

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import cell
from benchmarks.compare import check_known, installed
from benchmarks.frame import Column, Options, Result, Row

METHODS = ("torch-loop", "torch-batched", "jaxsens-plain", "jaxsens")

#: Images of a timed run, and draws at each position, unless told.
NUM_IMAGES, NUM_SAMPLES = 100, 5

COLUMNS = (
    Column("method", "method"),
    Column("reuse", "reuse"),
    Column("s", "best", "{:.2f}".format),
    Column("vs best torch", "vs_torch", "{:.1f}×".format),
    Column("spread", "spread", "{:.0%}".format),
    Column("compile s", "compile_seconds", "{:.1f}".format),
    Column("peak MB", "peak_mb", "{:.0f}".format),
    Column("sensitivity", "sensitivity", "{:.4f}".format),
)


def run(options: Options) -> Result:
    """The module by every method, each in a process of its own."""
    methods = options.methods or METHODS
    check_known("method", methods, METHODS)
    if not installed("torch"):
        return Result([], COLUMNS, ["torch is missing: pip install -e '.[bench]'"], agree=False)
    rows: list[Row] = []
    failures: list[str] = []
    for method in methods:
        try:
            found = run_cell(method, options)
        except cell.CellError as error:
            failures.append(f"{method} failed: {error}")
            continue
        seconds = found["seconds"]
        best = {"best": min(seconds), "spread": max(seconds) / min(seconds) - 1}
        rows.append({"method": method} | found | best)
    failures += disagreements(rows)
    notes = [
        "the export of the module and the compilation are in the column compile s, checks of "
        "arguments in all times. The best timed run counts, after one that compiles or warms up"
    ]
    return Result(against(rows), COLUMNS, [*notes, *failures], agree=not failures)


def run_cell(method: str, options: Options) -> Row:
    """What one method found."""
    with tempfile.TemporaryDirectory(prefix="jaxsens-bench-") as folder:
        job = {
            "method": method,
            "num_images": options.num_images or NUM_IMAGES,
            "num_samples": options.num_samples or NUM_SAMPLES,
            "repeats": options.repeats,
            "seed": options.seed,
            "num_threads": options.num_threads,
        }
        found: Row = cell.found_by(
            "benchmarks.pytorch_cell", job, Path(folder), num_threads=options.num_threads
        )
    return found


def against(rows: Sequence[Row]) -> list[Row]:
    """The rows with their ratio to the faster of PyTorch's methods."""
    torch_times = [row["best"] for row in rows if row["method"].startswith("torch")]
    fastest = min(torch_times) if torch_times else None

    def ratio(row: Row) -> float | None:
        if fastest is None or row["method"].startswith("torch"):
            return None
        return fastest / row["best"]

    return [{**row, "vs_torch": ratio(row)} for row in rows]


def disagreements(rows: Sequence[Row]) -> list[str]:
    """Methods whose sensitivity is more than 4 standard errors of the noise from the first's."""
    found = []
    for row in rows[1:]:
        first = rows[0]
        error = math.hypot(row["noise"], first["noise"])
        apart = abs(row["sensitivity"] - first["sensitivity"])
        if apart > 4 * error:
            found.append(
                f"{row['method']} measured {row['sensitivity']:.4f}, {first['method']} "
                f"{first['sensitivity']:.4f}: {apart / error:.1f} standard errors apart"
            )
    return found
