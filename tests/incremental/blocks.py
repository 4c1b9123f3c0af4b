"""Blocks that models are made of: functions of one batch (n, …, c), by family.

A block keeps the rank, so that blocks can be chained in any order; whether shapes fit is asked of
JAX. Weights depend on their shape alone, so that a chain is known by the
names of its blocks.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import special


def weights(like, *shape):
    """Weights that keep the size of what they are multiplied with."""
    values = np.random.default_rng(shape).normal(size=shape) / math.sqrt(math.prod(shape[:-1]))
    return jnp.asarray(values, like.dtype)


def number(like, value):
    return jnp.asarray(value, like.dtype)


def shifted(x):
    """Another array of the same shape that depends on other entries."""
    return jnp.roll(x, 1, axis=1) * number(x, 0.7)


def below(x, by=1, axis=1):
    """The array moved along an axis, zeros before it."""
    config = [(0, 0, 0)] * x.ndim
    config[axis] = (by, -by, 0)
    return lax.pad(x, number(x, 0), config)


def unit(x):
    return number(x, 0.9) * jnp.tanh(x)


def positive(x):
    return jnp.abs(x) + number(x, 0.3)


def whole(x):
    """Small integers."""
    return lax.convert_element_type(lax.round(x * number(x, 3)), jnp.int32)


def back(x):
    """Integers, and whatever else is no float, as floats."""
    return lambda y: lax.convert_element_type(y, x.dtype)


def of_integers(f):
    return lambda x: back(x)(f(whole(x), whole(shifted(x))))


def of_floats(f):
    """Linear algebra knows no bfloat16."""
    return lambda x: f(x.astype(jnp.float32)).astype(x.dtype)


# ---------------------------------------------------------------- entry by entry

UNARY = {
    "abs": lax.abs,
    "acos": lambda x: lax.acos(unit(x)),
    "acosh": lambda x: lax.acosh(positive(x) + number(x, 1)),
    "asin": lambda x: lax.asin(unit(x)),
    "asinh": lax.asinh,
    "atan": lax.atan,
    "atanh": lambda x: lax.atanh(unit(x)),
    "bessel_i0e": of_floats(lax.bessel_i0e),
    "bessel_i1e": of_floats(lax.bessel_i1e),
    "cbrt": lax.cbrt,
    "ceil": lax.ceil,
    "cos": lax.cos,
    "cosh": lambda x: lax.cosh(unit(x)),
    "digamma": of_floats(lambda x: lax.digamma(positive(x))),
    "erf": lax.erf,
    "erf_inv": of_floats(lambda x: lax.erf_inv(unit(x))),
    "erfc": lax.erfc,
    "exp": lambda x: lax.exp(unit(x)),
    "exp2": lambda x: lax.exp2(unit(x)),
    "expm1": lambda x: lax.expm1(unit(x)),
    "floor": lax.floor,
    "integer_pow": lambda x: lax.integer_pow(unit(x), 3),
    "is_finite": lambda x: back(x)(lax.is_finite(x)),
    "lgamma": of_floats(lambda x: lax.lgamma(positive(x))),
    "log": lambda x: lax.log(positive(x)),
    "log1p": lambda x: lax.log1p(positive(x)),
    "logistic": lax.logistic,
    "neg": lax.neg,
    "reciprocal": lambda x: lax.reciprocal(positive(x)),
    "reduce_precision": lambda x: lax.reduce_precision(x, 8, 4),
    "round": lax.round,
    "rsqrt": lambda x: lax.rsqrt(positive(x)),
    "sign": lax.sign,
    "sin": lax.sin,
    "sinh": lambda x: lax.sinh(unit(x)),
    "sqrt": lambda x: lax.sqrt(positive(x)),
    "square": lax.square,
    "stop_gradient": lax.stop_gradient,
    "tan": lambda x: lax.tan(unit(x)),
    "tanh": lax.tanh,
    "optimization_barrier": lax.optimization_barrier,
    "nan_to_num": jnp.nan_to_num,
    "clip": lambda x: jnp.clip(x, -1, 1),
    "clamp": lambda x: lax.clamp(number(x, -0.5), x, number(x, 0.8)),
    "clamp by itself": lambda x: lax.clamp(-positive(shifted(x)), x, positive(shifted(x))),
    "gelu": jax.nn.gelu,
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "bfloat16 and back": lambda x: x.astype(jnp.bfloat16).astype(x.dtype),
    "weak scalars": lambda x: (2 * x + 1.5) / 3 - 0.25,
}  # fmt: skip

BINARY = {
    "add": lambda x: lax.add(x, shifted(x)),
    "sub": lambda x: lax.sub(x, shifted(x)),
    "sub from": lambda x: lax.sub(shifted(x), x),
    "mul": lambda x: lax.mul(x, shifted(x)),
    "div": lambda x: lax.div(x, positive(shifted(x))),
    "max": lambda x: lax.max(x, shifted(x)),
    "min": lambda x: lax.min(x, shifted(x)),
    "rem": lambda x: lax.rem(x, positive(shifted(x))),
    "pow": lambda x: lax.pow(positive(x), unit(shifted(x))),
    "atan2": lambda x: lax.atan2(x, shifted(x)),
    "nextafter": of_floats(lambda x: lax.nextafter(x, shifted(x))),
    "igamma": of_floats(lambda x: lax.igamma(positive(x), positive(shifted(x)))),
    "igammac": of_floats(lambda x: lax.igammac(positive(x), positive(shifted(x)))),
    "zeta": of_floats(lambda x: lax.zeta(positive(x) + 1, positive(shifted(x)))),
    "polygamma": of_floats(lambda x: lax.polygamma(jnp.ones_like(x), positive(x) + 1)),
    "betainc": of_floats(
        lambda x: lax.betainc(positive(x), positive(shifted(x)), jax.nn.sigmoid(x))
    ),
    "comparisons": lambda x: sum(
        (back(x)(f(x, shifted(x))) for f in (lax.gt, lax.ge, lax.lt, lax.le)), start=x
    ),
    "equal": lambda x: back(x)(lax.eq(lax.round(x), lax.round(shifted(x)))),
    "not equal": lambda x: back(x)(lax.ne(lax.round(x), lax.round(shifted(x)))),
    "select_n": lambda x: lax.select_n(x > 0, x, shifted(x)),
    "where clean": lambda x: jnp.where(x > 0, x, number(x, -1)),
    "where of another": lambda x: jnp.where(shifted(x) > 0, x, -x),
    "add_any": lambda x: jax.grad(lambda y: (y * y + jnp.sin(y) * y).sum())(x),
    "residual": lambda x: x + number(x, 0.5) * lax.tanh(x),
    "twice": lambda x: x + x,
    "times a weight": lambda x: x * weights(x, *x.shape[1:])[None],
    "plus a bias": lambda x: x + jnp.broadcast_to(weights(x, x.shape[-1]), x.shape),
    "times a mean": lambda x: x * x.mean(axis=1, keepdims=True),
}  # fmt: skip

INTEGER = {
    "and": of_integers(lax.bitwise_and),
    "or": of_integers(lax.bitwise_or),
    "xor": of_integers(lax.bitwise_xor),
    "not": of_integers(lambda a, b: lax.bitwise_not(a)),
    "shift_left": of_integers(lambda a, b: lax.shift_left(a, b & 3)),
    "shift_right_arithmetic": of_integers(lambda a, b: lax.shift_right_arithmetic(a, b & 3)),
    "integer division": of_integers(lambda a, b: lax.div(a, lax.abs(b) + 1)),
    "integer remainder": of_integers(lambda a, b: a % 3 + lax.rem(b, jnp.full_like(b, 4))),
    "integer sums": of_integers(lambda a, b: a * 2 + b - 1),
    "integer product of rows": of_integers(
        lambda a, b: jnp.einsum("...ij,jk->...ik", a, jnp.ones((a.shape[-1], 2), jnp.int32))
    ),
    "integer running sum": of_integers(lambda a, b: jnp.cumsum(a, axis=1)),
    "integer largest": of_integers(lambda a, b: jnp.maximum(a.max(1, keepdims=True), b)),
    "bytes": lambda x: back(x)(jnp.clip(x * number(x, 40) + 128, 0, 255).astype(jnp.uint8) // 2),
    "bits of floats": of_floats(
        lambda x: (lax.bitcast_convert_type(x, jnp.int32) >> 20).astype(jnp.float32) / 1000
    ),
    "bytes of floats": of_floats(
        lambda x: lax.bitcast_convert_type(x, jnp.uint8)[..., 3].astype(jnp.float32) / 99
    ),
    "logical": lambda x: back(x)(~((x > 0) & (shifted(x) > 0)) | (x > 1)),
}  # fmt: skip

# ---------------------------------------------------------------- along axes

REDUCTIONS = {
    "reduce_sum": lambda x: x - x.sum(axis=-1, keepdims=True),
    "reduce_sum over rows": lambda x: number(x, 0.3) * x.sum(axis=1, keepdims=True) + x,
    "mean over rows": lambda x: x - x.mean(axis=1, keepdims=True),
    "mean of all but channels": lambda x: x - x.mean(tuple(range(1, x.ndim - 1)), keepdims=True),
    "reduce_max": lambda x: x - x.max(axis=-1, keepdims=True),
    "reduce_max over rows": lambda x: x - x.max(axis=1, keepdims=True),
    "reduce_min": lambda x: x.min(axis=-1, keepdims=True),
    "reduce_min over rows": lambda x: x - x.min(axis=1, keepdims=True),
    "reduce_prod": lambda x: jnp.prod(unit(x), axis=-1, keepdims=True) + x,
    "reduce_prod over rows": lambda x: jnp.prod(unit(x) + 1, axis=1, keepdims=True) + x,
    "reduce_and": lambda x: x * back(x)((x > -1).all(axis=-1, keepdims=True)),
    "reduce_or over rows": lambda x: x * back(x)((x > 1).any(axis=1, keepdims=True)),
    "reduce_xor": lambda x: back(x)(lax.reduce_xor(whole(x), (x.ndim - 1,))[..., None]) + x,
    "argmax": lambda x: x + back(x)(jnp.argmax(x, axis=-1, keepdims=True)),
    "argmin over rows": lambda x: x + back(x)(jnp.argmin(x, axis=1, keepdims=True)),
    "deviation": lambda x: x / (x.std(axis=-1, keepdims=True) + number(x, 1)),
    "logsumexp over rows": lambda x: x - special.logsumexp(x, axis=1, keepdims=True),
    "median": of_floats(lambda x: x - jnp.median(x, axis=-1, keepdims=True)),
    "layer norm": lambda x: jax.nn.standardize(x, axis=-1),
    "instance norm": lambda x: jax.nn.standardize(x, axis=tuple(range(1, x.ndim - 1))),
    "rms norm": lambda x: x * lax.rsqrt((x * x).mean(-1, keepdims=True) + number(x, 0.1)),
    "softmax": lambda x: jax.nn.softmax(x, axis=-1),
    "softmax over rows": lambda x: jax.nn.softmax(number(x, 3) * x, axis=1),
    "log softmax": lambda x: jax.nn.log_softmax(x, axis=-1),
}  # fmt: skip

RUNNING = {
    "cumsum": lambda x: lax.cumsum(x, axis=x.ndim - 1),
    "cumsum over rows": lambda x: number(x, 0.3) * lax.cumsum(x, axis=1),
    "cumsum backwards": lambda x: number(x, 0.3) * lax.cumsum(x, axis=1, reverse=True),
    "cumprod": lambda x: lax.cumprod(unit(x), axis=x.ndim - 1),
    "cumprod over rows": lambda x: lax.cumprod(unit(x) + 1, axis=1),
    "cummax": lambda x: lax.cummax(x, axis=x.ndim - 1),
    "cummax over rows": lambda x: lax.cummax(x, axis=1),
    "cummin over rows": lambda x: lax.cummin(x, axis=1, reverse=True),
    "cumlogsumexp": lambda x: lax.cumlogsumexp(x, axis=x.ndim - 1),
    "cumlogsumexp over rows": lambda x: lax.cumlogsumexp(x, axis=1),
    "associative scan": lambda x: lax.associative_scan(lambda a, b: a / 2 + b, x, axis=1),
    "differences": lambda x: jnp.diff(x, axis=1, prepend=x[:, -1:]),
}  # fmt: skip

SORTING = {
    "sort": lambda x: jnp.sort(x, axis=-1),
    "sort over rows": lambda x: jnp.sort(x, axis=1),
    "sort of two": lambda x: sum(lax.sort_key_val(lax.tanh(x), shifted(x))),
    "sort of two, a clean key": lambda x: lax.sort_key_val(
        jnp.broadcast_to(weights(x, *x.shape[1:]), x.shape), x)[1],
    "sort of two keys": lambda x: sum(
        lax.sort((lax.round(x), shifted(x)), dimension=x.ndim - 1, num_keys=2)
    ),
    "sort of two, over rows": lambda x: lax.sort((x, shifted(x)), dimension=1, num_keys=1)[1],
    "argsort": lambda x: back(x)(jnp.argsort(x, axis=-1)),
    "top_k": lambda x: lax.top_k(x, min(2, x.shape[-1]))[0],
    "top_k indices": lambda x: back(x)(lax.top_k(x, min(2, x.shape[-1]))[1]),
    "approx_max_k": lambda x: lax.approx_max_k(x, min(2, x.shape[-1]))[0],
    "searchsorted": of_floats(lambda x: jnp.searchsorted(
        jnp.linspace(-2, 2, 9, dtype=x.dtype), x).astype(x.dtype)),
    "searchsorted in itself": of_floats(lambda x: x + jax.vmap(
        lambda row: jnp.searchsorted(jnp.sort(row.ravel()), row)
    )(x).astype(x.dtype)),
}  # fmt: skip

# ---------------------------------------------------------------- entries moved


def pad_with(*config, fill=0.0):
    """`lax.pad` on the axes after the batch's, the last ones not padded."""

    def padded(x):
        spaces = [(0, 0, 0), *config[: x.ndim - 2], *[(0, 0, 0)] * (x.ndim - 1 - len(config))]
        spaces = [*spaces[: x.ndim - 1], (0, 0, 0)]
        return lax.pad(x, number(x, fill), spaces)

    return padded


def drop_ones(x):
    return jnp.squeeze(x[:, :, None], axis=2)


MOVED = {
    "roll": lambda x: jnp.roll(x, 2, axis=1),
    "roll of channels": lambda x: jnp.roll(x, 1, axis=-1),
    "rev": lambda x: lax.rev(x, (1,)),
    "rev of channels": lambda x: lax.rev(x, (x.ndim - 1,)),
    "pad": pad_with((1, 2, 0), (2, 0, 0)),
    "pad with ones": pad_with((1, 1, 0), (0, 1, 0), fill=1.0),
    "pad inside": pad_with((0, 1, 1), (1, 0, 2)),
    "cropped by padding": pad_with((-1, -2, 0), (-1, 1, 0)),
    "padded between, cropped": pad_with((-2, 1, 1), (1, -1, 1)),
    "pad, the edge": lambda x: jnp.pad(x, [(0, 0), (1, 1), *[(0, 0)] * (x.ndim - 2)], mode="edge"),
    "pad, reflected": lambda x: jnp.pad(
        x, [(0, 0), (2, 1), *[(0, 0)] * (x.ndim - 2)], mode="reflect"),
    "pad, wrapped": lambda x: jnp.pad(x, [(0, 0), (1, 2), *[(0, 0)] * (x.ndim - 2)], mode="wrap"),
    "slice": lambda x: x[:, 1:-1],
    "strided slice": lambda x: x[:, 1::2],
    "slice of channels": lambda x: x[..., : max(1, x.shape[-1] // 2)],
    "backwards in steps": lambda x: x[:, ::-2],
    "squeeze, expand": drop_ones,
    "expand": lambda x: lax.expand_dims(x, (1,))[:, 0],
    "transpose": lambda x: jnp.swapaxes(x, 1, 2),
    "transpose back and forth": lambda x: jnp.swapaxes(
        lax.tanh(jnp.swapaxes(x, 1, -1)) + jnp.swapaxes(x, 1, -1), 1, -1),
    "reshape": lambda x: x.reshape(len(x), -1, 2, x.shape[-1]).swapaxes(1, 2).reshape(x.shape),
    "reshape into channels": lambda x: x.reshape(len(x), x.shape[1] // 2, *x.shape[2:-1], -1),
    "reshape across": lambda x: x.reshape(len(x), *x.shape[:0:-1]),
    "broadcast": lambda x: jnp.broadcast_to(x[:, :1], x.shape) + x,
    "broadcast of channels": lambda x: jnp.concatenate(
        [x, jnp.broadcast_to(x[..., :1], x.shape)], -1),
    "tile": lambda x: jnp.tile(x, (1, 2, *[1] * (x.ndim - 2))),
    "lax.tile": lambda x: lax.tile(x, (1, 2, *[1] * (x.ndim - 2))),
    "repeat": lambda x: jnp.repeat(x, 2, axis=1),
    "stack, unstack": lambda x: sum(jnp.unstack(jnp.stack([x, shifted(x)], axis=2), axis=2)),
    "lax.stack": lambda x: sum(lax.unstack(lax.stack([x, shifted(x)], axis=1), axis=1)),
    "split": lambda x: jnp.concatenate(jnp.split(x, 2, axis=1)[::-1], axis=-1),
    "split of channels": lambda x: jnp.concatenate(jnp.array_split(x, 2, axis=-1)[::-1], axis=-1),
    "concatenate": lambda x: jnp.concatenate([x, lax.tanh(x)], axis=1),
    "concatenate channels": lambda x: jnp.concatenate([x, shifted(x)], axis=-1),
    "concatenate, shuffled": lambda x: jnp.concatenate(
        [x, x[:, np.random.default_rng(0).permutation(x.shape[1])]], axis=-1),
    "concatenate, reversed": lambda x: jnp.concatenate([lax.rev(x, (1,)), x], axis=1),
    "concatenate, moved": lambda x: jnp.concatenate([x[:, 1:], x[:, :1]], axis=1),
    "class token": lambda x: jnp.concatenate([jnp.ones_like(x[:, :1]), x], axis=1),
    "plus below": lambda x: x + below(x) * number(x, 0.5),
    "plus below and right": lambda x: x + below(x) + below(x, 1, x.ndim - 2),
    "beside below": lambda x: jnp.concatenate([x, below(x, 2)], axis=-1),
    "beside moved": lambda x: jnp.concatenate([x, jnp.roll(x, 3, axis=1)], axis=-1),
    "beside reshaped": lambda x: jnp.concatenate(
        [x, x.reshape(len(x), -1, 2, *x.shape[2:]).swapaxes(1, 2).reshape(x.shape)], axis=-1),
    "above moved": lambda x: jnp.concatenate([x, jnp.roll(x, 2, axis=1)], axis=1),
    "checkerboard": lambda x: x[:, :, ::2] if x.ndim == 3 else x[:, ::2, 1::2],
}  # fmt: skip

INDEXED = {
    "gather": lambda x: x[:, np.arange(x.shape[1])[::-1] // 2],
    "gather, shuffled": lambda x: x[:, np.random.default_rng(0).permutation(x.shape[1])],
    "gather by value": lambda x: jnp.take_along_axis(
        x, jnp.argsort(x[..., :1], axis=1), axis=1, mode="clip"),
    "gather of channels": lambda x: jnp.take(x, np.array([0, 0]), axis=-1),
    "lookup": lambda x: jnp.take(weights(x, 5, 3), jnp.clip(whole(x[..., 0]), 0, 4), axis=0),
    "one hot": lambda x: jax.nn.one_hot(jnp.clip(whole(x[..., 0]), 0, 4), 5, dtype=x.dtype),
    "dynamic_slice": lambda x: lax.dynamic_slice_in_dim(x, jnp.int32(1), x.shape[1] - 1, 1),
    "dynamic_slice by value": lambda x: jax.vmap(
        lambda row: lax.dynamic_slice_in_dim(row, whole(row).sum() % 3, row.shape[0] - 2, 0))(x),
    "dynamic_update_slice": lambda x: lax.dynamic_update_slice_in_dim(
        x, jnp.ones_like(x[:, :2]), jnp.int32(1), 1),
    "dynamic_update_slice of edits": lambda x: lax.dynamic_update_slice_in_dim(
        jnp.zeros_like(x), x[:, :2], jnp.int32(1), 1),
    "set": lambda x: x.at[:, 1].set(number(x, 0.5)),
    "scatter": lambda x: jnp.zeros_like(x).at[:, ::-1].set(x),
    "scatter-add": lambda x: x.at[:, np.arange(x.shape[1]) // 2].add(x),
    "scatter-add into clean": lambda x: jnp.zeros_like(x).at[:, np.arange(x.shape[1]) // 2].add(x),
    "scatter-sub": lambda x: x.at[:, :2].subtract(x[:, -2:]),
    "scatter-mul": lambda x: x.at[:, :2].multiply(x[:, -2:]),
    "scatter-max": lambda x: x.at[:, :2].max(x[:, -2:]),
    "scatter-min": lambda x: x.at[:, np.array([0, 0])].min(x[:, -2:]),
    "segment sum": lambda x: jax.vmap(
        lambda r: jax.ops.segment_sum(r, np.arange(r.shape[0]) // 2, r.shape[0]))(x),
    "mask by position": lambda x: x * (jnp.arange(x.shape[1]) % 2).astype(x.dtype).reshape(
        1, -1, *[1] * (x.ndim - 2)),
}  # fmt: skip
