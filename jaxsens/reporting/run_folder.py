"""The run folder: everything one run of an experiment leaves behind, safe against being killed.

    config.json     the experiment and its configuration: the identity of the folder; and digests of
                    its data, and the versions and the machine that it was begun with
    metrics.jsonl   one JSON object a line, appended while the run goes on
    checkpoints/    written by the training loop
    partial/        what an unfinished measurement has found so far
    devices.txt     on how many devices it trains, if on several and if that decides bits
    figures/        *.png, *.pdf and *.csv
    arms/           which trainings other processes have made (`jaxsens.reporting.arms`)
    maps.json       sensitivity of each position of some examples (`jaxsens.reporting.example_maps`)
    results.json    claims, tables and numbers; written last, so its existence means "finished"
    report.html     made from results.json, maps.json and figures/
    error.log       the traceback of an error that nobody foresaw

A file is replaced whole or appended to one line at a time, so a run killed at any moment leaves
either the old or the new state, plus at most one torn last line in metrics.jsonl, which is ignored
and cut off before the next record.

It lies on a disk or, as gs://bucket/run, in an object store; `jaxsens.core.storage` knows how each
of them does that, and what it assumes. Of several processes of one job, process 0 alone opens the
folder (`jaxsens.reporting.shared_folder`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path, PurePath
from typing import Any

from jaxsens.core import storage
from jaxsens.core.bucket import ChangedError
from jaxsens.core.disk import FileLock
from jaxsens.core.files import WorkdirError, write_atomic
from jaxsens.reporting import run_identity
from jaxsens.reporting.plain_json import dumps
from jaxsens.reporting.progress import say
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

_METRICS, _RESULTS, _ERRORS = "metrics.jsonl", "results.json", "error.log"


class RunLostError(RuntimeError):
    """The folder was deleted, renamed or replaced while the run went on.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as place:
      ...     with RunFolder.open(f"{place}/run", "vision", {}) as folder:
      ...         _ = folder.path.rename(f"{place}/elsewhere")
      ...         folder.append({"stage": "figures", "seconds": 1.5})
      Traceback (most recent call last):
      jaxsens.reporting.run_folder.RunLostError: .../run was ...
    """


class RunFolder:
    """A run folder that this process holds alone; "Where things are" lists its files.

    Attributes:
      path: the folder.
      experiment: the experiment's name.
      config: the configuration as plain JSON.
      changes: what of `made_with` is different from when the run was begun, a line each.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as place:
      ...     with RunFolder.open(f"{place}/run", "vision", {"seed": 0}) as folder:
      ...         folder.append({"stage": "figures", "seconds": 1.5})
      ...         folder.write("estimates/cnn.json", "{}")
      ...         folder.appended(), folder.intact("estimates/cnn.json"), folder.finished
      ([{'stage': 'figures', 'seconds': 1.5}], True, False)
    """

    def __init__(
        self,
        path: PurePath,
        experiment: str,
        config: dict[str, Any],
        lock: storage.Lock | None = None,
        changes: tuple[str, ...] = (),
    ) -> None:
        self.path, self.experiment, self.config, self.changes = path, experiment, config, changes
        self._storage, self._lock = storage.at(path), lock

    @classmethod
    def open(
        cls,
        path: PurePath | str,
        experiment: str,
        config: dict[str, Any],
        *,
        data: dict[str, str] | None = None,
        made_with: dict[str, Any] | None = None,
    ) -> RunFolder:
        """Creates the folder, or reopens it if it belongs to the same experiment, config and data.

        A folder that is refused is left as it was.

        Args:
          path: the folder, or gs://bucket/folder; missing parents are made. `default_folder`
            names the usual one.
          experiment: the experiment's name.
          config: its configuration; values as in JSON, also tuples and NumPy numbers.
          data: digests of what was loaded, by name; other data than the run was begun with is
            refused. None, or a folder of an earlier version, which has none: not compared.
          made_with: versions and machine; what is different is said in `changes`.

        Returns:
          The folder, locked until `close`, the end of a `with` block or of the process.

        Raises:
          WorkdirError: the folder holds another run or other files, is in use, or cannot be
            written to.
        """
        place = _at(path)
        identity = run_identity.identity(experiment, config, data, made_with)
        with contextlib.ExitStack() as undo:
            try:
                place.require_usable()
                run_identity.refuse_foreign_files(place)
                run_identity.changes(place, identity)
                lock = place.lock(say)
                undo.callback(lock.release)
                if place.exists("config.json"):
                    # Once more, because another process may have made it since.
                    changes = run_identity.changes(place, identity)
                else:
                    changes = ()
                    place.write("config.json", dumps(identity, "", indent=2) + "\n")
                place.remove_leftovers()
            except OSError as error:
                raise WorkdirError(
                    f"{place.location} cannot be used as a run folder "
                    f"({error.strerror or error}); choose another --workdir"
                ) from error
            undo.pop_all()
        return cls(place.location, experiment, identity["config"], lock, changes)

    @classmethod
    def read(
        cls,
        path: PurePath | str,
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
          data: digests of the data, as in `open`.

        Raises:
          WorkdirError: the folder holds another run or other files.
        """
        place = _at(path)
        identity = run_identity.identity(experiment, config, data, None)
        run_identity.refuse_foreign_files(place)
        run_identity.changes(place, identity)
        return cls(place.location, experiment, identity["config"])

    @classmethod
    def join(
        cls,
        path: PurePath | str,
        experiment: str,
        config: dict[str, Any],
        inherited_lock: int,
        *,
        data: dict[str, str] | None = None,
    ) -> RunFolder:
        """The folder that the process that started this one holds, to be written to here as well.

        Args:
          path: the folder, on a disk.
          experiment: the experiment's name.
          config: its configuration.
          inherited_lock: the open file that is the lock (see `lock_descriptor`).
          data: digests of the data, as in `open`.

        Raises:
          WorkdirError: the folder holds another run.
        """
        place = _at(path)
        identity = run_identity.identity(experiment, config, data, None)
        run_identity.changes(place, identity)
        lock = FileLock(Path(place.location), inherited_lock)
        return cls(place.location, experiment, identity["config"], lock)

    def close(self) -> None:
        """Lets other processes open the folder; this object can then only read."""
        if self._lock is not None:
            self._lock.release()
        self._lock = None

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def lock_descriptor(self) -> int:
        """The open file that is the folder's lock, for a process that is to write there, too.

        Raises:
          WorkdirError: the folder is closed, or is not on a disk.
        """
        self.require_held()
        if not isinstance(self._lock, FileLock):
            raise WorkdirError(f"{self.path} is not on a disk; choose another --workdir")
        return self._lock.descriptor()

    @property
    def checkpoints(self) -> PurePath:
        """Where the training loop keeps its checkpoints (not created here)."""
        return self._inside("checkpoints")

    @property
    def figures(self) -> PurePath:
        """Where figures go."""
        return self._inside("figures")

    def _inside(self, name: str) -> PurePath:
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
        if (lost := self._lock.lost()) is not None:
            raise self._lost(lost)

    def _lost(self, what: str) -> RunLostError:
        return RunLostError(
            f"{self.path} {what}; nothing more is written; the same command begins anew, or "
            "resumes in the folder put back"
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
        try:
            self._storage.append(_METRICS, line)
        except ChangedError as error:
            raise self._lost("was written to by another process") from error

    def appended(self) -> list[dict[str, Any]]:
        """All that was appended to metrics.jsonl, but a last line torn by a killed process.

        Raises:
          WorkdirError: a line other than a torn last one is damaged.
        """
        try:
            data = self._storage.read(_METRICS)
        except FileNotFoundError:
            data = b""
        records = []
        for i, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), start=1):
            try:
                records.append(json.loads(line))
                if not isinstance(records[-1], dict):
                    raise ValueError("not an object")
            except (ValueError, RecursionError) as error:
                raise WorkdirError(
                    f"{self.path / _METRICS}, line {i} is damaged; choose another --workdir"
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
        line = f"{hashlib.sha256(content).hexdigest()}  {PurePath(name).name}\n"
        # First, because a file without a checksum would count as intact.
        self._storage.write(_checksum_file(name), line)
        self._storage.write(name, content)

    def read_bytes(self, name: str) -> bytes:
        """The content of a file below the folder; OSError if there is none."""
        return self._storage.read(name)

    def exists(self, name: str) -> bool:
        """Whether there is a file of that name below the folder."""
        return self._storage.exists(name)

    def post(self, name: str, data: bytes) -> None:
        """As `write`; of several processes each may call it by itself, at any time."""
        self.write(name, data)

    def discard(self, name: str) -> None:
        """Removes a folder below this one, if it is there."""
        self.require_held()
        self._storage.discard(name)

    def intact(self, name: str) -> bool:
        """Whether a file below the folder is there and is what `write` wrote.

        A file without a checksum, as earlier versions left them, counts as intact.
        """
        if not self.exists(name):
            return False
        try:
            expected = self._storage.read(_checksum_file(name))
        except FileNotFoundError:
            return True
        return expected.startswith(self._storage.checksum(name).encode())

    def log_error(self, text: str) -> PurePath:
        """Writes error.log, of the last error only, and gives its path."""
        self.require_held()
        self._storage.write(_ERRORS, text)
        return self.path / _ERRORS

    @property
    def finished(self) -> bool:
        """Whether results.json exists, which is written last."""
        return self._storage.exists(_RESULTS)

    def write_results(self, results: Results) -> None:
        """Writes results.json and thereby marks the run as finished.

        Raises:
          FileNotFoundError: a figure named in the results has not been saved.
        """
        self.require_held()
        missing = [f.file for f in results.figures if not self._storage.exists(f.file)]
        if missing:
            raise FileNotFoundError(f"{missing[0]} is not in {self.path}; save the figures first")
        self._storage.remove(_ERRORS)
        self.discard("partial")
        self._storage.write(_RESULTS, results.to_json())

    def results(self) -> Results:
        """The results of a finished run.

        Raises:
          WorkdirError: the run is not finished, or results.json is damaged.
        """
        if not self.finished:
            raise WorkdirError(f"{self.path} has no results.json yet; run the command to its end")
        try:
            return Results.from_json(self._storage.read(_RESULTS).decode("utf-8"))
        except ValueError as error:
            file = self.path / _RESULTS
            raise WorkdirError(f"{file}: {error}; delete it and run again") from error


def _checksum_file(name: str) -> str:
    """Beside the file, in the form that `sha256sum --check` reads."""
    return f"{name}.sha256"


def _at(path: PurePath | str) -> storage.Storage:
    try:
        return storage.at(path)
    except ValueError as error:
        raise WorkdirError(str(error)) from None
