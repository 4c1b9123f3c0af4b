"""Operations that jump, at ties: whole passes decide where the last bit of a sum would."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxsens import Tokens
from jaxsens.incremental import make_program, nearness, program
from tests.incremental.generated import first_wrong

#: Small integers: the mean of a channel is often the very value of one of its entries.
PIXELS = np.random.default_rng(3).integers(0, 5, (9, 4)).astype(np.uint8)


def beside_zero(x):
    return jnp.stack([x, 0 * x], axis=-1)


def in_a_scan(x):
    def step(count, row):
        return count + (row > 0).astype(jnp.int32), None

    start = jnp.zeros(x[:, 0].shape, jnp.int32)
    return lax.scan(step, start, x.swapaxes(0, 1))[0][:, None]


def in_a_loop(x):
    return lax.while_loop(
        lambda state: state[0] < 3, lambda state: (state[0] + 1, state[1] + jnp.sign(x)), (0, x)
    )[1]


#: Functions of deviations from a mean that jump where a deviation is 0.
JUMPS = {
    "eq": lambda x: x == 0,
    "ne": lambda x: x != 0,
    "lt": lambda x: x < 0,
    "le": lambda x: x <= 0,
    "gt": lambda x: x > 0,
    "ge": lambda x: x >= 0,
    "sign": jnp.sign,
    "floor": jnp.floor,
    "ceil": jnp.ceil,
    "round": lambda x: jnp.round(x + jnp.float32(0.5)),
    "to bool": lambda x: x.astype(bool),
    "remainder": lambda x: jnp.remainder(x, jnp.float32(1)),
    "argmax": lambda x: jnp.argmax(beside_zero(x), axis=-1),
    "argmin": lambda x: jnp.argmin(beside_zero(x), axis=-1),
    "argsort": lambda x: jnp.argsort(beside_zero(x), axis=-1)[..., 0],
    "sort by a key": lambda x: lax.sort_key_val(beside_zero(x), beside_zero(x + 1))[1][..., 0],
    "top_k": lambda x: lax.top_k(beside_zero(x), 1)[1][..., 0],
    "choice": lambda x: jnp.where(x > 0, x, x + 1),
    "of a product": lambda x: x * jnp.roll(x, 1, 1) > 0,
    "of relu": lambda x: jax.nn.relu(x) > 0,
    "of clipped": lambda x: jnp.clip(x, 0, 1) > 0,
    "of a choice": lambda x: jnp.where(x > 0, x, 0) > 0,
    "in a scan": in_a_scan,
    "in a loop": in_a_loop,
    "in a branch": lambda x: lax.cond(x[0, 0, 0] > 100, lambda x: x, jnp.sign, x),
    "searchsorted": lambda x: jnp.searchsorted(jnp.asarray([-1.0, 0.0, 1.0]), x),
}


def model_of(jump, side=1):
    """What a jump makes of thirds of small integers, seen from their mean."""

    def model(_, x):
        x = side * x.astype(jnp.float32) / 3
        deviation = x - x.mean(axis=1, keepdims=True)
        return jump(deviation).astype(jnp.float32).sum(axis=1)

    return model


def faults(jump):
    """What is wrong with a jump from either side."""
    models = [model_of(jump, side) for side in (1, -1)]
    found = [first_wrong(model, PIXELS, Tokens(), positions=9) for model in models]
    return [fault for fault in found if fault]


@pytest.mark.parametrize("name", JUMPS)
def test_ties_are_left_to_whole_passes(name, monkeypatch):
    assert not faults(JUMPS[name])
    monkeypatch.setattr(program, "near_jumps", lambda *_: [])
    assert any("off by" in fault for fault in faults(JUMPS[name]))


def jumps_of(f):
    shape = jax.ShapeDtypeStruct(PIXELS.shape, jnp.float32)
    made = make_program(f, (), shape, (), Tokens(), "cpu", 1)
    return [jump.operation.name for jump in made.jumps]


@pytest.mark.parametrize(
    "f",
    [
        pytest.param(lambda _, x: jnp.sign(jnp.tanh(x) - 1).sum(axis=1), id="entry by entry"),
        pytest.param(lambda _, x: jax.nn.gelu(x @ jnp.ones((4, 4))).mean(axis=1), id="smooth"),
        pytest.param(lambda _, x: jax.nn.softplus(x @ jnp.ones((4, 4))).mean(axis=1), id="nan?"),
        pytest.param(lambda _, x: jax.nn.relu(x @ jnp.ones((4, 4))).mean(axis=1), id="relu"),
        pytest.param(lambda _, x: jnp.sort(x @ jnp.ones((4, 4)), axis=1)[:, 0], id="sorted"),
        pytest.param(lambda _, x: jax.nn.leaky_relu(x @ jnp.ones((4, 4))), id="leaky relu"),
        pytest.param(lambda _, x: jax.nn.elu(x @ jnp.ones((4, 4))), id="elu"),
        pytest.param(lambda _, x: jax.nn.selu(x @ jnp.ones((4, 4))), id="selu"),
        pytest.param(lambda _, x: zero_below(x @ jnp.ones((4, 4)), 0), id="choice"),
    ],
)
def test_what_does_not_jump_costs_nothing(f):
    assert not jumps_of(f)


def zero_below(x, threshold):
    return jnp.where(x > threshold, x, jnp.float32(0))


def test_a_choice_away_from_0_jumps():
    assert jumps_of(lambda _, x: zero_below(x @ jnp.ones((4, 4)), 1)) == ["gt"]
    assert jumps_of(lambda _, x: jnp.where(x.sum(axis=1) > 0, x[:, 0], x[:, 1])) == ["gt"]


@pytest.mark.parametrize(
    ("name", "f"),
    [
        ("convert_element_type", lambda x: x.astype(jnp.int32)),
        ("rem", lambda x: lax.rem(x, jnp.ones_like(x))),
    ],
)
def test_jumps_at_other_integers_than_0_are_known(name, f):
    assert name in jumps_of(model_of(f))


@pytest.mark.parametrize("f", [jax.nn.hard_tanh, lambda x: jnp.where(x > 0, x + 1, 1 - x)])
def test_two_sides_that_agree_are_no_jump(f):
    """A deviation is 0 in some of these edits, and none of them is in doubt."""
    made = make_program(
        model_of(f), (), jax.ShapeDtypeStruct(PIXELS.shape, np.uint8), (), Tokens(), "cpu", 1
    )
    assert made.jumps
    clean = made.clean((), jnp.asarray(PIXELS), ())
    edits = jnp.asarray(np.random.default_rng(0).integers(0, 5, (9, 1, 4)), jnp.uint8)
    assert not jax.vmap(lambda at, new: made.edit(clean, 0, at, new)[1])(jnp.arange(9), edits).any()


def test_nothing_has_no_size():
    assert nearness.entry_size(jnp.zeros((0, 3))) == 0
    assert nearness.entry_size(jnp.asarray([0.0, jnp.inf, -2.0])) == 2
