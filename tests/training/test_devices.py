"""Training on several devices: the same training, cut over devices and calls in any way."""

import json
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens.core import runtime
from jaxsens.training import lanes as many
from jaxsens.training import pace, trainer
from jaxsens.training.bucketed import BucketTrainer
from jaxsens.training.checkpoints import Checkpoints, training_identity
from jaxsens.training.trainer import Recipe, Trainer, correct, fit

KEY = jax.random.key(7)
_random = np.random.default_rng(0)
X = _random.normal(size=(23, 4)).astype(np.float32)
Y = _random.integers(0, 2, 23).astype(np.int32)


class Normed(nn.Module):
    """Dropout, which draws, and batch norm, which needs the whole batch."""

    @nn.compact
    def __call__(self, x, *, train=False):
        x = nn.Dropout(0.3)(nn.Dense(8)(x), deterministic=not train)
        return nn.Dense(2)(nn.BatchNorm(use_running_average=not train, momentum=0.9)(x))


#: Five examples: no number of devices beyond one divides them.
TRAINER = Trainer(Normed(), Recipe("sgd", 0.05, batch_size=5, schedule="cosine"), epochs=2)


def mesh_of(num):
    return runtime.local_mesh(jax.devices()[:num])


def trained(num_devices, *, epochs=2, cuts=(4,), trainer=TRAINER, x=X, streamed=False):
    """State and losses after some epochs on so many devices, each cut after these steps."""
    mesh = mesh_of(num_devices)
    state = runtime.replicated(trainer.init(x, jax.random.key(0)), mesh)
    data = (x, Y) if streamed else runtime.replicated((jnp.asarray(x), jnp.asarray(Y)), mesh)
    losses = []
    for _ in range(epochs):
        for first, stop in zip((0, *cuts), cuts, strict=False):
            state, found = trainer.advance(state, *data, KEY, first, stop)
            losses.append(found)
    assert len(state.epoch.sharding.device_set) == num_devices
    return jax.device_get(state), np.concatenate(losses)


def assert_same_bits(tree, expected):
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(tree), jax.device_get(expected))


def assert_close(tree, expected):
    def close(one, other):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)

    jax.tree.map(close, tree, expected)


# --- The same training ----------------------------------------------------------------------------


@pytest.mark.parametrize("num_devices", [2, 8])
def test_any_number_of_devices_gives_the_same_training(num_devices):
    state, losses = trained(num_devices)
    expected, expected_losses = trained(1)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    assert_close(state, expected)


class Masked(nn.Module):
    @nn.compact
    def __call__(self, x, *, train=False):
        w = self.param("w", nn.initializers.zeros, x.shape[-1:])
        return nn.Dropout(0.5)(x, deterministic=not train) @ w


def test_dropout_masks_do_not_depend_on_the_number_of_devices():
    """Sums of small whole numbers are exact, so masks of other examples would show."""

    def loss(logits_fn, x, y, key):
        return jnp.sum(logits_fn(x, key))

    masked = Trainer(Masked(), Recipe("sgd", 1.0, batch_size=5), epochs=1, objective=loss)
    x = np.round(4 * X)
    weights = [trained(num, epochs=1, trainer=masked, x=x)[0].variables for num in (1, 4)]
    assert np.abs(weights[0]["params"]["w"]).max() > 0
    assert_same_bits(*weights)


@pytest.mark.parametrize("num_devices", [1, 8])
def test_where_an_epoch_is_cut_changes_no_bit(num_devices):
    state, losses = trained(num_devices, cuts=(4,))
    for cuts in ((1, 2, 3, 4), (3, 4)):
        other, other_losses = trained(num_devices, cuts=cuts)
        assert_same_bits(other, state)
        np.testing.assert_array_equal(other_losses, losses)


@pytest.mark.parametrize("num_devices", [1, 8])
def test_data_that_stays_on_the_host_gives_the_same_training(num_devices, monkeypatch):
    expected, losses = trained(num_devices, epochs=1)
    # Three batches at a time, so that the last call is not full.
    monkeypatch.setattr(trainer, "BYTES_SENT", 3 * 5 * 16 // num_devices)
    state, other = trained(num_devices, epochs=1, streamed=True)
    np.testing.assert_array_equal(other, losses)
    assert_same_bits(state, expected)


class Bag(nn.Module):
    @nn.compact
    def __call__(self, tokens, *, train=False):
        known = (tokens != 0)[..., None].astype(jnp.float32)
        return nn.Dense(2)((nn.Embed(9, 4)(tokens) * known).sum(axis=1))


def test_texts_on_several_devices_and_from_the_host():
    lengths, tokens = _random.integers(2, 7, (23, 1)), _random.integers(1, 9, (23, 6))
    texts = np.where(np.arange(6) < lengths, tokens, 0).astype(np.int32)
    bags = BucketTrainer(Bag(), Recipe("sgd", 0.1, batch_size=5), epochs=1, lengths=(3, 6))
    expected, losses = trained(1, epochs=1, trainer=bags, x=texts, cuts=(1, 4))
    for streamed in (False, True):
        state, other = trained(8, epochs=1, trainer=bags, x=texts, streamed=streamed)
        np.testing.assert_allclose(other, losses, rtol=1e-5)
        assert_close(state, expected)


def test_accuracy_is_shared_by_all_devices():
    seen = []

    def apply_fn(variables, x):
        seen.append(x.shape)
        return x * variables["scale"]

    right = correct(apply_fn, {"scale": jnp.ones((1, 4))}, X, np.argmax(X, axis=1), batch_size=5)
    assert right.all()
    assert seen == [(5, 4)]


# --- Stopped in the middle of an epoch ------------------------------------------------------------


class Killed(Exception):
    pass


def fitted(folder, mesh, *, stop_after=None):
    """The final state of `fit`, which is killed after so many calls; and the epochs evaluated."""
    calls, evaluated = [], []

    class Counted(Trainer):
        def advance(self, *arguments):
            if len(calls) == stop_after:
                raise Killed
            calls.append(arguments[-2:])
            return super().advance(*arguments)

    counted = Counted(TRAINER.model, TRAINER.recipe, TRAINER.epochs)
    with Checkpoints(folder, 1, training_identity(TRAINER, KEY)) as checkpoints:
        state = fit(
            *(counted, X, Y),
            key=KEY,
            checkpoints=checkpoints,
            evaluate=lambda epoch, state: evaluated.append(epoch),
            every=1,
            mesh=mesh,
            on_damage=lambda line: None,
        )
    return jax.device_get(state), evaluated, calls


@pytest.mark.parametrize("num_devices", [1, 4])
def test_killed_in_the_middle_of_an_epoch_it_goes_on_there(tmp_path, monkeypatch, num_devices):
    mesh = mesh_of(num_devices)
    whole, _, _ = fitted(tmp_path / "whole", mesh)
    # A call a step, and a checkpoint after every call.
    monkeypatch.setattr(pace, "SECONDS_PER_CALL", 0.0)
    monkeypatch.setattr(trainer, "SECONDS_BETWEEN_CHECKPOINTS", -1.0)
    folder = tmp_path / "run"
    with pytest.raises(Killed):
        fitted(folder, mesh, stop_after=6)
    assert sorted(p.name for p in (folder / "steps").iterdir()) == ["5", "6"]
    files = [path for path in (folder / "steps" / "6").rglob("*") if path.is_file()]
    max(files, key=lambda path: path.stat().st_size).write_bytes(b"")
    state, evaluated, calls = fitted(folder, mesh)
    assert calls == [(1, 2), (2, 3), (3, 4)]
    assert evaluated == [0, 1, 2]
    assert_same_bits(state, whole)
    assert not [*(folder / "steps").iterdir()]


def test_a_short_epoch_is_one_call(tmp_path):
    _, _, calls = fitted(tmp_path, mesh_of(1))
    assert calls[-1] == (0, 4)


# --- Many seeds -----------------------------------------------------------------------------------


def test_lanes_are_split_over_devices_to_the_same_bits():
    lanes = {"start": jnp.linspace(0.0, 1.0, 7), "key": jax.random.split(KEY, 7)}

    def function(lanes, scale):
        noise = jax.vmap(lambda key: jax.random.normal(key, (5,)))(lanes["key"])
        return {"sum": jnp.sin(noise * lanes["start"][:, None] * scale).sum(axis=1)}

    function, scale = jax.jit(function), (np.float32(1.5),)
    expected = many.by_blocks(function, (lanes,), 2, scale, mesh_of(1))
    for num_devices in (2, 3, 8):
        found = many.by_blocks(function, (lanes,), 2, scale, mesh_of(num_devices))
        assert_same_bits(found, expected)
        assert len(found["sum"].sharding.device_set) == 1
    alone = many.by_blocks(function, (lanes,), None, scale, mesh_of(4))
    np.testing.assert_allclose(alone["sum"], expected["sum"], rtol=1e-6)


# --- Two processes --------------------------------------------------------------------------------

PROGRAM = """
import json, sys, tempfile
import jax

index, port, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]
sys.path.append(sys.argv[4])
jax.distributed.initialize(f"127.0.0.1:{port}", 2, index, initialization_timeout=60)

import numpy as np
from jaxsens.training import trainer
from jaxsens.training.trainer import accuracy, fit
import test_devices as t


class Kept:
    # Stands for checkpoints, which only the first process may write.
    saved = []
    def epochs(self): return []
    def has(self, name): return False
    def save(self, epoch, tree): self.saved.append((epoch, jax.device_get(tree)))


def results(share):
    trainer._RESIDENT_SHARE = share
    options = {"checkpoints": Kept(), "evaluate": lambda *_: None, "every": 1}
    state = fit(t.TRAINER, t.X, t.Y, key=t.KEY, **options)
    hits = accuracy(t.TRAINER.model.apply, state.variables, t.X, t.Y, batch_size=5)
    return [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(state)], hits


lanes = {"start": np.linspace(0.0, 1.0, 7, dtype=np.float32)}
found = t.many.by_blocks(jax.jit(lambda lanes: np.float32(2) * lanes["start"]), (lanes,), 2)
made = {"resident": results(0.25), "streamed": results(0.0), "lanes": np.asarray(found).tolist(),
        "devices": jax.device_count(), "saved": [epoch for epoch, _ in Kept.saved]}
with open(out, "w") as file:
    json.dump(made, file)
"""


@pytest.mark.slow
def test_two_processes_train_as_one(forks, tmp_path):
    program, port = tmp_path / "program.py", forks.free_port()
    program.write_text(PROGRAM)
    outs = [tmp_path / f"{index}.json" for index in range(2)]
    forks.run_together(
        [(program, index, port, out, Path(__file__).parent) for index, out in enumerate(outs)],
        num_devices=2,
        timeout=240,
    )
    first, second = (json.loads(out.read_text()) for out in outs)
    assert first == second
    assert (first["devices"], first["saved"]) == (4, [1, 2, 1, 2])
    with Checkpoints(tmp_path / "alone") as checkpoints:
        state = fit(
            *(TRAINER, X, Y),
            key=KEY,
            checkpoints=checkpoints,
            evaluate=lambda *_: None,
            every=2,
            mesh=mesh_of(4),
        )
    expected = [np.asarray(leaf) for leaf in jax.tree.leaves(state)]
    for each in ("resident", "streamed"):
        assert_close([np.array(leaf) for leaf in first[each][0]], expected)
    np.testing.assert_allclose(first["lanes"], np.linspace(0, 2, 7), rtol=1e-6)
