"""Suite "worst-case": the worst move of one word, before random attention features.

The setting is that of *Towards Understanding the Word Sensitivity of Attention Layers*: n words of
width d and norm √d, features softmax(X W Xᵀ/√d) X, the first word moved inside a ball of radius √d.
All methods climb from the same starts, by the same steps:

    torch          every step a whole pass of all starts and its backward pass, by autograd
    jaxsens-plain  the same in JAX, `worst_case(incremental=False)`
    jaxsens        `worst_case` as it comes: a step computes one row and one column of the attention
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import cell
from benchmarks.compare import chosen_methods
from benchmarks.frame import Column, Options, Result, Row

#: The ratios are against the first two.
SIDES = {
    "torch": "benchmarks.torch_worst_case:measure",
    "jaxsens-plain": "benchmarks.jaxsens_worst_case:measure_plain",
    "jaxsens": "benchmarks.jaxsens_worst_case:measure",
}

#: Examples of a timed run, unless told.
NUM_EXAMPLES = 2

#: By which share the changes that two methods find may differ: they round differently, and an
#: ascent may take another way.
SAME_WITHIN = 0.02

COLUMNS = (
    Column("n", "num_words", "{:d}".format),
    Column("d", "width", "{:d}".format),
    Column("method", "method"),
    Column("reuse", "reuse"),
    Column("ms a step of one start", "ms_per_step", "{:.3f}".format),
    Column("vs torch", "vs_torch", "{:.1f}×".format),
    Column("vs plain", "vs_plain", "{:.1f}×".format),
    Column("spread", "spread", "{:.0%}".format),
    Column("compile s", "compile_seconds", "{:.1f}".format),
    Column("peak MB", "peak_mb", "{:.0f}".format),
    Column("worst change", "change", "{:.4f}".format),
)

NOTES = [
    "a step has a forward and a backward pass; checking arguments, the clean pass and the whole "
    "passes that look at what was found are part of the time. The best timed run counts, after one "
    "that compiles or warms up",
]


def run(options: Options) -> Result:
    """Every number of words and width by every method, each cell in a process of its own."""
    methods, missing = chosen_methods(options, SIDES)
    rows: list[Row] = []
    failures: list[str] = []
    for num_words in options.words:
        for width in options.widths:
            found, failed = _compared(num_words, width, methods, options)
            rows += found
            failures += failed
    return Result(rows, COLUMNS, [*NOTES, *missing, *failures], agree=not failures)


def _compared(
    num_words: int, width: int, methods: Sequence[str], options: Options
) -> tuple[list[Row], list[str]]:
    """The rows of one size, and what went wrong."""
    rows: list[Row] = []
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="jaxsens-bench-") as folder:
        num_examples = options.num_images or NUM_EXAMPLES
        settings = {
            "num_examples": num_examples,
            "num_words": num_words,
            "width": width,
            "num_starts": options.starts,
            "num_steps": options.ascent_steps,
            "repeats": options.repeats,
            "seed": options.seed,
            "num_threads": options.num_threads,
            "inputs": str(Path(folder) / "inputs.npz"),
        }
        run_cell(settings, "benchmarks.jaxsens_worst_case:write_inputs", Path(folder))
        for method in methods:
            try:
                found = run_cell(settings, SIDES[method], Path(folder))
            except cell.CellError as error:
                failures.append(f"n={num_words} d={width} {method} failed: {error}")
                continue
            seconds = found["seconds"]
            num_steps = num_examples * options.starts * options.ascent_steps
            rows.append(
                {"num_words": num_words, "width": width, "method": method}
                | found
                | {
                    "spread": max(seconds) / min(seconds) - 1,
                    "ms_per_step": 1e3 * min(seconds) / num_steps,
                }
            )
    changes = [row["change"] for row in rows]
    if changes and max(changes) > (1 + SAME_WITHIN) * min(changes):
        failures.append(f"n={num_words} d={width}: the methods found different changes, {changes}")
    return against(rows), failures


def run_cell(settings: Row, factory: str, folder: Path) -> Row:
    """What a cell found."""
    found: Row = cell.found_by(
        "benchmarks.worst_case_cell",
        settings | {"factory": factory},
        folder,
        num_threads=settings["num_threads"],
    )
    return found


def against(rows: Sequence[Row]) -> list[Row]:
    """The rows of one size, with their ratios to PyTorch and to whole passes."""
    times = {row["method"]: row["ms_per_step"] for row in rows}

    def ratio(row: Row, method: str) -> float | None:
        if method not in times or row["method"] == method:
            return None
        return times[method] / row["ms_per_step"]

    return [
        {**row, "vs_torch": ratio(row, "torch"), "vs_plain": ratio(row, "jaxsens-plain")}
        for row in rows
    ]
