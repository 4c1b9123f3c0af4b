"""The lock of a folder in an object store: an object that is created once, and renewed.

The object `.lock` is created only if there is none, and says who did. Its owner writes it anew
every ten seconds, each time only if nobody else has. Whoever finds it there has three ways:

    its owner is a process of this machine that has ended   the lock is taken over at once
    it is renewed while one looks                           the folder is in use
    it is not renewed for `LEASE_SECONDS`                   its owner is taken for dead, or cut off
                                                            from the store, and the lock taken over

To take over is to replace exactly the content that was looked at, which one process alone can do.
An owner that could not renew for three quarters of that time writes nothing more. So a run that was
killed goes on by the same command: at once on the same machine, after at most a minute on another.

Assumption: clocks of two machines run equally fast; what they show is not compared.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxsens.core.bucket import Bucket, ChangedError
from jaxsens.core.files import WorkdirError

LEASE_SECONDS = 60.0
RENEW_SECONDS = 10.0
#: The part of a lease after which its owner, unable to renew it, writes nothing more.
_HOLD = 0.75
_LOOK_SECONDS = 1.0


class Lease:
    """A lock that this process holds until `release`, or until it does not renew it.

    Args:
      bucket: where the lock lies.
      key: its name there.
      folder: what it locks, for messages.
      tell: called with a line if there is something to wait for.

    Raises:
      WorkdirError: another process holds it.
    """

    def __init__(
        self, bucket: Bucket, key: str, folder: str, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self._key, self._folder = key, folder
        self._identity = {"owner": _owner(), "process": _process(os.getpid())}
        self._identity["token"] = secrets.token_hex(8)
        self._taken_over = False
        self._stop, self._one_at_a_time = threading.Event(), threading.Lock()
        before = _generation_to_replace(bucket, key, folder, tell)
        self._renewed, self._count = _now(), 0
        try:
            self._generation = bucket.write(key, self._content(), before)
        except ChangedError:
            raise _in_use(folder, "another process, which was first") from None
        # Patience would keep a request going after somebody else has taken over.
        self._bucket = Bucket(bucket.name, patience=0.0)
        self._thread = threading.Thread(target=self._keep_renewing, daemon=True)
        self._thread.start()

    def lost(self) -> str | None:
        """As `jaxsens.core.storage.Lock.lost`."""
        if self._silent() > _HOLD * LEASE_SECONDS:
            self._renew()  # a process that was stopped comes here before its thread has renewed
        if self._taken_over:
            return "was taken over by another process, or its .lock deleted, while the run went on"
        if (silent := self._silent()) > _HOLD * LEASE_SECONDS:
            return (
                f"could not be reached for {silent:.0f} s, so that another may have taken it over"
            )
        return None

    def _silent(self) -> float:
        return _now() - self._renewed

    def release(self) -> None:
        """As `jaxsens.core.storage.Lock.release`."""
        self._stop.set()
        self._thread.join()
        # Whoever has taken it over keeps it, and an unreachable store ends the lease by itself.
        with contextlib.suppress(OSError):
            if not self._taken_over:
                self._bucket.delete(self._key, self._generation)
        self._taken_over = True
        self._bucket.close()

    def _keep_renewing(self) -> None:
        while not self._taken_over and not self._stop.wait(RENEW_SECONDS):
            self._renew()

    def _renew(self) -> None:
        with self._one_at_a_time:
            started = _now()
            self._count += 1
            # What fails otherwise is tried again until the lease has ended.
            with contextlib.suppress(OSError):
                try:
                    there: int | None = self._bucket.write(
                        self._key, self._content(), self._generation
                    )
                except ChangedError:
                    there = self._own_generation()
                if there is None:
                    self._taken_over = True
                else:
                    self._generation, self._renewed = there, started

    def _own_generation(self) -> int | None:
        """That of the lock, if it is an earlier renewal of which the answer was lost."""
        try:
            content, generation = self._bucket.read_with_generation(self._key)
        except FileNotFoundError:
            return None
        return generation if _parsed(content).get("token") == self._identity["token"] else None

    def _content(self) -> bytes:
        return json.dumps({**self._identity, "renewed": self._count}).encode()


def _generation_to_replace(
    bucket: Bucket, key: str, folder: str, tell: Callable[[str], None]
) -> int:
    """What the lock must have to be taken: 0 if there is none, else that of a dead owner's.

    Raises:
      WorkdirError: its owner is alive.
    """
    first: int | None = None
    since = _now()
    while True:
        try:
            content, generation = bucket.read_with_generation(key)
        except FileNotFoundError:
            return 0
        there = _parsed(content)
        owner = there.get("owner") or "another process"
        if (has_ended := _has_ended(there.get("process"))) is not None:
            if has_ended:
                return generation
            raise _in_use(folder, owner)
        if first is None:
            first, since = generation, _now()
            tell(
                f"{folder} is locked by {owner}; if that has ended, its lock is taken over in "
                f"{LEASE_SECONDS:.0f} s"
            )
        elif generation != first:
            raise _in_use(folder, owner)
        elif _now() - since > LEASE_SECONDS:
            return generation
        time.sleep(min(_LOOK_SECONDS, RENEW_SECONDS / 4))


def _in_use(folder: str, owner: str) -> WorkdirError:
    return WorkdirError(
        f"{folder} is in use by {owner}; wait for it to end or choose another --workdir"
    )


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _owner() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _process(number: int) -> dict[str, Any] | None:
    """What tells a process from all others of any machine; None where Linux does not say."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        started = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[19]
        # Containers of one machine number their processes anew.
        numbered_in = os.readlink("/proc/self/ns/pid")
    except (OSError, IndexError):
        return None
    return {"boot": boot, "numbered_in": numbered_in, "number": number, "started": started}


def _has_ended(process: Any) -> bool | None:
    """Whether a process of this machine has ended; None if it is not of this machine."""
    here = _process(os.getpid())
    if not isinstance(process, dict) or here is None or not isinstance(process.get("number"), int):
        return None
    if any(process.get(name) != here[name] for name in ("boot", "numbered_in")):
        return None
    return _process(process["number"]) != process


def _now() -> float:
    """Seconds that also pass while the machine sleeps."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
