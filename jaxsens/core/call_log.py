"""What the finished calls of a long computation gave, kept so that it can go on after them.

A measurement is many calls of compiled programs, in an order that its arguments decide, and all
that comes after depends on their results alone. So a measurement that was interrupted goes on to
the same bits if the results of its finished calls are given back to it in their order.

    with keeping(store):        # whoever has a place to keep them
        sensitivity(...)

    calls = begin(lambda: ...)  # inside a measurement; says what decides the results
    found = calls.recall()      # the next result that is known, or None
    calls.add({"totals": ...})  # a result that is new

Without `keeping` nothing is kept, and nothing costs anything.
"""

import contextlib
import contextvars
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from jaxsens.core.fingerprint import digest

#: New results are kept when the last ones were kept so long ago.
SECONDS_BETWEEN_SAVES = 20.0

#: What one call gave, by name.
Arrays = dict[str, np.ndarray]


@runtime_checkable
class Store(Protocol):
    """Keeps pieces of bytes, numbered from 0, of each of several logs."""

    def load(self, log: str, is_shared: bool) -> list[bytes]:
        """The pieces of a log, those of this process or those that all processes share."""

    def save(self, log: str, is_shared: bool, number: int, piece: bytes) -> None:
        """Keeps a piece."""


@dataclass
class _Keeping:
    store: Store
    num_logs: int = 0


_keeping: contextvars.ContextVar[_Keeping | None] = contextvars.ContextVar("keeping", default=None)


@contextlib.contextmanager
def keeping(store: Store | None) -> Iterator[None]:
    """Keeps the results of calls in the store while the block runs, and gives back those it has.

    Args:
      store: of this computation alone; None to keep nothing.
    """
    token = _keeping.set(None if store is None else _Keeping(store))
    try:
        yield
    finally:
        _keeping.reset(token)


class CallLog:
    """The results of calls: known ones first, then new ones."""

    #: Whether anything is kept, so that long calls had better be cut.
    is_kept = False

    def recall(self) -> Arrays | None:
        """The next known result; None if the call must be made."""
        return None

    def add(self, found: Arrays) -> None:
        """Takes the result of a call that was made."""


@dataclass
class _KeptLog(CallLog):
    is_kept = True
    store: Store
    name: str
    is_shared: bool
    identity: str
    known: list[Arrays]
    num_pieces: int
    new: list[Arrays] = field(default_factory=list)
    saved: float = field(default_factory=time.monotonic)

    def recall(self) -> Arrays | None:
        return self.known.pop(0) if self.known else None

    def add(self, found: Arrays) -> None:
        self.new.append(found)
        if time.monotonic() - self.saved < SECONDS_BETWEEN_SAVES:
            return
        piece = packed(self.identity, self.new)
        self.store.save(self.name, self.is_shared, self.num_pieces, piece)
        self.num_pieces, self.new, self.saved = self.num_pieces + 1, [], time.monotonic()


def begin(identity: Callable[[], Any], is_shared: bool = False) -> CallLog:
    """The log of a computation that begins now; every process must call this.

    Args:
      identity: gives what decides which calls are made and what they give, beside the store
        itself, as for `fingerprint.digest`; results of another identity are forgotten.
      is_shared: whether a call needs all processes, and gives the same in each: then all of them
        must know the same results.
    """
    current = _keeping.get()
    if current is None:
        return CallLog()
    name, current.num_logs = str(current.num_logs), current.num_logs + 1
    text = digest(identity())
    known, num_pieces = [], 0
    for piece in current.store.load(name, is_shared):
        found = unpacked(text, piece)
        if found is None:
            break
        known += found
        num_pieces += 1
    return _KeptLog(current.store, name, is_shared, text, known, num_pieces)


def packed(identity: str, results: list[Arrays]) -> bytes:
    """Results as bytes: a line of JSON, then the arrays one after another."""
    kinds = [
        {name: [str(array.dtype), list(array.shape)] for name, array in found.items()}
        for found in results
    ]
    head = json.dumps({"identity": identity, "calls": kinds}).encode()
    arrays = [array.tobytes() for found in results for array in found.values()]
    return b"".join([head, b"\n", *arrays])


def unpacked(identity: str, piece: bytes) -> list[Arrays] | None:
    """What `packed` packed; None if it is of another identity.

    >>> piece = packed("a", [{"x": np.arange(3), "y": np.ones((1, 2), np.float32)}])
    >>> unpacked("a", piece)
    [{'x': array([0, 1, 2]), 'y': array([[1., 1.]], dtype=float32)}]
    >>> unpacked("b", piece) is None
    True
    """
    head, _, content = piece.partition(b"\n")
    said, at, results = json.loads(head), 0, []
    if said["identity"] != identity:
        return None
    for kinds in said["calls"]:
        found = {}
        for name, (kind, shape) in kinds.items():
            dtype, size = np.dtype(kind), math.prod(shape)
            array = np.frombuffer(content, dtype, size, at) if size else np.zeros(0, dtype)
            found[name], at = array.reshape(shape).copy(), at + array.nbytes
        results.append(found)
    return results
