"""Random networks of random layers: incremental evaluation gives the same outputs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax

from jaxsens import OverlappingPatches, Patches

CHANNELS = 3


def _conv(x, draw):
    size, stride, dilation = draw((1, 2, 3)), draw((1, 1, 2)), draw((1, 1, 2))
    if (size - 1) * dilation >= min(x.shape[1:3]):
        return x
    kernel = jnp.asarray(np.random.default_rng(size).normal(size=(size, size, CHANNELS, CHANNELS)))
    return lax.conv_general_dilated(
        x, kernel.astype(x.dtype), (stride, stride), draw(("SAME", "VALID")),
        rhs_dilation=(dilation, dilation), dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )  # fmt: skip


def _pool(x, draw):
    start, combine = draw(((-np.inf, lax.max), (np.inf, lax.min), (0.0, lax.add)))
    size, stride = draw((2, 3)), draw((1, 2))
    if size > min(x.shape[1:3]):
        return x
    window, strides = (1, size, size, 1), (1, stride, stride, 1)
    return lax.reduce_window(x, start, combine, window, strides, draw(("SAME", "VALID")))


def _shape(x, draw):
    kind = draw(("pad", "crop", "stride", "transpose", "join"))
    if kind == "pad":
        return jnp.pad(x, ((0, 0), (draw((0, 1)), 2), (1, 0), (0, 0)))
    if kind == "crop" and min(x.shape[1:3]) > 2:
        return x[:, draw((0, 1)) :, : -draw((1, 2))]
    if kind == "stride":
        return x[:, :: draw((1, 2)), :: draw((1, 2))]
    if kind == "transpose":
        return jnp.swapaxes(x, 1, 2)
    return jnp.concatenate([x, 0.5 * x], axis=draw((1, 2)))


def _entry(x, draw):
    kind = draw(("tanh", "residual", "norm", "mean", "mix"))
    if kind == "tanh":
        return jnp.tanh(x)
    if kind == "residual":
        return x + jnp.sin(x) * 0.5
    if kind == "norm":
        return (x - x.mean(-1, keepdims=True)) / (1 + x.std(-1, keepdims=True))
    if kind == "mean":
        return x - x.mean(axis=(1, 2), keepdims=True)
    return x @ jnp.asarray(np.random.default_rng(5).normal(size=(CHANNELS, CHANNELS)), x.dtype)


FEW, MANY = (
    settings(max_examples=number, deadline=None, suppress_health_check=list(HealthCheck))
    for number in (10, 40)
)


@FEW
@given(st.data())
def test_random_networks(compare, data):
    check_one(compare, data)


@pytest.mark.slow
@MANY
@given(st.data())
def test_many_random_networks(compare, data):
    check_one(compare, data)


def check_one(compare, data):
    def choose(options):
        return data.draw(st.sampled_from(options))

    plan = [choose((_conv, _conv, _pool, _shape, _entry, _entry)) for _ in range(choose((2, 3, 5)))]
    choices: list[list] = []

    def network(_, x):
        # Traced more than once, with the same choices each time.
        for number, layer in enumerate(plan):
            made, left = [], list(choices[number]) if number < len(choices) else None

            def draw(options, made=made, left=left):
                made.append(left.pop(0) if left is not None else choose(options))
                return made[-1]

            x = layer(x, draw)
            if number >= len(choices):
                choices.append(made)
            x = jnp.clip(x, -1e3, 1e3)
        return jnp.concatenate([x.reshape(len(x), -1), x.mean(axis=(1, 2))], axis=1)

    image = np.random.default_rng(1).normal(size=(8, 8, CHANNELS)).astype(np.float32)
    compare(network, image, choose((Patches(2), Patches(4), OverlappingPatches(3))))
    assert jax.eval_shape(lambda: network((), image[None])).shape[0] == 1
