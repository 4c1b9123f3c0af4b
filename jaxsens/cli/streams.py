"""Standard streams that cannot stop a run: closed, full, broken or unable to write a letter.

What a run finds is in its folder. What it prints is for whoever listens, and if nobody does, or
can, no work is lost for it.
"""

import contextlib
import io
import os
import sys
import tempfile
from typing import Any


def secure() -> None:
    """Makes stdout and stderr such that writing to them never fails; for a process of our own."""
    # Closed streams would give their numbers to the next files that are opened, and what libraries
    # print would go into these.
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout, sys.stderr = _lenient(sys.stdout, 1), _lenient(sys.stderr, 2)


def _lenient(stream: Any, descriptor: int) -> io.TextIOWrapper:
    """A stream as it was, but for letters that it cannot encode and bytes that nobody takes."""
    return io.TextIOWrapper(
        io.BufferedWriter(_Lenient(descriptor)),
        encoding=getattr(stream, "encoding", None) or "utf-8",
        errors="replace",
        line_buffering=descriptor == 2 or os.isatty(descriptor),
        write_through=getattr(stream, "write_through", False),
    )


class _Lenient(io.RawIOBase):
    """Bytes to a descriptor; those that cannot be written are dropped."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: Any) -> int:
        try:
            return os.write(self._descriptor, data)
        except OSError:
            return len(data)

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def fileno(self) -> int:
        return self._descriptor


class NativeStderr:
    """What native code writes to stderr goes through a file, so that it can be looked at first.

    Python's own stderr goes where it went. XLA writes a long trace when another process is lost,
    of which one line is for the user.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  open until the end
        self._stderr, self._taken = os.dup(2), 0
        sys.stderr.flush()
        sys.stderr = _lenient(sys.stderr, self._stderr)
        os.dup2(self._file.fileno(), 2)

    def say(self, line: str) -> None:
        """One line of our own."""
        self.forward(f"jaxsens: {line}\n".encode())

    def native(self) -> bytes:
        """What native code wrote since this was last called."""
        text = os.pread(self._file.fileno(), 1 << 20, self._taken)
        self._taken += len(text)
        return text

    def forward(self, text: bytes) -> None:
        """Writes it where stderr went."""
        with contextlib.suppress(OSError):
            os.write(self._stderr, text)
