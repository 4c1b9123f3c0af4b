"""Where the files of a run lie: on a disk, or as objects in Google Cloud Storage (gs://bucket/run).

A disk appends, renames and locks (`jaxsens.core.disk`); an object store does none of these
(`jaxsens.core.objects`). `Storage` is what both can do, and `at` the only place that chooses. A
folder has the same files in both, so that it may be copied from one to the other as it is.
"""

from __future__ import annotations

import abc
import contextlib
import importlib.util
import re
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Protocol, runtime_checkable

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_BUCKET = re.compile(r"gs://[a-z0-9][a-z0-9._-]+(/.*)?", re.DOTALL)
_INSTALL = "pip install 'jaxsens[gcs]'"


@runtime_checkable
class Lock(Protocol):
    """A folder that this process alone may write to."""

    def lost(self) -> str | None:
        """What has become of the folder, in words, if this process must not write to it now."""

    def release(self) -> None:
        """Lets other processes have the folder."""


class Storage(abc.ABC):
    """The files below one folder, each of them whole or not there; names may have slashes.

    Errors are OSError: FileNotFoundError for what is not there.

    Attributes:
      location: of the folder; `location / name` names a file for readers.
    """

    location: PurePath

    @abc.abstractmethod
    def entries(self) -> set[str]:
        """The names of files and folders that lie directly in the folder; none if there is none."""

    @abc.abstractmethod
    def exists(self, name: str) -> bool:
        """Whether there is a file of that name."""

    @abc.abstractmethod
    def read(self, name: str) -> bytes:
        """The content of a file."""

    @abc.abstractmethod
    def write(self, name: str, data: str | bytes) -> None:
        """Replaces a file: a reader, or a crash, sees the old content or all of the new."""

    @abc.abstractmethod
    def append(self, name: str, line: bytes) -> None:
        """Adds a line to a file, after its last complete one; the caller holds the lock."""

    @abc.abstractmethod
    def remove(self, name: str) -> None:
        """Removes a file, if it is there."""

    @abc.abstractmethod
    def checksum(self, name: str) -> str:
        """SHA-256 of a file, as `sha256sum` prints it."""

    @abc.abstractmethod
    def size(self, name: str) -> int:
        """The bytes of a file."""

    @abc.abstractmethod
    def fetched(self, name: str) -> contextlib.AbstractContextManager[Path]:
        """A file as one of this disk, to be read while the block runs."""

    @abc.abstractmethod
    def require_usable(self) -> None:
        """Raises WorkdirError if no run can lie here, whatever is here already."""

    @abc.abstractmethod
    def lock(self, tell: Callable[[str], None]) -> Lock:
        """Makes the folder, if it is not there, and holds it alone.

        Args:
          tell: called with a line if there is something to wait for.

        Raises:
          WorkdirError: another process holds it.
        """

    @abc.abstractmethod
    def remove_leftovers(self) -> None:
        """Removes what processes that were killed while writing files have left."""

    @abc.abstractmethod
    def folders(self, last: str) -> list[str]:
        """The names of the folders that are complete.

        Args:
          last: the file that `new_folder` puts last, for a storage that cannot rename.
        """

    @abc.abstractmethod
    def new_folder(self, name: str, last: str) -> contextlib.AbstractContextManager[Path]:
        """An empty folder on this disk, which at the end of the block is put under a name, whole.

        Of a process that is killed on the way nothing is seen. What has the name is replaced.

        Args:
          name: of the folder.
          last: a file of it, as for `folders`; made if it is not there.
        """

    @abc.abstractmethod
    def remove_folder(self, name: str, last: str) -> None:
        """Removes a folder; killed on the way, it is whole or not among `folders`."""

    @abc.abstractmethod
    def discard(self, name: str) -> None:
        """Removes a folder, if it is there, in any order: what is left is removed another time."""

    @abc.abstractmethod
    def remove_unfinished(self, last: str) -> None:
        """Removes what processes that were killed in `new_folder` or `remove_folder` have left."""

    @abc.abstractmethod
    def on_disk(self, name: str) -> contextlib.AbstractContextManager[Path]:
        """A folder as one of this disk, to be read while the block runs."""


def located(name: str | PurePath) -> PurePath:
    """The path of a folder or file: a `Path`, or for gs:// one that keeps its two slashes.

    Raises:
      ValueError: it is in a store that cannot be used.

    Example:
      >>> str(located("runs") / "vision"), str(located("gs://bucket/runs") / "vision")
      ('runs/vision', 'gs://bucket/runs/vision')
    """
    if isinstance(name, PurePath):
        return name
    if not is_remote(name):
        return Path(name)
    if (what := problem(name)) is not None:
        raise ValueError(f"expected {what[0]}; got {name}; {what[1]}")
    from etils import epath  # half a second, for gs:// only

    return epath.Path(name)


def is_remote(name: str | PurePath) -> bool:
    """Whether it names something that is not on a disk.

    Example:
      >>> [is_remote(name) for name in ("gs://b/run", "s3://b/run", "runs/a:b", "gs:/run")]
      [True, True, False, False]
    """
    return _SCHEME.match(str(name)) is not None


def problem(name: str) -> tuple[str, str] | None:
    """What is wrong with the name of a remote folder: what was expected, and what to do.

    Example:
      >>> problem("s3://bucket/run")
      ('a folder or gs://BUCKET/FOLDER', 'no other store is known')
    """
    if not _BUCKET.fullmatch(name):
        return "a folder or gs://BUCKET/FOLDER", "no other store is known"
    if not _is_installed():
        return "a folder, for nothing that reads gs:// is installed", _INSTALL
    return None


def at(place: str | PurePath) -> Storage:
    """The storage of a folder.

    Raises:
      ValueError: it is in a store that cannot be used.
    """
    location = located(place)
    if isinstance(location, Path):
        from jaxsens.core.disk import Disk

        return Disk(location)
    from jaxsens.core.objects import ObjectStore

    return ObjectStore(location)


def _is_installed() -> bool:
    try:
        return importlib.util.find_spec("google.cloud.storage") is not None
    except ModuleNotFoundError:
        return False
