"""Suite "occlusion": maps of what a covered window takes from the predicted class, against captum.

Every window is replaced by 0, one at a time, and the drop of the predicted class's probability is
noted. "tiled" windows lie side by side, captum's `FeatureAblation`; "sliding" ones overlap, with a
stride of one pixel, captum's `Occlusion`. There is no randomness: the maps must agree.

    captum         the best number of windows in a pass, `perturbations_per_eval`, tried out before
    jaxsens-plain  `jaxsens.occlusion(incremental=False)`
    jaxsens        `jaxsens.occlusion` as it comes
"""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks import cell
from benchmarks.compare import check_known, installed, make_workload, prepare
from benchmarks.frame import Column, Options, Result, Row
from benchmarks.models import SETTINGS

#: Ways to run, by name: the module of their factories "tiled" and "sliding".
SIDES = {
    "captum": "benchmarks.captum_occlusion",
    "jaxsens-plain": "benchmarks.jaxsens_occlusion:plain",
    "jaxsens": "benchmarks.jaxsens_occlusion:default",
}

#: Images of a timed run, by model and windows.
NUM_IMAGES = {
    ("mlp", "tiled"): 1600,
    ("cnn", "tiled"): 40,
    ("cnn", "sliding"): 4,
    ("vit", "tiled"): 20,
    ("resnet18", "tiled"): 4,
}

#: By which two maps of probabilities may differ.
SAME_WITHIN = 1e-4

COLUMNS = (
    Column("model", "model"),
    Column("windows", "windows"),
    Column("T", "num_positions", "{:d}".format),
    Column("n", "num_images", "{:d}".format),
    Column("method", "method"),
    Column("ms/image", "ms_per_image", "{:.3g}".format),
    Column("vs captum", "vs_captum", "{:.1f}×".format),
    Column("spread", "spread", "{:.0%}".format),
    Column("compile s", "compile_seconds", "{:.1f}".format),
    Column("peak MB", "peak_mb", "{:.0f}".format),
    Column("maps differ by", "difference", "{:.0e}".format),
)


def run(options: Options) -> Result:
    """Every model and kind of windows by every method, each cell in a process of its own."""
    models = options.models or tuple(dict.fromkeys(model for model, _ in NUM_IMAGES))
    check_known("model", models, {model: None for model, _ in NUM_IMAGES})
    methods = options.methods or tuple(SIDES)
    check_known("method", methods, SIDES)
    notes = ["the first map is the one that others are compared with; compiling is not counted"]
    if not all(map(installed, ("torch", "captum"))):
        methods = tuple(name for name in methods if name != "captum")
        notes.append("torch or captum is missing, so there is nothing to compare with")
    rows: list[Row] = []
    failures: list[str] = []
    for (model, windows), num_images in NUM_IMAGES.items():
        if model in models:
            found, failed = _compared(model, windows, num_images, methods, options)
            rows += found
            failures += failed
    return Result(rows, COLUMNS, [*notes, *failures], agree=not failures)


def _compared(
    model: str, windows: str, num_images: int, methods: Sequence[str], options: Options
) -> tuple[list[Row], list[str]]:
    """The rows of one model, and what went wrong."""
    setting = SETTINGS[model]
    rows: list[Row] = []
    failures: list[str] = []
    maps: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory(prefix="jaxsens-bench-") as folder:
        weights, _ = prepare(setting, options, Path(folder))
        many = replace(options, num_images=options.num_images or num_images)
        workload = make_workload(setting, weights, many)
        workload.save(Path(folder) / "workload.npz")
        for method in methods:
            module, _, kind = SIDES[method].partition(":")
            factory = f"{module}:{'_'.join(filter(None, [kind, windows]))}"
            try:
                outcome = cell.launch(
                    factory,
                    Path(folder) / "workload.npz",
                    workload.spec(),
                    num_threads=options.num_threads,
                    repeats=options.repeats,
                    seed=options.seed,
                )
            except cell.CellError as error:
                failures.append(f"{model} {windows} {method} failed: {error}")
                continue
            maps[method] = outcome.flips / options.repeats
            rows.append(_row(model, windows, method, len(workload.x), outcome, maps))
    rows = against(rows)
    failures += [
        f"{model} {windows}: the map of {row['method']} differs by {row['difference']:.1e}"
        for row in rows
        if row["difference"] > SAME_WITHIN
    ]
    return rows, failures


def _row(model: str, windows: str, method: str, n: int, outcome: cell.Outcome, maps: dict) -> Row:
    best = min(outcome.seconds)
    first = next(iter(maps.values()))
    return {
        "model": model,
        "windows": windows,
        "method": method,
        "num_images": n,
        "seconds": outcome.seconds,
        "ms_per_image": 1e3 * best / n,
        "spread": max(outcome.seconds) / best - 1,
        "compile_seconds": outcome.compile_seconds,
        "peak_mb": outcome.peak_mb,
        "difference": float(np.abs(maps[method] - first).max()),
        **outcome.probed,
    }


def against(rows: Sequence[Row]) -> list[Row]:
    """The rows of one model, with how many times as fast as captum they are."""
    captum = next((row["ms_per_image"] for row in rows if row["method"] == "captum"), None)
    return [
        {**row, "vs_captum": captum / row["ms_per_image"]}
        if captum and row["method"] != "captum"
        else row
        for row in rows
    ]
