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
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxsens.text.buckets import LENGTHS
from jaxsens.text.special_ids import PAD_ID
from jaxsens.training.trainer import Trainer, TrainState, step


@dataclass(frozen=True)
class BucketTrainer(Trainer):
    """A `Trainer` on padded token ids (n, T); `lengths` are those of the buckets."""

    lengths: tuple[int, ...] = LENGTHS

    def epoch(
        self, state: TrainState, x: Int[Array, "n T"], y: Int[Array, " n"], key: PRNGKeyArray
    ) -> tuple[TrainState, float]:
        """One pass over the sequences; see `Trainer.epoch`."""
        self._steps(len(x))
        epoch_key = jax.random.fold_in(key, state.epoch)
        order_key, steps_key = jax.random.split(epoch_key)
        used = (np.asarray(x) != PAD_ID).sum(axis=1)
        rng = np.random.default_rng(np.asarray(jax.random.key_data(order_key)))
        losses = []
        for index, (rows, length) in enumerate(self.batches(used, rng)):
            step_key = jax.random.fold_in(steps_key, index)
            state, loss = _train_step(self, min(length, x.shape[1]), state, x, y, rows, step_key)
            losses.append(loss)
        state = dataclasses.replace(state, epoch=state.epoch + 1)
        return state, self._mean_loss(np.asarray(jax.device_get(losses)), int(state.epoch))

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


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def _train_step(
    trainer: BucketTrainer,
    length: int,
    state: TrainState,
    x: Int[Array, "n T"],
    y: Int[Array, " n"],
    rows: Int[Array, " b"],
    key: PRNGKeyArray,
) -> tuple[TrainState, Float[Array, ""]]:
    rows = jnp.asarray(rows)
    return step(trainer, x.shape[0], state, x[rows, :length], y[rows], key)
