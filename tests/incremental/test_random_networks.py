"""Random networks of random layers: incremental evaluation gives the same outputs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax

from jaxsens import OverlappingPatches, Patches, Tokens, attention

CHANNELS = 3
WIDTH = 4


def weights(*shape):
    return jnp.asarray(np.random.default_rng(shape).normal(size=shape), jnp.float32)


def _conv(x, draw):
    size, stride, dilation = draw((1, 2, 3)), draw((1, 1, 2)), draw((1, 1, 2))
    if (size - 1) * dilation >= min(x.shape[1:3]):
        return x
    groups = draw((1, 1, CHANNELS))
    return lax.conv_general_dilated(
        x, weights(size, size, CHANNELS // groups, CHANNELS), (stride, stride),
        draw(("SAME", "VALID")), rhs_dilation=(dilation, dilation), feature_group_count=groups,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
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
    return x @ weights(CHANNELS, CHANNELS)


def _dense(x, draw):
    kind = draw(("dense", "norm", "residual"))
    if kind == "dense":
        return jax.nn.gelu(x @ weights(WIDTH, 6)) @ weights(6, WIDTH)
    if kind == "norm":
        return x / jnp.sqrt(0.1 + (x * x).mean(axis=-1, keepdims=True))
    return x + 0.5 * jnp.tanh(x)


def _attend(x, draw):
    q, k, v = (jnp.einsum("ntd,dhe->nthe", x, weights(WIDTH, 2, 2) + i) for i in range(3))
    causal, written = draw((False, True)), draw((False, True))
    if written:
        heads = jax.nn.dot_product_attention(q, k, v, is_causal=causal)
    else:
        length = x.shape[1]
        visible = jnp.tri(length, dtype=bool)[None] if causal else None
        heads = attention(q, k, v, visible=visible, causal=causal)
    return heads.reshape(len(x), x.shape[1], WIDTH)


def _in_time(x, draw):
    kind = draw(("sum", "loop", "back", "shift", "convolution"))
    if kind == "sum":
        return 0.3 * jnp.cumsum(x, axis=1)
    if kind == "shift":
        return x + jnp.roll(x, 1, axis=1)
    if kind == "convolution":
        dims = ("NWC", "WIO", "NWC")
        return lax.conv_general_dilated(
            x, weights(3, WIDTH, WIDTH), (1,), [(2, 0)], dimension_numbers=dims
        )

    def step(state, row):
        state = jnp.tanh(0.5 * state + row)
        return state, state

    states = lax.scan(step, jnp.zeros_like(x[:, 0]), jnp.swapaxes(x, 0, 1), reverse=kind == "back")
    return jnp.swapaxes(states[1], 0, 1)


def _rows(x, draw):
    kind = draw(("join", "drop", "turn", "sort", "pick"))
    if kind == "join":
        return jnp.concatenate([0.5 * x[:, :1], x], axis=1)
    if kind == "drop":
        return x[:, 1:] if x.shape[1] > 2 else x
    if kind == "turn":
        return x[:, ::-1]
    if kind == "sort":
        return jnp.sort(x, axis=-1)
    return x[:, np.arange(x.shape[1]) // 2]


FEW, MANY = (
    settings(max_examples=number, deadline=None, suppress_health_check=list(HealthCheck))
    for number in (10, 40)
)


IMAGES = (_conv, _conv, _pool, _shape, _entry, _entry)
TEXTS = (_dense, _dense, _attend, _in_time, _rows)


@FEW
@given(st.data())
@pytest.mark.parametrize(
    "layers",
    [pytest.param(IMAGES, id="images"), pytest.param(TEXTS, id="texts", marks=pytest.mark.slow)],
)
def test_random_networks(layers, compare, data):
    check_one(layers, compare, data)


@pytest.mark.slow
@MANY
@given(st.data())
@pytest.mark.parametrize("layers", [IMAGES, TEXTS], ids=["images", "texts"])
def test_many_random_networks(layers, compare, data):
    check_one(layers, compare, data)


def check_one(layers, compare, data):
    def choose(options):
        return data.draw(st.sampled_from(options))

    plan = [choose(layers) for _ in range(choose((2, 3, 5)))]
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
        means = x.mean(axis=tuple(range(1, x.ndim - 1)))
        return jnp.concatenate([x.reshape(len(x), -1), means], axis=1)

    if layers is IMAGES:
        shape, grid = (8, 8, CHANNELS), choose((Patches(2), Patches(4), OverlappingPatches(3)))
    else:
        shape, grid = (9, WIDTH), Tokens()
    example = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    compare(network, example, grid, num_position_groups=1 if layers is IMAGES else choose((1, 3)))
    assert jax.eval_shape(lambda: network((), example[None])).shape[0] == 1
