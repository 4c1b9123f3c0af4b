"""What all experiments that train share: a model is trained to its end and measured on the way.

At every evaluation one record goes into metrics.jsonl, under the model's name. A run that was
killed goes on where it was; models that another run trained in the same way can be taken from it.
"""

import contextlib
import math
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from jaxtyping import Array, PRNGKeyArray

from jaxsens import SensitivityEstimate, SharpnessEstimate
from jaxsens.core import files
from jaxsens.reporting import run_identity
from jaxsens.reporting.plain_json import plain
from jaxsens.reporting.progress import Bar, say
from jaxsens.reporting.run_folder import RunFolder, WorkdirError
from jaxsens.training.checkpoints import Checkpoints, training_identity
from jaxsens.training.trainer import Trainer, TrainState, fit

Record = dict[str, Any]
#: `evaluate(epoch, variables) -> fields of the record`.
Evaluate = Callable[[int, Any], Record]
EstimateT = TypeVar("EstimateT", SensitivityEstimate, SharpnessEstimate)
ContentT = TypeVar("ContentT")


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


def cached(
    folder: RunFolder,
    name: str,
    make: Callable[[], str | bytes],
    parse: Callable[[bytes], ContentT],
) -> ContentT:
    """What a file of the run's folder holds; made now if the file is missing or damaged.

    Args:
      folder: the run's folder.
      name: the file, as in "estimates/cnn.json".
      make: computes its content.
      parse: understands it; whatever it raises means damage.
    """
    file = folder.path / name
    if folder.intact(name):
        with contextlib.suppress(Exception):  # damage may show in any way
            return parse(file.read_bytes())
    if file.exists():
        say(f"{file} is damaged; it is computed again")
    folder.write(name, make())
    return parse(file.read_bytes())


def cached_estimate(
    folder: RunFolder, name: str, measure: Callable[[], EstimateT], kind: Any = SensitivityEstimate
) -> EstimateT:
    """The estimate in a file of the run's folder; see `cached`."""
    return cached(
        folder, name, lambda: measure().to_json(), lambda data: kind.from_json(data.decode())
    )


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
    took: list[float] = []

    def timed() -> EstimateT:
        started = time.perf_counter()
        estimate = measure()
        took.append(time.perf_counter() - started)
        return estimate

    estimate = cached_estimate(folder, f"{where}/{name}.json", timed, kind)
    if took:
        folder.append({"stage": f"{where}/{name}", "seconds": took[0]})
    return estimate


def stage(folder: RunFolder, name: str, compute: Callable[[], Any]) -> Any:
    """What `compute` gives, kept in the run folder, so that a resumed run goes on after it."""
    for record in records(folder):
        if record.get("stage") == name and "value" in record:
            return record["value"]
    started = time.perf_counter()
    value = plain(compute(), name)
    folder.append({"stage": name, "value": value, "seconds": time.perf_counter() - started})
    return value


def records(folder: RunFolder) -> list[Record]:
    """All records: of a model at an epoch, or of a stage, each with the seconds it took.

    Raises:
      WorkdirError: a line of metrics.jsonl is neither.
    """
    found = folder.metrics()
    for line, record in enumerate(found, start=1):
        of_model = isinstance(record.get("model"), str) and isinstance(record.get("epoch"), int)
        of_stage = isinstance(record.get("stage"), str)
        if not (of_model or of_stage) or not isinstance(record.get("seconds"), int | float):
            raise WorkdirError(
                f"{folder.path / 'metrics.jsonl'}, line {line}: expected a record with model and "
                f"epoch, or stage, and seconds, got {record!s:.80}; delete the line, or choose "
                "another --workdir"
            )
    return found


def records_of(folder: RunFolder, name: str) -> list[Record]:
    """A model's records along training."""
    mine = [record for record in records(folder) if record.get("model") == name]
    return sorted(mine, key=lambda record: record["epoch"])


def seconds(folder: RunFolder) -> float:
    """How long training and measuring took, over all sessions of the run."""
    return math.fsum(record["seconds"] for record in records(folder))


def identity(run: str) -> tuple[str, Record]:
    """The experiment of another run and the fields of its config, lists as tuples.

    Raises:
      ValueError: the folder is not that of a run.
    """
    if not (Path(run) / "config.json").exists():
        raise ValueError(f"{run} is not the folder of a run: it has no config.json")
    found = run_identity.stored(Path(run))
    fields = found["config"].items()
    return found["experiment"], {k: tuple(v) if isinstance(v, list) else v for k, v in fields}


def check_trained_on(run: str, trained_on: dict[str, str]) -> None:
    """Raises ValueError if the models of another run were trained on other data than this.

    Args:
      run: its folder. Runs of earlier versions do not say what they were trained on; then that is
        said.
      trained_on: digests of what models are trained on, by name.
    """
    there = run_identity.stored(Path(run)).get("data")
    if there is None:
        say(f"{run} does not say which data its models were trained on; make sure it was the same")
        return
    # Another experiment may hold the same arrays in a part of its data: "images.x" for "x".
    of_models = {name.rpartition(".")[2]: value for name, value in there.items()}
    if others := run_identity.other_data({n: of_models.get(n, "") for n in trained_on}, trained_on):
        raise ValueError(
            f"models of {run} cannot be reused: they were trained on other data "
            f"({', '.join(others)} differ); give the --data-dir of that run"
        )


def reuse(run: str, folder: RunFolder, name: str) -> None:
    """Copies a model's checkpoints, all or none, unless there are some or the run has none."""
    source, target = Path(run) / "checkpoints" / name, folder.checkpoints / name
    if target.exists() or not source.exists():
        return
    files.make_folder(target.parent)
    partial = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(source, partial)
    files.put_folder(partial, target)
