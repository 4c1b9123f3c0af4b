"""Processes that a command starts, and which end with it.

A signal that ends this process is passed on to them as SIGTERM. If it is killed outright, they end
too (on Linux).
"""

import os
import subprocess
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import IO

from jaxsens.cli import signals

#: A run ends within 10 s of SIGTERM. One that does not is killed, which harms no run folder.
_GRACE_SECONDS = 15.0


class Children:
    """The processes that this one started; after `end`, from another thread, no more are.

    Args:
      hidden: variables that they do not get.
    """

    def __init__(self, hidden: Collection[str] = ()) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._lock, self._leaving = threading.Lock(), False
        self._environment = {**os.environ, signals.PARENT_VARIABLE: str(os.getpid())}
        for name in hidden:
            self._environment.pop(name, None)

    def start(
        self,
        command: Sequence[str],
        output: IO[bytes] | int,
        *,
        variables: Mapping[str, str] | None = None,
        descriptors: Collection[int] = (),
    ) -> "subprocess.Popen[bytes]":
        """Starts a process whose stdout and stderr go to `output`.

        Args:
          command: the program and its arguments.
          output: a file, or as `subprocess.Popen` takes it.
          variables: of its environment, beside those of this process.
          descriptors: open files that it inherits.
        """
        with self._lock:
            if not self._leaving:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=self._environment | dict(variables or {}),
                    pass_fds=tuple(descriptors),
                )
                self._processes.append(process)
                return process
        # The other thread ends this process in a moment.
        while True:
            time.sleep(1)

    def end(self) -> None:
        """Passes on that it is time to leave, and waits until all have left."""
        with self._lock:
            self._leaving = True
        for process in self._processes:
            process.terminate()
        deadline = time.monotonic() + _GRACE_SECONDS
        for process in self._processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
