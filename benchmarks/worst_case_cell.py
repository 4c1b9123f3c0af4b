"""One cell of the suite "worst-case" in a process of its own.

python -m benchmarks.worst_case_cell JOB.json     (started by `benchmarks.worst_case`)
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks import cell
from benchmarks.frame import Row


@dataclass(frozen=True)
class Job:
    """What a cell climbs and how it is timed.

    Attributes:
      num_examples: of a timed run, one after the other or together.
      num_words: n.
      width: d; the ball has the radius √d.
      num_starts: ascents of each example.
      num_steps: of each ascent.
      repeats: timed runs.
      seed: of weights, words and starts.
      num_threads: CPU threads.
      inputs: the file with x (examples, n, d), weights (d, d) and starts (examples, starts, d).
    """

    num_examples: int
    num_words: int
    width: int
    num_starts: int
    num_steps: int
    repeats: int
    seed: int
    num_threads: int
    inputs: str

    @property
    def radius(self) -> float:
        """As long as a word."""
        return math.sqrt(self.width)

    def load(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Words, weights, and the first word at each start."""
        with np.load(self.inputs) as arrays:
            return arrays["x"], arrays["weights"], arrays["starts"]


def timed_row(climb: Callable[[], float], repeats: int) -> Row:
    """Times a search that gives the mean of the largest changes it found."""
    row = cell.timed(climb, repeats)
    return {**row, "change": row.pop("loss"), "peak_mb": cell.peak_rss_mb()}


def main(path: str) -> None:
    """Runs the job in the file `path`."""
    cell.run_job(path, Job)


if __name__ == "__main__":
    main(sys.argv[1])
