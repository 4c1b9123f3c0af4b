"""Processes that end together: all with the same status, whoever has a reason to end.

The first process that ends with an error, or is interrupted, leaves its status in the key-value
store of `jax.distributed`; a thread in every other process looks there and ends it. A run folder is
safe at any moment, so a process can simply end. Process 0 serves the store, so it ends last.

A process that is killed, stopped or cut off can say nothing. The heartbeats of `jax.distributed`
notice it; the reaction of XLA, which cannot be had otherwise, is to abort the process, with the
status 134 and a long trace. So the signal SIGABRT is caught: the process ends with the status
`EXIT_LOST` and one line, if it was such an abort; any other abort is left alone.
"""

import contextlib
import ctypes
import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn, Protocol, runtime_checkable

import jax

from jaxsens.core import hosts

#: The status of an interrupted process, which means "start me again".
EXIT_LOST = 75
_LOST = "another process of this job is gone or does not answer; the same command resumes"
#: What XLA says before it ends a process because of another, and how long it may take to do so.
_OF_PEERS = (
    b"distributed service detected fatal errors",
    b"Polled an error from coordination service",
    b"Use error polling to propagate",
)
_TRACE_SECONDS = 60.0

_LOOK_SECONDS = 0.5
_PULSE_LOOKS = 4
#: How long process 0 waits for the others to end.
_WAIT_SECONDS = 6.0
#: A process without a pulse for so long may be lost.
_SILENT_SECONDS = 7.0

_END, _GONE, _PULSE = "jaxsens/end", "jaxsens/gone/", "jaxsens/pulse/"

_leaving = threading.Lock()
_status: int | None = None
_handlers: list[Any] = []
_before_leaving: list[Callable[[], None]] = []


@runtime_checkable
class Outlet(Protocol):
    """Where a process speaks to the user, and what its native code has written to stderr."""

    def say(self, line: str) -> None:
        """Writes one line."""

    def native(self) -> bytes:
        """What native code wrote since this was last called."""

    def forward(self, text: bytes) -> None:
        """Writes what native code wrote."""


_outlet: Outlet | None = None
#: When native code last said that another process is lost.
_lost_at = -math.inf


def watch(outlet: Outlet) -> None:
    """Ends this process when another one says so or is lost, from now on.

    Args:
      outlet: speaks to the user.
    """
    global _outlet
    _outlet = outlet
    _catch_abort()
    threading.Thread(target=_watch, daemon=True).start()


def before_leaving(function: Callable[[], None]) -> Callable[[], None]:
    """Has the function called before this process ends early; gives one that takes that back."""
    _before_leaving.append(function)
    return lambda: _before_leaving.remove(function)


def leave(status: int, message: str) -> NoReturn:
    """Ends all processes with this status, this one too; the message is printed once.

    If another process was first to say so, its status and its message hold.
    """
    _leaving.acquire()
    _set_status(status)
    mine = {"status": status, "message": message, "process": hosts.process_id()}
    told = _within(_WAIT_SECONDS, lambda: _tell(mine))
    _end(told or mine, must_say=told is None)


def leave_if_lost(error: Exception) -> None:
    """Ends this process if an error of a device comes from others: they are lost, or too slow.

    Args:
      error: what the device said.
    """
    if hosts.num_processes() == 1:
        return
    if "DEADLINE_EXCEEDED" in str(error):
        leave(EXIT_LOST, "another process did not answer in time; the same command resumes")
    before = _within(_WAIT_SECONDS, _pulses)
    deadline = time.monotonic() + _SILENT_SECONDS
    while before is not None and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        now = _within(_WAIT_SECONDS, _pulses)
        if now is None:
            break
        if all(now.get(name) != pulse for name, pulse in before.items()):
            return
    _leaving.acquire()
    _set_status(EXIT_LOST)
    _end({"status": EXIT_LOST, "message": _LOST}, must_say=True)


def _watch() -> None:
    looks = 0
    while True:
        try:
            if looks % _PULSE_LOOKS == 0:
                pulse = f"{_PULSE}{hosts.process_id()}"
                hosts.client().key_value_set(pulse, str(looks), allow_overwrite=True)
            _forward(_native())
            told = _told()
        except Exception:
            # The job is over, or process 0 is gone, of which the heartbeats will know.
            if not hosts.is_initialized():
                return
            told = None
        if told is not None:
            _leaving.acquire()
            _set_status(told["status"])
            _end(told, must_say=False)
        looks += 1
        time.sleep(_LOOK_SECONDS)


def _told() -> dict[str, Any] | None:
    try:
        return json.loads(hosts.client().key_value_try_get(_END))
    except jax.errors.JaxRuntimeError as error:
        if "NOT_FOUND" in str(error):
            return None
        raise


def _tell(mine: dict[str, Any]) -> dict[str, Any]:
    """Says how this process ends; gives what holds, which is what was said first."""
    try:
        hosts.client().key_value_set(_END, json.dumps(mine))
    except jax.errors.JaxRuntimeError as error:
        if "ALREADY_EXISTS" not in str(error):
            raise
        return _told() or mine
    return mine


def _pulses() -> dict[str, str]:
    return dict(hosts.client().key_value_dir_get(_PULSE))


def _within(seconds: float, function: Callable[[], Any]) -> Any:
    """What the function gives; None if it fails or takes longer, as a lost peer would have it."""
    found: list[Any] = []

    def call() -> None:
        with contextlib.suppress(Exception):
            found.append(function())

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)
    return found[0] if found else None


def _end(told: dict[str, Any], must_say: bool) -> NoReturn:
    """Ends this process; process 0 says why, and waits until the others have ended."""
    _set_status(told["status"])
    with contextlib.suppress(Exception):
        if hosts.is_first() or must_say:
            process = told.get("process", hosts.process_id())
            by = "" if process == hosts.process_id() else f"process {process}: "
            _say(f"{by}{told['message']}")
    for function in [*_before_leaving]:
        with contextlib.suppress(Exception):
            function()
    _within(_WAIT_SECONDS, _wait_for_others if hosts.is_first() else _say_gone)
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(told["status"])


def _say_gone() -> None:
    hosts.client().key_value_set(f"{_GONE}{hosts.process_id()}", "")


def _wait_for_others() -> None:
    others = hosts.num_processes() - 1
    while len(hosts.client().key_value_dir_get(_GONE)) < others:
        time.sleep(_LOOK_SECONDS / 5)


def _set_status(status: int) -> None:
    global _status
    _status = status


def _say(line: str) -> None:
    if _outlet is not None:
        _outlet.say(line)


def _native() -> bytes:
    """What native code wrote since this was last called, but for what is about other processes."""
    global _lost_at
    text = b"" if _outlet is None else _outlet.native()
    if any(each in text for each in _OF_PEERS):
        _lost_at = time.monotonic()
    # A long trace comes after it, in pieces: `_LOST` says all of it in one line.
    return b"" if _seems_lost() else text


def _seems_lost() -> bool:
    return time.monotonic() - _lost_at < _TRACE_SECONDS


def _forward(text: bytes) -> None:
    if text and _outlet is not None:
        _outlet.forward(text)


def _catch_abort() -> None:
    """Has C code that aborts the process call `_aborted`; Python's own handlers come too late."""

    @ctypes.CFUNCTYPE(None, ctypes.c_int)
    def handler(_: int) -> None:
        _aborted()

    _handlers.append(handler)  # which must outlive this call
    library = ctypes.CDLL(None)
    library.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    library.signal.restype = ctypes.c_void_p
    library.signal(signal.SIGABRT, ctypes.cast(handler, ctypes.c_void_p))


def _aborted() -> None:
    """Ends the process, unless the abort has nothing to do with other processes."""
    if _status is not None:
        os._exit(_status)
    text = _native()
    if not _seems_lost():
        _forward(text)
        return
    with contextlib.suppress(Exception):
        _say(_LOST)
    for function in [*_before_leaving]:
        with contextlib.suppress(Exception):
            function()
    os._exit(EXIT_LOST)
