"""Signals that end a run: at once, whatever it is doing, with a status that says "resume me".

A Python signal handler would wait for the epoch that is running. A run folder is safe at any
moment, so a thread that the operating system wakes up can simply end the process.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator

EXIT_INTERRUPTED = 75
#: Ctrl-C, what `kill` and a batch system send, a terminal that is gone, and SLURM's early warning.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
_MESSAGE = b"\njaxsens: interrupted; the same command resumes\n"

_watched = False
#: Ends the process in place of the usual, for one that must tell others first.
_leave_first: Callable[[], None] | None = None


def leave_by(function: Callable[[], None] | None) -> None:
    """Has the function end the process at a signal; None: the process ends at once, as usual."""
    global _leave_first
    _leave_first = function


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


def _leave_when_told(read_end: int, numbers: list[signal.Signals]) -> None:
    while number := os.read(read_end, 1)[0]:
        if number in numbers:
            try:
                if _leave_first is not None:
                    _leave_first()
                os.write(2, _MESSAGE)
            finally:
                # Whatever has become of stderr.
                os._exit(EXIT_INTERRUPTED)
