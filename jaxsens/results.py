"""The run folder: everything one run of an experiment leaves behind, safe against being killed.

    config.json     the experiment and its configuration: the identity of the folder
    metrics.jsonl   one JSON object a line, appended while the run goes on
    checkpoints/    written by the training loop
    figures/        *.png and *.pdf
    results.json    claims, tables and numbers; written last, so its existence means "finished"
    report.html     made from results.json and figures/

A file is replaced whole (temporary file, fsync, rename) or appended to one line at a time, so a
run killed at any moment leaves either the old or the new state, plus at most one torn last line
in metrics.jsonl, which is ignored and cut off before the next record.

Assumption: the file system renames atomically and honours ``flock`` (any local POSIX file system
and NFSv4 do). Without ``flock``, two processes could write to one folder at the same time; opening
such a folder warns. With several hosts, only process 0 may open the folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import importlib.metadata
import json
import math
import os
import platform
import re
import socket
import subprocess
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

Cell = str | float | int | None

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy")
_NO_VALUE = "–"
_NUMERIC_TEXT = re.compile(
    rf"{_NO_VALUE}|[\s.,;+\-−–±×≈<>≤≥%/()\[\]e\d]*\d[\s.,;+\-−–±×%/()\[\]e\d]*"
)


class WorkdirError(ValueError):
    """A folder cannot serve as the run folder of this run; the message is one line."""


@dataclasses.dataclass(frozen=True)
class Claim:
    """One statement of a paper (an ordering or an inequality) and whether we see it too."""

    statement: str
    paper: str
    measured: str
    holds: bool


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of results; cells are text, numbers, or None for "no value".

    Example:
        >>> rows = (("ViT", 0.02, 0.0312), ("CNN", None, 0.06))
        >>> table = Table("Sensitivity", ("model", "paper", "ours"), rows)
        >>> print(table.as_text())
        Sensitivity
        model  paper    ours
        -----  -----  ------
        ViT     0.02  0.0312
        CNN        –  0.0600
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        where, width = f"table {self.title!r}", len(self.columns)
        rows = tuple(tuple(row) for row in _plain(self.rows, where))
        for i, row in enumerate(rows):
            if len(row) != width:
                raise ValueError(
                    f"{where}: expected {width} cells in every row, got {len(row)} in row {i}; "
                    "use None for a cell without a value"
                )
        object.__setattr__(self, "rows", rows)

    def cells(self) -> tuple[tuple[str, ...], ...]:
        """The rows as text: floats with equally many decimals in a column, None as a dash."""
        columns = [_column_text(column) for column in zip(*self.rows, strict=True)]
        return tuple(zip(*columns, strict=True))

    def numeric(self) -> tuple[bool, ...]:
        """For every column, whether all its values read as numbers, to be aligned right."""
        columns = zip(*self.cells(), strict=True) if self.rows else [()] * len(self.columns)
        return tuple(all(map(_NUMERIC_TEXT.fullmatch, column)) for column in columns)

    def as_text(self) -> str:
        """The table for a terminal: title, aligned columns, note."""
        lines = [self.columns, *self.cells()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        numeric = self.numeric()

        def aligned(line: tuple[str, ...]) -> str:
            cells = zip(line, widths, numeric, strict=True)
            return "  ".join(c.rjust(w) if right else c.ljust(w) for c, w, right in cells).rstrip()

        head, *body = map(aligned, lines)
        rule = "  ".join("-" * width for width in widths)
        return "\n".join(filter(None, [self.title, head, rule, *body, self.note]))

    def as_markdown(self) -> str:
        """The table in GitHub's Markdown: bold title, table, note."""

        def line(cells: Iterable[str]) -> str:
            return "| " + " | ".join(" ".join(c.replace("|", r"\|").split()) for c in cells) + " |"

        rule = line("---:" if numeric else "---" for numeric in self.numeric())
        table = "\n".join([line(self.columns), rule, *map(line, self.cells())])
        return "\n\n".join(filter(None, [self.title and f"**{self.title}**", table, self.note]))


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure of the run: a PNG file below the run folder, and its caption."""

    file: str
    caption: str

    def __post_init__(self) -> None:
        if Path(self.file).is_absolute() or not self.file.endswith(".png"):
            raise ValueError(f'expected a PNG such as "figures/fig4.png", got {self.file!r}')


@dataclasses.dataclass(frozen=True)
class Results:
    """All that a finished run says: claims for readers, ``values`` for programs.

    ``values``, ``config`` and ``environment`` are stored as plain JSON (tuples become lists, NumPy
    and JAX numbers Python numbers), so that ``Results.from_json(r.to_json()) == r`` always holds.
    ``command`` reproduces the run; when empty, the report derives it from ``config``.
    """

    experiment: str
    title: str
    summary: str
    claims: tuple[Claim, ...]
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...]
    values: dict[str, Any]
    config: dict[str, Any]
    environment: dict[str, Any]
    seconds: float
    command: str = ""

    def __post_init__(self) -> None:
        for name in ("values", "config", "environment", "seconds"):
            object.__setattr__(self, name, _plain(getattr(self, name), name))

    def to_json(self) -> str:
        """The results as indented JSON text."""
        return _dumps(dataclasses.asdict(self), "results", indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Results:
        """The inverse of ``to_json``.

        Raises:
            ValueError: The text is not what ``to_json`` of this version writes.
        """
        try:
            fields = json.loads(text)
            claims = tuple(Claim(**claim) for claim in fields.pop("claims"))
            tables = tuple(
                Table(t["title"], tuple(t["columns"]), tuple(map(tuple, t["rows"])), t["note"])
                for t in fields.pop("tables")
            )
            figures = tuple(Figure(**figure) for figure in fields.pop("figures"))
            return cls(claims=claims, tables=tables, figures=figures, **fields)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not the results of this version of jaxsens: {error}") from error


class RunFolder:
    """A run folder that this process holds alone; see the module's docstring for its files.

    Attributes:
        path: The folder.
        experiment: The experiment's name.
        config: The configuration as plain JSON.
        checkpoints: Where the training loop keeps its checkpoints (not created here).
        figures: Where figures go.
    """

    def __init__(self, path: Path, experiment: str, config: dict[str, Any], lock: int) -> None:
        self.path, self.experiment, self.config = path, experiment, config
        self.checkpoints, self.figures = path / "checkpoints", path / "figures"
        self._metrics, self._results = path / "metrics.jsonl", path / "results.json"
        self._lock: int | None = lock

    @classmethod
    def open(cls, path: Path | str, experiment: str, config: dict[str, Any]) -> RunFolder:
        """Creates the folder, or reopens it if it belongs to the same experiment and config.

        Args:
            path: The folder; missing parents are made. ``default_folder`` names the usual one.
            experiment: The experiment's name.
            config: Its configuration; values as in JSON, also tuples and NumPy numbers.

        Returns:
            The folder, locked until ``close``, the end of a ``with`` block or of the process.

        Raises:
            WorkdirError: The folder holds another run or other files, is in use, or cannot be
                written to.
        """
        path = Path(path)
        identity = {"experiment": experiment, "config": _plain(config, "config")}
        with contextlib.ExitStack() as undo:
            try:
                path.mkdir(parents=True, exist_ok=True)
                _refuse_foreign_files(path)
                lock = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
                undo.callback(os.close, lock)
                _acquire(lock, path)
                for leftover in [*path.glob(".*.tmp"), *path.glob("figures/.*.tmp")]:
                    leftover.unlink()
                if (path / "config.json").exists():
                    _refuse_other_run(path, identity)
                else:
                    write_atomic(path / "config.json", _dumps(identity, "", indent=2) + "\n")
            except OSError as error:
                raise WorkdirError(
                    f"{path} cannot be used as a run folder ({error.strerror or error}); "
                    "choose another --workdir"
                ) from error
            undo.pop_all()
        return cls(path, experiment, identity["config"], lock)

    def close(self) -> None:
        """Lets other processes open the folder; this object can then only read."""
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def append(self, record: dict[str, Any]) -> None:
        """Adds one record to metrics.jsonl; on return it is on the disk.

        Append before saving the checkpoint of the same step: then no record older than the last
        checkpoint can be missing, and ``rewrite`` drops the newer ones on resume.

        Raises:
            ValueError: A value is NaN, infinite or not representable in JSON.
        """
        self._require_open()
        line = (_dumps(record, "metrics") + "\n").encode()
        with self._metrics.open("ab") as file:
            file.truncate(len(self._complete_lines()))
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def metrics(self) -> list[dict[str, Any]]:
        """All records of metrics.jsonl; a last line torn by a killed process is left out.

        Raises:
            WorkdirError: A line other than a torn last one is damaged.
        """
        records = []
        for i, line in enumerate(self._complete_lines().splitlines(), start=1):
            try:
                records.append(json.loads(line))
            except ValueError as error:
                raise WorkdirError(
                    f"{self._metrics}, line {i} is damaged; choose another --workdir"
                ) from error
        return records

    def rewrite(self, records: Iterable[dict[str, Any]]) -> None:
        """Replaces metrics.jsonl by these records, all or nothing."""
        self._require_open()
        lines = (_dumps(record, "metrics") + "\n" for record in records)
        write_atomic(self._metrics, "".join(lines))

    @property
    def finished(self) -> bool:
        """Whether results.json exists, which is written last."""
        return self._results.exists()

    def write_results(self, results: Results) -> None:
        """Writes results.json and thereby marks the run as finished.

        Raises:
            FileNotFoundError: A figure named in the results has not been saved.
        """
        self._require_open()
        missing = [f.file for f in results.figures if not (self.path / f.file).is_file()]
        if missing:
            raise FileNotFoundError(f"{missing[0]} is not in {self.path}; save the figures first")
        write_atomic(self._results, results.to_json())

    def results(self) -> Results:
        """The results of a finished run.

        Raises:
            WorkdirError: The run is not finished, or results.json is damaged.
        """
        if not self.finished:
            raise WorkdirError(f"{self.path} has no results.json yet; run the command to its end")
        try:
            return Results.from_json(self._results.read_text("utf-8"))
        except ValueError as error:
            raise WorkdirError(f"{self._results}: {error}; delete it and run again") from error

    def _complete_lines(self) -> bytes:
        data = self._metrics.read_bytes() if self._metrics.exists() else b""
        return data[: data.rfind(b"\n") + 1]

    def _require_open(self) -> None:
        if self._lock is None:
            raise WorkdirError(f"{self.path} is closed; open it again before writing")


def config_hash(experiment: str, config: dict[str, Any]) -> str:
    """Ten hexadecimal digits that name an experiment's configuration; key order is irrelevant.

    Example:
        >>> config_hash("fig4", {"epochs": 5, "sigma": 0.5})
        '8b258bbeab'
    """
    identity = {"experiment": experiment, "config": config}
    return hashlib.sha256(_dumps(identity, "config", sort_keys=True).encode()).hexdigest()[:10]


def default_folder(experiment: str, config: dict[str, Any], root: Path | str = "runs") -> Path:
    """The folder of a run without ``--workdir``: ``runs/<experiment>/<config hash>``."""
    return Path(root) / experiment / config_hash(experiment, config)


def write_atomic(path: Path | str, data: str | bytes) -> None:
    """Writes a file so that a reader, or a crash, sees either the old content or all of the new.

    Args:
        path: The file; missing parent folders are made.
        data: Its content; text is written as UTF-8.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    # The rename itself reaches the disk only with its folder.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def environment() -> dict[str, Any]:
    """What the numbers were made with: versions, device, machine and, in a checkout, the commit.

    Returns:
        python, the versions of jax, jaxlib, flax, optax, numpy and jaxsens, backend, device,
        num_devices, num_hosts, platform, num_cpus; ``commit`` only if jaxsens is a git checkout,
        with a "+" when tracked files were changed.
    """
    from jaxsens import __version__  # here, because jaxsens/__init__.py may import this module

    commit = _commit(Path(__file__).resolve().parents[1])
    return {
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in _PACKAGES},
        "jaxsens": __version__,
        "backend": jax.default_backend(),
        "device": jax.devices()[0].device_kind,
        "num_devices": jax.device_count(),
        "num_hosts": jax.process_count(),
        "platform": platform.platform(),
        "num_cpus": os.cpu_count(),
        **({"commit": commit} if commit else {}),
    }


def _plain(value: Any, where: str) -> Any:
    """The value as JSON would give it back; NaN and infinity are refused by name."""
    plain = json.loads(json.dumps(value, default=_python_value))
    for name, leaf in _leaves(plain, where, dict, list):
        if isinstance(leaf, float) and not math.isfinite(leaf):
            raise ValueError(
                f"expected a finite number for {name}, got {leaf}; find where it comes from, or "
                "store None for a value that does not exist"
            )
    return plain


def _dumps(value: Any, where: str, **options: Any) -> str:
    return json.dumps(_plain(value, where), ensure_ascii=False, **options)


def _python_value(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray | jax.Array):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"expected text, numbers, lists or dicts, got {type(value).__name__}")


def _leaves(value: Any, name: str, *inside: type) -> Iterator[tuple[str, Any]]:
    """The values inside nested containers of the given types, with dotted names."""
    nested = bool(value) and isinstance(value, inside)
    if not nested:
        yield name, value
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _leaves(inner, f"{name}.{key}" if name else str(key), *inside)


def _column_text(column: tuple[Cell, ...]) -> list[str]:
    """Four significant digits for the float that needs most decimals, as many for the others."""
    short = [f"{cell:.4g}" for cell in column if isinstance(cell, float)]
    decimals = max((len(text.partition(".")[2]) for text in short), default=0)
    form = ".4g" if any("e" in text for text in short) else f".{decimals}f"
    texts = (format(cell, form) if isinstance(cell, float) else str(cell) for cell in column)
    return [_NO_VALUE if cell is None else text for cell, text in zip(column, texts, strict=True)]


def _refuse_foreign_files(path: Path) -> None:
    names = {entry.name for entry in path.iterdir()}
    # A run killed before it wrote config.json leaves only these two.
    foreign = {n for n in names if n != ".lock" and not (n.startswith(".") and n.endswith(".tmp"))}
    if foreign and "config.json" not in names:
        raise WorkdirError(
            f"{path} is not a run folder: it has no config.json but holds other files "
            f"({min(foreign)}); choose another --workdir"
        )


def _refuse_other_run(path: Path, identity: dict[str, Any]) -> None:
    try:
        there = _fields(json.loads((path / "config.json").read_text("utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise WorkdirError(
            f"{path} is not a run folder: its config.json was not written by jaxsens; "
            "choose another --workdir"
        ) from error
    here = _fields(identity)
    different = [
        f"{name}: {there.get(name, 'absent'):.60} there, {here.get(name, 'absent'):.60} here"
        for name in {**here, **there}
        if there.get(name) != here.get(name)
    ]
    if different:
        more = f" and {len(different) - 3} more" if len(different) > 3 else ""
        raise WorkdirError(
            f"{path} holds another run ({', '.join(different[:3])}{more}); choose another --workdir"
        )


def _fields(identity: dict[str, Any]) -> dict[str, str]:
    """The experiment and every field of its config, nested ones dotted, each as one line."""
    fields = {"--exp": identity["experiment"], **dict(_leaves(identity["config"], "", dict))}
    return {name: json.dumps(value, ensure_ascii=False) for name, value in fields.items()}


def _acquire(lock: int, path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(lock, 200, 0).decode(errors="replace").strip() or "another process"
        raise WorkdirError(
            f"{path} is in use by {owner}; wait for it to end or choose another --workdir"
        ) from None
    except OSError as error:
        warnings.warn(
            f"{path} cannot be locked ({error.strerror}); make sure that no other process uses it",
            stacklevel=3,
        )
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)


def _commit(root: Path) -> str | None:
    """The commit of the checkout whose top folder is ``root``; None anywhere else."""

    def git(*arguments: str) -> str:
        # Without optional locks, asking for the status leaves the index of the user alone.
        command = ["git", "--no-optional-locks", "-C", str(root), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
        return done.stdout.strip()

    try:
        # site-packages may lie inside somebody else's checkout, whose commit says nothing.
        if Path(git("rev-parse", "--show-toplevel")).resolve() != root:
            return None
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None
