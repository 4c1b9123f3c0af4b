"""The hand-written convolution and its gradient equal XLA's; pooling equals Flax's."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxsens.models.layers import chunks, convolution, winograd
from jaxsens.models.layers.basics import avg_pool, max_pool
from jaxsens.models.layers.convolution import conv_general_dilated, padded_convolution


def xla_convolution(x, kernel, strides=(1, 1), padding=((0, 0), (0, 0))):
    return lax.conv_general_dilated(
        x,
        kernel,
        strides,
        padding,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=x.shape[-1] // kernel.shape[2],
    )


def random(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def assert_close(tree, expected):
    """Equal to 1e-4 of each array's largest entry."""

    def close(a, b):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * np.abs(b).max())

    jax.tree.map(close, tree, expected)


DENSE = [
    ((2, 7, 7, 3), (3, 3, 3, 4), (1, 1)),
    ((3, 6, 9, 2), (2, 5, 2, 3), (1, 1)),
    ((1, 5, 4, 1), (5, 4, 1, 2), (1, 1)),
    ((2, 8, 8, 3), (3, 3, 3, 4), (2, 2)),
    ((2, 7, 10, 2), (2, 3, 2, 3), (3, 2)),
]
PATCHES = [((2, 8, 12, 3), (4, 4, 3, 5), (4, 4)), ((2, 9, 11, 3), (4, 4, 3, 5), (4, 4))]
POINTWISE = [((2, 5, 4, 3), (1, 1, 3, 6), (1, 1)), ((2, 7, 6, 3), (1, 1, 3, 2), (2, 2))]
DEPTHWISE = [((2, 7, 6, 4), (3, 3, 1, 4), (1, 1)), ((1, 8, 9, 3), (2, 3, 1, 3), (2, 3))]


@pytest.mark.parametrize(
    ("x_shape", "kernel_shape", "strides"), [*DENSE, *PATCHES, *POINTWISE, *DEPTHWISE]
)
def test_value_and_gradient_equal_those_of_xla(x_shape, kernel_shape, strides):
    x, kernel = random(*x_shape), random(*kernel_shape, seed=1)

    ours = value_and_vjp(padded_convolution, x, kernel, strides, ((0, 0), (0, 0)))
    assert_close(ours, value_and_vjp(xla_convolution, x, kernel, strides, ((0, 0), (0, 0))))


KINDS = [
    pytest.param((3, 3, 2, 4), (1, 1), id="dense"),
    pytest.param((3, 3, 2, 4), (2, 2), id="strided"),
    pytest.param((1, 1, 2, 4), (1, 1), id="pointwise"),
    pytest.param((3, 3, 1, 2), (1, 1), id="depthwise"),
]


@pytest.mark.parametrize(("kernel_shape", "strides"), KINDS)
def test_gradient_inside_a_scan_and_under_vmap(kernel_shape, strides):
    x, kernel = random(3, 2, 6, 6, 2), random(*kernel_shape, seed=1)

    def grad_fn(convolution):
        return jax.grad(lambda x: jnp.sin(convolution(x, kernel, strides)).sum())

    expected = jax.jit(jax.vmap(grad_fn(xla_convolution)))(x)
    assert_close(jax.jit(lambda x: lax.map(grad_fn(padded_convolution), x))(x), expected)
    assert_close(jax.jit(jax.vmap(grad_fn(padded_convolution)))(x), expected)


@pytest.mark.parametrize(("kernel_shape", "strides"), KINDS[1:])
def test_second_derivative(kernel_shape, strides):
    x, kernel = random(1, 5, 4, 2), random(*kernel_shape, seed=1)

    def hessian_product(convolution):
        def slope(kernel):
            return jnp.cos(jax.grad(lambda k: jnp.sin(convolution(x, k, strides)).sum())(kernel))

        return jax.jit(jax.grad(lambda kernel: slope(kernel).sum()))(kernel)

    assert_close(hessian_product(padded_convolution), hessian_product(xla_convolution))


@pytest.mark.parametrize(("kernel_shape", "strides"), KINDS)
def test_other_devices_keep_the_convolutions_of_xla(kernel_shape, strides):
    x, kernel = jnp.zeros((2, 6, 6, 2)), jnp.zeros(kernel_shape)

    def num_convolutions(convolution, platform):
        grad_fn = jax.grad(lambda *a: jnp.sin(convolution(*a, strides)).sum(), (0, 1))
        lowered = jax.jit(grad_fn).trace(x, kernel).lower(lowering_platforms=(platform,))
        return lowered.as_text().count("stablehlo.convolution")

    assert num_convolutions(padded_convolution, "cuda") == 3
    assert num_convolutions(padded_convolution, "cpu") < num_convolutions(xla_convolution, "cpu")


@jax.jit(static_argnums=(0, 3, 4))
def value_and_vjp(convolution, x, kernel, strides, padding):
    out, vjp = jax.vjp(lambda *a: convolution(*a, strides, padding), x, kernel)
    return out, vjp(jnp.sin(out))


WIDE = [
    pytest.param((4, 8, 8, 64), (1, 1), ((1, 1), (1, 1)), id="same"),
    pytest.param((3, 7, 9, 64), (1, 1), ((0, 0), (0, 0)), id="odd"),
    pytest.param((2, 6, 5, 64), (1, 1), ((2, 2), (0, 2)), id="uneven"),
    pytest.param((2, 6, 6, 64), (1, 1), ((3, 1), (0, 0)), id="more-than-the-kernel"),
    pytest.param((2, 3, 3, 64), (1, 1), ((0, 0), (0, 0)), id="one-output"),
    pytest.param((3, 9, 8, 64), (2, 2), ((1, 1), (1, 1)), id="strided"),
]


@pytest.mark.parametrize(("x_shape", "strides", "padding"), WIDE)
def test_wide_kernels_equal_those_of_xla(x_shape, strides, padding):
    x, kernel = random(*x_shape), random(3, 3, 64, 72, seed=1)
    ours = value_and_vjp(padded_convolution, x, kernel, strides, padding)
    assert_close(ours, value_and_vjp(xla_convolution, x, kernel, strides, padding))


def drawn(number):
    """A convolution of any kind: sides, kernel, strides and padding at random."""
    rng = np.random.default_rng(number)
    size, strides = rng.integers(1, 6, 2), rng.integers(1, 4, 2)
    padding = rng.integers(0, 3, (2, 2))
    sides = size + rng.integers(0, 9, 2)
    channels, features = rng.integers(1, 5, 2)
    inner = channels
    if number % 3 == 0:
        inner, features = 1, channels
    return (
        random(int(rng.integers(1, 4)), *sides, channels),
        random(*size, inner, features, seed=1),
        tuple(map(int, strides)),
        tuple((int(low), int(high)) for low, high in padding),
    )


@pytest.mark.parametrize("number", range(10))
def test_convolutions_at_random_equal_those_of_xla(number):
    x, kernel, strides, padding = drawn(number)
    ours = value_and_vjp(padded_convolution, x, kernel, strides, padding)
    assert_close(ours, value_and_vjp(xla_convolution, x, kernel, strides, padding))


@pytest.fixture
def small_chunks(monkeypatch):
    """Two images or less at a time, on what has a single device."""
    monkeypatch.setattr(chunks, "_is_alone", lambda: True)
    monkeypatch.setattr(winograd, "TILE_BYTES", 2 * 16 * 16 * 64 * 4)
    monkeypatch.setattr(convolution, "PATCH_BYTES", 2 * 36 * 18 * 4)


@pytest.mark.parametrize("num", [4, 5])
@pytest.mark.parametrize(
    ("channels", "kernel_shape"),
    [(64, (3, 3, 64, 64)), (2, (3, 3, 2, 4)), (2, (3, 3, 1, 2))],
    ids=["winograd", "patches", "depthwise"],
)
def test_chunks_of_a_batch_give_what_the_batch_gives(small_chunks, num, channels, kernel_shape):
    x, kernel = random(num, 8, 8, channels), random(*kernel_shape, seed=1)
    padding = ((1, 1), (1, 1)) if channels == 64 else ((0, 0), (0, 0))

    # Another function than before: what was compiled had other chunks.
    def ours(*args):
        return padded_convolution(*args)

    assert "scan" in str(jax.make_jaxpr(ours_grad(ours, padding))(x, kernel))
    expected = value_and_vjp(xla_convolution, x, kernel, (1, 1), padding)
    assert_close(value_and_vjp(ours, x, kernel, (1, 1), padding), expected)


def ours_grad(convolution, padding):
    return jax.grad(lambda *a: jnp.sin(convolution(*a, (1, 1), padding)).sum(), (0, 1))


@pytest.mark.parametrize(
    ("num", "bytes_of_one", "limit", "expected"),
    [(100, 1, 30, 25), (100, 10, 30, 2), (7, 1, 6, 6), (7, 1, 7, 7), (5, 9, 3, 1)],
)
def test_chunks_divide_the_batch_if_they_can(monkeypatch, num, bytes_of_one, limit, expected):
    monkeypatch.setattr(chunks, "_is_alone", lambda: True)
    assert chunks.chunk_size(num, bytes_of_one, limit) == expected
    monkeypatch.setattr(chunks, "_is_alone", lambda: False)
    assert chunks.chunk_size(num, bytes_of_one, limit) == num


def test_memory_of_a_gradient_is_bounded(monkeypatch):
    """Patches of 100 images of 32×32×64 would take 236 MB, tiles 105 MB."""
    monkeypatch.setattr(chunks, "_is_alone", lambda: True)
    x, kernel = jax.ShapeDtypeStruct((100, 32, 32, 64), jnp.float32), jnp.zeros((3, 3, 64, 64))

    def grad_kernel(x, kernel):
        out, vjp = jax.vjp(
            lambda kernel: padded_convolution(x, kernel, (1, 1), ((1, 1), (1, 1))), kernel
        )
        return vjp(out)

    compiled = jax.jit(grad_kernel).lower(x, kernel).compile()
    batch = 100 * 32 * 32 * 64 * 4
    assert compiled.memory_analysis().temp_size_in_bytes < 2 * batch + 8 * winograd.TILE_BYTES


@pytest.mark.parametrize(("kernel_shape", "strides"), KINDS[:2])
def test_a_pass_without_a_derivative_is_one_convolution(kernel_shape, strides):
    x, kernel = random(2, 6, 6, 2), random(*kernel_shape, seed=1)
    lowered = jax.jit(lambda *a: padded_convolution(*a, strides)).lower(x, kernel)
    assert lowered.as_text().count("stablehlo.convolution") == 1
    lowered = jax.jit(lambda x: padded_convolution(x, random(3, 3, 64, 64), (1, 1))).lower(
        jnp.zeros((2, 8, 8, 64))
    )
    assert lowered.as_text().count("stablehlo.convolution") == 1


def layer_with_and_without(features=6, **options):
    plain = nn.Conv(features, (3, 2), **options)
    return plain, plain.copy(conv_general_dilated=conv_general_dilated)


@pytest.mark.parametrize(
    "options",
    [
        {"padding": "SAME"},
        {"padding": "CIRCULAR"},
        {"padding": ((0, 2), (1, 0))},
        {"padding": 1, "strides": 2},
        {"padding": "SAME", "strides": (2, 3)},
        {"padding": "SAME", "feature_group_count": 4, "features": 4},
        {"padding": 2, "strides": 2, "feature_group_count": 4, "features": 4},
    ],
    ids=str,
)
def test_flax_layer(options):
    plain, ours = layer_with_and_without(**options)
    x = random(2, 7, 6, 4)
    shapes = jax.eval_shape(plain.init, jax.random.key(1), x)
    variables = jax.tree.map(lambda leaf: random(*leaf.shape, seed=1), shapes)

    @jax.jit(static_argnums=0)
    def value_and_grad(layer, variables, x):
        return jax.value_and_grad(lambda *a: jnp.sin(layer.apply(*a)).sum(), (0, 1))(variables, x)

    assert_close(value_and_grad(ours, variables, x), value_and_grad(plain, variables, x))


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ({"padding": "SAME"}, True),
        ({"padding": 1, "strides": 1, "kernel_dilation": 1}, True),
        ({"padding": "SAME", "strides": 2}, True),
        ({"padding": "SAME", "feature_group_count": 4, "features": 4}, True),
        ({"padding": "SAME", "feature_group_count": 4, "features": 8}, False),
        ({"padding": "SAME", "feature_group_count": 2}, False),
        ({"padding": "SAME", "kernel_dilation": 2}, False),
        ({"padding": 0, "input_dilation": 2}, False),
        ({"padding": "SAME", "precision": "highest"}, False),
    ],
    ids=str,
)
def test_which_convolutions_change(options, changes):
    plain, ours = layer_with_and_without(**options)
    x = jnp.zeros((1, 8, 8, 4))
    variables = jax.eval_shape(plain.init, jax.random.key(0), x)
    before, after = (str(jax.make_jaxpr(layer.apply)(variables, x)) for layer in (plain, ours))
    assert ("custom_vjp" in after) == changes
    assert (before == after) != changes


# --- Pooling --------------------------------------------------------------------------------------


@jax.jit(static_argnums=0)
def value_and_grad_of_pool(pool, x):
    out, vjp = jax.vjp(pool, x)
    return out, vjp(2 * out)


@pytest.mark.parametrize(
    ("shape", "size", "stride", "padding"),
    [
        ((2, 6, 8, 3), 2, None, 0),
        ((1, 7, 5, 2), 2, None, 0),
        ((2, 8, 10, 1), 3, None, 0),
        ((2, 8, 7, 2), 3, 2, 1),
        ((1, 5, 6, 1), 3, 1, 1),
        ((1, 4, 6, 2), 2, 3, 0),
    ],
)
def test_max_pool_equals_that_of_flax(shape, size, stride, padding):
    def ours(x):
        return max_pool(x, size, stride=stride, padding=padding)

    def flax(x):
        border = ((padding, padding),) * 2
        return nn.max_pool(x, (size, size), strides=(stride or size,) * 2, padding=border)

    x = random(*shape)
    (out, grad), (flax_out, flax_grad) = (value_and_grad_of_pool(f, x) for f in (ours, flax))
    np.testing.assert_array_equal(out, flax_out)
    np.testing.assert_allclose(grad, flax_grad, rtol=1e-6)


def test_equal_maxima_share_the_gradient():
    grad = jax.jit(jax.grad(lambda x: max_pool(x).sum()))(jnp.ones((1, 2, 2, 1)))
    np.testing.assert_array_equal(grad, np.full((1, 2, 2, 1), 0.25))


@pytest.mark.parametrize(
    ("shape", "size"), [((2, 6, 8, 3), 2), ((1, 7, 5, 2), 2), ((2, 8, 9, 1), 3)]
)
def test_avg_pool_equals_that_of_flax(shape, size):
    def flax(x):
        with jax.numpy_dtype_promotion("standard"):
            return nn.avg_pool(x, (size, size), strides=(size, size))

    x = random(*shape)
    ours = value_and_grad_of_pool(lambda x: avg_pool(x, size), x)
    assert_close(ours, value_and_grad_of_pool(flax, x))
