"""One cell of the suite "many-runs" in a process of its own.

python -m benchmarks.many_runs_cell JOB.json     (started by `benchmarks.many_runs`)
"""

import importlib
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


def timed(advance: Callable[[], float], repeats: int) -> dict[str, Any]:
    """Times stretches of training; the first is cold and not among the seconds.

    Args:
      advance: trains for a stretch, waits for its end and gives a loss.
      repeats: timed stretches.

    Raises:
      RuntimeError: the loss is not finite: not a training.
    """
    seconds, loss = [], math.nan
    for _ in range(repeats + 1):
        started = time.perf_counter()
        loss = advance()
        seconds.append(time.perf_counter() - started)
    if not math.isfinite(loss):
        raise RuntimeError(f"the loss is {loss}")
    cold, *warm = seconds
    return {"seconds": warm, "compile_seconds": max(0.0, cold - min(warm)), "loss": loss}


def main(path: str) -> None:
    """Runs the job in the file `path`."""
    settings = json.loads(Path(path).read_text())
    out, factory = Path(settings.pop("out")), settings.pop("factory")
    job = Job(**settings)
    cell.pin(job.num_threads)
    module, function = factory.split(":")
    row = getattr(importlib.import_module(module), function)(job)
    out.write_text(json.dumps(row))


if __name__ == "__main__":
    main(sys.argv[1])
