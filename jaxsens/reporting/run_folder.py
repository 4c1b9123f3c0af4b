"""The run folder: everything one run of an experiment leaves behind, safe against being killed.

    config.json     the experiment and its configuration: the identity of the folder; and digests of
                    its data, and the versions and the machine that it was begun with
    metrics.jsonl   one JSON object a line, appended while the run goes on
    checkpoints/    written by the training loop
    partial/        what an unfinished measurement has found so far
    devices.txt     on how many devices it trains, if on several and if that decides bits
    figures/        *.png and *.pdf
    results.json    claims, tables and numbers; written last, so its existence means "finished"
    report.html     made from results.json and figures/
    error.log       the traceback of an error that nobody foresaw

A file is replaced whole (temporary file, fsync, rename) or appended to one line at a time, so a
run killed at any moment leaves either the old or the new state, plus at most one torn last line
in metrics.jsonl, which is ignored and cut off before the next record.

Assumption: the file system renames atomically and honours ``flock`` (any local POSIX file system
and NFSv4 do). Without ``flock``, two processes could write to one folder at the same time; opening
such a folder warns. Of several processes of one job, process 0 alone opens the folder
(`jaxsens.reporting.shared_folder`).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import json
import os
import re
import shutil
import socket
import warnings
from pathlib import Path
from typing import Any

from jaxsens.core import files
from jaxsens.core.files import WorkdirError, write_atomic
from jaxsens.reporting import run_identity
from jaxsens.reporting.plain_json import dumps
from jaxsens.reporting.results import Results
from jaxsens.reporting.run_identity import config_hash, default_folder

__all__ = [
    "RunFolder",
    "RunLostError",
    "WorkdirError",
    "config_hash",
    "default_folder",
    "write_atomic",
]

#: How the files are called that a run killed while writing leaves behind.
_LEFTOVER = re.compile(r"\..+\.(json|sha256|png|pdf|html|npy|log|txt)\.\d+\.tmp")
_BLOCK = 4096


class RunLostError(RuntimeError):
    """The folder was deleted, renamed or replaced while the run went on."""


class RunFolder:
    """A run folder that this process holds alone; see the module's docstring for its files.

    Attributes:
      path: the folder.
      experiment: the experiment's name.
      config: the configuration as plain JSON.
      changes: what of ``made_with`` is different from when the run was begun, a line each.
    """

    def __init__(
        self,
        path: Path,
        experiment: str,
        config: dict[str, Any],
        lock: int | None = None,
        changes: tuple[str, ...] = (),
    ) -> None:
        self.path, self.experiment, self.config, self.changes = path, experiment, config, changes
        self._metrics, self._results = path / "metrics.jsonl", path / "results.json"
        self._errors, self._lock = path / "error.log", lock

    @classmethod
    def open(
        cls,
        path: Path | str,
        experiment: str,
        config: dict[str, Any],
        *,
        data: dict[str, str] | None = None,
        made_with: dict[str, Any] | None = None,
    ) -> RunFolder:
        """Creates the folder, or reopens it if it belongs to the same experiment, config and data.

        A folder that is refused is left as it was.

        Args:
          path: the folder; missing parents are made. ``default_folder`` names the usual one.
          experiment: the experiment's name.
          config: its configuration; values as in JSON, also tuples and NumPy numbers.
          data: digests of what was loaded, by name; other data than the run was begun with is
            refused. None, or a folder of an earlier version, which has none: not compared.
          made_with: versions and machine; what is different is said in ``changes``.

        Returns:
          The folder, locked until ``close``, the end of a ``with`` block or of the process.

        Raises:
          WorkdirError: the folder holds another run or other files, is in use, or cannot be
            written to.
        """
        path = Path(path)
        identity = run_identity.identity(experiment, config, data, made_with)
        with contextlib.ExitStack() as undo:
            try:
                run_identity.refuse_unusable_name(path)
                if path.exists():
                    run_identity.refuse_foreign_files(path)
                    run_identity.changes(path, identity)
                files.make_folder(path)
                lock = os.open(path / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
                undo.callback(os.close, lock)
                _acquire(lock, path)
                if (path / "config.json").exists():
                    # Once more, because another process may have made it since.
                    changes = run_identity.changes(path, identity)
                else:
                    changes = ()
                    write_atomic(path / "config.json", dumps(identity, "", indent=2) + "\n")
                for file in [*path.glob(".*.tmp"), *path.glob("*/.*.tmp")]:
                    if _LEFTOVER.fullmatch(file.name):
                        file.unlink()
            except OSError as error:
                raise WorkdirError(
                    f"{path} cannot be used as a run folder ({error.strerror or error}); "
                    "choose another --workdir"
                ) from error
            undo.pop_all()
        return cls(path, experiment, identity["config"], lock, changes)

    @classmethod
    def read(
        cls,
        path: Path | str,
        experiment: str,
        config: dict[str, Any],
        *,
        data: dict[str, str] | None = None,
    ) -> RunFolder:
        """The folder of the same experiment, config and data, to be read only: nothing is touched.

        Args:
          path: the folder, which may be one that cannot be written to.
          experiment: the experiment's name.
          config: its configuration.
          data: digests of the data, as in ``open``.

        Raises:
          WorkdirError: the folder holds another run or other files.
        """
        path = Path(path)
        identity = run_identity.identity(experiment, config, data, None)
        run_identity.refuse_foreign_files(path)
        run_identity.changes(path, identity)
        return cls(path, experiment, identity["config"])

    def close(self) -> None:
        """Lets other processes open the folder; this object can then only read."""
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def checkpoints(self) -> Path:
        """Where the training loop keeps its checkpoints (not created here)."""
        return self._inside("checkpoints")

    @property
    def figures(self) -> Path:
        """Where figures go."""
        return self._inside("figures")

    def _inside(self, name: str) -> Path:
        if self._lock is not None:
            self.require_held()
        return self.path / name

    def require_held(self) -> None:
        """Raises an error unless what is written now goes into the folder that was opened.

        Raises:
          WorkdirError: the folder is closed.
          RunLostError: it was deleted, renamed or replaced.
        """
        if self._lock is None:
            raise WorkdirError(f"{self.path} is closed; open it again before writing")
        try:
            held = os.path.samestat(os.fstat(self._lock), (self.path / ".lock").stat())
        except OSError:
            held = False
        if not held:
            raise RunLostError(
                f"{self.path} was deleted, renamed or replaced while the run went on; nothing more "
                "is written; the same command begins anew, or resumes in the folder put back"
            )

    def append(self, record: dict[str, Any]) -> None:
        """Adds one record to metrics.jsonl; on return it is on the disk.

        Save the checkpoint of an epoch first, then append what was measured on it: a run killed in
        between has the checkpoint to measure again, and never a record of a state it lost.

        Raises:
          ValueError: a value is NaN, infinite or not representable in JSON.
        """
        self.require_held()
        line = (dumps(record, "metrics") + "\n").encode()
        new = not self._metrics.exists()
        with self._metrics.open("a+b") as file:
            file.truncate(_end_of_last_line(file))
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        if new:
            files.sync(self.path)

    def appended(self) -> list[dict[str, Any]]:
        """All that was appended to metrics.jsonl, but a last line torn by a killed process.

        Raises:
          WorkdirError: a line other than a torn last one is damaged.
        """
        data = self._metrics.read_bytes() if self._metrics.exists() else b""
        records = []
        for i, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), start=1):
            try:
                records.append(json.loads(line))
                if not isinstance(records[-1], dict):
                    raise ValueError("not an object")
            except (ValueError, RecursionError) as error:
                raise WorkdirError(
                    f"{self._metrics}, line {i} is damaged; choose another --workdir"
                ) from error
        return records

    def write(self, name: str, data: str | bytes) -> None:
        """Writes a file below the folder, whole or not at all, and its checksum beside it.

        Args:
          name: the file, as in "estimates/cnn.json".
          data: its content; text is written as UTF-8.
        """
        self.require_held()
        content = data.encode() if isinstance(data, str) else data
        line = f"{hashlib.sha256(content).hexdigest()}  {Path(name).name}\n"
        # First, because a file without a checksum would count as intact.
        write_atomic(_checksum_file(self.path / name), line)
        write_atomic(self.path / name, content)

    def read_bytes(self, name: str) -> bytes:
        """The content of a file below the folder; OSError if there is none."""
        return (self.path / name).read_bytes()

    def post(self, name: str, data: bytes) -> None:
        """As ``write``; of several processes each may call it by itself, at any time."""
        self.write(name, data)

    def discard(self, name: str) -> None:
        """Removes a folder below this one, if it is there."""
        self.require_held()
        shutil.rmtree(self.path / name, ignore_errors=True)

    def intact(self, name: str) -> bool:
        """Whether a file below the folder is there and is what ``write`` wrote.

        A file without a checksum, as earlier versions left them, counts as intact.
        """
        file = self.path / name
        if not file.is_file():
            return False
        sidecar = _checksum_file(file)
        return not sidecar.exists() or sidecar.read_bytes().startswith(
            files.checksum(file).encode()
        )

    def log_error(self, text: str) -> Path:
        """Writes error.log, of the last error only, and gives its path."""
        self.require_held()
        write_atomic(self._errors, text)
        return self._errors

    @property
    def finished(self) -> bool:
        """Whether results.json exists, which is written last."""
        return self._results.exists()

    def write_results(self, results: Results) -> None:
        """Writes results.json and thereby marks the run as finished.

        Raises:
          FileNotFoundError: a figure named in the results has not been saved.
        """
        self.require_held()
        missing = [f.file for f in results.figures if not (self.path / f.file).is_file()]
        if missing:
            raise FileNotFoundError(f"{missing[0]} is not in {self.path}; save the figures first")
        self._errors.unlink(missing_ok=True)
        self.discard("partial")
        write_atomic(self._results, results.to_json())

    def results(self) -> Results:
        """The results of a finished run.

        Raises:
          WorkdirError: the run is not finished, or results.json is damaged.
        """
        if not self.finished:
            raise WorkdirError(f"{self.path} has no results.json yet; run the command to its end")
        try:
            return Results.from_json(self._results.read_text("utf-8"))
        except ValueError as error:
            raise WorkdirError(f"{self._results}: {error}; delete it and run again") from error


def _checksum_file(file: Path) -> Path:
    """Beside the file, in the form that ``sha256sum --check`` reads."""
    return file.with_name(f"{file.name}.sha256")


def _end_of_last_line(file: io.BufferedIOBase) -> int:
    """Where the last complete line ends; reads no more than what comes after it."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - _BLOCK)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


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
