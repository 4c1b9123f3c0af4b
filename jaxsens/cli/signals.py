"""Signals that end a run: at once, whatever it is doing, with a status that says "resume me".

A Python signal handler would wait for the epoch that is running. A run folder is safe at any
moment, so a thread that the operating system wakes up can simply end the process.
"""

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

EXIT_INTERRUPTED = 75
#: Ctrl-C, what `kill` and a batch system send, a terminal that is gone, and SLURM's early warning.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
#: Names the process that a run is to end with: `jaxsens.sweep` sets it for its runs.
PARENT_VARIABLE = "JAXSENS_PARENT"
_MESSAGE = b"\njaxsens: interrupted; the same command resumes\n"
_PR_SET_PDEATHSIG = 1

_watched = False
#: Called, in another thread, before a signal ends the process; may end it in another way.
BEFORE_LEAVING: list[Callable[[], None]] = []


def watch() -> Callable[[], None]:
    """Ends the process at one of `SIGNALS` from now on.

    Returns:
      A function that puts everything back. Watching twice is watching once, and so is watching
      outside the main thread, to which signals do not come.
    """
    global _watched
    if _watched or threading.current_thread() is not threading.main_thread():
        return lambda: None
    _watched = True
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    # `nohup` has the signal ignored, which is to stay.
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    numbers = [each for each in SIGNALS if not (ignored and each == signal.SIGHUP)]
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    fd_before = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    watcher = threading.Thread(target=_leave_when_told, args=(read_end, numbers), daemon=True)
    watcher.start()

    def stop() -> None:
        global _watched
        signal.set_wakeup_fd(fd_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.write(write_end, b"\0")
        watcher.join()
        os.close(read_end)
        os.close(write_end)
        _watched = False

    return stop


@contextlib.contextmanager
def leaving_on_signals() -> Iterator[None]:
    """`watch` while the block runs."""
    stop = watch()
    try:
        yield
    finally:
        stop()


@contextlib.contextmanager
def before_leaving(function: Callable[[], None]) -> Iterator[None]:
    """While the block runs, a signal that ends the process has the function called first.

    Args:
      function: is called in another thread, while this one goes on; must end soon.
    """
    BEFORE_LEAVING.append(function)
    try:
        yield
    finally:
        BEFORE_LEAVING.remove(function)


def end_with_parent() -> None:
    """Has the system send SIGTERM when the process that started this one is gone.

    Only if that process asked for it by `PARENT_VARIABLE`, and only on Linux.
    """
    # Taken away, as it does not speak of processes that this one starts.
    parent = os.environ.pop(PARENT_VARIABLE, "")
    if not parent.isdecimal() or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    # It may have ended before that; its orphans get another parent.
    if os.getppid() != int(parent):
        os._exit(EXIT_INTERRUPTED)


def _leave_when_told(read_end: int, numbers: list[signal.Signals]) -> None:
    while number := os.read(read_end, 1)[0]:
        if number in numbers:
            for function in tuple(BEFORE_LEAVING):
                with contextlib.suppress(Exception):
                    function()
            try:
                os.write(2, _MESSAGE)
            finally:
                # Whatever has become of stderr.
                os._exit(EXIT_INTERRUPTED)
