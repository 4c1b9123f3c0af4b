"""The models that reuse once got wrong, measured: the same totals as by whole passes."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxsens import Donor, Gaussian, Patches, Perturbation, Tokens, relative_l2, sensitivity
from tests.incremental.blocks import below, weights
from tests.incremental.generated import PARAMS, Own, make_chain
from tests.incremental.layers import conv_of, partitioned

GENERATOR = np.random.default_rng(0)
IMAGES = GENERATOR.normal(size=(3, 12, 12, 1)).astype(np.float32)
LARGE = GENERATOR.normal(size=(3, 14, 14, 1)).astype(np.float32)
ROWS = GENERATOR.normal(size=(3, 10, 4)).astype(np.float32)
BYTES = GENERATOR.integers(0, 256, (3, 10, 4)).astype(np.uint8)
SPARSE = np.maximum(ROWS, 0)


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
