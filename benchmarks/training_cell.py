"""One method of the suite "training" on one model, in a process of its own.

python -m benchmarks.training_cell JOB.json     (started by `benchmarks.training`)
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import cell
from benchmarks.workload import Setting, Weights, load_arrays

#: Small enough that rounding stays rounding over a stretch.
RATE = 1e-3


@dataclass(frozen=True)
class Job:
    """What is trained: the same for every method.

    Attributes:
      setting: the model.
      weights: its first variables, by their path in Flax.
      x: (steps · batch, *shape) inputs, channels last.
      y: their labels, 0 or 1, which every model has.
      order: (steps, batch): which examples each step takes.
      seed: of the weights and of the order.
      num_threads: CPU threads.
    """

    setting: Setting
    weights: Weights
    x: np.ndarray
    y: np.ndarray
    order: np.ndarray
    seed: int
    num_threads: int


#: Trains for a stretch, one step for each row of the order, and gives the loss of each.
Advance = Callable[[], np.ndarray]


def load(settings: Mapping[str, Any]) -> Job:
    """The job that the suite described, with its inputs."""
    arrays = load_arrays(Path(settings["arrays"]))
    setting, order = Setting.from_json(settings["setting"]), arrays.pop("order")
    rng = np.random.default_rng(settings["seed"])
    x = rng.normal(size=(order.size, *setting.shape)).astype(np.float32)
    y = rng.integers(0, 2, order.size).astype(np.int32)
    return Job(setting, arrays, x, y, order, settings["seed"], settings["num_threads"])


def measure(side: Callable[[Job], Advance], job: Job, repeats: int) -> dict[str, Any]:
    """Seconds of each timed stretch, and the losses of the first one, which is not timed."""
    advance, stretches = side(job), list[np.ndarray]()

    def last_loss() -> float:
        stretches.append(np.asarray(advance(), np.float64))
        return float(stretches[-1][-1])

    found = cell.timed(last_loss, repeats)
    return found | {"losses": stretches[0].tolist(), "peak_mb": cell.peak_rss_mb()}


def main(path: str) -> None:
    """Runs the job in the file `path`."""
    settings = json.loads(Path(path).read_text())
    cell.pin(settings["num_threads"])
    side = cell.function_named(settings["side"])
    Path(settings["out"]).write_text(json.dumps(measure(side, load(settings), settings["repeats"])))


if __name__ == "__main__":
    main(sys.argv[1])
