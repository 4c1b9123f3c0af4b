"""Checkpoints with orbax: complete or not there, checked when written and when read.

    <epoch>/default/        the tree, as orbax writes it
    <epoch>/checksums.json  the epoch, whose state it is, and SHA-256 of every file above

A checkpoint is written under another name, read back, handed to the disk with its folders and only
then renamed, so that a process killed while saving leaves the one before. In an object store it is
complete when checksums.json is there, which is copied last (`jaxsens.core.storage`); orbax works on
this disk in any case. A damaged one is told from a good one before orbax sees it. Checkpoints of
earlier versions have no checksums.json; of these only what orbax notices is noticed.

Of several processes, the first one writes and reads; what it read goes to the others. So a training
may go on with another number of processes than it began with.

Assumption: the tree to restore has the structure, shapes and dtypes of the one that was saved. The
run folder sees to that: it refuses another config.
"""

import contextlib
import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, NoReturn, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import SingleDeviceSharding

from jaxsens.core import files, hosts, runtime, storage
from jaxsens.core.fingerprint import digest

Tree = TypeVar("Tree")

_CHECKSUMS = "checksums.json"
_KEEP = 2


class DamagedCheckpointError(ValueError):
    """A checkpoint cannot be restored; the message names the file, in one line."""


class OtherTrainingError(files.WorkdirError):
    """A checkpoint belongs to another training; the message is one line."""


class Checkpoints:
    """The checkpoints of one training run, numbered by epoch.

    The last two are kept, and every one whose epoch is a multiple of `every`. Use it in a `with`
    block, or call `close` at the end.

    Args:
      folder: where they are; made when the first one is saved.
      every: epochs between two checkpoints that are kept for good; None if only the last two are.
      training: what decides the weights (see `training_identity`); a checkpoint that says something
        else is refused.
      before_saving: called before anything is written; should raise an error if the folder has
        become another run's.

    Raises:
      ValueError: orbax cannot work in a folder of that name.
    """

    def __init__(
        self,
        folder: PurePath | str,
        every: int | None = None,
        training: Mapping[str, str] | None = None,
        before_saving: Callable[[], None] = lambda: None,
    ) -> None:
        location = storage.located(folder)
        # Orbax takes whole paths only.
        self._folder = location.resolve() if isinstance(location, Path) else location
        self._storage, self._every = storage.at(self._folder), every
        if isinstance(self._folder, Path) and files.UNUSABLE.search(str(self._folder)):
            raise ValueError(f"{self._folder} has one of [ ] * ? \\ in its path; choose another")
        self._training, self._before_saving = dict(training or {}), before_saving
        self._damaged: set[int] = set()
        hosts.from_first(lambda: self._storage.remove_unfinished(_CHECKSUMS))
        # Last: it starts threads, which an error above would leave running.
        self._checkpointer = _checkpointer()

    def save(self, epoch: int, tree: Any) -> None:
        """Writes a checkpoint, and removes those that are no longer kept; nothing if it is there.

        On return it is complete, on the disk, and what was read back is what was saved.

        Raises:
          DamagedCheckpointError: what was read back differs: the disk is failing.
        """
        if hosts.num_processes() > 1:
            tree = runtime.host_copy(tree)
        hosts.from_first(lambda: self._save(epoch, tree))
        self._damaged.discard(epoch)

    def _save(self, epoch: int, tree: Any) -> None:
        if epoch in self._epochs():
            return
        self._before_saving()
        with self._storage.new_folder(str(epoch), _CHECKSUMS) as unfinished, _quiet():
            self._write(unfinished, epoch, tree)
        self._damaged.discard(epoch)
        for old in self._epochs()[:-_KEEP]:
            if not self._every or old % self._every:
                self._storage.remove_folder(str(old), _CHECKSUMS)

    def epochs(self) -> list[int]:
        """The epochs that are kept and not known to be damaged, in order."""
        return hosts.from_first(self._epochs)

    def _epochs(self) -> list[int]:
        names = self._storage.folders(_CHECKSUMS)
        found = {int(name) for name in names if name.isdecimal() and name == str(int(name))}
        return sorted(found - self._damaged)

    def restore(self, epoch: int, like: Tree) -> Tree:
        """The checkpoint of that epoch in the form of `like`.

        Raises:
          DamagedCheckpointError: it cannot be read; it counts as missing from now on.
          OtherTrainingError: it is of another model, or from another seed.
        """
        if hosts.num_processes() == 1:
            return self._restore(epoch, like)
        leaves, structure = jax.tree.flatten(like)
        here = SingleDeviceSharding(jax.local_devices()[0])
        found = [np.empty(np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves]

        def restore_here() -> None:
            placed = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=here) for leaf in found]
            read = self._restore(epoch, jax.tree.unflatten(structure, placed))
            found[:] = map(np.asarray, jax.tree.leaves(read))

        hosts.from_first(restore_here)
        found = hosts.arrays_from_first(found)
        return runtime.place_like(jax.tree.unflatten(structure, found), like)

    def _restore(self, epoch: int, like: Tree) -> Tree:
        try:
            with self._storage.on_disk(str(epoch)) as path:
                self._check(epoch, path)
                with _quiet():
                    return self._read(path, like)
        except (OtherTrainingError, MemoryError):
            raise
        except DamagedCheckpointError as error:
            self.reject(epoch, str(error))
        except Exception as error:  # orbax and tensorstore raise whatever they like
            self.reject(epoch, f"{type(error).__name__}: {' '.join(str(error).split()):.200}")

    def reject(self, epoch: int, reason: str) -> NoReturn:
        """Takes the checkpoint of an epoch for missing from now on, and says why.

        Raises:
          DamagedCheckpointError: always.
        """
        self._damaged.add(epoch)
        raise DamagedCheckpointError(f"checkpoint {self._path(epoch)} is damaged: {reason}")

    def remove(self, epoch: int) -> None:
        """Removes the checkpoint of an epoch."""

        def remove_here() -> None:
            self._before_saving()
            self._storage.remove_folder(str(epoch), _CHECKSUMS)

        hosts.from_first(remove_here)

    def below(self, name: str) -> "Checkpoints":
        """Checkpoints of the same training in a folder inside this one, of which two are kept."""
        return Checkpoints(self._folder / name, None, self._training, self._before_saving)

    def has(self, name: str) -> bool:
        """Whether there is a folder of that name inside this one."""
        return hosts.from_first(lambda: name in self._storage.entries())

    def close(self) -> None:
        """Ends orbax's threads; a `with` block does so by itself, also after an error."""
        self._checkpointer.close()

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _path(self, epoch: int) -> PurePath:
        return self._folder / str(epoch)

    def _write(self, path: Path, epoch: int, tree: Any) -> None:
        self._checkpointer.save(path / "default", args=ocp.args.StandardSave(tree))
        if digest(jax.tree.leaves(self._read(path, tree))) != digest(jax.tree.leaves(tree)):
            raise DamagedCheckpointError(
                f"{path} was written, but other numbers were read back; is the disk failing?"
            )
        sums = {str(p.relative_to(path)): files.checksum(p) for p in _files(path)}
        record = {"epoch": epoch, "training": self._training, "sha256": sums}
        (path / _CHECKSUMS).write_text(json.dumps(record, indent=1), "utf-8")

    def _read(self, path: Path, like: Tree) -> Tree:
        template = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
        return self._checkpointer.restore(path / "default", args=ocp.args.StandardRestore(template))

    def _check(self, epoch: int, path: Path) -> None:
        """Raises an error unless checksums.json, if there is one, agrees with what is there."""
        if not (path / _CHECKSUMS).exists():
            return
        record = json.loads((path / _CHECKSUMS).read_text("utf-8"))
        if record["epoch"] != epoch:
            raise DamagedCheckpointError(f"it holds epoch {record['epoch']}")
        for name, expected in record["sha256"].items():
            if not (path / name).is_file() or files.checksum(path / name) != expected:
                raise DamagedCheckpointError(f"{name} is not what was written")
        there, here = record["training"], self._training
        # Another kind of random numbers gives another key for the same seed: said, not refused.
        compared = here.keys() if here.get("prng") == there.get("prng") else here.keys() - {"key"}
        for name in sorted(compared - {"prng"}):
            if there.get(name) != here[name]:
                what = "another seed" if name == "key" else "another model or way of training"
                raise OtherTrainingError(
                    f"checkpoint {self._path(epoch)} comes from {what} ({name} {there.get(name)} "
                    f"there, {here[name]} here); delete {self._folder} or choose another --workdir"
                )


def training_identity(trainer: Any, key: jax.Array) -> dict[str, str]:
    """What decides the weights of a run, beside its data: kept in every checkpoint and compared.

    The trainer's digest is of the names of its dataclasses (Flax modules too), functions and
    fields, and of values that are not defaults. So code may move from file to file; but with
    another name of a model's class, of one of its fields or of a loss, or with another default, old
    checkpoints are refused.

    Args:
      trainer: a dataclass: model and recipe.
      key: decides initial weights, order and dropout.

    Example:
      >>> from jaxsens.models import MLP
      >>> from jaxsens.training import Recipe, Trainer
      >>> key = jax.random.key(0)
      >>> one, other = (Trainer(MLP(10), Recipe("adam", lr), epochs=3) for lr in (0.01, 0.02))
      >>> first, second = training_identity(one, key), training_identity(other, key)
      >>> [name for name in first if first[name] != second[name]]
      ['trainer']
    """
    impl = str(jax.random.key_impl(key))
    return {"trainer": digest(trainer), "key": digest(jax.random.key_data(key)), "prng": impl}


def _checkpointer() -> ocp.Checkpointer:
    """Orbax; of several processes it knows only the first one, which alone uses it."""
    if hosts.num_processes() == 1:
        return ocp.Checkpointer(ocp.StandardCheckpointHandler())
    alone = ocp.options.MultiprocessingOptions(
        primary_host=jax.process_index(),
        active_processes={jax.process_index()},
        barrier_sync_key_prefix=f"jaxsens_{hosts.process_id()}",
    )
    return ocp.Checkpointer(
        ocp.StandardCheckpointHandler(multiprocessing_options=alone), multiprocessing_options=alone
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Lets orbax raise its errors, which is enough: it also logs them at length.

    When one of the writes of a checkpoint fails, others go on and find nobody waiting for them:
    orbax logs that, and tensorstore prints a traceback. So these stay silent after an error.
    """
    logger, show = logging.getLogger("absl"), sys.unraisablehook

    def is_not_of_orbax(record: logging.LogRecord) -> bool:
        return "orbax" not in record.pathname

    def show_others(unraisable: Any) -> None:
        if str(unraisable.exc_value) != "Event loop is closed":
            show(unraisable)

    logger.addFilter(is_not_of_orbax)
    sys.unraisablehook = show_others
    yield
    logger.removeFilter(is_not_of_orbax)
    sys.unraisablehook = show


def _files(path: Path) -> list[Path]:
    return sorted(p for p in path.rglob("*") if p.is_file())
