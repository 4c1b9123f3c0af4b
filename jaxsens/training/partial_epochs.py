"""Where a training goes on: its checkpoints of whole epochs, and those in the middle of one.

    <epoch>/        after so many epochs; kept as `Checkpoints` says
    steps/<step>/   in the middle of an epoch, after so many steps of the whole training; removed
                    when the epoch has its own

A state does not say how many steps of its epoch it has done; the number of its folder does. So
checkpoints of earlier versions, which were of whole epochs alone, are read as they always were.
"""

import contextlib
from collections.abc import Callable
from typing import Any

from jaxsens.training.checkpoints import Checkpoints, DamagedCheckpointError

_FOLDER = "steps"


class PartialEpochs(contextlib.ExitStack):
    """The checkpoints of a training by the number of steps done, for a `with` block.

    Args:
      epochs: those of whole epochs.
      num_steps: steps of an epoch.
    """

    def __init__(self, epochs: Checkpoints, num_steps: int) -> None:
        super().__init__()
        self._epochs, self._num_steps = epochs, num_steps
        self._opened: Checkpoints | None = None

    def save(self, done: int, state: Any) -> None:
        """Saves the state after so many steps, and removes those in the middle of its past."""
        epoch, step = divmod(done, self._num_steps)
        if step:
            self._steps().save(done, state)
            return
        self._epochs.save(epoch, state)
        if self._opened is not None or self._epochs.has(_FOLDER):
            for old in [old for old in self._steps().epochs() if old <= done]:
                self._steps().remove(old)

    def newest(
        self, state: Any, done: int, target: int, on_damage: Callable[[str], None]
    ) -> tuple[Any, int]:
        """The readable state nearest before or at `target` steps, and its number of steps.

        Args:
          state: taken if there is none after it; a template for those that are read.
          done: its number of steps.
          target: no state beyond it is taken.
          on_damage: called with one line for a checkpoint that cannot be read.
        """
        while found := [each for each in self._all() if done < each[0] <= target]:
            steps, checkpoints, number = max(found, key=lambda each: each[0])
            try:
                restored = checkpoints.restore(number, like=state)
                # A folder under another number would be taken again and again.
                if int(restored.epoch) == steps // self._num_steps:
                    return restored, steps
                checkpoints.reject(number, f"it holds epoch {int(restored.epoch)}")
            except DamagedCheckpointError as error:
                on_damage(f"{error}; the one before it is taken")
        return state, done

    def _all(self) -> list[tuple[int, Checkpoints, int]]:
        """Steps done, where it is and under which number, of every checkpoint."""
        found = [(epoch * self._num_steps, self._epochs, epoch) for epoch in self._epochs.epochs()]
        if self._opened is not None or self._epochs.has(_FOLDER):
            found += [(step, self._steps(), step) for step in self._steps().epochs()]
        return found

    def _steps(self) -> Checkpoints:
        if self._opened is None:
            self._opened = self.enter_context(self._epochs.below(_FOLDER))
        return self._opened
