"""Convolutions by oneDNN equal those of XLA, wherever JAX puts them."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxsens.core import onednn
from jaxsens.core.onednn import handler, library

if library._load() is None:
    pytest.skip("the extra cpu is not installed", allow_module_level=True)


@pytest.fixture(autouse=True)
def one_device(monkeypatch):
    """What names no device runs on the first of the suite's eight."""
    monkeypatch.setattr(library, "_is_alone", lambda: True)


def random(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def assert_close(tree, expected, tolerance=1e-5):
    """Equal to this share of each array's largest entry."""

    def close(a, b):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.abs(b).max())

    jax.tree.map(close, tree, expected)


def xla(x, kernel, shape):
    top, bottom, left, right = shape.padding
    return lax.conv_general_dilated(
        x,
        kernel,
        shape.strides,
        ((top, bottom), (left, right)),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=x.shape[-1] // kernel.shape[2],
        precision="highest",
    )


SHAPES = [
    pytest.param((2, 7, 9, 3), (3, 2, 3, 4), (1, 1), (0, 0, 0, 0), id="dense"),
    pytest.param((2, 9, 8, 16), (3, 3, 16, 32), (2, 1), (1, 0, 2, 1), id="strided, padded"),
    pytest.param((3, 6, 5, 8), (1, 1, 8, 12), (1, 1), (0, 0, 0, 0), id="pointwise"),
    pytest.param((3, 7, 7, 4), (1, 1, 4, 6), (2, 2), (0, 0, 0, 0), id="pointwise, strided"),
    pytest.param((2, 8, 8, 16), (5, 5, 1, 16), (1, 1), (2, 2, 2, 2), id="depthwise"),
    pytest.param((2, 7, 8, 6), (3, 2, 1, 6), (2, 3), (1, 0, 0, 1), id="depthwise, strided"),
    pytest.param((2, 6, 6, 8), (3, 3, 4, 6), (1, 1), (1, 1, 1, 1), id="two groups"),
    pytest.param((1, 5, 4, 1), (5, 4, 1, 2), (1, 1), (0, 0, 0, 0), id="one output"),
]


def value_and_gradients(convolution, x, kernel, shape):
    @jax.jit
    def both(x, kernel):
        out, vjp = jax.vjp(lambda *pair: convolution(*pair, shape), x, kernel)
        return out, vjp(jnp.sin(out))

    return both(x, kernel)


@pytest.mark.parametrize(("images", "kernel", "strides", "padding"), SHAPES)
def test_value_and_gradients_equal_those_of_xla(images, kernel, strides, padding):
    x, k = random(*images), random(*kernel, seed=1)
    shape = onednn.ConvolutionShape(images, kernel, strides, padding)
    out, gradients = value_and_gradients(onednn.forward, x, k, shape)
    assert out.shape == shape.output
    assert_close((out, gradients), value_and_gradients(xla, x, k, shape))


SHAPE = onednn.ConvolutionShape((2, 6, 5, 4), (3, 3, 4, 8), (1, 1), (1, 1, 1, 1))
X, KERNEL = random(*SHAPE.images), random(*SHAPE.kernel, seed=1)


def test_gradients_of_gradients():
    def second(convolution):
        def slope(x, kernel):
            def loss(*pair):
                return jnp.sin(convolution(*pair, SHAPE)).sum()

            return sum(jnp.cos(g).sum() for g in jax.grad(loss, (0, 1))(x, kernel))

        return jax.jit(jax.grad(slope, (0, 1)))(X, KERNEL)

    assert_close(second(onednn.forward), second(xla))


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)], ids=str)
def test_under_vmap(axes):
    x = random(3, *SHAPE.images) if axes[0] == 0 else X
    kernel = random(3, *SHAPE.kernel, seed=1) if axes[1] == 0 else KERNEL

    def mapped(convolution):
        def gradients(x, kernel):
            return jax.grad(lambda *p: jnp.sin(convolution(*p, SHAPE)).sum(), (0, 1))(x, kernel)

        return jax.jit(jax.vmap(gradients, axes))(x, kernel)

    assert_close(mapped(onednn.forward), mapped(xla))


def test_images_under_vmap_are_one_call_with_more_of_them():
    fn = jax.vmap(lambda x: onednn.forward(x, KERNEL, SHAPE))
    lowered = jax.jit(fn).lower(random(3, *SHAPE.images)).as_text()
    assert lowered.count(handler.NAME) == 1
    assert "while" not in lowered


def test_within_a_loop():
    def steps(convolution):
        def step(kernel, x):
            grad = jax.grad(lambda k: jnp.sin(convolution(x, k, SHAPE)).sum())(kernel)
            return kernel - 0.1 * grad, grad.sum()

        return jax.jit(lambda kernel, xs: lax.scan(step, kernel, xs))(
            KERNEL, random(5, *SHAPE.images)
        )

    # Each step amplifies the rounding of those before.
    assert_close(steps(onednn.forward), steps(xla), tolerance=2e-4)


def test_threads_that_call_at_the_same_time_do_not_disturb_each_other():
    fn = jax.jit(lambda x: onednn.forward(x, KERNEL, SHAPE))
    inputs = [random(*SHAPE.images, seed=seed) for seed in range(4)]
    expected = [np.asarray(fn(x)) for x in inputs]
    found = [[] for _ in inputs]

    def many(which):
        found[which] += [np.asarray(fn(inputs[which])) for _ in range(50)]

    threads = [threading.Thread(target=many, args=(which,)) for which in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for of_thread, wanted in zip(found, expected, strict=True):
        assert len(of_thread) == 50
        assert all((each == wanted).all() for each in of_thread)


def test_a_program_without_its_plan_fails():
    call = jax.ffi.ffi_call(handler.NAME, jax.ShapeDtypeStruct((2,), jnp.float32))
    handler._register()
    with pytest.raises(jax.errors.JaxRuntimeError, match="oneDNN failed"):
        jax.block_until_ready(call(jnp.zeros(2), jnp.zeros(2), number=np.int64(7)))


def test_a_plan_is_made_once():
    before = len(handler._plans)
    x = random(3, 4, 4, 2)
    shape = onednn.ConvolutionShape(x.shape, (2, 2, 2, 3), (1, 1), (0, 0, 0, 0))
    for _ in range(2):
        jax.make_jaxpr(lambda x: onednn.forward(x, random(2, 2, 2, 3), shape))(x)
    assert len(handler._plans) == before + 1


def test_places_in_the_table_stay_the_same():
    """A compiled program that is kept holds them."""
    assert handler._number(f"forward {tuple(SHAPE)}") == 206843


def test_what_it_does_not_know(monkeypatch):
    assert onednn.is_available(X)
    assert not onednn.is_available(X.astype(jnp.bfloat16))
    assert not onednn.is_available(X[:0])
    monkeypatch.setattr(library, "_is_alone", lambda: False)
    assert not onednn.is_available(X)
