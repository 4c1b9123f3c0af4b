"""Processes of tests: a free port, and programs that are cheap to start, alone or together."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def free_port() -> int:
    """A port that nobody uses."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def flags_of_devices(num: int) -> str:
    """The tests' own flags of XLA, but for so many devices."""
    return os.environ["XLA_FLAGS"].replace("device_count=8", f"device_count={num}")


class Server:
    """A Python program that answers a line of JSON by a line.

    Args:
      program: its file.
      variables: what it has in its environment beside the tests' own.
    """

    def __init__(self, program: Path, variables: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, program],
            env={**os.environ, "PYTHONPATH": str(ROOT), **(variables or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.answers = self._process.stdout

    def ask(self, question: Any) -> str:
        """The line that it answers."""
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return self.answers.readline()

    def close(self, timeout: float = 60) -> None:
        """Lets it end, which it must in so many seconds."""
        self._process.stdin.close()
        self._process.wait(timeout=timeout)
        self.answers.close()


class Forks(Server):
    """Starts Python programs as forks of one process that has imported jaxsens and its libraries.

    Importing them takes seconds, a fork none. JAX has not started in that process, so that a fork
    has the devices of its own `XLA_FLAGS`.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(HERE / "fork_server.py")
        self._folder, self._num = folder, 0

    def start(
        self,
        *command: Any,
        num_devices: int = 1,
        environment: Mapping[str, str] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> "Fork":
        """Starts `python FILE ARGUMENTS` or `python -m MODULE ARGUMENTS`, without the `python`.

        Args:
          command: a file or "-m" and a module, and the arguments.
          num_devices: how many devices JAX has there.
          environment: variables to set, beside those that are set now. JAX has read its own before
            the fork: its options come by `config`.
          config: options of JAX, by the names that `jax.config.update` takes.
        """
        self._num += 1
        said = self._folder / f"{self._num}.err"
        job = {"command": [str(word) for word in command], "folder": os.getcwd(), "said": str(said)}
        variables = {"XLA_FLAGS": flags_of_devices(num_devices), **(environment or {})}
        job |= {"environment": os.environ | variables, "config": dict(config or {})}
        return Fork(self, json.loads(self.ask(job)), said)

    def run_together(
        self, commands: Sequence[Sequence[Any]], *, timeout: float, **options: Any
    ) -> None:
        """Runs commands at the same time; fails unless all end with 0, and none outlives it."""
        with contextlib.ExitStack() as stack:
            forks = [stack.enter_context(self.start(*each, **options)) for each in commands]
            for fork in forks:
                assert fork.wait(timeout) == 0, fork.said()

    @staticmethod
    def free_port() -> int:
        """A port at which processes can meet."""
        return free_port()


class Fork:
    """A process that `Forks` has started; used as `subprocess.Popen` is."""

    def __init__(self, forks: Forks, pid: int, said: Path) -> None:
        self._forks, self.pid, self._said, self.returncode = forks, pid, said, None

    def poll(self) -> int | None:
        """Its status, None while it runs."""
        if self.returncode is None:
            self.returncode = json.loads(self._forks.ask({"poll": self.pid}))
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Its status when it has ended, as all do that are not stopped."""
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a fork", timeout)
            time.sleep(0.01)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def said(self) -> str:
        """What it has printed to stderr."""
        return self._said.read_text()

    def __enter__(self) -> "Fork":
        return self

    def __exit__(self, *_: Any) -> None:
        self.kill()
        self.wait(timeout=60)
