"""Runs cells, each as a process of its own, so that one that crashes or diverges stops no other.

The exit status of a run says what to do with it, here as in every script of jobs/:

    0           done
    75, ≥ 128   interrupted, or ended by a signal: the same command goes on where it was
    1, 2, …     permanent: the same command would end so again

A signal that ends the sweep is passed on to its runs as SIGTERM, and the sweep ends with 75 after
them. If the sweep itself is killed outright, its runs end too (on Linux), so that the same command
again finds none of their folders in use.
"""

import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import IO

from jaxsens.cli import signals
from jaxsens.cli.children import Children
from jaxsens.reporting import report
from jaxsens.reporting.progress import Bar, say
from jaxsens.sweeps import states
from jaxsens.sweeps.cells import Cell

EXIT_FAILED = 1
#: What runs a cell; its arguments follow.
COMMAND = (sys.executable, "-m", "jaxsens.run")
_POLL_SECONDS = 0.1


def tries_again(status: int) -> bool:
    """Whether the same command may end in another way.

    >>> [tries_again(status) for status in (0, 1, 2, 75, 137)]
    [False, False, False, True, True]
    """
    return status == signals.EXIT_INTERRUPTED or status >= 128


def run_all(cells: Sequence[Cell], *, jobs: int = 1, data_dir: Path | None = None) -> int:
    """Runs all cells that are not finished, so many at a time, with a line for each that ends.

    Args:
      cells: the cells.
      jobs: how many runs there are at a time.
      data_dir: where datasets are.

    Returns:
      75 if a cell is to be tried again, else 1 if one failed, else 0.
    """
    waiting = [i for i, cell in enumerate(cells) if not states.is_finished(cell)]
    num_before = len(cells) - len(waiting)
    say(f"{len(cells)} cells, {num_before} of them finished before")
    children, statuses = Children(), [0]
    running: dict[int, _Run] = {}
    with signals.before_leaving(children.end), Bar("sweep", "cell", len(cells), num_before) as bar:
        while waiting or running:
            while waiting and len(running) < jobs:
                i = waiting.pop(0)
                running[i] = _Run(cells[i], children, data_dir, to_log=True)
            done = len(cells) - len(waiting) - len(running)
            bar.update(done, len(cells), ", ".join(run.cell.label for run in running.values()))
            time.sleep(_POLL_SECONDS)
            for i in [i for i, run in running.items() if run.has_ended()]:
                run = running.pop(i)
                statuses.append(run.close())
                say(f"[{i + 1}/{len(cells)}] {run.cell.label}: {run.outcome()}")
    if any(map(tries_again, statuses)):
        say("some cells were interrupted; the same command goes on with them")
        return signals.EXIT_INTERRUPTED
    return EXIT_FAILED if any(statuses) else 0


def run_one(cell: Cell, *, data_dir: Path | None = None, hidden: Collection[str] = ()) -> int:
    """Runs one cell, for a scheduler: its output is this process's, and so is its exit status.

    Args:
      cell: the cell.
      data_dir: where datasets are.
      hidden: variables that the run does not get, because they speak of the cells.
    """
    children = Children(hidden)
    with signals.before_leaving(children.end):
        run = _Run(cell, children, data_dir, to_log=False)
        return run.close()


class _Run:
    """A cell that is running."""

    def __init__(
        self, cell: Cell, children: Children, data_dir: Path | None, *, to_log: bool
    ) -> None:
        self.cell, self._started, self._to_log = cell, time.monotonic(), to_log
        self._status, self._said = 0, ""
        states.begin(cell)
        output: IO[bytes] | int = states.log_file(cell).open("ab") if to_log else subprocess.PIPE
        self._process = children.start([*COMMAND, *cell.arguments(data_dir)], output)
        if not isinstance(output, int):
            output.close()

    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def close(self) -> int:
        """Waits for the end and writes down a failure; the exit status as a shell has it."""
        if self._process.stdout is not None:
            # Read to its end here, so that whoever follows this process sees every line at once.
            with self._process.stdout as output:
                for line in output:
                    print(line.decode(errors="replace"), end="", flush=True)
                    self._hear(line)
        status = self._process.wait()
        self._status = 128 - status if status < 0 else status
        if self._to_log:
            for line in _end_of(states.log_file(self.cell)).splitlines():
                self._hear(line)
        if self._status and not tries_again(self._status):
            states.note_failure(self.cell, self._status, self._said)
        return self._status

    def outcome(self) -> str:
        """How it ended, in words."""
        took = report.duration(time.monotonic() - self._started)
        if self._status == 0:
            return f"{states.state_of(self.cell).detail}; here {took}"
        if tries_again(self._status):
            return f"interrupted after {took} (exit status {self._status})"
        said = self._said or "without a word"
        return f"FAILED after {took}: {said}; log: {states.log_file(self.cell)}"

    def _hear(self, line: bytes) -> None:
        """Keeps the last line that speaks to the user."""
        text = line.decode(errors="replace").strip()
        if text.startswith("jaxsens: "):
            self._said = text.removeprefix("jaxsens: ")


def _end_of(file: Path, num_bytes: int = 4096) -> bytes:
    """The last bytes of a file."""
    with file.open("rb") as opened:
        opened.seek(max(0, file.stat().st_size - num_bytes))
        return opened.read()
