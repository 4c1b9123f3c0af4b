"""A measurement calls the model once for inputs of one shape, whatever it looks at or compiles."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsens
from jaxsens import Gaussian, Patches, Perturbation, Tokens
from jaxsens.core.tracing import traced_once
from jaxsens.incremental import costs
from jaxsens.measurement import chunk_program

GENERATOR = np.random.default_rng(0)
IMAGES = GENERATOR.normal(size=(3, 8, 8, 2)).astype(np.float32)
ROWS = GENERATOR.normal(size=(3, 32, 4)).astype(np.float32)
NOISE = Gaussian(sigma=2.0)


def causal(params, x):
    """A recurrent network: an edit changes the steps from its position on."""

    def step(state, token):
        state = jnp.tanh(token @ params[0] + state @ params[1])
        return state, state

    _, states = jax.lax.scan(step, jnp.zeros((len(x), 16)), jnp.swapaxes(x, 0, 1))
    return states[-1] @ params[2]


@pytest.fixture
def params():
    return [
        GENERATOR.normal(size=shape).astype(np.float32) for shape in ((4, 16), (16, 16), (16, 3))
    ]


@pytest.mark.parametrize("options", [{"incremental": False}, {"incremental": True}, {}])
def test_the_model_is_called_once_for_each_shape(options):
    calls = collections.Counter()

    def model(weights, x):
        calls[len(x)] += 1
        return jnp.tanh(x.reshape(len(x), -1) @ weights[0]) @ weights[1]

    weights = [GENERATOR.normal(size=shape).astype(np.float32) for shape in ((128, 9), (9, 3))]
    noise = Perturbation(Patches(4), NOISE)
    found = jaxsens.sensitivity(model, weights, IMAGES, noise, key=jax.random.key(0), **options)
    assert found.totals.sum() > 0
    # Of one example it is also called inside of a loop, where a module with a state shows.
    assert calls.pop(1) == 2
    assert set(calls.values()) == {1}
    calls.clear()
    jaxsens.sensitivity(model, weights, IMAGES, noise, key=jax.random.key(1), **options)
    assert not calls


def test_a_function_traced_once_gives_what_it_gave_where_it_is_mapped_or_derived():
    def model(weights, x):
        return {"logits": jax.nn.relu(x @ weights["w"]), "size": jnp.float32(2)}

    once, weights, x = traced_once(model), {"w": jnp.eye(3) - 0.5}, jnp.arange(6.0).reshape(2, 3)
    assert traced_once(model) is once

    def loss(function, x):
        return (function(weights, x)["logits"] ** 2).sum() * function(weights, x)["size"]

    for transform in (jax.vmap, jax.grad, jax.jit):
        results = [transform(lambda x, f=f: loss(f, x))(x) for f in (model, once)]
        np.testing.assert_array_equal(*results)


def test_windows_are_drawn_once_for_all_groups_of_positions(params, monkeypatch):
    # As if compiling took no time, so that positions are cut into groups.
    monkeypatch.setattr(costs, "_SECONDS_PER_EQUATION", 0.0)
    calls, totals = [], []
    for most in (0, 1 << 18):
        monkeypatch.setattr(chunk_program, "_DRAWN_BYTES", most)
        drawn = []

        def edit(key, window, drawn=drawn):
            drawn.append(window.shape)
            return window + 2 * jax.random.normal(key, window.shape)

        found = jaxsens.sensitivity(
            lambda *given: causal(*given), params, ROWS, Perturbation(Tokens(), edit), 3,
            key=jax.random.key(0), incremental=True, check=False,
        )  # fmt: skip
        assert found.provenance.incremental
        calls.append(len(drawn))
        totals.append(found.totals)
    assert totals[0].sum() > 0
    np.testing.assert_array_equal(*totals)
    # The trace of the program has one drawing instead of one for each of at least four groups.
    assert calls[0] - calls[1] >= 3


def test_groups_that_cannot_save_are_not_traced(monkeypatch, params):
    traced, plain = [], costs._edits_jaxpr
    monkeypatch.setattr(
        costs, "_edits_jaxpr", lambda *given: traced.append(given[1]) or plain(*given)
    )

    def each_alone(params, x):
        return jnp.tanh(x @ params[0]).mean(axis=1) @ params[2]

    shape = jax.ShapeDtypeStruct(ROWS.shape[1:], ROWS.dtype)
    one = costs.count_costs(each_alone, params, shape, (), Tokens(), 3, "cpu")
    # All positions, and the first and the last of four groups.
    assert (one.num_position_groups, len(traced)) == (1, 3)
    some = costs.count_costs(causal, params, shape, (), Tokens(), 3, "cpu")
    assert some.num_position_groups > 1
