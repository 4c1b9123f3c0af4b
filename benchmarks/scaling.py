"""Suite "scaling": how the cost grows with positions, samples, examples and the size of the model.

One of the four is varied at a time, from the same point. Growth is the slope of log seconds against
log size by least squares: 1 for a method whose cost is proportional, 0 for one that does not
notice.
"""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import cell
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
from benchmarks.workload import Setting

DEFAULT_METHODS = (BASELINE, "torch-batched", PLAIN, "jaxsens")


@dataclass(frozen=True)
class Point:
    """A model and how much of it is measured."""

    setting: Setting
    num_images: int
    num_samples: int


@dataclass(frozen=True)
class Range:
    """The point that a model is varied from, and what it is varied over.

    Attributes:
      num_images: of the point.
      windows: (shape, window) of one example, from few positions to many.
      sizes: changed arguments of the model, from small to large.
      samples: values of S.
      images: values of n.
    """

    num_images: int
    windows: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    sizes: tuple[Mapping[str, Any], ...]
    samples: tuple[int, ...] = (1, 5, 20)
    images: tuple[int, ...] = (1, 4, 16, 64)

    def axes(self, setting: Setting) -> dict[str, list[Point]]:
        """The points along each axis."""
        here = Point(setting, self.num_images, setting.num_samples)
        return {
            "T": [
                replace(here, setting=replace(setting, shape=shape, window=window))
                for shape, window in self.windows
            ],
            "S": [replace(here, num_samples=num) for num in self.samples],
            "n": [replace(here, num_images=num) for num in self.images],
            "model": [
                replace(here, setting=replace(setting, sizes={**setting.sizes, **sizes}))
                for sizes in self.sizes
            ],
        }


_WINDOWS = tuple(((28, 28, 1), (side, side, 1)) for side in (14, 7, 4, 2))

RANGES = {
    "mlp": Range(
        64, _WINDOWS, tuple({"widths": (4 * width, width)} for width in (32, 128, 512, 1024))
    ),
    "cnn": Range(16, _WINDOWS, tuple({"features": features} for features in (8, 16, 32, 64))),
    "gpt2": Range(
        4,
        tuple(((length, 256), (1, 256)) for length in (8, 16, 32)),
        tuple({"depth": depth} for depth in (1, 2, 4)),
    ),
}

DEFAULT_MODELS = ("cnn",)

#: What the axes are called, and the entry of a row that is their measure.
AXES = {
    "T": ("Positions T", "num_positions"),
    "S": ("Samples S", "num_samples"),
    "n": ("Examples n", "num_images"),
    "model": ("MFLOP a forward pass", "forward_mflops"),
}

_SIZE, _SECONDS = "{:,.3g}".format, "{:.3g}".format

COLUMNS = (
    Column("along", "along"),
    Column("T", "num_positions", "{:d}".format),
    Column("S", "num_samples", "{:d}".format),
    Column("n", "num_images", "{:d}".format),
    Column("MFLOP a pass", "forward_mflops", _SIZE),
    Column("method", "method"),
    Column("ms/image", "ms_per_image", _SECONDS),
)

GROWTH_COLUMNS = (
    Column("model", "model"),
    Column("along", "along"),
    Column("method", "method"),
    Column("from", "from", _SIZE),
    Column("to", "to", _SIZE),
    Column("s there", "first_seconds", _SECONDS),
    Column("s here", "last_seconds", _SECONDS),
    Column("growth", "growth", "{:.2f}".format),
)


def run(options: Options) -> Result:
    """All points of the models, and a figure for each model."""
    models, names = options.models or DEFAULT_MODELS, options.methods or DEFAULT_METHODS
    check_known("model", models, RANGES)
    check_known("method", names, SIDES)
    methods = runnable(names)
    notes = missing(names)
    if not methods:
        return Result([], COLUMNS, notes, agree=False)
    cells: list[Row] = []
    grown: list[Row] = []
    for model in models:
        measured = _measure(model, methods, options)
        cells += [{"along": along, **row} for along, rows in measured.items() for row in rows]
        found = [row for along, rows in measured.items() for row in growth(model, along, rows)]
        grown += found
        notes += _draw(model, found, options.figures)
    wrong = objections(cells)
    table = Table("Growth", GROWTH_COLUMNS, grown)
    return Result(cells, COLUMNS, [*notes, *wrong], agree=not wrong, tables=[table])


def growth(model: str, along: str, rows: list[Row]) -> list[Row]:
    """For each method its sizes, its seconds and how one grows with the other."""
    measure = AXES[along][1]
    found = []
    for method in dict.fromkeys(row["method"] for row in rows):
        points = sorted(
            (row[measure], min(row["seconds"]))
            for row in rows
            if row["method"] == method and "seconds" in row
        )
        if len(points) < 2:
            continue
        sizes, seconds = (list(values) for values in zip(*points, strict=True))
        slope = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
        found.append(
            {
                "model": model,
                "along": along,
                "method": method,
                "sizes": sizes,
                "best_seconds": seconds,
                "from": sizes[0],
                "to": sizes[-1],
                "first_seconds": seconds[0],
                "last_seconds": seconds[-1],
                "growth": float(slope),
            }
        )
    return found


def _measure(model: str, methods: list[str], options: Options) -> dict[str, list[Row]]:
    """The rows of every point along every axis; points that two axes share are measured once."""
    known: dict[str, list[Row]] = {}
    axes = RANGES[model].axes(SETTINGS[model])
    for along, points in axes.items():
        for point in points:
            name = json.dumps(asdict(point))
            if name not in known:
                known[name] = compare(
                    f"{model} {along}", point.setting, methods, _at(point, options)
                )
    return {
        along: [row for point in points for row in known[json.dumps(asdict(point))]]
        for along, points in axes.items()
    }


def _at(point: Point, options: Options) -> Options:
    return replace(options, num_images=point.num_images, num_samples=point.num_samples)


def _draw(model: str, grown: list[Row], folder: Path) -> list[str]:
    """Draws a model's figure in a process of its own, and says where it is."""
    with tempfile.TemporaryDirectory(prefix="jaxsens-bench-") as scratch:
        job = Path(scratch) / "figure.json"
        job.write_text(
            json.dumps({"rows": grown, "folder": str(folder.resolve()), "name": f"scaling-{model}"})
        )
        cell.run_module("benchmarks.scaling_figure", str(job), environment={"JAX_PLATFORMS": "cpu"})
    return [f"figure: {folder / f'scaling-{model}.png'}"]
