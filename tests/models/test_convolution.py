"""The convolution's hand-written gradient equals XLA's; pooling equals Flax's."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxsens.models.convolution import conv_general_dilated, valid_convolution
from jaxsens.models.layers import max_pool


def xla_convolution(x, kernel):
    return lax.conv_general_dilated(
        x, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def random(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def assert_close(tree, expected):
    """Equal to 1e-4 of each array's largest entry."""

    def close(a, b):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * np.abs(b).max())

    jax.tree.map(close, tree, expected)


SHAPES = [
    ((2, 7, 7, 3), (3, 3, 3, 4)),
    ((3, 6, 9, 2), (2, 5, 2, 3)),
    ((1, 5, 4, 1), (5, 4, 1, 2)),
]


@pytest.mark.parametrize(("x_shape", "kernel_shape"), SHAPES)
def test_value_and_gradient_equal_those_of_xla(x_shape, kernel_shape):
    x, kernel = random(*x_shape), random(*kernel_shape, seed=1)

    @jax.jit(static_argnums=0)
    def value_and_grad(convolution, x, kernel):
        out, vjp = jax.vjp(convolution, x, kernel)
        return out, vjp(jnp.sin(out))

    assert_close(
        value_and_grad(valid_convolution, x, kernel), value_and_grad(xla_convolution, x, kernel)
    )


def test_gradient_inside_a_scan_and_under_vmap():
    x, kernel = random(3, 2, 6, 6, 2), random(3, 3, 2, 4, seed=1)

    def grad_fn(convolution):
        return jax.grad(lambda x: jnp.sin(convolution(x, kernel)).sum())

    expected = jax.jit(jax.vmap(grad_fn(xla_convolution)))(x)
    assert_close(jax.jit(lambda x: lax.map(grad_fn(valid_convolution), x))(x), expected)
    assert_close(jax.jit(jax.vmap(grad_fn(valid_convolution)))(x), expected)


def test_second_derivative():
    x, kernel = random(1, 4, 4, 1), random(2, 2, 1, 2, seed=1)

    def hessian(convolution):
        grad_fn = jax.grad(lambda kernel: jnp.sin(convolution(x, kernel)).sum())
        return jax.jit(jax.jacrev(grad_fn))(kernel)

    assert_close(hessian(valid_convolution), hessian(xla_convolution))


def layer_with_and_without(**options):
    plain = nn.Conv(6, (3, 2), **options)
    return plain, plain.copy(conv_general_dilated=conv_general_dilated)


@pytest.mark.parametrize("padding", ["SAME", "CIRCULAR", ((0, 2), (1, 0))], ids=str)
def test_flax_layer_with_padding(padding):
    plain, ours = layer_with_and_without(padding=padding)
    x = random(2, 7, 6, 4)
    shapes = jax.eval_shape(plain.init, jax.random.key(1), x)
    variables = jax.tree.map(lambda leaf: random(*leaf.shape, seed=1), shapes)

    @jax.jit(static_argnums=0)
    def value_and_grad(layer, variables, x):
        return jax.value_and_grad(lambda *a: jnp.sin(layer.apply(*a)).sum(), (0, 1))(variables, x)

    assert_close(value_and_grad(ours, variables, x), value_and_grad(plain, variables, x))


@pytest.mark.parametrize(
    ("options", "is_plain"),
    [
        ({"padding": "SAME"}, True),
        ({"padding": 1, "strides": 1, "kernel_dilation": 1}, True),
        ({"padding": "SAME", "strides": 2}, False),
        ({"padding": "SAME", "kernel_dilation": 2}, False),
        ({"padding": 0, "input_dilation": 2}, False),
        ({"padding": "SAME", "feature_group_count": 2}, False),
        ({"padding": "SAME", "precision": "highest"}, False),
    ],
    ids=str,
)
def test_only_plain_convolutions_change(options, is_plain):
    plain, ours = layer_with_and_without(**options)
    x = jnp.zeros((1, 8, 8, 4))
    variables = jax.eval_shape(plain.init, jax.random.key(0), x)
    before, after = (str(jax.make_jaxpr(layer.apply)(variables, x)) for layer in (plain, ours))
    assert ("custom_vjp" in after) == is_plain
    assert (before == after) != is_plain


@pytest.mark.parametrize(
    ("shape", "size"),
    [((2, 6, 8, 3), 2), ((1, 7, 5, 2), 2), ((2, 8, 10, 1), 3)],
)
def test_max_pool_equals_that_of_flax(shape, size):
    x = random(*shape)
    window = (size, size)

    def ours(x):
        return max_pool(x, size)

    def flax(x):
        return nn.max_pool(x, window, strides=window)

    @jax.jit(static_argnums=0)
    def value_and_grad(pool, x):
        out, vjp = jax.vjp(pool, x)
        return out, vjp(2 * out)

    jax.tree.map(np.testing.assert_array_equal, value_and_grad(ours, x), value_and_grad(flax, x))
