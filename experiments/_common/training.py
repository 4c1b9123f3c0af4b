"""Training that leaves records: a model is trained to its end and evaluated on the way.

At every evaluation one record goes into metrics.jsonl, under the model's name. A run that was
killed goes on where it was.
"""

import contextlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Array, PRNGKeyArray

from jaxsens.core import runtime
from jaxsens.core.files import WorkdirError
from jaxsens.reporting.partial_results import resumable
from jaxsens.reporting.progress import Bar, say, step_moved
from jaxsens.reporting.records import Record, records, records_of
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.training.checkpoints import Checkpoints, training_identity
from jaxsens.training.trainer import Trainer, TrainState, fit

#: The file of a run that keeps the number of devices, if they are several.
_DEVICES = "devices.txt"

#: `evaluate(epoch, variables) -> fields of the record`.
Evaluate = Callable[[int, Any], Record]


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


def train_and_record(
    folder: RunFolder,
    name: str,
    label: str,
    trainer: Trainer,
    x: Array | np.ndarray,
    y: Array | np.ndarray,
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
    require_same_devices(folder)
    recorded = {record["epoch"] for record in records_of(folder, name)}
    clock = time.monotonic()
    step_moved(max(recorded, default=0), trainer.epochs)

    def moved(epoch: int, loss: float) -> None:
        bar.update(epoch, trainer.epochs, f"loss {loss:.4f}")
        step_moved(epoch, trainer.epochs)

    def record(epoch: int, state: TrainState) -> None:
        nonlocal clock
        with resumable(folder, f"{name}, epoch {epoch}"):
            fields = evaluate(epoch, state.variables)
            now = time.monotonic()
            folder.append({"model": name, "epoch": epoch} | fields | {"seconds": now - clock})
        clock = now

    with (
        open_checkpoints(folder, name, training_identity(trainer, key), every) as checkpoints,
        Bar(f"{label}: training", "epochs", trainer.epochs) as bar,
    ):
        return fit(
            trainer,
            x,
            y,
            key=key,
            checkpoints=checkpoints,
            evaluate=record,
            every=every,
            evaluated=recorded,
            on_epoch=moved,
            on_damage=say,
        )


def require_same_devices(folder: RunFolder) -> None:
    """Keeps the number of devices in the folder, or refuses another than it has.

    Sums over a batch depend in their last bits on how many devices share it. A folder that has
    trained and says nothing of devices has trained on one.

    Raises:
      WorkdirError: the run was begun on another number of devices; the message is one line.
    """
    here, there = runtime.global_mesh().size, 1
    if folder.intact(_DEVICES):
        there = int(folder.read_bytes(_DEVICES))
    elif here > 1 and not any("model" in record for record in records(folder)):
        folder.write(_DEVICES, f"{here}\n")
        there = here
    if here != there:
        raise WorkdirError(
            f"{folder.path} was begun on {there} device{'s' if there > 1 else ''}, and here "
            f"{'are' if here > 1 else 'is'} {here}: weights would differ in their last bits; "
            "resume on as many or choose another --workdir"
        )


def open_checkpoints(
    folder: RunFolder, name: str, training: dict[str, str], every: int | None = None
) -> contextlib.closing[Checkpoints]:
    """A model's checkpoints in the run's folder, for a `with` block.

    Args:
      folder: the run's folder.
      name: the model's name.
      training: see `jaxsens.training.checkpoints.training_identity`.
      every: checkpoints of multiples of it are kept.
    """
    path = folder.checkpoints / name
    return contextlib.closing(Checkpoints(path, every, training, folder.require_held))
