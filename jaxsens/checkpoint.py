"""Checkpoints with orbax: written atomically, restored by epoch.

A checkpoint is written to a temporary folder and renamed when complete, so that a process killed
while saving leaves the one before.

Assumption: the tree to restore has the structure, shapes and dtypes of the one saved; the run
folder guarantees it by refusing another config.
"""

from pathlib import Path
from typing import Any, TypeVar

import jax
import orbax.checkpoint as ocp

Tree = TypeVar("Tree")


class Checkpoints:
    """The checkpoints of one training run, numbered by epoch.

    The last two are kept, and every one whose epoch is a multiple of `every`.
    """

    def __init__(self, folder: Path | str, every: int | None = None) -> None:
        options = ocp.CheckpointManagerOptions(
            max_to_keep=2, keep_period=every, enable_async_checkpointing=False
        )
        self._manager = ocp.CheckpointManager(Path(folder).resolve(), options=options)

    def save(self, epoch: int, tree: Any) -> None:
        """Writes a checkpoint; on return it is complete."""
        if epoch in self.epochs():
            return
        self._manager.save(epoch, args=ocp.args.StandardSave(tree))
        self._manager.wait_until_finished()

    def epochs(self) -> list[int]:
        """The epochs that are kept, in order."""
        return sorted(self._manager.all_steps())

    def restore(self, epoch: int, like: Tree) -> Tree:
        """The checkpoint of that epoch in the form of `like`."""
        template = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
        return self._manager.restore(epoch, args=ocp.args.StandardRestore(template))

    def close(self) -> None:
        """Frees orbax's threads."""
        self._manager.close()
