"""Checkpoints: exact round trips, old ones go, a save that was cut off does not count."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens.checkpoint import Checkpoints


@pytest.fixture
def checkpoints(tmp_path):
    opened = Checkpoints(tmp_path / "a" / "b")
    yield opened
    opened.close()


def state(seed: int) -> dict:
    key = jax.random.key(seed)
    return {
        "w": jax.random.normal(key, (3, 4)),
        "step": jnp.asarray(seed),
        "nested": {"b": jnp.ones(2)},
    }


def test_there_is_nothing_to_restore_at_first(checkpoints):
    assert checkpoints.epochs() == []


def test_each_comes_back_exactly(checkpoints):
    for epoch in (1, 2, 10):
        checkpoints.save(epoch, state(epoch))
    assert checkpoints.epochs() == [2, 10]
    for epoch in (2, 10):
        restored = checkpoints.restore(epoch, like=state(0))
        jax.tree.map(np.testing.assert_array_equal, restored, state(epoch))


def test_two_are_kept(checkpoints, tmp_path):
    for epoch in range(1, 5):
        checkpoints.save(epoch, state(epoch))
    assert sorted(p.name for p in (tmp_path / "a" / "b").iterdir() if p.is_dir()) == ["3", "4"]


def test_multiples_of_a_period_are_kept_too(tmp_path):
    checkpoints = Checkpoints(tmp_path, every=3)
    for epoch in range(1, 9):
        checkpoints.save(epoch, state(epoch))
    assert checkpoints.epochs() == [3, 6, 7, 8]
    checkpoints.close()


def test_saving_an_epoch_again_changes_nothing(checkpoints):
    checkpoints.save(1, state(1))
    checkpoints.save(1, state(2))
    jax.tree.map(np.testing.assert_array_equal, checkpoints.restore(1, like=state(0)), state(1))


def test_a_save_that_was_cut_off_does_not_count(tmp_path):
    first = Checkpoints(tmp_path)
    first.save(1, state(1))
    first.close()
    # What orbax leaves when killed between writing and renaming.
    (tmp_path / "2.orbax-checkpoint-tmp" / "default").mkdir(parents=True)
    second = Checkpoints(tmp_path)
    jax.tree.map(np.testing.assert_array_equal, second.restore(1, like=state(0)), state(1))
    second.save(2, state(2))
    jax.tree.map(np.testing.assert_array_equal, second.restore(2, like=state(0)), state(2))
    second.close()
