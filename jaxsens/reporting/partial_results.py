"""What an unfinished measurement has found so far, kept in the run's folder until it is finished.

    partial/<digest of its name>/<log>.<process>.<number>

A run that was interrupted in the middle of a measurement goes on there (`jaxsens.core.call_log`).
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator

from jaxsens.core import call_log, hosts
from jaxsens.core.fingerprint import digest
from jaxsens.reporting.run_folder import RunFolder


@contextlib.contextmanager
def resumable(folder: RunFolder, name: str) -> Iterator[None]:
    """Keeps what is found inside the block, should it be interrupted; forgets it at its end.

    What comes out must be on the disk at the end of the block.

    Args:
      folder: the run's folder.
      name: of what is measured.
    """
    store = _FolderStore(folder, f"partial/{digest(name)}")
    with call_log.keeping(store):
        yield
    if store.is_used:
        folder.discard(store.below)


class _FolderStore:
    """Pieces in files of the run's folder."""

    def __init__(self, folder: RunFolder, below: str) -> None:
        self.folder, self.below, self.is_used = folder, below, False

    def load(self, log: str, is_shared: bool) -> list[bytes]:
        self.is_used = True
        processes = [0] if is_shared else range(hosts.num_processes())

        def read() -> list[list[str]]:
            return [[*self._pieces(log, process)] for process in processes]

        found = hosts.from_first(read)[0 if is_shared else hosts.process_id()]
        return [base64.b64decode(piece) for piece in found]

    def _pieces(self, log: str, process: int) -> Iterator[str]:
        number = 0
        while self.folder.intact(name := self._name(log, process, number)):
            yield base64.b64encode(self.folder.read_bytes(name)).decode()
            number += 1

    def save(self, log: str, is_shared: bool, number: int, piece: bytes) -> None:
        if hosts.is_first() or not is_shared:
            self.folder.post(self._name(log, hosts.process_id(), number), piece)

    def _name(self, log: str, process: int, number: int) -> str:
        return f"{self.below}/{log}.{process}.{number}"
