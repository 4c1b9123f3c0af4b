"""Every rule, and what has no rule: equal to the whole function at every position."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxsens import Bits, OverlappingPatches, Patches, Tokens
from jaxsens.incremental.attention_operation import attention

RNG = np.random.default_rng(0)
IMAGE = RNG.normal(size=(8, 8, 2)).astype(np.float32)
ROWS = RNG.normal(size=(10, 4)).astype(np.float32)
POINT = RNG.normal(size=12).astype(np.float32)


def weights(*shape):
    return jnp.asarray(np.random.default_rng(sum(shape)).normal(size=shape), jnp.float32)


def conv(x, kernel, **options):
    options = {"window_strides": (1, 1), "padding": "SAME"} | options
    return lax.conv_general_dilated(
        x, kernel, dimension_numbers=("NHWC", "HWIO", "NHWC"), **options
    )


def pool(x, start, combine, size=3, stride=2, padding="VALID"):
    return lax.reduce_window(x, start, combine, (1, size, size, 1), (1, stride, stride, 1), padding)


def flat(x):
    return x.reshape(x.shape[0], -1)


IMAGES = {
    "same": lambda x: conv(x, weights(3, 3, 2, 4)),
    "valid": lambda x: conv(x, weights(3, 3, 2, 4), padding="VALID"),
    "strided": lambda x: conv(x, weights(3, 3, 2, 4), window_strides=(2, 2)),
    "stride of three": lambda x: conv(x, weights(2, 2, 2, 4), window_strides=(3, 3)),
    "dilated": lambda x: conv(x, weights(3, 3, 2, 4), rhs_dilation=(2, 2)),
    "of a dilated image": lambda x: conv(
        x, weights(3, 3, 2, 4), lhs_dilation=(2, 2), padding=((1, 1), (1, 1))
    ),
    "grouped": lambda x: conv(x, weights(3, 3, 1, 4), feature_group_count=2),
    "uneven padding": lambda x: conv(x, weights(3, 3, 2, 4), padding=((0, 2), (3, 0))),
    "large kernel": lambda x: conv(x, weights(7, 7, 2, 4)),
    "edited kernel": lambda x: conv(x, jnp.broadcast_to(x[0, :3, :3, :, None], (3, 3, 2, 2))),
    "two convolutions": lambda x: conv(jnp.tanh(conv(x, weights(3, 3, 2, 3))), weights(3, 3, 3, 4)),
    "residual": lambda x: x + conv(jax.nn.relu(conv(x, weights(3, 3, 2, 2))), weights(3, 3, 2, 2)),
    "max pooling": lambda x: pool(x, -jnp.inf, lax.max),
    "max pooling, same": lambda x: pool(x, -jnp.inf, lax.max, padding="SAME"),
    "min pooling": lambda x: pool(x, jnp.inf, lax.min, size=2),
    "sum pooling": lambda x: pool(x, 0.0, lax.add, padding="SAME"),
    "pooled convolution": lambda x: pool(conv(x, weights(3, 3, 2, 4)), -jnp.inf, lax.max, 2),
    "shifts side by side": lambda x: jnp.concatenate(
        [x, jnp.pad(x, ((0, 0), (1, 0), (0, 1), (0, 0)))[:, :-1, 1:]], axis=-1
    ),
    "concatenated rows": lambda x: jnp.concatenate([x, jnp.sin(x), jnp.ones_like(x)], axis=1),
    "every second row": lambda x: x[:, 1::2, ::3],
    "a corner": lambda x: x[:, :3, 5:],
    "cropped by padding": lambda x: lax.pad(x, 0.0, ((0, 0, 0), (-2, 1, 1), (2, -1, 0), (0, 0, 0))),
    "patches": lambda x: x.reshape(1, 4, 2, 4, 2, 2).transpose(0, 1, 3, 2, 4, 5).reshape(1, 16, 8),
    "patches of three rows": lambda x: x[:, :6, :6].reshape(1, 2, 3, 3, 2, 2).sum(axis=(2, 4)),
    "norm over channels": lambda x: (
        (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + 1)
    ),
    "norm over the image": lambda x: (x - x.mean((1, 2), keepdims=True)) / (1 + x.std()),
    "flattened and multiplied": lambda x: flat(x) @ weights(128, 5),
    "largest of each row": lambda x: x.max(axis=2),
    "argmax": lambda x: jnp.argmax(x, axis=-1).astype(jnp.float32),
    "transposed": lambda x: x.transpose(0, 3, 2, 1),
    "reversed": lambda x: x[:, ::-1],
    "broadcast": lambda x: x[:, :, :, None, :] * weights(3, 2)[None, None, None],
    "by platform": lambda x: lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos),
}


@pytest.mark.parametrize(
    "grid",
    [Patches(2), pytest.param(Patches(4), marks=pytest.mark.slow), OverlappingPatches(3)],
    ids=str,
)
@pytest.mark.parametrize("name", IMAGES)
def test_images(compare, name, grid):
    compare(lambda _, x: flat(IMAGES[name](x)), IMAGE, grid)


def scanned(x):
    def step(state, row):
        state = jnp.tanh(state @ weights(4, 4) + row)
        return state, state * 2.0

    last, states = lax.scan(step, jnp.zeros((x.shape[0], 4)), jnp.swapaxes(x, 0, 1))
    return jnp.concatenate([last, flat(jnp.swapaxes(states, 0, 1))], axis=1)


def loop(x):
    return lax.while_loop(lambda s: jnp.abs(s).max() > 1.0, lambda s: s / 2, x)


def attended(x, **options):
    q, k, v = (jnp.einsum("ntd,dhe->nthe", x, weights(4, 2, size)) for size in (3, 3, 3))
    return attention(q, k[..., ::-1], v, **options)


CAUSAL = jnp.tril(jnp.ones((10, 10), bool))[None]

SEQUENCES = {
    "product of rows": lambda x: x @ weights(4, 3),
    "product over rows": lambda x: jnp.einsum("ntd,tk->nkd", x, weights(10, 3)),
    "gram matrix": lambda x: jnp.einsum("ntd,nsd->nts", x, x),
    "covariance": lambda x: jnp.einsum("ntd,nte->nde", x, x),
    "shared axis": lambda x: jnp.einsum("ntd,ntd->nt", x, jnp.sin(x)),
    "shared axis, clean": lambda x: jnp.einsum("ntd,td->nt", x, weights(10, 4)),
    "layer norm": lambda x: jax.nn.standardize(x, axis=-1),
    "norm across rows": lambda x: jax.nn.standardize(x, axis=1),
    "softmax of rows": lambda x: jax.nn.softmax(x, axis=-1),
    "softmax across rows": lambda x: jax.nn.softmax(3 * x, axis=1),
    "sharp softmax across rows": lambda x: jax.nn.softmax(40 * x, axis=1),
    "log-sum-exp": lambda x: jax.nn.logsumexp(10 * x, axis=1),
    "cumsum across rows": lambda x: jnp.cumsum(x, axis=1),
    "cumsum along rows": lambda x: jnp.cumsum(x, axis=2),
    "sort across rows": lambda x: jnp.sort(x, axis=1),
    "sort along rows": lambda x: jnp.sort(x, axis=2),
    "product": lambda x: jnp.prod(x, axis=1),
    "gather": lambda x: x[:, jnp.array([3, 3, 0])],
    "gather by value": lambda x: jnp.take_along_axis(x, jnp.argsort(x[..., :1], axis=1), axis=1),
    "last row": lambda x: x[:, -1],
    "dynamic slice": lambda x: lax.dynamic_slice_in_dim(x, jnp.int32(2), 3, 1),
    "updated": lambda x: x.at[:, 4].set(0.5),
    "scan": scanned,
    "scan, reversed": lambda x: scanned(x[:, ::-1]),
    "while": loop,
    "cond": lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x),
    "jit, remat, custom": lambda x: jax.checkpoint(jax.jit(jax.nn.relu6))(jax.nn.silu(x)),
    "where": lambda x: jnp.where(x > 0, x, x.mean(axis=1, keepdims=True)),
    "infinite": lambda x: jnp.exp(jnp.where(x > 0, x, -jnp.inf)),
    "masked and largest": lambda x: jnp.where(x[..., :1] > 0, x, -jnp.inf).max(1).clip(-9),
    "scalar": lambda x: x * x.sum(),
    "of integers": lambda x: jnp.round(x).astype(jnp.int32).astype(jnp.float32) % 3,
    "split": lambda x: jnp.concatenate(jnp.split(x, 2, axis=2)[::-1], axis=2),
    "split rows": lambda x: jnp.concatenate(jnp.split(x, 2, axis=1)[::-1], axis=2),
    "class token": lambda x: jnp.concatenate([jnp.ones((1, 1, 4)), x], axis=1) @ weights(4, 2),
    "nothing of it": lambda x: jnp.ones((1, 3)),
    "attention": attended,
    "attention, relu": functools.partial(attended, activation="relu"),
    "attention, projected": lambda x: attended(x, out=weights(2, 3, 4)),
    "attention, masked": lambda x: attended(x, visible=~jnp.eye(10, dtype=bool)[None]),
    "attention, causal": lambda x: attended(x, visible=CAUSAL, causal=True, out=weights(2, 3, 4)),
    "sharp attention": lambda x: attended(10.0 * x),
    "two blocks of attention": lambda x: attended(x + attended(x, out=weights(2, 3, 4))),
    "dot_product_attention": lambda x: jax.nn.dot_product_attention(
        *(x[:, :, None] * s for s in (1.0, 2.0, 3.0)), is_causal=True
    ),
}


@pytest.mark.parametrize("num_position_groups", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences(compare, name, num_position_groups):
    compare(
        lambda _, x: flat(SEQUENCES[name](x)),
        ROWS,
        Tokens(),
        num_position_groups=num_position_groups,
    )


def test_a_single_query_is_read_from_the_edited_tokens(compare):
    compare(lambda _, x: attention(*(x[:, :n, None] for n in (1, 10, 10)))[:, 0, 0], ROWS, Tokens())


def test_edited_queries_alone(compare):
    clean = weights(1, 10, 1, 4)
    compare(lambda _, x: flat(attention(x[:, :, None], clean, clean)), ROWS, Tokens())


def test_bits(compare):
    compare(lambda w, x: jnp.tanh(x @ w)[:, :1] * x[:, 3:4], POINT, Bits(), params=weights(12, 6))


def test_ids_are_looked_up(compare):
    ids = np.array([0, 3, 1, 1, 4, 2], np.int32)
    program = compare(lambda w, x: jnp.tanh(w[x]).mean(axis=1), ids, Tokens(), params=weights(5, 3))
    assert program.position_groups[0].layout.window == (1, 1)


def test_context_is_clean(compare):
    mask = jnp.arange(10) < 7
    compare(
        lambda _, x, m: jnp.where(m[..., None], x, 0.0).sum(axis=1),
        ROWS,
        Tokens(),
        contexts=[(mask,)],
    )


def test_sharp_attention_does_not_cancel(compare):
    # An old token that had all the weight leaves nothing but what the others add up to.
    rows = np.array(ROWS)
    rows[4] *= 30
    compare(lambda _, x: flat(attended(x)), rows, Tokens(), scale=0.1)
