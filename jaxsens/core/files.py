"""Files that survive a crash: written whole or not at all, and on the disk when a call returns.

Assumption: the file system renames atomically, and what was handed to `fsync` stays.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

#: A path with one of these cannot hold checkpoints: orbax looks for its files with a glob in which
#: it does not quote the folder, and tensorstore takes a backslash for a slash.
UNUSABLE = re.compile(r"[\[\]*?\\]")


class WorkdirError(ValueError):
    """A folder cannot be the run folder of this run; the message is one line.

    Example:
      >>> import tempfile
      >>> from jaxsens.reporting import RunFolder
      >>> with tempfile.TemporaryDirectory() as place:
      ...     RunFolder.open(f"{place}/run", "vision", {"seed": 0}).close()
      ...     RunFolder.open(f"{place}/run", "vision", {"seed": 1})
      Traceback (most recent call last):
      jaxsens.core.files.WorkdirError: ...
    """


def write_atomic(path: Path | str, data: str | bytes) -> None:
    """Writes a file so that a reader, or a crash, sees either the old content or all of the new.

    Args:
      path: the file; missing parent folders are made.
      data: its content; text is written as UTF-8.
    """
    path = Path(path)
    make_folder(path.parent)
    temporary = path.with_name(temporary_name(path.name))
    try:
        with temporary.open("wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    # The rename itself reaches the disk only with its folder.
    sync(path.parent)


def make_folder(path: Path) -> None:
    """Makes a folder and its missing parents; they are on the disk on return."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    sync(path.parent)


def put_folder(made: Path, path: Path) -> None:
    """Renames a complete folder; all of its content is on the disk before it has its new name.

    Args:
      made: the folder under its temporary name, with the same parent.
      path: its new name, which must not exist.
    """
    for folder, _, names in os.walk(made):
        for name in names:
            sync(Path(folder, name))
        sync(Path(folder))
    made.rename(path)
    sync(path.parent)


def remove_folder(path: Path) -> None:
    """Removes a folder; a crash on the way leaves it whole, or under a `temporary_name`."""
    going = path.with_name(temporary_name(path.name))
    path.rename(going)
    shutil.rmtree(going)


def sync(path: Path) -> None:
    """Waits until what was written to a file, or renamed in a folder, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def temporary_name(name: str) -> str:
    """The name of a file or folder until it is complete."""
    return f".{name}.{os.getpid()}.tmp"


def leftovers(folder: Path) -> Iterator[Path]:
    """The files and folders that a killed process left in a folder under a `temporary_name`."""
    for entry in folder.glob(".*.tmp"):
        owner = entry.name.removesuffix(".tmp").rpartition(".")[2]
        if owner.isdecimal():
            yield entry


def checksum(path: Path) -> str:
    """SHA-256 of a file, as `sha256sum` prints it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
