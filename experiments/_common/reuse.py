"""Models of another run, taken from its folder in place of training them again."""

import shutil
from pathlib import Path

from jaxsens.core import files, hosts
from jaxsens.reporting import run_identity
from jaxsens.reporting.progress import say
from jaxsens.reporting.records import Record
from jaxsens.reporting.run_folder import RunFolder


def config_of(run: str) -> tuple[str, Record]:
    """The experiment of another run and the fields of its config, lists as tuples.

    Raises:
      ValueError: the folder is not that of a run.
    """
    found = stored(run)
    fields = found["config"].items()
    return found["experiment"], {k: tuple(v) if isinstance(v, list) else v for k, v in fields}


def stored(run: str) -> Record:
    """What the config.json of another run says, which process 0 reads.

    Raises:
      ValueError: the folder is not that of a run.
    """

    def read() -> Record:
        if not (Path(run) / "config.json").exists():
            raise ValueError(f"{run} is not the folder of a run: it has no config.json")
        return run_identity.stored(Path(run))

    return hosts.from_first(read)


def check_trained_on(run: str, trained_on: dict[str, str]) -> None:
    """Raises ValueError if the models of another run were trained on other data than this.

    Args:
      run: its folder. Runs of earlier versions do not say what they were trained on; then that is
        said.
      trained_on: digests of what models are trained on, by name.
    """
    there = stored(run).get("data")
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


def copy_checkpoints(run: str, folder: RunFolder, model: str) -> None:
    """Copies a model's checkpoints, all or none, unless there are some or the run has none."""
    hosts.from_first(lambda: _copy_checkpoints(run, folder, model))


def _copy_checkpoints(run: str, folder: RunFolder, model: str) -> None:
    source, target = Path(run) / "checkpoints" / model, folder.checkpoints / model
    if target.exists() or not source.exists():
        return
    files.make_folder(target.parent)
    partial = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(source, partial)
    files.put_folder(partial, target)
