"""Training with optax: an epoch is one scanned, jitted call on data that stays on the device.

Epoch e splits fold_in(key, e) in two: one key shuffles, the other, folded with t, gives step t its
dropout masks. So training stopped after any epoch and continued from its state gives the same bits
as training that was never stopped.

Assumption: the data fits on the device. The last, incomplete batch of an epoch is left out; the
shuffle leaves out other examples every epoch.
"""

import dataclasses
import functools
import time
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from jaxsens.core import hosts
from jaxsens.training.checkpoints import Checkpoints, DamagedCheckpointError
from jaxsens.training.objectives import Objective, cross_entropy

#: An epoch that took longer than this is saved even when no evaluation is due.
SECONDS_BETWEEN_CHECKPOINTS = 30.0


class TrainingDivergedError(FloatingPointError):
    """The loss stopped being finite."""


@dataclass(frozen=True)
class Recipe:
    """How to train: optimiser, learning rate and its schedule.

    Attributes:
      optimizer: plain SGD (no momentum), Adam or AdamW.
      learning_rate: the initial one.
      batch_size: examples per step.
      schedule: "constant"; "step" multiplies by `decay` every `decay_epochs` epochs; "cosine" falls
        to 0 at the last epoch.
      decay: factor of "step".
      decay_epochs: epochs between two steps of "step".
      weight_decay: AdamW's.
      frozen: entries of the parameters' outer dictionary that are not trained.
    """

    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    learning_rate: float = 0.1
    batch_size: int = 100
    schedule: Literal["constant", "step", "cosine"] = "constant"
    decay: float = 0.5
    decay_epochs: int = 8
    weight_decay: float = 1e-4
    frozen: tuple[str, ...] = ()

    def build(self, steps_per_epoch: int, epochs: int) -> optax.GradientTransformation:
        """The optax optimiser."""
        trained = self._build_trained(self.rate(steps_per_epoch, epochs))
        if not self.frozen:
            return trained

        def labels(params):
            return {name: "frozen" if name in self.frozen else "trained" for name in params}

        return optax.multi_transform({"trained": trained, "frozen": optax.set_to_zero()}, labels)

    def _build_trained(self, rate: optax.Schedule) -> optax.GradientTransformation:
        if self.optimizer == "sgd":
            return optax.sgd(rate)
        if self.optimizer == "adam":
            return optax.adam(rate)
        if self.optimizer == "adamw":
            return optax.adamw(rate, weight_decay=self.weight_decay)
        raise ValueError(f"optimizer must be sgd, adam or adamw; got {self.optimizer!r}")

    def rate(self, steps_per_epoch: int, epochs: int) -> optax.Schedule:
        """The learning rate at each step.

        >>> rate = Recipe("adam", 0.002, schedule="step").rate(steps_per_epoch=10, epochs=20)
        >>> [round(float(rate(epoch * 10)), 7) for epoch in (0, 7, 8, 16)]
        [0.002, 0.002, 0.001, 0.0005]
        """
        if self.schedule == "constant":
            return optax.constant_schedule(self.learning_rate)
        if self.schedule == "step":
            every = self.decay_epochs * steps_per_epoch
            return optax.exponential_decay(self.learning_rate, every, self.decay, staircase=True)
        if self.schedule == "cosine":
            return optax.cosine_decay_schedule(self.learning_rate, steps_per_epoch * epochs)
        raise ValueError(f"schedule must be constant, step or cosine; got {self.schedule!r}")


@flax.struct.dataclass
class TrainState:
    """All that training needs to go on.

    Attributes:
      variables: what `model.apply` takes: "params" and, if the model has them, running statistics.
      opt_state: the optimiser's state.
      epoch: epochs done, an int32 scalar.
    """

    # Untyped, because as a tree it also holds NumPy arrays (saved) or shapes (templates).
    variables: dict[str, Any]
    opt_state: Any
    epoch: Any


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
        self, state: TrainState, x: Shaped[Array, "n ..."], y: Int[Array, " n"], key: PRNGKeyArray
    ) -> tuple[TrainState, float]:
        """One pass over the data in a new random order.

        Args:
          state: the state after the epoch before; its memory is reused, so it is gone afterwards.
          x: all examples.
          y: their labels.
          key: the same for every epoch.

        Returns:
          The new state and the mean training loss of the epoch.

        Raises:
          TrainingDivergedError: the loss is not finite; names the step.
        """
        self._steps(len(x))
        state, losses = _train_epoch(self, state, x, y, key)
        return state, self._mean_loss(np.asarray(losses), int(state.epoch))

    def _mean_loss(self, losses: Float[np.ndarray, " steps"], epoch: int) -> float:
        if np.isfinite(losses).all():
            return float(losses.mean())
        steps, batch = len(losses), int(np.argmin(np.isfinite(losses)))
        raise TrainingDivergedError(
            f"the loss is {losses[batch]} at step {(epoch - 1) * steps + batch + 1} (epoch "
            f"{epoch}, batch {batch + 1} of {steps}); lower the learning rate "
            f"({self.recipe.learning_rate})"
        )

    def _steps(self, num_examples: int) -> int:
        if num_examples < self.recipe.batch_size:
            raise ValueError(
                f"batch_size={self.recipe.batch_size} is larger than the {num_examples} training "
                "examples; lower it"
            )
        return num_examples // self.recipe.batch_size

    def _optimizer(self, num_examples: int) -> optax.GradientTransformation:
        return self.recipe.build(self._steps(num_examples), self.epochs)


@functools.partial(jax.jit, static_argnums=0)
def _init(model: nn.Module, key: PRNGKeyArray, x: Array) -> dict[str, Any]:
    return dict(model.init(key, x))


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def _train_epoch(
    trainer: Trainer, state: TrainState, x: Array, y: Array, key: PRNGKeyArray
) -> tuple[TrainState, Float[Array, " steps"]]:
    n, size = x.shape[0], trainer.recipe.batch_size
    order_key, steps_key = jax.random.split(jax.random.fold_in(key, state.epoch))
    order = jax.random.permutation(order_key, n)[: n // size * size].reshape(-1, size)

    def one(state, batch):
        index, rows = batch
        return step(trainer, n, state, x[rows], y[rows], jax.random.fold_in(steps_key, index))

    state, losses = jax.lax.scan(one, state, (jnp.arange(len(order)), order))
    return dataclasses.replace(state, epoch=state.epoch + 1), losses


def step(
    trainer: Trainer,
    num_examples: int,
    state: TrainState,
    x: Shaped[Array, "b ..."],
    y: Int[Array, " b"],
    key: PRNGKeyArray,
) -> tuple[TrainState, Float[Array, ""]]:
    """One step on one batch: the new state, of the same epoch, and the loss before it.

    Args:
      trainer: model and recipe.
      num_examples: n of the whole training set, from which schedules count epochs.
      state: the state before.
      x: the batch.
      y: its labels.
      key: for dropout and the objective's own noise.
    """

    def loss_fn(params, statistics):
        def logits_fn(x, key):
            nonlocal statistics
            logits, statistics = trainer.model.apply(
                {"params": params, **statistics},
                x,
                train=True,
                rngs={"dropout": key},
                mutable=list(statistics),
            )
            return logits

        return trainer.objective(logits_fn, x, y, key), statistics

    params = state.variables["params"]
    statistics = {name: value for name, value in state.variables.items() if name != "params"}
    (loss, statistics), grads = jax.value_and_grad(loss_fn, has_aux=True)(params, statistics)
    # optax's Adam raises a float to an integer power, which strict promotion refuses.
    with jax.numpy_dtype_promotion("standard"):
        updates, opt_state = trainer._optimizer(num_examples).update(grads, state.opt_state, params)
    params = optax.apply_updates(params, updates)
    return TrainState({"params": params, **statistics}, opt_state, state.epoch), loss


def correct(
    apply_fn: Callable[[Any, Array], Any],
    variables: Any,
    x: Shaped[Array | np.ndarray, "n ..."],
    y: Int[Array | np.ndarray, " n"],
    *,
    batch_size: int = 500,
) -> Bool[np.ndarray, " n"]:
    """For each example whether its argmax is the label, in eval mode.

    >>> correct(lambda _, x: x, (), jnp.eye(3), jnp.array([0, 1, 1]))
    array([ True,  True, False])
    """
    hits = np.zeros(len(x), bool)
    for start in range(0, len(x), batch_size):
        # The last batch is filled up with its last example: one shape, so one compilation.
        rows = np.minimum(np.arange(start, start + batch_size), len(x) - 1)
        hits[rows] = np.asarray(_hits(apply_fn, variables, x[rows], y[rows]))
    return hits


def accuracy(
    apply_fn: Callable[[Any, Array], Any],
    variables: Any,
    x: Shaped[Array | np.ndarray, "n ..."],
    y: Int[Array | np.ndarray, " n"],
    *,
    batch_size: int = 500,
) -> float:
    """Share of examples whose argmax is the label, in eval mode.

    >>> accuracy(lambda _, x: x, (), jnp.eye(3), jnp.array([0, 1, 1]))
    0.6666666666666666
    """
    return float(correct(apply_fn, variables, x, y, batch_size=batch_size).mean())


@functools.partial(jax.jit, static_argnums=0)
def _hits(apply_fn, variables, x, y):
    return jnp.argmax(apply_fn(variables, x), axis=-1) == y


def fit(
    trainer: Trainer,
    x: Shaped[Array, "n ..."],
    y: Int[Array, " n"],
    *,
    key: PRNGKeyArray,
    checkpoints: Checkpoints,
    evaluate: Callable[[int, TrainState], None],
    every: int,
    evaluated: Collection[int] = (),
    on_epoch: Callable[[int, float], None] = lambda epoch, loss: None,
    on_damage: Callable[[str], None] = warnings.warn,
) -> TrainState:
    """Trains to the last epoch; epochs of which there is a checkpoint are read, not computed.

    Args:
      trainer: model and recipe.
      x: training inputs, on the device.
      y: labels.
      key: decides initial weights, order and dropout.
      checkpoints: where states are kept.
      evaluate: `evaluate(epoch, state)` before the first epoch, every `every` epochs and after the
        last. The state it sees is saved before it is called: killed during a long measurement,
        training need not be repeated.
      every: epochs between two evaluations.
      evaluated: epochs that were evaluated before; their states are neither read nor computed
        unless another epoch needs them.
      on_epoch: called with (epoch, mean loss) after every epoch.
      on_damage: called with one line for a checkpoint that cannot be read; the one before it is
        taken, and what is missing is trained again.

    Returns:
      The state after the last epoch.
    """
    init_key, train_key = jax.random.split(key)
    state = trainer.init(x, init_key)
    saved = time.monotonic()
    due = {*range(0, trainer.epochs, every), trainer.epochs}
    for target in sorted(due - set(evaluated) | {trainer.epochs}):
        state = _newest(checkpoints, state, target, on_damage)
        while (epoch := int(state.epoch)) < target:
            state, loss = trainer.epoch(state, x, y, train_key)
            on_epoch(epoch + 1, loss)
            is_late = hosts.agreed(time.monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS)
            if epoch + 1 in due or is_late:
                checkpoints.save(epoch + 1, state)
                saved = time.monotonic()
        if target not in evaluated:
            evaluate(target, state)
    return state


def _newest(
    checkpoints: Checkpoints, state: TrainState, target: int, on_damage: Callable[[str], None]
) -> TrainState:
    """The readable checkpoint nearest before or at `target`; `state` if that is as far."""
    while later := [e for e in checkpoints.epochs() if int(state.epoch) < e <= target]:
        try:
            found = checkpoints.restore(later[-1], like=state)
            # A folder under another number would be taken again and again.
            if int(found.epoch) == later[-1]:
                return found
            checkpoints.reject(later[-1], f"it holds epoch {int(found.epoch)}")
        except DamagedCheckpointError as error:
            on_damage(f"{error}; the one before it is taken")
    return state
