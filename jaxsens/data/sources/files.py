"""Every file of a dataset is opened here, after a look at what it is and how large it is.

A data folder is other people's work: a name may stand for a folder, a pipe that nobody writes to or
a link that leads to itself, and a file may be a thousand times as large as it should be, or become
so when it is decompressed. Each of these is one line of error, in memory that does not grow with
the file: readers say how much they expect, and no more is ever read.

A path may also be that of an object, gs://bucket/…: it is copied to a temporary file to be read.
"""

import contextlib
import fnmatch
import gzip
import io
import os
import stat
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path, PurePath
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import UInt8

from jaxsens.core import storage
from jaxsens.data.errors import CorruptDataError, DatasetNotFoundError

_CHUNK = 1 << 20
#: What a compressed file may take beyond twice its content: names and comments in its header.
_SLACK = 1 << 16
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


@runtime_checkable
class ByteStream(Protocol):
    """Where bytes come from: a file, a member of an archive, a compressed part of a file."""

    def read(self, size: int, /) -> bytes:
        """Returns at most `size` of the next bytes, and none only at the end."""


def is_there(path: PurePath) -> bool:
    """Returns whether anything has this name; `opened` says so if it is not a file.

    Raises:
      CorruptDataError: the file system does not tell, as in a folder without permission.
    """
    if not isinstance(path, Path):
        return path.name in _entries(path.parent)
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    return True


def listed(folder: PurePath, pattern: str = "*") -> list[PurePath]:
    """Returns what lies in a folder under a matching name, sorted; nothing if there is no folder.

    Raises:
      CorruptDataError: the folder cannot be looked into.
    """
    names = _entries(folder)
    return [folder / name for name in sorted(names) if fnmatch.fnmatchcase(name, pattern)]


def size_of(path: PurePath) -> int:
    """Returns the size of an ordinary file in bytes.

    Raises:
      DatasetNotFoundError: there is nothing of that name.
      CorruptDataError: it is something else than a file, or a link that leads nowhere.
    """
    if not is_there(path):
        raise DatasetNotFoundError(f"{path} is not there")
    if not isinstance(path, Path):
        return _size_of_object(path)
    try:
        status = os.stat(path)
    except OSError as error:
        raise _unreadable(path, error) from None
    if not stat.S_ISREG(status.st_mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(status.st_mode)), "something else")
        raise CorruptDataError(f"{path}: expected a file, got {kind}; remove or rename it")
    return status.st_size


@contextlib.contextmanager
def opened(path: PurePath, max_size: int | None = None) -> Iterator[io.BufferedReader]:
    """Opens an ordinary file of at most `max_size` bytes.

    With None a file of any size is opened: for readers that read only its header at first, and
    compare the size which that promises with `size_of`.

    Raises:
      DatasetNotFoundError: there is nothing of that name.
      CorruptDataError: it is not a file, is larger, or reading it fails.
    """
    size = size_of(path)
    if max_size is not None and size > max_size:
        raise CorruptDataError(
            f"{path}: expected at most {max_size} bytes, got {size}; get the file again"
        )
    try:
        with (
            storage.at(path.parent).fetched(path.name) as fetched,
            fetched.open("rb") as file,
        ):
            yield file
    except DatasetNotFoundError:
        raise
    except OSError as error:
        raise _unreadable(path, error) from None


@contextlib.contextmanager
def unzipped(path: PurePath, max_size: int) -> Iterator[ByteStream]:
    """Opens a file, through gzip if its name ends in `.gz`; the reader decides how much it reads.

    Args:
      path: the file.
      max_size: bytes of content to expect; a gzip file that is larger than they can be is refused.

    Raises:
      DatasetNotFoundError: there is nothing of that name.
      CorruptDataError: it is not a file, is far larger, or does not decompress.
    """
    is_zipped = path.suffix == ".gz"
    with opened(path, 2 * max_size + _SLACK if is_zipped else None) as file:
        if not is_zipped:
            yield file
            return
        try:
            with gzip.GzipFile(fileobj=file) as stream:
                yield stream
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise CorruptDataError(
                f"{path}: expected a whole gzip file, got {size_of(path)} bytes that do not "
                f"decompress ({error}); get the file again"
            ) from None


def read_bytes(path: PurePath, max_size: int) -> bytes:
    """Returns the content of a file of at most `max_size` bytes; raises as `opened` does."""
    with opened(path, max_size) as file:
        # Python takes memory for as much as it is asked for, whatever the file has.
        return file.read(min(max_size, size_of(path)))


def read_array(stream: ByteStream, num_bytes: int) -> UInt8[np.ndarray, " num_bytes"]:
    """Returns exactly the next bytes, in pieces, so that nothing is held twice.

    Raises:
      ValueError: the stream ends before.
    """
    content = np.empty(num_bytes, np.uint8)
    done = 0
    while done < num_bytes:
        piece = stream.read(min(_CHUNK, num_bytes - done))
        if not piece:
            raise ValueError(f"it ends after {done} of {num_bytes} bytes")
        content[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
        done += len(piece)
    return content


@contextlib.contextmanager
def folder_on_disk(folder: PurePath) -> Iterator[Path]:
    """A folder for those who can read no other than one of this disk, while the block runs.

    Raises:
      CorruptDataError: it cannot be copied from its object store.
    """
    if isinstance(folder, Path):
        yield folder
        return
    with contextlib.ExitStack() as copied:
        try:
            copy = copied.enter_context(storage.at(folder.parent).on_disk(folder.name))
        except OSError as error:
            raise _unreadable(folder, error) from None
        yield copy


def real_name(folder: PurePath) -> str:
    """The name of a folder, or of the one that a link of that name leads to."""
    return PurePath(os.path.realpath(folder) if isinstance(folder, Path) else folder.name).name


def _entries(folder: PurePath) -> Collection[str]:
    try:
        if isinstance(folder, Path):
            return os.listdir(folder)
        return storage.at(folder).entries()
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except (OSError, ValueError) as error:
        raise _unreadable(folder, error) from None


def _size_of_object(path: PurePath) -> int:
    try:
        return storage.at(path.parent).size(path.name)
    except FileNotFoundError:
        raise CorruptDataError(
            f"{path}: expected a file, got a folder; remove or rename it"
        ) from None
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: PurePath, error: Exception) -> CorruptDataError:
    reason = getattr(error, "strerror", None) or str(error)
    if isinstance(error, FileNotFoundError):
        reason = "a link to what is not there"
    return CorruptDataError(
        f"{path}: expected something that can be read, got an error ({reason}); repair or remove it"
    )
