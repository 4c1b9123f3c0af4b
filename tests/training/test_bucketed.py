"""Training in buckets: every sequence once per epoch, the same step as without buckets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens.models import LSTM
from jaxsens.text.tokenization import PAD_ID
from jaxsens.training.bucketed import BucketTrainer
from jaxsens.training.trainer import Recipe, Trainer

KEY = jax.random.key(3)
RNG = np.random.default_rng(1)
USED = RNG.integers(1, 17, 50)
Y = jnp.asarray(RNG.integers(0, 2, 50), jnp.int32)
X = RNG.integers(4, 20, (50, 16)).astype(np.int32)
X[np.arange(16) >= USED[:, None]] = PAD_ID
MODEL = LSTM(20, width=8, depth=2, dropout=0.0)


def test_an_epoch_has_every_sequence_once_in_a_bucket_that_holds_it():
    trainer = BucketTrainer(MODEL, Recipe("sgd", 0.1, batch_size=8), 1, lengths=(4, 8, 16))
    batches = trainer.batches(USED, np.random.default_rng(0))
    rows = np.concatenate([rows for rows, _ in batches])
    assert len(batches) == 50 // 8
    assert len(np.unique(rows)) == len(rows) == 48
    assert all(USED[rows].max() <= length for rows, length in batches)
    assert {length for _, length in batches} == {4, 8, 16}
    # What is left out is of the longest bucket.
    assert USED[np.setdiff1d(np.arange(50), rows)].min() > 8


def test_another_epoch_has_another_order():
    trainer = BucketTrainer(MODEL, Recipe("sgd", 0.1, batch_size=8), 1, lengths=(4, 8, 16))
    first, second = (trainer.batches(USED, np.random.default_rng(seed)) for seed in (0, 1))
    assert any(not np.array_equal(a, b) for (a, _), (b, _) in zip(first, second, strict=True))


def test_one_batch_of_everything_is_the_step_without_buckets():
    recipe = Recipe("sgd", 0.5, batch_size=50)
    plain, bucketed = Trainer(MODEL, recipe, 1), BucketTrainer(MODEL, recipe, 1, lengths=(4, 16))
    ends = []
    for trainer in (plain, bucketed):
        state, loss = trainer.epoch(trainer.init(X, KEY), jnp.asarray(X), Y, KEY)
        assert int(state.epoch) == 1
        ends.append((state.variables, loss))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), *ends)


def test_short_batches_are_cut_and_give_the_same_as_padded_ones():
    recipe = Recipe("sgd", 0.5, batch_size=10)
    ends = []
    for lengths in ((16,), (2, 4, 16)):
        trainer = BucketTrainer(MODEL, recipe, 1, lengths=lengths)
        x = jnp.asarray(np.where(np.arange(16) < np.minimum(USED, 2)[:, None], X, PAD_ID))
        state, _ = trainer.epoch(trainer.init(x, KEY), x, Y, KEY)
        ends.append(state.variables)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), *ends)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_frozen_parameters_stay(optimizer):
    recipe = Recipe(optimizer, 0.1, batch_size=10, frozen=("words", "norm", "head"))
    trainer = BucketTrainer(MODEL, recipe, 1)
    before = jax.device_get(trainer.init(X, KEY).variables["params"])
    after = trainer.epoch(trainer.init(X, KEY), jnp.asarray(X), Y, KEY)[0].variables["params"]
    for name in before:
        same = jax.tree.map(lambda a, b: np.array_equal(a, b), before[name], after[name])
        assert all(jax.tree.leaves(same)) == (name in recipe.frozen), name
