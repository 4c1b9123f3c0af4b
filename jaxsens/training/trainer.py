"""Training with optax on all devices: an epoch is a few jitted calls, each of many steps.

Epoch e splits fold_in(key, e) in two: one key shuffles, the other, folded with t, gives step t its
dropout masks. A call runs steps first … stop - 1 of an epoch, and both are arguments of one
compiled program. So training stopped after any call and continued from its state gives the same
bits as training that was never stopped.

Training runs where its state is. Replicated over a mesh, every device takes its share of each batch
as one program: the loss, its gradient and batch norm are of the whole batch, and dropout masks are
the same for any number of devices. Sums are not, in their last bits.

A training set that does not fit on a device stays on the host, and its batches are sent as they
are needed. The last, incomplete batch of an epoch is left out; the shuffle leaves out other
examples every epoch.
"""

import dataclasses
import functools
import time
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from jaxsens.core import runtime
from jaxsens.training.checkpoints import Checkpoints
from jaxsens.training.evaluation import accuracy, correct
from jaxsens.training.objectives import Objective, cross_entropy
from jaxsens.training.pace import Pace
from jaxsens.training.partial_epochs import PartialEpochs
from jaxsens.training.recipe import Recipe
from jaxsens.training.steps import (
    TrainState,
    mesh_of,
    order_of_epoch,
    step,
    train_batches,
    train_steps,
)

__all__ = [
    "SECONDS_BETWEEN_CHECKPOINTS",
    "Recipe",
    "TrainState",
    "Trainer",
    "TrainingDivergedError",
    "accuracy",
    "correct",
    "fit",
    "step",
]

#: So long after a state was saved the next one is, in the middle of an epoch too.
SECONDS_BETWEEN_CHECKPOINTS = 30.0

#: The share of a device's memory that the training set may take; a larger one stays on the host.
_RESIDENT_SHARE = 0.25

#: Bytes of batches that a device is sent at a time.
BYTES_SENT = 128 << 20


class TrainingDivergedError(FloatingPointError):
    """The loss stopped being finite."""


@dataclass(frozen=True)
class Trainer:
    """A model, how to train it and on what loss: static and hashable, so it compiles once."""

    model: nn.Module
    recipe: Recipe
    epochs: int
    objective: Objective = cross_entropy

    def init(self, x: Shaped[Array | np.ndarray, "n ..."], key: PRNGKeyArray) -> TrainState:
        """The state before the first epoch."""
        optimizer = self._optimizer(len(x))
        variables = _init(self.model, key, jnp.asarray(x[:1]))
        return TrainState(variables, optimizer.init(variables["params"]), jnp.zeros((), jnp.int32))

    def epoch(
        self,
        state: TrainState,
        x: Shaped[Array | np.ndarray, "n ..."],
        y: Int[Array | np.ndarray, " n"],
        key: PRNGKeyArray,
    ) -> tuple[TrainState, float]:
        """One pass over the data in a new random order.

        Args:
          state: the state after the epoch before; its memory is reused, so it is gone afterwards.
          x: all examples; on the device, or NumPy's, of which batches are sent there.
          y: their labels.
          key: the same for every epoch.

        Returns:
          The new state and the mean training loss of the epoch.

        Raises:
          TrainingDivergedError: the loss is not finite; names the step.
        """
        state, losses = self.advance(state, x, y, key, 0, self.steps(len(x)))
        return state, float(losses.mean())

    def advance(
        self,
        state: TrainState,
        x: Shaped[Array | np.ndarray, "n ..."],
        y: Int[Array | np.ndarray, " n"],
        key: PRNGKeyArray,
        first: int,
        stop: int,
    ) -> tuple[TrainState, Float[np.ndarray, " steps"]]:
        """Steps first … stop - 1 of the state's epoch, which ends if `stop` is `steps(n)`.

        Args:
          state: after the steps before; its memory is reused, so it is gone afterwards.
          x: as in `epoch`.
          y: as in `epoch`.
          key: as in `epoch`.
          first: steps of this epoch that are done.
          stop: steps of this epoch that shall be done.

        Returns:
          The new state and the loss of each of these steps.

        Raises:
          TrainingDivergedError: a loss is not finite; names the step.
        """
        num, epoch, mesh = self.steps(len(x)), int(state.epoch), mesh_of(state)
        if isinstance(x, np.ndarray):
            state, losses = self._streamed(state, x, np.asarray(y), key, first, stop)
        else:
            key = runtime.replicated(key, mesh)
            bounds = np.int32(first), np.int32(stop)
            state, found = train_steps(self, mesh, state, x, y, key, *bounds)
            losses = np.asarray(found)[first:stop]
        self._require_finite(losses, epoch, first, num)
        return state, losses

    def _streamed(
        self,
        state: TrainState,
        x: Shaped[np.ndarray, "n ..."],
        y: Int[np.ndarray, " n"],
        key: PRNGKeyArray,
        first: int,
        stop: int,
    ) -> tuple[TrainState, Float[np.ndarray, " steps"]]:
        """`advance` with batches that are sent from the host, some at a time."""
        mesh, size, steps = mesh_of(state), self.recipe.batch_size, self.steps(len(x))
        steps_key, order = order_of_epoch(len(x), size, key, np.int32(state.epoch))
        steps_key, order = runtime.replicated(steps_key, mesh), np.asarray(order)
        num = max(1, min(steps, BYTES_SENT // max(1, size * x[0].nbytes // mesh.size)))
        losses = []
        for start in range(first, stop, num):
            rows = order[np.minimum(np.arange(start, start + num), stop - 1)]
            batches = runtime.split_rows((x, y), rows, mesh)
            count = min(num, stop - start)
            state, found = train_batches(
                *(self, mesh, len(x), state, batches, steps_key, np.int32(start), np.int32(count))
            )
            losses.append((found, count))
        if stop == steps:
            state = dataclasses.replace(state, epoch=state.epoch + 1)
        return state, np.concatenate([np.asarray(found)[:count] for found, count in losses])

    def _require_finite(
        self, losses: Float[np.ndarray, " steps"], epoch: int, first: int, num: int
    ) -> None:
        if np.isfinite(losses).all():
            return
        place = int(np.argmin(np.isfinite(losses)))
        batch = first + place + 1
        raise TrainingDivergedError(
            f"the loss is {losses[place]} at step {epoch * num + batch} (epoch {epoch + 1}, batch "
            f"{batch} of {num}); lower the learning rate ({self.recipe.learning_rate})"
        )

    def steps(self, num_examples: int) -> int:
        """Steps of an epoch.

        Raises:
          ValueError: the examples do not fill a batch.
        """
        if num_examples < self.recipe.batch_size:
            raise ValueError(
                f"batch_size={self.recipe.batch_size} is larger than the {num_examples} training "
                "examples; lower it"
            )
        return num_examples // self.recipe.batch_size

    def _optimizer(self, num_examples: int) -> optax.GradientTransformation:
        return self.recipe.build(self.steps(num_examples), self.epochs)


@functools.partial(jax.jit, static_argnums=0)
def _init(model: nn.Module, key: PRNGKeyArray, x: Array) -> dict[str, Any]:
    return dict(model.init(key, x))


def fit(
    trainer: Trainer,
    x: Shaped[Array | np.ndarray, "n ..."],
    y: Int[Array | np.ndarray, " n"],
    *,
    key: PRNGKeyArray,
    checkpoints: Checkpoints,
    evaluate: Callable[[int, TrainState], None],
    every: int,
    evaluated: Collection[int] = (),
    on_epoch: Callable[[int, float], None] = lambda epoch, loss: None,
    on_damage: Callable[[str], None] = warnings.warn,
    mesh: Mesh | None = None,
) -> TrainState:
    """Trains to the last epoch; epochs of which there is a checkpoint are read, not computed.

    Args:
      trainer: model and recipe.
      x: training inputs, the same on every process.
      y: labels.
      key: decides initial weights, order and dropout.
      checkpoints: where states are kept, and below it, those in the middle of an epoch.
      evaluate: `evaluate(epoch, state)` before the first epoch, every `every` epochs and after the
        last. The state it sees is saved before it is called: killed during a long measurement,
        training need not be repeated. It is on one device of this process.
      every: epochs between two evaluations.
      evaluated: epochs that were evaluated before; their states are neither read nor computed
        unless another epoch needs them.
      on_epoch: called with (epoch, mean loss) after every epoch; the mean is over those of its
        steps that were not done before the process was started.
      on_damage: called with one line for a checkpoint that cannot be read; the one before it is
        taken, and what is missing is trained again.
      mesh: the devices that share each batch; default all, of all processes.

    Returns:
      The state after the last epoch, on one device of this process.
    """
    mesh = runtime.global_mesh() if mesh is None else mesh
    init_key, train_key = jax.random.split(key)
    state, done = trainer.init(x, init_key), 0
    x, y = _placed(x, y, mesh)
    num, pace, losses = trainer.steps(len(x)), Pace(), list[np.ndarray]()
    saved = time.monotonic()
    due = {*range(0, trainer.epochs, every), trainer.epochs}
    with PartialEpochs(checkpoints, num) as partial:
        for target in sorted(due - set(evaluated) | {trainer.epochs}):
            local = runtime.on_this_process(state)
            local, done = partial.newest(local, done, target * num, on_damage)
            state = runtime.replicated(local, mesh)
            while done < target * num:
                epoch, first = divmod(done, num)
                stop = min(first + pace.num_steps, num)
                started = time.monotonic()
                state, found = trainer.advance(state, x, y, train_key, first, stop)
                pace.took(stop - first, time.monotonic() - started)
                done += stop - first
                losses.append(found)
                if stop == num:
                    on_epoch(epoch + 1, float(np.concatenate(losses).mean()))
                    losses.clear()
                waited = runtime.largest_of_hosts(time.monotonic() - saved)
                is_due = done % num == 0 and done // num in due
                if is_due or waited > SECONDS_BETWEEN_CHECKPOINTS:
                    partial.save(done, runtime.on_this_process(state))
                    saved = time.monotonic()
            if target not in evaluated:
                evaluate(target, runtime.on_this_process(state))
    return runtime.on_this_process(state)


def _placed(x: Any, y: Any, mesh: Mesh) -> tuple[Any, Any]:
    """The training set on every device, or as NumPy arrays if it would take too much of one."""
    if x.nbytes > _RESIDENT_SHARE * runtime.device_bytes(mesh):
        return np.asarray(x), np.asarray(y)
    if mesh.size == 1:
        return jnp.asarray(x), jnp.asarray(y)
    return runtime.replicated((x, y), mesh)
