"""Models of another run, taken from its folder in place of training them again."""

import shutil

from jaxsens.core import hosts, storage
from jaxsens.reporting import run_identity
from jaxsens.reporting.progress import say
from jaxsens.reporting.records import Record
from jaxsens.reporting.run_folder import RunFolder

#: In an object store, the file that says that all of a model was copied.
_COMPLETE = ".complete"


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
        place = storage.at(run)
        if not place.exists("config.json"):
            raise ValueError(f"{run} is not the folder of a run: it has no config.json")
        return run_identity.stored(place)

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
    source = storage.at(storage.located(run) / "checkpoints")
    target = storage.at(folder.checkpoints)
    if model in target.folders(_COMPLETE) or model not in source.entries():
        return
    with source.on_disk(model) as there, target.new_folder(model, _COMPLETE) as copy:
        shutil.copytree(there, copy, dirs_exist_ok=True)
