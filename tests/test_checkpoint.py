"""Checkpoints: exact round trips, the newest wins, a save that was cut off does not count."""

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
    assert checkpoints.restore(like=state(0)) is None


def test_the_newest_comes_back_exactly(checkpoints):
    for epoch in (1, 2, 10):
        checkpoints.save(epoch, state(epoch))
    restored = checkpoints.restore(like=state(0))
    jax.tree.map(np.testing.assert_array_equal, restored, state(10))


def test_two_are_kept(checkpoints, tmp_path):
    for epoch in range(1, 5):
        checkpoints.save(epoch, state(epoch))
    assert sorted(p.name for p in (tmp_path / "a" / "b").iterdir() if p.is_dir()) == ["3", "4"]


def test_saving_an_epoch_again_changes_nothing(checkpoints):
    checkpoints.save(1, state(1))
    checkpoints.save(1, state(2))
    jax.tree.map(np.testing.assert_array_equal, checkpoints.restore(like=state(0)), state(1))


def test_a_save_that_was_cut_off_does_not_count(tmp_path):
    first = Checkpoints(tmp_path)
    first.save(1, state(1))
    first.close()
    # What orbax leaves when killed between writing and renaming.
    (tmp_path / "2.orbax-checkpoint-tmp" / "default").mkdir(parents=True)
    second = Checkpoints(tmp_path)
    jax.tree.map(np.testing.assert_array_equal, second.restore(like=state(0)), state(1))
    second.save(2, state(2))
    jax.tree.map(np.testing.assert_array_equal, second.restore(like=state(0)), state(2))
    second.close()
