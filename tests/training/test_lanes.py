"""Many trainings in one program: each lane as if it were alone, however it is cut."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxsens.training import lanes as many


@dataclass(frozen=True)
class Regression:
    """Noisy least squares: every step has examples of its own."""

    width: int = 3

    def init(self, lane):
        return {"w": jax.random.normal(lane["key"], (self.width,))}

    def optimizer(self, lane):
        return optax.adamw(lane["rate"], weight_decay=lane["decay"])

    def loss(self, params, lane, step):
        x = jax.random.normal(jax.random.fold_in(lane["key"], step), (8, self.width))
        return jnp.mean((x @ params["w"] - x.sum(axis=1)) ** 2)


def lanes_of(num):
    return {
        "key": jax.random.split(jax.random.key(0), num),
        "rate": jnp.linspace(0.01, 0.1, num),
        "decay": jnp.linspace(0.0, 0.5, num),
    }


def trained(lanes, cuts, block=None, task=Regression()):
    state, done = many.start(task, lanes), 0
    for step in cuts:
        state = many.advance(task, lanes, state, done, step - done, block)
        done = step
    return jax.device_get(state)


def assert_same(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_lane_is_a_training_by_itself():
    lanes = lanes_of(4)
    together = trained(lanes, [20])
    for i in range(4):
        lane = jax.tree.map(lambda values, i=i: values[i], lanes)
        task, optimizer = Regression(), optax.adamw(lane["rate"], weight_decay=lane["decay"])
        params = task.init(lane)
        opt_state = optimizer.init(params)
        for step in range(20):
            gradients = jax.grad(task.loss)(params, lane, jnp.int32(step))
            with jax.numpy_dtype_promotion("standard"):
                updates, opt_state = optimizer.update(gradients, opt_state, params)
            params = optax.apply_updates(params, updates)
        np.testing.assert_allclose(together.params["w"][i], params["w"], rtol=1e-5)


def test_where_training_is_cut_changes_no_bit():
    lanes = lanes_of(3)
    assert_same(trained(lanes, [20]), trained(lanes, [1, 8, 20]))


@pytest.mark.parametrize("num", [4, 5])
def test_blocks_give_every_lane_its_own_training(num):
    lanes = lanes_of(num)
    in_blocks = trained(lanes, [5, 20], block=2)
    first = jax.tree.map(lambda values: values[:2], lanes)
    assert_same(jax.tree.map(lambda values: values[:2], in_blocks), trained(first, [20]))
    np.testing.assert_allclose(in_blocks.params["w"], trained(lanes, [20]).params["w"], rtol=1e-5)


def test_a_lane_that_diverges_does_not_touch_the_others():
    lanes = lanes_of(3)
    wild = {**lanes, "rate": lanes["rate"].at[1].set(jnp.inf)}
    calm, found = trained(lanes, [10]), trained(wild, [10])
    assert not np.isfinite(found.params["w"][1]).all()
    for i in (0, 2):
        np.testing.assert_array_equal(found.params["w"][i], calm.params["w"][i])


def test_steps_and_lanes_of_all_numbers_share_a_program(compilations):
    trained(lanes_of(2), [1])
    del compilations[:]
    trained(lanes_of(2), [3, 17])
    assert not compilations


@dataclass(frozen=True)
class Shuffled(Regression):
    """The examples of an epoch are made once for its three steps."""

    steps_per_epoch: int = 3

    def of_epoch(self, lane, epoch):
        key = jax.random.fold_in(lane["key"], epoch)
        return {**lane, "x": jax.random.normal(key, (self.steps_per_epoch, 8, self.width))}

    def loss(self, params, lane, step):
        x = lane["x"][step % self.steps_per_epoch]
        return jnp.mean((x @ params["w"] - x.sum(axis=1)) ** 2)


@dataclass(frozen=True)
class ShuffledEveryStep(Regression):
    """The same training, its examples made anew at every step."""

    def loss(self, params, lane, step):
        whole = Shuffled()
        return whole.loss(params, whole.of_epoch(lane, step // 3), step)


@pytest.mark.parametrize("cuts", [[11], [3, 6, 11], [1, 2, 7, 8, 11]])
def test_an_epoch_may_be_cut_anywhere(cuts):
    lanes = lanes_of(2)
    assert_same(trained(lanes, cuts, task=Shuffled()), trained(lanes, [11], task=Shuffled()))
    every_step = trained(lanes, [11], task=ShuffledEveryStep())
    found = trained(lanes, cuts, task=Shuffled())
    np.testing.assert_allclose(found.params["w"], every_step.params["w"], rtol=1e-5)
