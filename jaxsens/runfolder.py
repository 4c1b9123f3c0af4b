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
import fcntl
import hashlib
import json
import os
import socket
import warnings
from pathlib import Path
from typing import Any

from jaxsens.results import Results, dumps, leaves, plain


class WorkdirError(ValueError):
    """A folder cannot serve as the run folder of this run; the message is one line."""


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
        identity = {"experiment": experiment, "config": plain(config, "config")}
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
                    write_atomic(path / "config.json", dumps(identity, "", indent=2) + "\n")
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

        Save the checkpoint of an epoch first, then append what was measured on it: a run killed in
        between has the checkpoint to measure again, and never a record of a state it lost.

        Raises:
            ValueError: A value is NaN, infinite or not representable in JSON.
        """
        self._require_open()
        line = (dumps(record, "metrics") + "\n").encode()
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
    return hashlib.sha256(dumps(identity, "config", sort_keys=True).encode()).hexdigest()[:10]


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
    fields = {"--exp": identity["experiment"], **dict(leaves(identity["config"], "", dict))}
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
