"""The run folder of several processes: the first one holds it, all the others follow.

What is read comes from process 0 (`jaxsens.core.hosts.from_first`); what is written is written
there, and its errors reach every process. A process that follows has a folder of its own for what
takes a path, such as figures; it is deleted at the end. Processes share no file system.
"""

from __future__ import annotations

import contextlib
import copy
import shutil
import tempfile
import threading
from pathlib import Path, PurePath
from typing import Any

from jaxsens.core import hosts, peers
from jaxsens.reporting.plain_json import plain
from jaxsens.reporting.results import Results
from jaxsens.reporting.run_folder import RunFolder

#: Where processes leave files for process 0, and how often it looks there.
_POSTED = "jaxsens/posted/"
_COLLECT_SECONDS = 1.0


class SharedFolder(RunFolder):
    """A run folder that all processes use and process 0 holds; every process makes the same calls.

    Args:
      held: the folder, in process 0; None elsewhere.
      said: what process 0 says of it.
    """

    def __init__(self, held: RunFolder | None, experiment: str, said: dict[str, Any]) -> None:
        self._held = held
        path: PurePath = held.path if held else Path(tempfile.mkdtemp(prefix="jaxsens-follows-"))
        super().__init__(path, experiment, said["config"], None, tuple(said["changes"]))
        self._records: list[dict[str, Any]] | None = None
        self._keep = peers.before_leaving(self._forget)
        self._collecting, self._closed = threading.Lock(), threading.Event()
        if held is not None:
            threading.Thread(target=self._collect, daemon=True).start()

    @classmethod
    def open(
        cls,
        path: PurePath | str,
        experiment: str,
        config: dict[str, Any],
        *,
        data: dict[str, str] | None = None,
        made_with: dict[str, Any] | None = None,
    ) -> SharedFolder:
        """As `RunFolder.open`, which process 0 calls."""
        held: list[RunFolder] = []

        def open_here() -> dict[str, Any]:
            held.append(RunFolder.open(path, experiment, config, data=data, made_with=made_with))
            return {"config": held[0].config, "changes": held[0].changes}

        said = hosts.from_first(open_here)
        return cls(held[0] if held else None, experiment, said)

    def close(self) -> None:
        """Lets go of the folder, or deletes that of a process that follows."""
        self._closed.set()
        if self._held is not None:
            self._held.close()
        self._forget()
        self._keep()
        self._keep = lambda: None

    def _forget(self) -> None:
        if self._held is None:
            shutil.rmtree(str(self.path), ignore_errors=True)

    def require_held(self) -> None:
        """As `RunFolder.require_held`, in process 0; the others hold nothing."""
        if self._held is not None:
            self._held.require_held()

    def _inside(self, name: str) -> PurePath:
        self.require_held()
        return self.path / name

    def append(self, record: dict[str, Any]) -> None:
        """As `RunFolder.append`; every process remembers the record of process 0."""

        def append_here() -> Any:
            self._first.append(record)
            return plain(record, "metrics")

        self._all_records().append(hosts.from_first(append_here))

    def appended(self) -> list[dict[str, Any]]:
        """As `RunFolder.appended`."""
        return copy.deepcopy(self._all_records())

    def _all_records(self) -> list[dict[str, Any]]:
        if self._records is None:
            self._records = hosts.from_first(lambda: self._first.appended())
        return self._records

    def write(self, name: str, data: str | bytes) -> None:
        """As `RunFolder.write`; what process 0 wrote is what every process can read."""
        hosts.from_first(lambda: self._first.write(name, data))

    def read_bytes(self, name: str) -> bytes:
        """As `RunFolder.read_bytes`; a process that follows has the file at its own path then."""
        content = hosts.from_first(lambda: self._first.read_bytes(name))
        if self._held is None:
            self._storage.write(name, content)
        return content

    def exists(self, name: str) -> bool:
        """As `RunFolder.exists`."""
        return hosts.from_first(lambda: self._first.exists(name))

    def intact(self, name: str) -> bool:
        """As `RunFolder.intact`."""
        return hosts.from_first(lambda: self._first.intact(name))

    def post(self, name: str, data: bytes) -> None:
        """Sends a file to process 0, which writes it soon; no other process is waited for."""
        if self._held is not None:
            self._held.write(name, data)
        else:
            hosts.client().key_value_set_bytes(_POSTED + name, data, allow_overwrite=True)

    def discard(self, name: str) -> None:
        """As `RunFolder.discard`; what was posted and not yet written is forgotten, too."""

        def discard_here() -> None:
            with self._collecting:
                hosts.client().key_value_delete(_POSTED)
                self._first.discard(name)

        hosts.from_first(discard_here)

    def _collect(self) -> None:
        """In process 0: writes what others have posted, until the folder is closed."""
        while not self._closed.wait(_COLLECT_SECONDS):
            # A process that is lost, or a disk that is full, is noticed elsewhere.
            with contextlib.suppress(Exception), self._collecting:
                for key, data in hosts.client().key_value_dir_get_bytes(_POSTED):
                    self._first.write(key.removeprefix(_POSTED), data)
                    hosts.client().key_value_delete(key)

    def log_error(self, text: str) -> PurePath:
        """As `RunFolder.log_error`, in process 0; elsewhere OSError, since the folder goes."""
        if self._held is None:
            raise OSError("this process has no folder that stays")
        return self._held.log_error(text)

    @property
    def finished(self) -> bool:
        """As `RunFolder.finished`."""
        return hosts.from_first(lambda: self._first.finished)

    def write_results(self, results: Results) -> None:
        """As `RunFolder.write_results`."""
        hosts.from_first(lambda: self._first.write_results(results))

    def results(self) -> Results:
        """As `RunFolder.results`."""
        return Results.from_json(hosts.from_first(lambda: self._first.results().to_json()))

    @property
    def _first(self) -> RunFolder:
        assert self._held is not None
        return self._held


def kind_of_folder() -> type[RunFolder]:
    """The class whose `open` opens the folder of a run: of this process alone, or of several."""
    return RunFolder if hosts.num_processes() == 1 else SharedFolder
