"""What all experiments that train share: a model is trained to its end and measured on the way.

At every evaluation one record goes into metrics.jsonl, under the model's name. A run that was
killed goes on where it was; models that another run trained in the same way can be taken from it.
"""

import json
import math
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from jaxtyping import Array, PRNGKeyArray

from jaxsens import SensitivityEstimate, SharpnessEstimate
from jaxsens.checkpoint import Checkpoints
from jaxsens.progress import Bar
from jaxsens.results import plain
from jaxsens.runfolder import RunFolder, write_atomic
from jaxsens.training import Trainer, TrainState, fit

Record = dict[str, Any]
#: `evaluate(epoch, variables) -> fields of the record`.
Evaluate = Callable[[int, Any], Record]
EstimateT = TypeVar("EstimateT", SensitivityEstimate, SharpnessEstimate)


def require_batch(batch_size: int, num_train: int, epochs: int = 1) -> None:
    """Raises ValueError unless the examples fill a batch and optimisers can count the steps."""
    if batch_size > num_train:
        raise ValueError(
            f"batch_size={batch_size} is larger than the {num_train} training examples; choose a "
            f"--batch-size of at most {num_train}"
        )
    # Augmented sets are twice as large.
    steps = epochs * (2 * num_train // batch_size)
    if steps >= 2**31:
        raise ValueError(
            f"epochs={epochs} can take {steps} steps, more than the {2**31 - 1} that are counted; "
            f"choose --epochs of at most {epochs * (2**31 - 1) // steps}"
        )


def follow(
    folder: RunFolder,
    name: str,
    label: str,
    trainer: Trainer,
    x: Array,
    y: Array,
    *,
    key: PRNGKeyArray,
    every: int,
    evaluate: Evaluate,
) -> TrainState:
    """Trains a model to its end, recording every evaluation.

    Args:
      folder: the run's folder.
      name: the model's name in records and checkpoints.
      label: its name for the progress bar.
      trainer: model and recipe.
      x: training inputs.
      y: labels.
      key: decides initial weights, order and dropout.
      every: epochs between two evaluations.
      evaluate: makes a record's fields; not called for epochs that are recorded.

    Returns:
      The state after the last epoch.
    """
    recorded = {record["epoch"] for record in records_of(folder, name)}
    clock = time.monotonic()

    def record(epoch: int, state: TrainState) -> None:
        nonlocal clock
        if epoch in recorded:
            return
        fields = evaluate(epoch, state.variables)
        now = time.monotonic()
        folder.append({"model": name, "epoch": epoch} | fields | {"seconds": now - clock})
        clock = now

    checkpoints = Checkpoints(folder.checkpoints / name, every)
    with Bar(f"{label}: training", "epochs", trainer.epochs) as bar:
        state = fit(
            trainer,
            x,
            y,
            key=key,
            checkpoints=checkpoints,
            evaluate=record,
            every=every,
            on_epoch=lambda epoch, loss: bar.update(epoch, trainer.epochs, f"loss {loss:.4f}"),
        )
    checkpoints.close()
    return state


def kept(
    folder: RunFolder,
    name: str,
    measure: Callable[[], EstimateT],
    kind: Any = SensitivityEstimate,
    where: str = "estimates",
) -> EstimateT:
    """The estimate of that name: from disk, or measured now and put there, its time recorded.

    Args:
      folder: the run's folder.
      name: of the file.
      measure: measures.
      kind: the class of what it gives.
      where: subfolder of the run's folder.
    """
    file = folder.path / where / f"{name}.json"
    if not file.exists():
        started = time.perf_counter()
        write_atomic(file, measure().to_json())
        took = time.perf_counter() - started
        folder.append({"stage": f"{where}/{name}", "seconds": took})
    return kind.from_json(file.read_text("utf-8"))


def stage(folder: RunFolder, name: str, compute: Callable[[], Any]) -> Any:
    """What `compute` gives, kept in the run folder, so that a resumed run goes on after it."""
    for record in folder.metrics():
        if record.get("stage") == name:
            return record["value"]
    started = time.perf_counter()
    value = plain(compute(), name)
    folder.append({"stage": name, "value": value, "seconds": time.perf_counter() - started})
    return value


def records_of(folder: RunFolder, name: str) -> list[Record]:
    """A model's records along training."""
    mine = [record for record in folder.metrics() if record.get("model") == name]
    return sorted(mine, key=lambda record: record["epoch"])


def seconds(folder: RunFolder) -> float:
    """How long training and measuring took, over all sessions of the run."""
    return math.fsum(record["seconds"] for record in folder.metrics())


def identity(run: str) -> tuple[str, Record]:
    """The experiment of another run and the fields of its config, lists as tuples.

    Raises:
      ValueError: the folder is not that of a run.
    """
    file = Path(run) / "config.json"
    if not file.exists():
        raise ValueError(f"{run} is not the folder of a run: it has no config.json")
    found = json.loads(file.read_text("utf-8"))
    fields = found["config"].items()
    return found["experiment"], {k: tuple(v) if isinstance(v, list) else v for k, v in fields}


def reuse(run: str, folder: RunFolder, name: str) -> None:
    """Copies a model's checkpoints, all or none, unless there are some or the run has none."""
    source, target = Path(run) / "checkpoints" / name, folder.checkpoints / name
    if target.exists() or not source.exists():
        return
    partial = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(source, partial)
    partial.rename(target)
