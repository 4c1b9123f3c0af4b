"""Loops over layers, written out, and those that stay."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxsens import Gaussian, Perturbation, Tokens, explain
from jaxsens.core.jaxprs import equations
from jaxsens.incremental import count_costs, make_program
from jaxsens.incremental.attention_operation import is_marked
from jaxsens.incremental.unrolling import unroll_layers
from tests.incremental.as_written import weights
from tests.incremental.idealised import evaluate

ROWS = np.random.default_rng(0).normal(size=(1, 6, 4)).astype(np.float32)
LAYERS = [weights(3, 4, 4), weights(3, 4)]


def layer(x, params):
    w, b = params
    y = jnp.tanh(x @ w + b[None, None])
    return x + y, y.sum(axis=1)


def last(layers, x):
    return lax.scan(layer, x, layers)[0]


def with_all_rows(layers, x):
    x, rows = lax.scan(layer, x, layers)
    return x[:, 0] + (rows * jnp.arange(3.0)[:, None, None]).sum(axis=0)


OVER_LAYERS = {
    "last state": last,
    "all rows": with_all_rows,
    "backwards": lambda layers, x: lax.scan(layer, x, layers, reverse=True)[0],
    "rows backwards": lambda layers, x: lax.scan(layer, x, layers, reverse=True)[1],
    "in a call": jax.jit(last),
    "remat": lambda layers, x: lax.scan(jax.checkpoint(layer), x, layers)[0],
    "a loop in a loop": lambda layers, x: lax.scan(
        lambda x, _: (last(layers, x), None), x, jnp.ones((2, 1)))[0],
    "edited input as a constant": lambda layers, x: lax.scan(
        lambda s, p: (layer(s + x, p)[0], None), jnp.zeros_like(x), layers)[0],
}  # fmt: skip


def over_time(layers, x):
    def step(state, row):
        state = jnp.tanh(state @ layers[0][0] + row)
        return state, state

    rows = jnp.moveaxis(x, 1, 0)
    return jnp.moveaxis(lax.scan(step, jnp.zeros_like(rows[0]), rows)[1], 0, 1)


LEFT_ALONE = {
    "over time": over_time,
    "no products": lambda layers, x: lax.scan(
        lambda x, b: (x + b[None, None], None), x, layers[1])[0],
    "nothing stacked": lambda layers, x: lax.fori_loop(0, 3, lambda _, x: x @ layers[0][0], x),
    "clean": lambda layers, x: x + last(layers, jnp.ones_like(x)),
    "too long": lambda layers, x: last(
        jax.tree.map(lambda a: jnp.concatenate([a] * 17), layers), x),
}  # fmt: skip


def both(function):
    closed = jax.make_jaxpr(lambda w, b, x: function([w, b], x))(*LAYERS, ROWS)
    return closed, unroll_layers(closed, 2, is_marked)


@pytest.mark.parametrize("name", OVER_LAYERS)
def test_written_out_it_is_the_same(compare, name):
    closed, new = both(OVER_LAYERS[name])
    assert "scan" not in [each.primitive.name for each in equations(new.jaxpr)]
    for expected, found in zip(
        evaluate(closed, *LAYERS, ROWS), evaluate(new, *LAYERS, ROWS), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    compare(
        lambda layers, x: OVER_LAYERS[name](layers, x).reshape(len(x), -1)
        if name != "rows backwards" else OVER_LAYERS[name](layers, x)[0],
        ROWS[0], Tokens(), params=LAYERS,
    )  # fmt: skip


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_other_loops_stay(name):
    closed, new = both(LEFT_ALONE[name])
    assert new is closed


def test_an_edit_stays_in_its_row_through_all_layers():
    found = explain(
        lambda layers, x: last(layers, x).mean(axis=1), LAYERS, jnp.ones((1, 64, 4)),
        Perturbation(Tokens(), Gaussian(sigma=1.0)),
    )  # fmt: skip
    products = [step for step in found.steps if step.name == "dot_general"]
    assert [step.share for step in products] == [1 / 64] * 3
    assert found.plain > 8 * found.incremental


def test_parameters_of_a_layer_are_no_values_of_an_example():
    shape = jax.ShapeDtypeStruct((6, 4), jnp.float32)
    noise = Tokens()

    def apart(layers, x):
        for params in layers:
            x = layer(x, params)[0]
        return x

    made = make_program(last, LAYERS, shape, (), noise, "cpu", 1)
    own = {n for each in made.trace.operations if each.name in ("split", "squeeze")
           for n in each.outputs}  # fmt: skip
    assert len(own) == 3 * 2 * 2
    assert own < made.shared
    params = [[a[number] for a in LAYERS] for number in range(3)]
    scanned, written = (
        count_costs(f, p, shape, (), noise, 2, "cpu") for f, p in ((last, LAYERS), (apart, params))
    )
    assert scanned.clean_bytes <= written.clean_bytes
