"""Suite "sensitivity": the papers' measurement by PyTorch, captum and jaxsens, model by model."""

from benchmarks import targets
from benchmarks.compare import (
    BASELINE,
    PLAIN,
    SIDES,
    check_known,
    compare,
    missing,
    objections,
    runnable,
)
from benchmarks.frame import Column, Options, Result, Row, Table
from benchmarks.models import SETTINGS

_TUNED = "perturbations_per_eval"

DEFAULT_METHODS = (
    BASELINE,
    "torch-batched",
    "torch-compile-loop",
    "torch-compile-batched",
    "torch-vmap",
    "captum",
    PLAIN,
    "jaxsens",
)


def milliseconds(value: float) -> str:
    """Three digits, and all of them above 100.

    >>> milliseconds(0.23581), milliseconds(2143.7)
    ('0.236', '2,144')
    """
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


COLUMNS = (
    Column("model", "model"),
    Column("method", "method"),
    Column("n", "num_images", "{:d}".format),
    Column("ms/image", "ms_per_image", milliseconds),
    Column(f"speed vs {BASELINE}", "ratio", "{:.2f}×".format),
    Column("spread", "spread", "{:.0%}".format),
    Column("compile s", "compile_seconds", "{:.2f}".format),
    Column("peak MB", "peak_mb", "{:.0f}".format),
    Column("over idle MB", "work_mb", "{:.0f}".format),
    Column("draws/s", "draws_per_second", "{:,.0f}".format),
    Column("plain-equivalent GFLOP/s", "gflops", "{:.1f}".format),
    Column("of matmul peak", "of_peak", "{:.0%}".format),
    Column("sensitivity", "sensitivity", "{:.4f}".format),
    Column("± noise", "noise", "{:.4f}".format),
    Column("max Δlogit", "logit_difference", "{:.0e}".format),
    Column("z", "z", "{:+.1f}".format),
    Column("same", "same"),
    Column("draws ≠ plain", "unlike_plain", "{:d}".format),
    Column("device", "device"),
)


def run(options: Options) -> Result:
    """All cells of the suite, one after the other."""
    models, names = options.models or tuple(SETTINGS), options.methods or DEFAULT_METHODS
    check_known("model", models, SETTINGS)
    check_known("method", names, SIDES)
    notes = missing(names)
    if not runnable(names):
        return Result([], COLUMNS, notes, agree=False)
    rows: list[Row] = []
    for model in models:
        setting = SETTINGS[model]
        rows += compare(model, setting, runnable(names, setting), options)
    wrong = objections(rows)
    blind = [
        f"{row['model']} {row['method']}: no draw changed a prediction, so z says nothing"
        for row in rows
        if row.get("sensitivity") == 0
    ]
    chosen = [
        f"{row['model']}: captum was fastest with perturbations_per_eval={row[_TUNED]}"
        for row in rows
        if _TUNED in row
    ]
    return Result(
        rows,
        COLUMNS,
        [*notes, *wrong, *blind, *_with_peak(rows), *chosen],
        agree=not wrong,
        tables=[Table("Against the targets", targets.COLUMNS, targets.verdicts(rows))],
    )


def _with_peak(rows: list[Row]) -> list[str]:
    """Adds each row's share of the machine's matmul peak: the best that any cell measured."""
    measured = [row for row in rows if "matmul_gflops" in row]
    if not measured:
        return []
    best = max(measured, key=lambda row: row["matmul_gflops"])
    for row in measured:
        row["of_peak"] = row["gflops"] / best["matmul_gflops"]
    return [
        f"matmul peak: {best['matmul_gflops']:.0f} GFLOP/s, the best of a product of two large "
        f"matrices in every cell ({best['method']}). Plain-equivalent GFLOP/s counts T·S + 1 plain "
        "passes, however few operations a method really makes: above the peak is possible"
    ]
