"""A folder on a disk: files are renamed into place, a line is appended, `flock` is the lock.

Assumption: the file system renames atomically and honours `flock` (any local POSIX file system and
NFSv4 do). Without `flock`, two processes could write to one folder at the same time; locking such a
folder warns.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import re
import shutil
import socket
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from jaxsens.core import files
from jaxsens.core.files import WorkdirError, write_atomic
from jaxsens.core.storage import Lock, Storage

_LOCK = ".lock"
#: How the files are called that a run killed while writing leaves behind.
_LEFTOVER = re.compile(r"\..+\.(json|sha256|png|pdf|html|npy|log|txt)\.\d+\.tmp")
_BLOCK = 4096


class Disk(Storage):
    """A folder of a file system; see `Storage`."""

    def __init__(self, path: Path) -> None:
        self.location = self._path = path

    def entries(self) -> set[str]:
        """As `Storage.entries`."""
        return {entry.name for entry in self._path.iterdir()} if self._path.exists() else set()

    def exists(self, name: str) -> bool:
        """As `Storage.exists`."""
        return (self._path / name).is_file()

    def read(self, name: str) -> bytes:
        """As `Storage.read`."""
        return (self._path / name).read_bytes()

    def write(self, name: str, data: str | bytes) -> None:
        """As `Storage.write`: a temporary file, fsync, rename."""
        write_atomic(self._path / name, data)

    def append(self, name: str, line: bytes) -> None:
        """As `Storage.append`; a last line torn by a killed process is cut off.

        Processes that share the folder's lock append one at a time.
        """
        path = self._path / name
        new = not path.exists()
        with path.open("a+b") as file:
            # A file system without it has warned when the folder was locked.
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
            file.truncate(_end_of_last_line(file))
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        if new:
            files.sync(path.parent)

    def remove(self, name: str) -> None:
        """As `Storage.remove`."""
        (self._path / name).unlink(missing_ok=True)

    def checksum(self, name: str) -> str:
        """As `Storage.checksum`."""
        return files.checksum(self._path / name)

    def size(self, name: str) -> int:
        """As `Storage.size`."""
        return (self._path / name).stat().st_size

    @contextlib.contextmanager
    def fetched(self, name: str) -> Iterator[Path]:
        """As `Storage.fetched`: the file itself."""
        yield self._path / name

    def require_usable(self) -> None:
        """Raises WorkdirError for a path in which orbax could write checkpoints but not read them.

        And for a folder whose lock is a link to another file.
        """
        found = files.UNUSABLE.search(str(self._path.resolve()))
        if found:
            raise WorkdirError(
                f"{self._path.resolve()} cannot be a run folder: checkpoints cannot be read from a "
                f"path with {found[0]} in it, nor with any of [ ] * ? \\; choose another --workdir"
            )
        if (self._path / _LOCK).is_symlink():
            raise WorkdirError(
                f"{self._path} is not a run folder: its .lock is a link to another file; choose "
                "another --workdir"
            )

    def lock(self, tell: Callable[[str], None]) -> Lock:
        """As `Storage.lock`."""
        files.make_folder(self._path)
        return FileLock(self._path)

    def remove_leftovers(self) -> None:
        """As `Storage.remove_leftovers`."""
        for file in [*self._path.glob(".*.tmp"), *self._path.glob("*/.*.tmp")]:
            if _LEFTOVER.fullmatch(file.name):
                file.unlink()

    def folders(self, last: str) -> list[str]:
        """As `Storage.folders`: whatever is not under a temporary name."""
        found = (entry for entry in self._path.glob("*") if entry.is_dir())
        return sorted(entry.name for entry in found if not entry.name.startswith("."))

    @contextlib.contextmanager
    def new_folder(self, name: str, last: str) -> Iterator[Path]:
        """As `Storage.new_folder`: all of it is on the disk before it has its name."""
        files.make_folder(self._path)
        if (self._path / name).exists():
            files.remove_folder(self._path / name)
        made = self._path / files.temporary_name(name)
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir()
        yield made
        files.put_folder(made, self._path / name)

    def remove_folder(self, name: str, last: str) -> None:
        """As `Storage.remove_folder`."""
        files.remove_folder(self._path / name)

    def discard(self, name: str) -> None:
        """As `Storage.discard`."""
        shutil.rmtree(self._path / name, ignore_errors=True)

    def remove_unfinished(self, last: str) -> None:
        """As `Storage.remove_unfinished`, also what orbax of earlier versions left."""
        if not self._path.is_dir():
            return
        for unfinished in [*files.leftovers(self._path), *self._path.glob("*.orbax-*tmp*")]:
            if unfinished.is_dir() and not unfinished.is_symlink():
                shutil.rmtree(unfinished)

    @contextlib.contextmanager
    def on_disk(self, name: str) -> Iterator[Path]:
        """As `Storage.on_disk`: the folder itself."""
        yield self._path / name


class FileLock:
    """`flock` on the file `.lock`, which the operating system lets go of when a process ends."""

    def __init__(self, path: Path, inherited: int | None = None) -> None:
        """Locks a folder.

        Args:
          path: the folder.
          inherited: the open file of the process that holds it and has started this one; the
            folder is held until both have let go of it.
        """
        self._path = path
        self._descriptor: int | None = inherited
        if inherited is not None:
            return
        self._descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            _acquire(self._descriptor, path)
        except BaseException:
            self.release()
            raise

    def descriptor(self) -> int:
        """The open file, for a process that is to inherit it."""
        assert self._descriptor is not None
        return self._descriptor

    def lost(self) -> str | None:
        """As `Lock.lost`: another folder may have come in the place of the one that is held."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                there = (self._path / _LOCK).stat()
                if os.path.samestat(os.fstat(self._descriptor), there):
                    return None
        return "was deleted, renamed or replaced while the run went on"

    def release(self) -> None:
        """As `Lock.release`."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None


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
            stacklevel=5,
        )
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)


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
