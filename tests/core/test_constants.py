"""Large constants stand behind barriers, wherever a function hides them, and change no number."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxsens.core.constants import LARGE, unfoldable, unfolded

SIDE = 256
TABLE = np.random.default_rng(0).normal(size=(SIDE, SIDE)).astype(np.float32) / SIDE
X = jnp.asarray(np.random.default_rng(1).normal(size=(SIDE, 3)), jnp.float32)


@jax.jit
def mixed(x):
    return jnp.tanh(jnp.asarray(TABLE) @ x)


@jax.custom_jvp
def with_a_tangent(x):
    return mixed(x)


@jax.custom_vjp
def with_a_cotangent(x):
    return mixed(x)


with_a_tangent.defjvp(lambda primals, tangents: (with_a_tangent(*primals), tangents[0]))
with_a_cotangent.defvjp(lambda x: (with_a_cotangent(x), None), lambda _, g: (g,))

HIDDEN = {
    "directly": lambda x: jnp.asarray(TABLE) @ x,
    "in jit": mixed,
    "in jit in jit": jax.jit(lambda x: mixed(x) + 1.0),
    "in remat": jax.checkpoint(mixed),
    "in vmap": jax.vmap(lambda column: mixed(column[:, None])[:, 0], 1, 1),
    "in scan": lambda x: lax.scan(lambda c, _: (c + mixed(x), c.sum()), x, None, length=2)[0],
    "in scan with a weak type": lambda x: (
        x * lax.scan(lambda c, _: (c * 0.5, jnp.asarray(TABLE).sum()), 1.0, None, length=2)[0]
    ),
    "in fori_loop": lambda x: lax.fori_loop(0, 3, lambda _, state: mixed(state), x),
    "in while": lambda x: lax.while_loop(lambda s: jnp.abs(s).max() > 0.1, mixed, x),
    "in the condition of while": lambda x: lax.while_loop(
        lambda s: jnp.abs(s).sum() > jnp.asarray(TABLE).sum(), lambda s: s / 2, x
    ),
    "in map": lambda x: lax.map(lambda row: mixed(row[:, None])[:, 0], x.T).T,
    "in a branch": lambda x: lax.cond(x.sum() > 0, mixed, lambda x: x, x),
    "in custom_jvp": with_a_tangent,
    "in custom_vjp": with_a_cotangent,
}


@pytest.mark.parametrize("name", HIDDEN)
def test_a_large_constant_is_behind_a_barrier(name):
    function = HIDDEN[name]
    assert "optimization_barrier" not in str(jax.make_jaxpr(function)(X))
    assert str(jax.make_jaxpr(unfolded(function))(X)).count("optimization_barrier") == 1
    expected, found = jax.jit(function)(X), jax.jit(unfolded(function))(X)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_a_function_without_one_is_called_as_it_is():
    def small(x):
        return {"sum": x + np.ones((1, 3), np.float32)}

    assert str(jax.make_jaxpr(unfolded(small))(X)) == str(jax.make_jaxpr(small)(X))


def test_arguments_and_results_may_be_trees():
    def model(params, x):
        return {"out": jnp.asarray(TABLE) @ x * params["scale"]}, x.sum()

    found = jax.jit(unfolded(model))({"scale": 2.0}, X)
    assert jax.tree.structure(found) == jax.tree.structure(model({"scale": 2.0}, X))


def test_what_is_traced_or_small_is_left_alone():
    small = np.ones(LARGE - 1, np.float32)
    assert unfoldable(small) is small
    traced = jax.make_jaxpr(unfoldable)(jax.ShapeDtypeStruct((LARGE,), jnp.float32))
    assert not traced.jaxpr.eqns
