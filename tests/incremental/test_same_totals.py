"""The models that reuse once got wrong, measured: the same totals as by whole passes."""

import dataclasses
import warnings

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxsens import (
    Donor,
    Gaussian,
    Patches,
    Perturbation,
    Resample,
    Tokens,
    relative_l2,
    sensitivity,
)
from tests.incremental.blocks import below, weights
from tests.incremental.generated import PARAMS, Own, make_chain
from tests.incremental.layers import conv_of, partitioned

GENERATOR = np.random.default_rng(0)
IMAGES = GENERATOR.normal(size=(3, 12, 12, 1)).astype(np.float32)
LARGE = GENERATOR.normal(size=(3, 14, 14, 1)).astype(np.float32)
ROWS = GENERATOR.normal(size=(3, 10, 4)).astype(np.float32)
BYTES = GENERATOR.integers(0, 256, (3, 10, 4)).astype(np.uint8)
SPARSE = np.maximum(ROWS, 0)
WORDS = GENERATOR.integers(1, 10, (3, 12)).astype(np.int32)
WORDS[1, 5] = 0


def read(x):
    flat = x.reshape(len(x), -1)
    return jnp.tanh(flat @ weights(flat, flat.shape[1], 5))


def swin(_, x):
    moved = jnp.roll(conv_of(3, out=4)(x), (-2, -2), (1, 2))
    rows = partitioned(moved, 4)
    rows = jnp.tanh(rows @ weights(rows, rows.shape[-1], 8))
    return rows.mean(axis=1) @ weights(rows, 8, 5)


def strided(_, x):
    x = conv_of(3, out=4, strides=2, padding=(1, 1))(conv_of(1, out=4)(x))
    return jax.nn.relu(x).mean(axis=(1, 2))


def beside_itself(_, x):
    x = conv_of(3)(x)
    both = jnp.concatenate([x, jnp.concatenate([x[:, 3:], x[:, :3]], axis=1)], axis=-1)
    return read(jnp.einsum("ntd,ts->nsd", both, weights(x, 10, 6)))


def sorted_by_another(_, x):
    a = jnp.tanh(x + below(x) + below(x, 1, 2))
    key, value = lax.sort_key_val(a, jnp.tanh(conv_of(2, padding=(1, 0))(x)))
    return read((key + value).reshape(len(x), -1, 1)[:, ::3])


def weak_integer(params, x):
    return read((x * params[0]).astype(jnp.float32) / 255)


def weak_float(params, x):
    return read((x * params[1]).astype(jnp.float32))


def infinite_then_finite(_, x):
    return read(jnp.nan_to_num(jnp.einsum("ntd,ts->nsd", jnp.log(x), weights(x, 10, 6)), neginf=-3))


def log_probabilities(_, x):
    table = weights(x, 4, 6).at[0, 3:].set(-jnp.inf)
    return read(jax.nn.one_hot(jnp.argmax(jnp.abs(x) @ table, axis=-1), 6))


def huge_beside_small(_, x):
    return read((x * jnp.where(x > 2.2, 1e9, 1.0)).sum(axis=1))


def huge_in(channels, kept=()):
    """A table whose row 0 has huge entries in some channels, and every row in those it keeps."""
    table = GENERATOR.normal(size=(10, 48)).astype(np.float32)
    table[0, list(channels)] = -1e9
    table[:, list(kept)] = 1e9
    mix = GENERATOR.normal(size=(12, 7)).astype(np.float32)

    def model(_, ids):
        return read(jnp.tanh(jnp.einsum("ntc,ts->nsc", jnp.asarray(table)[ids], mix)))

    return model


def checks_its_rank(_, x):
    def squashed(x):
        assert np.ndim(x) == 3
        return np.tanh(x)

    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return read(jax.pure_callback(squashed, shape, x, vmap_method="expand_dims"))


@dataclasses.dataclass(frozen=True)
class Looked:
    """A grid whose positions start where a table of JAX says."""

    def layout(self, shape):
        return (5,)

    def window_shape(self, shape):
        return (1, shape[1])

    def start(self, position, shape):
        return jnp.array([8, 3, 0, 5, 1])[position], 0


def random_bits(_, x):
    key = jax.random.key(3, impl="rbg")
    return read(x + jnp.broadcast_to(jax.random.normal(key, x.shape[1:]), x.shape))


def counts_axes(_, x):
    def axes(x):
        return np.asarray(np.tanh(x) * np.ndim(x), np.float32)

    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return read(jax.pure_callback(axes, shape, x, vmap_method="expand_dims"))


def rolled_beside(_, x):
    x = conv_of(3, strides=2, padding=(1, 1))(x)
    return read(jnp.concatenate([x, jnp.roll(x, 1, axis=1)], axis=-1))


def long_mask(_, x):
    mask = jnp.zeros((10, 10))
    for step in range(1200):
        mask = mask + step
    logits = jnp.einsum("ntd,nsd->nts", x, x) + mask[None] / mask.max()
    return read(jnp.einsum("nts,nsd->ntd", jax.nn.softmax(logits), x))


NOISE, BORROWED = Gaussian(sigma=1.0), Donor()
CASES = {
    "changes out of bounds: windows": (swin, IMAGES, Patches(2), NOISE),
    "changes out of bounds: stride": (strided, LARGE, Patches(7), NOISE),
    "changes out of bounds: concatenated": (beside_itself, ROWS, Tokens(), NOISE),
    "reached by the second operand": (sorted_by_another, IMAGES, Patches(1), NOISE),
    "from the end": (lambda _, x: read(jnp.tanh(x)), ROWS, Own((1, 0), 9, (-1, 0), (-1, 0)), NOISE),
    "a Python integer": (weak_integer, BYTES, Tokens(), BORROWED),
    "a Python float": (weak_float, ROWS.astype(jnp.bfloat16), Tokens(), NOISE),
    "infinities that go": (infinite_then_finite, SPARSE, Tokens(), BORROWED),
    "logarithms of zero": (log_probabilities, ROWS, Tokens(), NOISE),
    "huge beside small": (huge_beside_small, ROWS, Tokens(), BORROWED),
    "huge in one channel": (huge_in([40]), WORDS, Tokens(), Resample(10)),
    "huge beside a channel that stays so": (huge_in([1], [0]), WORDS, Tokens(), Resample(10)),
    "huge in the last channels": (huge_in(range(44, 48)), WORDS, Tokens(), Resample(10)),
    "a start that is looked up": (lambda _, x: read(jnp.tanh(x)), ROWS, Looked(), NOISE),
    "a callback that checks its rank": (checks_its_rank, ROWS, Tokens(), NOISE),
    "random bits": (random_bits, ROWS, Tokens(), NOISE),
    "a callback that counts axes": (counts_axes, ROWS, Tokens(), NOISE),
    "copies of a channel": (
        lambda _, x: read(jnp.concatenate([x, jnp.broadcast_to(x[:, :, :1], x.shape)], -1)),
        ROWS, Tokens(), NOISE,
    ),
    "a stride beside its moved self": (rolled_beside, IMAGES, Patches(2), NOISE),
    "a mask of many operations": (long_mask, ROWS, Tokens(), NOISE),
}  # fmt: skip
#: One of each cause; the others take their time under `slow`.
FAST = (
    "changes out of bounds: stride", "infinities that go", "a callback that counts axes",
    "huge beside a channel that stays so",
)  # fmt: skip


def both_totals(f, x, grid, edit):
    """By reuse where it can be had, and by whole passes."""

    def totals(incremental):
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "every edit takes a whole forward pass, since the model"
            )
            return sensitivity(
                f, PARAMS, x, Perturbation(grid, edit), 2, key=jax.random.key(0),
                metric=relative_l2, incremental=incremental, devices=jax.local_devices()[:1],
            ).totals  # fmt: skip

    return totals("auto"), totals(False)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in CASES]
)
def test_the_same_totals(name, monkeypatch):
    monkeypatch.setattr("jaxsens.incremental.costs._WORTHWHILE", np.inf)
    reused, plain = both_totals(*CASES[name])
    assert plain.any()
    rounding = 0.02 if CASES[name][1].dtype == jnp.bfloat16 else 1e-4
    np.testing.assert_allclose(reused, plain, rtol=rounding, atol=rounding)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_the_same_totals_of_chains(seed, monkeypatch):
    """Of those chains that float32 does not shake: what rounding decides, whole passes do not."""
    monkeypatch.setattr("jaxsens.incremental.costs._WORTHWHILE", np.inf)
    chain = make_chain(10_000 + seed)
    if chain.is_wide or chain.x.dtype != np.float32:
        pytest.skip("other dtypes are compared without rounding")
    x = np.stack([chain.x, chain.x[::-1]])
    reused, plain = both_totals(chain.__call__, x, chain.grid, NOISE)
    np.testing.assert_allclose(reused, plain, rtol=1e-3, atol=1e-3)


def attention(_, x):
    query, key, value = (jnp.tanh(x @ weights(x, 4, 4 + i)[:, :4]) for i in range(3))
    logits = jnp.einsum("ntd,nsd->nts", query, key)
    return read(jnp.einsum("nts,nsd->ntd", jax.nn.softmax(logits), value))


def recurrent(_, x):
    cell = nn.GRUCell(5, dtype=x.dtype, param_dtype=x.dtype)
    first = cell.initialize_carry(jax.random.key(0), x[:, 0].shape)
    params = jax.eval_shape(cell.init, jax.random.key(0), first, x[:, 0])
    params = jax.tree.map(
        lambda a: jnp.cos(jnp.arange(a.size, dtype=a.dtype)).reshape(a.shape), params
    )
    carry, _ = lax.scan(lambda h, x_t: cell.apply(params, h, x_t), first, jnp.moveaxis(x, 1, 0))
    return carry


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("f", "x", "grid"),
    [
        (lambda _, x: read(jax.nn.relu(conv_of(3, out=4)(x))), IMAGES, Patches(2)),
        (attention, ROWS, Tokens()),
        (recurrent, ROWS, Tokens()),
    ],
)
def test_the_same_totals_with_wide_numbers(f, x, grid, dtype, monkeypatch):
    monkeypatch.setattr("jaxsens.incremental.costs._WORTHWHILE", np.inf)
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        reused, plain = both_totals(f, x.astype(dtype), grid, NOISE)
    assert plain.any()
    np.testing.assert_allclose(reused, plain, rtol=1e-4, atol=1e-4)
