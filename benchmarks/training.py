"""Suite "training": a step of training by jaxsens and by the same network in PyTorch.

Plain SGD on batches of `--batch` examples, without dropout, from the same weights on the same
batches in the same order; only the model's own arithmetic is left to differ.

    torch          eager, as the papers' authors train
    torch-compile  the network under `torch.compile`
    jaxsens        `jaxsens.training.Trainer`, many steps in a call

Assumption: losses that agree over a stretch of steps come from the same training. Inputs are noise,
so a loss says nothing else.
"""

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks import cell
from benchmarks.compare import check_known, installed
from benchmarks.frame import Column, Options, Result, Row, Table
from benchmarks.models import SETTINGS as MEASURED
from benchmarks.sensitivity import milliseconds
from benchmarks.workload import Setting


@dataclass(frozen=True)
class Stretch:
    """What is trained, and for how many steps between two looks at the clock."""

    setting: Setting
    steps: int


_STEPS = {
    "mlp": 200,
    "cnn": 20,
    "vit": 10,
    "resnet18": 2,
    "densenet121": 2,
    "convmixer": 5,
    "vit8": 2,
    "lstm": 10,
    "roberta": 5,
    "gpt2": 10,
}

_NARROW = replace(MEASURED["resnet18"], sizes={"num_classes": 10, "width": 16})

#: The papers' models, and the narrow ResNet of the small presets. A stretch takes seconds.
SETTINGS = {name: Stretch(MEASURED[name], steps) for name, steps in _STEPS.items()} | {
    "resnet16": Stretch(_NARROW, 5)
}

JUDGED = "jaxsens"
#: In the order in which a round runs them.
SIDES = {
    "torch": "benchmarks.torch_training:eager",
    "torch-compile": "benchmarks.torch_training:compiled",
    JUDGED: "benchmarks.jaxsens_training:training",
}

#: Every side is started so often, in turn, so that a busy minute of the machine meets all of them.
ROUNDS = 2

#: Of the losses of the first stretch. Rounding grows from step to step; another network or another
#: batch is off by more than a hundred times as much.
LOSS_TOLERANCE = 1e-3

COLUMNS = (
    Column("model", "model"),
    Column("method", "method"),
    Column("batch", "batch", "{:d}".format),
    Column("ms/step", "ms_per_step", milliseconds),
    Column("speed vs torch", "ratio", "{:.2f}×".format),
    Column("spread", "spread", "{:.0%}".format),
    Column("compile s", "compile_seconds", "{:.1f}".format),
    Column("peak MB", "peak_mb", "{:.0f}".format),
    Column("max Δloss", "loss_difference", "{:.0e}".format),
    Column("same", "same"),
)

VERDICTS = (
    Column("model", "model"),
    Column("best torch", "best_torch"),
    Column("its ms/step", "torch_ms", milliseconds),
    Column("jaxsens ms/step", "jaxsens_ms", milliseconds),
    Column("speed vs best torch", "ratio", "{:.2f}×".format),
    Column("verdict", "verdict"),
)

NOTES = [
    "ms/step is that of the best timed stretch, after one that compiles or warms up; compiling is "
    f"in a column of its own. Every side ran in {ROUNDS} processes, in turn with the others. The "
    "goal, set before anything was measured: no slower than the fastest PyTorch",
]


def run(options: Options) -> Result:
    """Every model by every method, each cell in processes of its own."""
    models, methods = options.models or tuple(SETTINGS), options.methods or tuple(SIDES)
    check_known("model", models, SETTINGS)
    check_known("method", methods, SIDES)
    reasons = {name: reason for name in methods if (reason := why_not(name))}
    methods = tuple(name for name in methods if name not in reasons)
    notes = [*NOTES, *(f"{name} was left out: {reason}" for name, reason in reasons.items())]
    rows: list[Row] = []
    for model in models:
        rows += compared(model, SETTINGS[model], methods, options)
    failures = [
        f"{row['model']} {row['method']} failed: {row['error']}" for row in rows if "error" in row
    ]
    failures += [
        f"{row['model']} {row['method']} is another training than {row['reference']}: losses of "
        f"the first steps differ by {row['loss_difference']:.1e}"
        for row in rows
        if row.get("same") == "NO"
    ]
    return Result(
        rows,
        COLUMNS,
        [*notes, *failures],
        agree=not failures,
        tables=[Table("Against the fastest PyTorch", VERDICTS, verdicts(rows))],
    )


def why_not(method: str) -> str | None:
    """Why a method cannot run here; None if it can."""
    if not method.startswith("torch"):
        return None
    if not installed("torch"):
        return "torch is missing: pip install -e '.[bench]'"
    compilers = (os.environ.get("CXX"), "g++", "clang++")
    if method == "torch-compile" and not any(map(shutil.which, filter(None, compilers))):
        return "torch.compile needs a C++ compiler, and neither CXX, g++ nor clang++ is one here"
    return None


def compared(model: str, stretch: Stretch, methods: Sequence[str], options: Options) -> list[Row]:
    """The rows of one model, each checked against the first method that ran."""
    found: dict[str, list[Row]] = {method: [] for method in methods}
    errors: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="jaxsens-bench-") as folder:
        job = {
            "setting": asdict(stretch.setting),
            "steps": stretch.steps,
            "batch": options.batch,
            "repeats": options.repeats,
            "seed": options.seed,
            "num_threads": options.num_threads,
            "arrays": str(Path(folder) / "arrays.npz"),
        }
        cell.run_on(
            "benchmarks.jaxsens_training", job, Path(folder), num_threads=options.num_threads
        )
        for _ in range(ROUNDS):
            for method in methods:
                if method in errors:
                    continue
                try:
                    found[method].append(_measured(method, Path(folder), job))
                except cell.CellError as error:
                    errors[method] = str(error)
    rows = [
        {"model": model, "method": method, "batch": options.batch}
        | ({"error": errors[method]} if method in errors else merged(parts, stretch.steps))
        for method, parts in found.items()
    ]
    return agreed(rows)


def _measured(method: str, folder: Path, job: Row) -> Row:
    found: Row = cell.found_by(
        "benchmarks.training_cell",
        job | {"side": SIDES[method]},
        folder,
        num_threads=job["num_threads"],
    )
    return found


def merged(parts: Sequence[Row], steps: int) -> Row:
    """What the processes of one method found, as one row."""
    seconds = [each for part in parts for each in part["seconds"]]
    return {
        "seconds": seconds,
        "ms_per_step": 1e3 * min(seconds) / steps,
        "spread": max(seconds) / min(seconds) - 1,
        "compile_seconds": min(part["compile_seconds"] for part in parts),
        "peak_mb": max(part["peak_mb"] for part in parts),
        "losses": parts[0]["losses"],
        "steps": steps,
    }


def agreed(rows: list[Row]) -> list[Row]:
    """The rows of one model, with the ratio to eager PyTorch and whether their losses agree."""
    measured = [row for row in rows if "losses" in row]
    eager = next((row for row in measured if row["method"] == "torch"), None)
    for row in measured:
        first = measured[0]
        if eager is not None and row is not eager:
            row["ratio"] = eager["ms_per_step"] / row["ms_per_step"]
        if row is not first:
            pairs = zip(row["losses"], first["losses"], strict=True)
            difference = max(abs(mine - theirs) for mine, theirs in pairs)
            row["reference"], row["loss_difference"] = first["method"], difference
            row["same"] = "yes" if difference <= LOSS_TOLERANCE else "NO"
    return rows


def verdicts(rows: Sequence[Row]) -> list[Row]:
    """The fastest PyTorch beside jaxsens, for each model that both trained."""
    found = []
    for model in dict.fromkeys(row["model"] for row in rows):
        times = {
            row["method"]: row["ms_per_step"]
            for row in rows
            if row["model"] == model and "ms_per_step" in row
        }
        ours = times.pop(JUDGED, None)
        if ours is None or not times:
            continue
        best = min(times, key=lambda method: times[method])
        ratio = times[best] / ours
        found.append(
            {
                "model": model,
                "best_torch": best,
                "torch_ms": times[best],
                "jaxsens_ms": ours,
                "ratio": ratio,
                "verdict": "reached" if ratio >= 1 else f"short by {1 - ratio:.0%}",
            }
        )
    return found
