"""A folder in an object store, gs://bucket/run: no rename, no append, no file system.

a file      one object, which is replaced whole
a line      is appended by writing the object anew, only if it is what was last read; some
            hundred kilobytes for the longest runs
a folder    made on this disk, then copied; it counts when its last file is there
the lock    see `jaxsens.core.lease`
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath

from jaxsens.core.bucket import Bucket, bucket
from jaxsens.core.lease import Lease
from jaxsens.core.storage import Lock, Storage


class ObjectStore(Storage):
    """A folder of a bucket; see `Storage`."""

    def __init__(self, location: PurePath) -> None:
        self.location = location
        name, _, folder = str(location).removeprefix("gs://").partition("/")
        self._bucket: Bucket = bucket(name)
        self._prefix = f"{folder}/" if folder else ""
        #: What was appended to, with its generation: this process alone writes it.
        self._appended: dict[str, tuple[bytes, int]] = {}

    def entries(self) -> set[str]:
        """As `Storage.entries`."""
        return self._bucket.entries(self._prefix)

    def exists(self, name: str) -> bool:
        """As `Storage.exists`."""
        return self._bucket.exists(self._prefix + name)

    def read(self, name: str) -> bytes:
        """As `Storage.read`."""
        if name in self._appended:
            return self._appended[name][0]
        return self._bucket.read(self._prefix + name)

    def write(self, name: str, data: str | bytes) -> None:
        """As `Storage.write`."""
        self._bucket.write(self._prefix + name, data.encode() if isinstance(data, str) else data)

    def append(self, name: str, line: bytes) -> None:
        """As `Storage.append`.

        Raises:
          ChangedError: somebody else has written the object since it was read.
        """
        if name not in self._appended:
            try:
                self._appended[name] = self._bucket.read_with_generation(self._prefix + name)
            except FileNotFoundError:
                self._appended[name] = (b"", 0)
        content, generation = self._appended[name]
        content = content[: content.rfind(b"\n") + 1] + line
        generation = self._bucket.write(self._prefix + name, content, generation)
        self._appended[name] = (content, generation)

    def remove(self, name: str) -> None:
        """As `Storage.remove`."""
        self._bucket.delete(self._prefix + name)

    def checksum(self, name: str) -> str:
        """As `Storage.checksum`."""
        return hashlib.sha256(self.read(name)).hexdigest()

    def size(self, name: str) -> int:
        """As `Storage.size`."""
        return self._bucket.size(self._prefix + name)

    @contextlib.contextmanager
    def fetched(self, name: str) -> Iterator[Path]:
        """As `Storage.fetched`: a copy, which is deleted at the end of the block."""
        with tempfile.TemporaryDirectory(prefix="jaxsens-") as scratch:
            copy = Path(scratch, PurePath(name).name)
            self._bucket.download(self._prefix + name, copy)
            yield copy

    def require_usable(self) -> None:
        """As `Storage.require_usable`: any name will do."""

    def lock(self, tell: Callable[[str], None]) -> Lock:
        """As `Storage.lock`."""
        return Lease(self._bucket, f"{self._prefix}.lock", str(self.location), tell)

    def remove_leftovers(self) -> None:
        """As `Storage.remove_leftovers`: an object is never half there."""

    def folders(self, last: str) -> list[str]:
        """As `Storage.folders`: those that have their last file."""
        return sorted(name for name, files in self._by_folder().items() if last in files)

    @contextlib.contextmanager
    def new_folder(self, name: str, last: str) -> Iterator[Path]:
        """As `Storage.new_folder`: every file is copied, and the last one last."""
        with tempfile.TemporaryDirectory(prefix="jaxsens-") as scratch:
            made = Path(scratch)
            yield made
            (made / last).touch()
            self.remove_folder(name, last)
            files = [file for file in sorted(made.rglob("*")) if file.is_file()]
            for file in sorted(files, key=lambda file: file == made / last):
                relative = file.relative_to(made).as_posix()
                self._bucket.upload(file, f"{self._prefix}{name}/{relative}")

    def remove_folder(self, name: str, last: str) -> None:
        """As `Storage.remove_folder`: the last file goes first."""
        prefix = f"{self._prefix}{name}/"
        for file in sorted(self._bucket.sizes(prefix), key=lambda file: file != last):
            self._bucket.delete(prefix + file)

    def discard(self, name: str) -> None:
        """As `Storage.discard`."""
        self.remove_folder(name, "")

    def remove_unfinished(self, last: str) -> None:
        """As `Storage.remove_unfinished`: numbered folders without their last file."""
        for name, files in self._by_folder().items():
            if name.isdecimal() and last not in files:
                self.remove_folder(name, last)

    @contextlib.contextmanager
    def on_disk(self, name: str) -> Iterator[Path]:
        """As `Storage.on_disk`: a copy, which is deleted at the end of the block."""
        prefix = f"{self._prefix}{name}/"
        with tempfile.TemporaryDirectory(prefix="jaxsens-") as scratch:
            for file in self._bucket.sizes(prefix):
                if ".." in Path(file).parts or file.endswith("/"):
                    continue
                self._bucket.download(prefix + file, Path(scratch, file))
            yield Path(scratch)

    def _by_folder(self) -> dict[str, set[str]]:
        """Every folder below this one, with its files."""
        found: dict[str, set[str]] = {}
        for name in self._bucket.sizes(self._prefix):
            folder, slash, file = name.partition("/")
            if slash:
                found.setdefault(folder, set()).add(file)
        return found
