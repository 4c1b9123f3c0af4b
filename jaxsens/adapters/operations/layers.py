"""Norms, pooling and resizing, as layers have them."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def _per_channel(values: Any, rank: int) -> Any:
    return values.reshape(1, -1, *(1,) * (rank - 2))


def _normed(x: Any, axes: tuple[int, ...], eps: float) -> tuple[Any, Any, Any]:
    """(x - mean)/√(variance + eps) in float32 at least, with mean and 1/√(variance + eps)."""
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    mean = wide.mean(axis=axes, keepdims=True)
    gain = lax.rsqrt(jnp.square(wide - mean).mean(axis=axes, keepdims=True) + eps)
    return (wide - mean) * gain, mean, gain


def _layer_norm(
    x: Any, shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> tuple[Any, Any, Any]:
    out, mean, gain = _normed(x, tuple(range(x.ndim - len(shape), x.ndim)), eps)
    out = out if weight is None else out * weight
    return (out if bias is None else out + bias).astype(x.dtype), mean, gain


def _rms_norm(x: Any, shape: Sequence[int], weight: Any = None, eps: float | None = None) -> Any:
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    eps = float(jnp.finfo(x.dtype).eps) if eps is None else eps
    out = wide * lax.rsqrt(jnp.square(wide).mean(axis=axes, keepdims=True) + eps)
    return (out if weight is None else out * weight).astype(x.dtype)


def _batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, _: float, eps: float,
    *__: Any,
) -> Any:  # fmt: skip
    if training or mean is None:
        raise ValueError(
            "BatchNorm takes the statistics of the batch, so that its examples depend on each "
            "other: call module.eval(), and let it keep running statistics"
        )
    gain = lax.rsqrt(variance + eps)
    gain = gain if weight is None else gain * weight
    shift = -mean * gain if bias is None else bias - mean * gain
    return (x * _per_channel(gain, x.ndim) + _per_channel(shift, x.ndim)).astype(x.dtype)


def _batch_norm_eval(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, eps: float
) -> tuple[Any, None, None]:
    return _batch_norm(x, weight, bias, mean, variance, False, momentum, eps), None, None


def _group_norm(
    x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Any:
    n, channels = x.shape[:2]
    grouped = x.reshape(n, num_groups, channels // num_groups, *x.shape[2:])
    out = _normed(grouped, tuple(range(2, grouped.ndim)), eps)[0].reshape(x.shape)
    out = out if weight is None else out * _per_channel(weight, x.ndim)
    return (out if bias is None else out + _per_channel(bias, x.ndim)).astype(x.dtype)


def _native_group_norm(
    x: Any, weight: Any, bias: Any, n: int, channels: int, size: int, groups: int, eps: float
) -> tuple[Any, None, None]:
    return _group_norm(x, groups, weight, bias, eps), None, None


def _instance_norm(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, use_input_stats: bool,
    momentum: float, eps: float, *_: Any,
) -> Any:  # fmt: skip
    if use_input_stats:
        return _group_norm(x, x.shape[1], weight, bias, eps)
    return _batch_norm(x, weight, bias, mean, variance, False, momentum, eps)


def _each(value: Any, num: int) -> tuple[int, ...]:
    given = tuple(value) if isinstance(value, Sequence) else (value,)
    return given * num if len(given) == 1 else given


def _sides(
    x: Any, size: Sequence[int], stride: Sequence[int], padding: Sequence[int], ceil: bool
) -> list[tuple[int, int]]:
    """Padding on both sides; with `ceil` more on the right, if a window starts inside."""
    found = []
    for n, k, s, p in zip(x.shape[-len(size) :], size, stride, padding, strict=True):
        more = -(n + 2 * p - k) % s if ceil else 0
        starts_outside = more and (-(-(n + 2 * p - k) // s)) * s >= n + p
        found.append((p, p + (0 if starts_outside else more)))
    return found


def _max_pool(num: int) -> Callable[..., Any]:
    def pooled(
        x: Any, size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
        ceil: bool = False,
    ) -> Any:  # fmt: skip
        size = _each(size, num)
        stride, padding = _each(stride or size, num), _each(padding, num)
        lead = (1,) * (x.ndim - num)
        spread = _each(dilation, num)
        spans = [d * (k - 1) + 1 for d, k in zip(spread, size, strict=True)]
        sides = [(0, 0)] * len(lead) + _sides(x, spans, stride, padding, ceil)
        lowest = -jnp.inf if jnp.issubdtype(x.dtype, jnp.inexact) else jnp.iinfo(x.dtype).min
        return lax.reduce_window(
            x, jnp.asarray(lowest, x.dtype), lax.max, (*lead, *size), (*lead, *stride), sides,
            window_dilation=(*lead, *spread),
        )  # fmt: skip

    return pooled


def _avg_pool(num: int) -> Callable[..., Any]:
    def pooled(
        x: Any, size: Any, stride: Any = (), padding: Any = 0, ceil: bool = False,
        count_include_pad: bool = True, divisor: int | None = None,
    ) -> Any:  # fmt: skip
        size = _each(size, num)
        stride, padding = _each(stride or size, num), _each(padding, num)
        lead = (1,) * (x.ndim - num)
        inner = _sides(x, size, stride, padding, ceil)
        sides = [(0, 0)] * len(lead) + inner

        def total(values: Any, sides: Any) -> Any:
            zero = jnp.asarray(0, values.dtype)
            return lax.reduce_window(values, zero, lax.add, (*lead, *size), (*lead, *stride), sides)

        if divisor is not None or (all(p == (0, 0) for p in inner)):
            return total(x, sides) / (divisor or math.prod(size))
        ones = jnp.ones((*lead, *x.shape[-num:]), x.dtype)
        if count_include_pad:
            # Padding counts, but not what `ceil` adds beyond it.
            widths = [(0, 0)] * len(lead) + [(p, p) for p in padding]
            ones = jnp.pad(ones, widths, constant_values=1)
            sides_of_ones = [(0, 0)] * len(lead) + [
                (0, high - p) for (_, high), p in zip(inner, padding, strict=True)
            ]
            return total(x, sides) / total(ones, sides_of_ones)
        return total(x, sides) / total(ones, sides)

    return pooled


def _adaptive_avg_pool(num: int) -> Callable[..., Any]:
    def pooled(x: Any, out: Any) -> Any:
        out = tuple(o or n for o, n in zip(_each(out, num), x.shape[-num:], strict=True))
        for axis, size in zip(range(x.ndim - num, x.ndim), out, strict=True):
            x = _adaptive_axis(x, axis, size)
        return x

    return pooled


def _adaptive_axis(x: Any, axis: int, size: int) -> Any:
    """Means of `size` windows from ⌊i·n/size⌋ to ⌈(i+1)·n/size⌉."""
    n = x.shape[axis]
    if n % size == 0:
        return x.reshape(*x.shape[:axis], size, n // size, *x.shape[axis + 1 :]).mean(axis=axis + 1)
    means = [
        lax.slice_in_dim(x, i * n // size, -(-(i + 1) * n // size), axis=axis).mean(
            axis=axis, keepdims=True
        )
        for i in range(size)
    ]
    return jnp.concatenate(means, axis)


def _nearest(x: Any, size: Any, *factors: Any) -> Any:
    size = _resized(x, size, factors)
    for axis, new in zip(range(2, x.ndim), size, strict=True):
        old = x.shape[axis]
        x = jnp.take(x, jnp.asarray([i * old // new for i in range(new)]), axis)
    return x


def _bilinear(x: Any, size: Any, align_corners: bool, *factors: Any) -> Any:
    if align_corners:
        raise ValueError("interpolate(align_corners=True) has no translation to JAX")
    size = _resized(x, size, factors)
    return jax.image.resize(x, (*x.shape[:2], *size), "linear", antialias=False)


def _resized(x: Any, size: Any, factors: Sequence[Any]) -> tuple[int, ...]:
    """The sides asked for, or those that come of a factor for each."""
    if size is not None:
        return tuple(size)
    return tuple(int(n * factor) for n, factor in zip(x.shape[2:], factors[0], strict=True))


OPERATIONS: dict[str, Callable[..., Any]] = {
    "_adaptive_avg_pool2d": _adaptive_avg_pool(2),
    "_native_batch_norm_legit_no_training": _batch_norm_eval,
    "adaptive_avg_pool1d": _adaptive_avg_pool(1),
    "adaptive_avg_pool2d": _adaptive_avg_pool(2),
    "avg_pool1d": _avg_pool(1),
    "avg_pool2d": _avg_pool(2),
    "batch_norm": _batch_norm,
    "group_norm": _group_norm,
    "instance_norm": _instance_norm,
    "layer_norm": lambda *args, **named: _layer_norm(*args, **named)[0],
    "max_pool1d": _max_pool(1),
    "max_pool2d": _max_pool(2),
    "max_pool2d_with_indices": lambda *args: (_max_pool(2)(*args), None),
    "native_group_norm": _native_group_norm,
    "native_layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "upsample_bilinear2d": _bilinear,
    "upsample_nearest2d": _nearest,
}
