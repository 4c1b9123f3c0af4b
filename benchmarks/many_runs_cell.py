"""One cell of the suite "many-runs" in a process of its own.

python -m benchmarks.many_runs_cell JOB.json     (started by `benchmarks.many_runs`)
"""

import sys
from dataclasses import dataclass

from benchmarks import cell

WIDTH, LAYERS, HEADS = 32, 2, 2
RATE, DECAY = 5e-4, 0.1


@dataclass(frozen=True)
class Job:
    """What a cell trains and how it is timed.

    Attributes:
      length: n, bits of an input.
      batch: inputs drawn for a step.
      steps: of every run in a timed stretch.
      num_lanes: runs that jaxsens trains.
      block: of which so many are vmapped together.
      repeats: timed stretches.
      seed: of weights and inputs.
      num_threads: CPU threads.
    """

    length: int
    batch: int
    steps: int
    num_lanes: int
    block: int
    repeats: int
    seed: int
    num_threads: int


def main(path: str) -> None:
    """Runs the job in the file `path`."""
    cell.run_job(path, Job)


if __name__ == "__main__":
    main(sys.argv[1])
