"""How far the cells of a sweep are, from their folders alone: no scheduler and no process is asked.

Beside a run folder `<hash>/` a sweep keeps `<hash>.log`, what the run printed, and `<hash>.failed`,
why it will not be finished as it is. A run that was killed leaves no such file: it is only begun.
"""

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from jaxsens.core.files import make_folder, write_atomic
from jaxsens.reporting import report
from jaxsens.reporting.results import Results
from jaxsens.reporting.run_folder import RunFolder, WorkdirError
from jaxsens.sweeps.cells import Cell


@dataclasses.dataclass(frozen=True)
class State:
    """How far a cell is.

    Attributes:
      word: finished, failed (the same command again fails again), begun or not begun.
      detail: more of it in words, for a line.
      results: of a finished cell.
    """

    word: Literal["finished", "failed", "begun", "not begun"]
    detail: str = ""
    results: Results | None = None

    def __str__(self) -> str:
        return f"{self.word}: {self.detail}" if self.detail else self.word


def state_of(cell: Cell) -> State:
    """Reads the folder of a cell."""
    if is_finished(cell):
        try:
            results = RunFolder.read(cell.folder, cell.experiment, cell.config).results()
        except WorkdirError as error:
            return State("failed", str(error))
        return State("finished", _outcome(results), results)
    if failure_file(cell).exists():
        return State("failed", failure_file(cell).read_text("utf-8").strip())
    if (cell.folder / "config.json").exists():
        ago = time.time() - max(file.stat().st_mtime for file in _files(cell.folder))
        return State("begun", f"last written {report.duration(max(ago, 0.0))} ago")
    return State("not begun")


def is_finished(cell: Cell) -> bool:
    """Whether the run has its results, which are written last."""
    return (cell.folder / "results.json").exists()


def log_file(cell: Cell) -> Path:
    """Where a sweep that runs all cells keeps what the run prints."""
    return cell.folder.with_name(f"{cell.folder.name}.log")


def failure_file(cell: Cell) -> Path:
    """Where a sweep writes why a cell failed."""
    return cell.folder.with_name(f"{cell.folder.name}.failed")


def begin(cell: Cell) -> None:
    """Makes the folder above the run folder, and forgets that the cell failed before."""
    make_folder(cell.folder.parent)
    failure_file(cell).unlink(missing_ok=True)


def note_failure(cell: Cell, status: int, said: str) -> None:
    """Writes down why a cell failed, for `state_of`."""
    write_atomic(failure_file(cell), f"{said or 'without a word'} (exit status {status})\n")


def _outcome(results: Results) -> str:
    num_holds = sum(claim.holds for claim in results.claims)
    took = report.duration(results.seconds)
    return f"{num_holds} of {len(results.claims)} claims hold, took {took}"


def _files(folder: Path) -> Iterator[Path]:
    """The folder and what lies in it or one level deeper, but for what vanishes meanwhile."""
    yield folder
    for file in [*folder.glob("*"), *folder.glob("*/*")]:
        if file.exists():
            yield file
