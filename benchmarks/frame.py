"""What all suites share: the command line's options, the table, the machine.

A suite is a function `run(options) -> Result`. Its rows are plain dictionaries, ready for JSON; its
columns say how a row is printed. A new column is a new `Column`, a new suite a new module and its
name in `benchmarks.run.SUITES`.

This module and the suites import neither JAX nor PyTorch: each cell does so in its own process.
"""

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Row = dict[str, Any]

#: Packages whose versions decide a measurement.
PACKAGES = ("jaxsens", "jax", "jaxlib", "flax", "numpy", "torch", "captum")


class UsageError(ValueError):
    """Options that a suite does not know."""


@dataclass(frozen=True)
class Options:
    """Speed of jaxsens against PyTorch on the same weights and inputs, side by side in one run."""

    suite: Literal[
        "sensitivity",
        "training",
        "scaling",
        "tolerance",
        "many-runs",
        "worst-case",
        "devices",
        "occlusion",
        "pytorch",
        "foreign",
        "start",
    ] = "sensitivity"
    """What to measure: every model by every method, a step of training, how the cost grows, a
    tolerance against the exhaustive measurement, how many small trainings an hour has, the ascent
    of `worst_case`, how a step of training is split over devices, occlusion maps against captum,
    a PyTorch module as it is, what reuse saves in models of other packages, or how long a process
    takes to its first result."""
    models: tuple[str, ...] = ()
    """Models to measure; default the suite's own choice."""
    methods: tuple[str, ...] = ()
    """Methods to compare; default the suite's own choice."""
    num_images: int | None = None
    """Images (or texts) that one timed run measures; default by model, so that a run takes
    seconds."""
    batch: int = 100
    """Images that the PyTorch loop puts through the model together, and of a training step of the
    suites "training" and "devices": the paper's batch."""
    num_samples: int | None = None
    """S, draws for each position; default the paper's, 5 for images and 3 for texts."""
    repeats: int = 3
    """Timed runs of a cell; the best counts."""
    threads: int | None = None
    """CPU threads of every cell; default all cores that this process may use."""
    seed: int = 0
    """Of the weights, the images and the noise."""
    tolerances: tuple[float, ...] = (0.01, 0.003, 0.001)
    """Of the suite "tolerance": half lengths of the 95 % interval to stop at."""
    lengths: tuple[int, ...] = (4, 6, 8, 10)
    """Of the suite "many-runs": bits of an input."""
    batches: tuple[int, ...] = (256, 1024)
    """Of the suite "many-runs": inputs drawn for a step."""
    steps: int = 100
    """Of the suite "many-runs": steps of every run in a timed stretch."""
    lanes: int = 24
    """Of the suite "many-runs": runs that jaxsens trains together."""
    block: int = 4
    """Of the suite "many-runs": of which so many are vmapped."""
    words: tuple[int, ...] = (50, 250)
    """Of the suite "worst-case": n, words of an example."""
    widths: tuple[int, ...] = (192, 768)
    """Of the suite "worst-case": d, width of a word."""
    starts: int = 8
    """Of the suite "worst-case": ascents of each example."""
    ascent_steps: int = 50
    """Of the suite "worst-case": steps of an ascent."""
    figures: Path = Path("runs/benchmarks")
    """Where the suite "scaling" writes its figures."""
    json: Path | None = None
    """Also write everything to this file."""

    def __post_init__(self):
        counts = ("num_images", "batch", "num_samples", "repeats", "steps", "lanes", "block")
        for name in (*counts, "starts", "ascent_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1; got {value}")
        for name in ("lengths", "batches", "words", "widths"):
            values = getattr(self, name)
            if not values or min(values) < 1:
                raise ValueError(f"{name} must be at least 1; got {values}")
        if not self.tolerances or min(self.tolerances) <= 0:
            raise ValueError(f"tolerances must be positive; got {self.tolerances}")
        if self.threads is not None and not 1 <= self.threads <= available_cores():
            raise ValueError(
                f"threads must be from 1 to {available_cores()}, the cores that this process may "
                f"use; got {self.threads}"
            )

    @property
    def num_threads(self) -> int:
        """Threads of every cell."""
        return self.threads or available_cores()


@dataclass(frozen=True)
class Column:
    """One column of the printed table.

    Attributes:
      title: its head, with the unit.
      key: the row's entry.
      form: how the entry is printed; a missing entry, None or nan is printed as a dash.
    """

    title: str
    key: str
    form: Callable[[Any], str] = str

    def text(self, row: Row) -> str:
        """The printed entry."""
        value = row.get(self.key)
        return "–" if value is None or value != value else self.form(value)


@dataclass(frozen=True)
class Table:
    """Rows that are printed below the suite's own table, under a title."""

    title: str
    columns: tuple[Column, ...]
    rows: list[Row]


@dataclass(frozen=True)
class Result:
    """What a suite found.

    Attributes:
      rows: one for each cell.
      columns: how to print them.
      notes: what the reader must know besides.
      agree: whether all cells ran and measured the same thing.
      tables: what follows from the rows.
    """

    rows: list[Row]
    columns: tuple[Column, ...]
    notes: list[str] = field(default_factory=list)
    agree: bool = True
    tables: list[Table] = field(default_factory=list)


def markdown_table(columns: Sequence[Column], rows: Sequence[Row]) -> str:
    """The rows as a Markdown table whose source is aligned too.

    >>> print(markdown_table([Column("model", "m"), Column("ms", "t", "{:.1f}".format)], [
    ...     {"m": "mlp", "t": 3.14}, {"m": "cnn"}]))
    | model |  ms |
    | ----- | --: |
    | mlp   | 3.1 |
    | cnn   |   – |
    """
    texts = [[column.title for column in columns]]
    texts += [[column.text(row) for column in columns] for row in rows]
    widths = [max(3, *map(len, entries)) for entries in zip(*texts, strict=True)]
    words = [column.form is str for column in columns]
    rule = [
        "-" * width if word else "-" * (width - 1) + ":"
        for width, word in zip(widths, words, strict=True)
    ]
    aligned = [
        [
            entry.ljust(width) if word else entry.rjust(width)
            for entry, width, word in zip(line, widths, words, strict=True)
        ]
        for line in texts
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in [aligned[0], rule, *aligned[1:]])


def machine() -> dict[str, Any]:
    """Where the numbers come from: processor, cores, memory, load, commit and versions."""
    return {
        "cpu": _cpu_model(),
        "cores": available_cores(),
        "memory_gb": _memory_gb(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "system": platform.platform(),
        "commit": _commit(),
        "versions": {"python": platform.python_version()}
        | {name: _version(name) for name in PACKAGES},
    }


def describe(machine: dict[str, Any], threads: int) -> str:
    """The machine in a few lines, with a warning if others were using it."""
    versions = ", ".join(
        f"{name} {version or 'missing'}" for name, version in machine["versions"].items()
    )
    memory = "" if machine["memory_gb"] is None else f", {machine['memory_gb']:.1f} GB"
    lines = [
        f"machine: {machine['cpu']}, {machine['cores']} cores{memory}, {threads} threads per cell",
        f"versions: {versions} ({machine['system']}), commit {machine['commit'] or 'unknown'}",
    ]
    load = machine["load"]
    if load is not None and load > 0.5:
        lines.append(
            f"warning: the load was {load:.1f} before the start; timings are distorted, by orders "
            "of magnitude where a library's threads wait for each other"
        )
    return "\n".join(lines)


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _commit() -> str | None:
    """The commit of this checkout, with a + if a tracked file differs; None outside of one."""
    describe = ["git", "--no-optional-locks", "-C", str(Path(__file__).parent), "describe"]
    command = [*describe, "--always", "--exclude=*", "--dirty=+"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _cpu_model() -> str:
    # As `jaxsens.reporting.machine` has it, which imports JAX.
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory_gb() -> float | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    except (AttributeError, OSError, ValueError):
        return None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
