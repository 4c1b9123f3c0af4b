"""Training on sequences of different lengths, in batches of similar ones.

An epoch goes through all sequences in a new random order. They are sorted into buckets by length
and cut into batches, and each batch is cut to its bucket's length. What does not fill a batch of a
short bucket joins the next longer one, so that only the last, incomplete batch of the longest is
left out. Batches come in random order. The step is compiled once per bucket.

Assumption: padding stands at the end of a sequence and never changes a prediction.
"""

import dataclasses
import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxsens.core import runtime
from jaxsens.text.buckets import LENGTHS
from jaxsens.text.special_ids import PAD_ID
from jaxsens.training.steps import TrainState, mesh_of, step, train_batches
from jaxsens.training.trainer import Trainer


@dataclass(frozen=True)
class BucketTrainer(Trainer):
    """A `Trainer` on padded token ids (n, T); `lengths` are those of the buckets.

    Example:
      >>> from jaxsens.models import LSTM
      >>> from jaxsens.training import Recipe
      >>> recipe = Recipe("adam", 0.001, batch_size=2)
      >>> trainer = BucketTrainer(LSTM(vocab_size=100), recipe, epochs=1, lengths=(4, 8))
      >>> found = trainer.batches(np.array([3, 8, 2, 5]), np.random.default_rng(0))
      >>> sorted((sorted(rows.tolist()), length) for rows, length in found)
      [([0, 2], 4), ([1, 3], 8)]
    """

    lengths: tuple[int, ...] = LENGTHS

    def advance(
        self,
        state: TrainState,
        x: Int[Array | np.ndarray, "n T"],
        y: Int[Array | np.ndarray, " n"],
        key: PRNGKeyArray,
        first: int,
        stop: int,
    ) -> tuple[TrainState, Float[np.ndarray, " steps"]]:
        """Steps first … stop - 1 of the state's epoch; see `Trainer.advance`."""
        num, epoch, mesh = self.steps(len(x)), int(state.epoch), mesh_of(state)
        order_key, steps_key = jax.random.split(jax.random.fold_in(key, np.int32(epoch)))
        used = (np.asarray(x) != PAD_ID).sum(axis=1)
        rng = np.random.default_rng(np.asarray(jax.random.key_data(order_key)))
        steps_key, losses = runtime.replicated(steps_key, mesh), []
        for index, (rows, length) in [*enumerate(self.batches(used, rng))][first:stop]:
            length = min(length, x.shape[1])
            if isinstance(x, np.ndarray):
                batches = runtime.split_rows((x[:, :length], np.asarray(y)), rows[None], mesh)
                arguments = batches, steps_key, np.int32(index), np.int32(1)
                state, loss = train_batches(self, mesh, len(x), state, *arguments)
            else:
                step_key = jax.random.fold_in(steps_key, index)
                state, loss = _train_step(self, mesh, length, state, x, y, rows, step_key)
            losses.append(loss)
        if stop == num:
            state = dataclasses.replace(state, epoch=state.epoch + 1)
        found = np.array([float(np.squeeze(loss)) for loss in jax.device_get(losses)], np.float32)
        self._require_finite(found, epoch, first, num)
        return state, found

    def batches(
        self, used: Int[np.ndarray, " n"], rng: np.random.Generator
    ) -> list[tuple[Int[np.ndarray, " b"], int]]:
        """Rows and bucket length of every batch of an epoch.

        Args:
          used: the number of real tokens of each sequence.
          rng: decides the order.
        """
        size, order = self.recipe.batch_size, rng.permutation(len(used))
        found, waiting, shorter = [], np.zeros(0, order.dtype), 0
        for length in sorted(self.lengths):
            fits = (used[order] > shorter) & (used[order] <= length)
            waiting, shorter = np.concatenate([waiting, order[fits]]), length
            full = len(waiting) // size * size
            found += [(rows, length) for rows in waiting[:full].reshape(-1, size)]
            waiting = waiting[full:]
        return [found[i] for i in rng.permutation(len(found))]


@functools.partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=3)
def _train_step(
    trainer: BucketTrainer,
    mesh: Mesh,
    length: int,
    state: TrainState,
    x: Int[Array, "n T"],
    y: Int[Array, " n"],
    rows: Int[Array, " b"],
    key: PRNGKeyArray,
) -> tuple[TrainState, Float[Array, ""]]:
    rows = jnp.asarray(rows)
    return step(trainer, x.shape[0], state, x[rows, :length], y[rows], key, mesh)
