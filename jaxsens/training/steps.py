"""Steps of training as programs: which bounds they are given changes no bit of a step.

A state on one device gives a program for one; replicated over a mesh, one that splits each batch
over it. See `jaxsens.training.trainer` for what a step is keyed by.
"""

import dataclasses
import functools
from typing import Any, cast

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from jaxsens.core import runtime


@flax.struct.dataclass
class TrainState:
    """All that training needs to go on.

    Attributes:
      variables: what `model.apply` takes: "params" and, if the model has them, running statistics.
      opt_state: the optimiser's state.
      epoch: epochs done, an int32 scalar.

    Example:
      >>> state = TrainState({"params": {"w": jnp.ones(2)}}, opt_state=(), epoch=jnp.int32(0))
      >>> len(jax.tree.leaves(state))  # w, epoch
      2
    """

    # Untyped, because as a tree it also holds NumPy arrays (saved) or shapes (templates).
    variables: dict[str, Any]
    opt_state: Any
    epoch: Any


def mesh_of(state: TrainState) -> Mesh:
    """The devices that a state is replicated over, or the one it is on."""
    sharding = getattr(state.epoch, "sharding", None)
    if isinstance(sharding, NamedSharding):
        return cast(Mesh, sharding.mesh)
    return runtime.local_mesh(jax.local_devices()[:1])


@functools.partial(jax.jit, static_argnums=(0, 1))
def order_of_epoch(
    n: int, size: int, key: PRNGKeyArray, epoch: Int[Array, ""]
) -> tuple[PRNGKeyArray, Int[Array, "steps b"]]:
    """The key of an epoch's steps, and the examples of each of its batches."""
    order_key, steps_key = jax.random.split(jax.random.fold_in(key, epoch))
    order = jax.random.permutation(order_key, n)[: n // size * size].reshape(-1, size)
    return steps_key, order


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def train_steps(
    trainer: Any,
    mesh: Mesh,
    state: TrainState,
    x: Shaped[Array, "n ..."],
    y: Int[Array, " n"],
    key: PRNGKeyArray,
    first: Int[Array, ""],
    stop: Int[Array, ""],
) -> tuple[TrainState, Float[Array, " steps"]]:
    """Steps first … stop - 1 of an epoch, with all examples on every device.

    Args:
      trainer: a `Trainer`: model and recipe.
      mesh: where the state is.
      state: the state before.
      x: all examples.
      y: their labels.
      key: the same for every epoch.
      first: the number of the first step.
      stop: that of the step after the last one.

    Returns:
      The new state, of the next epoch if `stop` is the end of this one, and the loss of each of
      these steps; 0 for the others of the epoch.
    """
    n = x.shape[0]
    steps_key, order = order_of_epoch(n, trainer.recipe.batch_size, key, state.epoch)

    def one(index: Int[Array, ""], carry: tuple) -> tuple:
        state, losses = carry
        rows = order[index]
        step_key = jax.random.fold_in(steps_key, index)
        state, loss = step(trainer, n, state, x[rows], y[rows], step_key, mesh)
        return state, losses.at[index].set(loss)

    state, losses = jax.lax.fori_loop(first, stop, one, (state, jnp.zeros(len(order))))
    ended = (stop == len(order)).astype(state.epoch.dtype)
    return dataclasses.replace(state, epoch=state.epoch + ended), losses


@functools.partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=3)
def train_batches(
    trainer: Any,
    mesh: Mesh,
    num_examples: int,
    state: TrainState,
    batches: tuple[Shaped[Array, "k m ..."], Int[Array, "k m"]],
    steps_key: PRNGKeyArray,
    first: Int[Array, ""],
    num: Int[Array, ""],
) -> tuple[TrainState, Float[Array, " k"]]:
    """The first `num` of k batches, of which the first is that of step `first` of its epoch.

    Args:
      trainer: a `Trainer`: model and recipe.
      mesh: where the state is.
      num_examples: n of the whole training set.
      state: the state before.
      batches: inputs and labels, as `runtime.split_rows` gives them.
      steps_key: of the epoch's steps.
      first: the number of the first batch's step.
      num: how many batches to take.

    Returns:
      The new state, of the same epoch, and the loss of each batch, 0 for those not taken.
    """
    size = trainer.recipe.batch_size

    def one(index: Int[Array, ""], carry: tuple) -> tuple:
        state, losses = carry
        x, y = (jax.lax.dynamic_index_in_dim(a, index, keepdims=False)[:size] for a in batches)
        step_key = jax.random.fold_in(steps_key, first + index)
        state, loss = step(trainer, num_examples, state, x, y, step_key, mesh)
        return state, losses.at[index].set(loss)

    return jax.lax.fori_loop(0, num, one, (state, jnp.zeros(len(batches[1]))))


def step(
    trainer: Any,
    num_examples: int,
    state: TrainState,
    x: Shaped[Array, "b ..."],
    y: Int[Array, " b"],
    key: PRNGKeyArray,
    mesh: Mesh | None = None,
) -> tuple[TrainState, Float[Array, ""]]:
    """One step on one batch: the new state, of the same epoch, and the loss before it.

    Args:
      trainer: a `Trainer`: model and recipe.
      num_examples: n of the whole training set, from which schedules count epochs.
      state: the state before.
      x: the batch.
      y: its labels.
      key: for dropout and the objective's own noise.
      mesh: the devices that share the batch.
    """
    x, y = runtime.constrained((x, y), mesh, runtime.SPLIT)

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
    state = TrainState({"params": params, **statistics}, opt_state, state.epoch)
    return runtime.constrained((state, loss), mesh, runtime.REPLICATED)
