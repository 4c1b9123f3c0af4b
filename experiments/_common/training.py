"""Training that leaves records: a model is trained to its end and evaluated on the way.

At every evaluation one record goes into metrics.jsonl, under the model's name. A run that was
killed goes on where it was.
"""

import contextlib
import time
from collections.abc import Callable
from typing import Any

from jaxtyping import Array, PRNGKeyArray

from jaxsens.reporting.partial_results import resumable
from jaxsens.reporting.progress import Bar, say
from jaxsens.reporting.records import Record, records_of
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.training.checkpoints import Checkpoints, training_identity
from jaxsens.training.trainer import Trainer, TrainState, fit

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
            on_epoch=lambda epoch, loss: bar.update(epoch, trainer.epochs, f"loss {loss:.4f}"),
            on_damage=say,
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
