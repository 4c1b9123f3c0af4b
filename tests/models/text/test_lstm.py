"""The LSTM's own gradient is the one that JAX derives."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxsens.models.text import lstm


def written_out(gates, recurrent):
    """The recurrence as its equation says it, without a gradient of its own."""

    def step(state, gates):
        hidden, cell = state
        i, f, g, o = jnp.split(gates + hidden @ recurrent, 4, axis=-1)
        cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
        return (hidden, cell), hidden

    zero = jnp.zeros((gates.shape[1], recurrent.shape[0]))
    return lax.scan(step, (zero, zero), gates)[1]


def inputs(num_steps):
    rng = np.random.default_rng(0)
    gates, recurrent = rng.normal(size=(num_steps, 4, 12)), rng.normal(size=(3, 12))
    return jnp.asarray(gates, jnp.float32), jnp.asarray(recurrent, jnp.float32)


def assert_close(tree, expected):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5), tree, expected
    )


def test_value_and_gradients():
    def both(recurrence):
        def loss(gates, recurrent):
            hidden = recurrence(gates, recurrent)
            return (jnp.sin(hidden) * jnp.arange(1.0, 6.0)[:, None, None]).sum(), hidden

        return jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(*inputs(5))

    assert_close(both(lstm._recurrence), both(written_out))


def test_one_step():
    def gradient(recurrence):
        return jax.jit(jax.grad(lambda *a: jnp.sin(recurrence(*a)).sum(), (0, 1)))(*inputs(1))

    assert_close(gradient(lstm._recurrence), gradient(written_out))


def test_gradients_of_gradients_and_under_vmap():
    def second(recurrence):
        def slope(gates, recurrent):
            found = jax.grad(lambda *a: jnp.sin(recurrence(*a)).sum(), (0, 1))(gates, recurrent)
            return sum(jnp.cos(each).sum() for each in found)

        gates, recurrent = inputs(3)
        several = jnp.stack([gates, 2 * gates])
        return jax.jit(jax.vmap(jax.grad(slope, (0, 1)), (0, None)))(several, recurrent)

    assert_close(second(lstm._recurrence), second(written_out))
