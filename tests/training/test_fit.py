"""Training goes on from any set of good, damaged and foreign checkpoints, to the same bits."""

import itertools
import shutil

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from jaxsens.training.checkpoints import Checkpoints, OtherTrainingError, training_identity
from jaxsens.training.trainer import Recipe, Trainer, fit

KEY = jax.random.key(3)
_random = np.random.default_rng(0)
X = jnp.asarray(_random.normal(size=(8, 3)), jnp.float32)
Y = jnp.asarray(_random.integers(0, 2, 8), jnp.int32)


class Linear(nn.Module):
    @nn.compact
    def __call__(self, x, *, train=False):
        return nn.Dense(2)(x)


TRAINER = Trainer(Linear(), Recipe("adam", 0.05, batch_size=4), epochs=4)


def resumed(folder, evaluated=(), trainer=TRAINER, key=KEY):
    """The final weights, the epochs evaluated, trained and read, and what was said."""
    seen, trained, said = [], [], []
    checkpoints = Checkpoints(folder, 1, training_identity(trainer, key))
    restored, restore = [], checkpoints.restore
    checkpoints.restore = lambda epoch, like: restored.append(epoch) or restore(epoch, like)
    try:
        state = fit(
            *(trainer, X, Y),
            key=key,
            checkpoints=checkpoints,
            evaluate=lambda epoch, state: seen.append((epoch, int(state.epoch))),
            every=1,
            evaluated=evaluated,
            on_epoch=lambda epoch, loss: trained.append(epoch),
            on_damage=said.append,
        )
    finally:
        checkpoints.close()
    assert all(epoch == held for epoch, held in seen)
    weights = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)]
    return weights, [epoch for epoch, _ in seen], trained, restored, said


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder with all checkpoints, and the final weights."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    weights, seen, trained, restored, said = resumed(folder)
    assert (seen, trained, restored, said) == ([0, 1, 2, 3, 4], [1, 2, 3, 4], [], [])
    return folder, weights


@pytest.fixture
def run(whole, tmp_path):
    return shutil.copytree(whole[0], tmp_path / "run")


def damage(path):
    file = max((p for p in path.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def test_only_what_is_needed_is_read(run, whole):
    weights, seen, trained, restored, _ = resumed(run, evaluated=[0, 1, 2, 3, 4])
    assert (seen, trained, restored) == ([], [], [4])
    assert weights == whole[1]
    assert resumed(run, evaluated=[0, 1, 3])[1:4] == ([2, 4], [], [2, 4])


def test_any_subset_may_be_damaged(run, whole, tmp_path):
    subsets = [s for n in (1, 2, 4) for s in itertools.combinations((1, 2, 3, 4), n)]
    for subset in subsets[::3]:
        trial = shutil.copytree(run, tmp_path / f"trial{subset}")
        for epoch in subset:
            damage(trial / str(epoch))
        weights, seen, trained, _, said = resumed(trial, evaluated=[0, 2])
        assert weights == whole[1]
        assert seen == [1, 3, 4]
        assert set(trained) <= set(subset)
        assert len(said) == len(set(said))
        assert all("is damaged" in line and "\n" not in line for line in said)
        # What was damaged is there again.
        assert resumed(trial)[2:] == ([], [1, 2, 3, 4], [])


def test_a_checkpoint_under_another_number_is_not_taken_for_ever(run, whole):
    for with_checksums in (True, False):
        shutil.rmtree(run / "3")
        shutil.copytree(run / "1", run / "3")
        if not with_checksums:
            (run / "3" / "checksums.json").unlink()
        weights, _, trained, _, said = resumed(run, evaluated=[0, 1])
        assert weights == whole[1]
        assert trained == [3]
        assert len(said) == 1
        assert f"{run / '3'} is damaged: it holds epoch 1" in said[0]


def test_checkpoints_of_another_training_are_refused(run):
    others = [
        (Trainer(Linear(), Recipe("adam", 0.06, batch_size=4), epochs=4), KEY, "another model"),
        (TRAINER, jax.random.key(4), "another seed"),
    ]
    for trainer, key, what in others:
        with pytest.raises(OtherTrainingError, match=what) as error:
            resumed(run, trainer=trainer, key=key)
        assert "\n" not in str(error.value)
        assert "delete" in str(error.value)


def test_checkpoints_of_earlier_versions_are_taken(whole, tmp_path):
    """As orbax's manager wrote them, without checksums."""
    options = ocp.CheckpointManagerOptions(enable_async_checkpointing=False)
    old = tmp_path / "old"
    like = TRAINER.init(X, jax.random.split(KEY)[0])
    with Checkpoints(whole[0]) as new, ocp.CheckpointManager(old, options=options) as manager:
        for epoch in (1, 2):
            manager.save(epoch, args=ocp.args.StandardSave(new.restore(epoch, like)))
            manager.wait_until_finished()
    (old / "4.orbax-checkpoint-tmp" / "default").mkdir(parents=True)
    assert not (old / "2" / "checksums.json").exists()
    weights, seen, trained, restored, said = resumed(old, evaluated=[0, 1])
    assert (seen, trained, restored, said) == ([2, 3, 4], [3, 4], [2], [])
    assert weights == whole[1]
