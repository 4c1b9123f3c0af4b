"""Matrix products, convolutions and attention."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def _linear(x: Any, weight: Any, bias: Any = None) -> Any:
    x = jnp.matmul(x, weight.T)
    return x if bias is None else x + bias


def _addmm(bias: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    product = a @ b if alpha == 1 else alpha * (a @ b)
    return product + (bias if beta == 1 else beta * bias)


def _einsum(equation: str, arrays: Sequence[Any], **_: Any) -> Any:
    return jnp.einsum(equation, *arrays)


def attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """softmax(Q Kᵀ·scale + mask) V, as `scaled_dot_product_attention` defines it.

    Args:
      query: (…, T, d).
      key: (…, T', d).
      value: (…, T', d').
      mask: (…, T, T'), true where a key is seen, or numbers that are added to the logits.
      dropout_p: must be 0.
      is_causal: whether keys after the query are not seen.
      scale: default 1/√d.
      enable_gqa: whether several heads of queries share one of keys and values.
    """
    if dropout_p:
        raise ValueError(f"attention has dropout of {dropout_p}: call module.eval()")
    if enable_gqa:
        num = query.shape[-3] // key.shape[-3]
        key, value = (jnp.repeat(each, num, axis=-3) for each in (key, value))
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    logits = jnp.matmul(query, key.swapaxes(-1, -2)) * scale
    if is_causal:
        mask = jnp.tril(jnp.ones(logits.shape[-2:], bool))
    if mask is not None and mask.dtype == bool:
        logits = jnp.where(mask, logits, jnp.asarray(jnp.finfo(logits.dtype).min, logits.dtype))
    elif mask is not None:
        logits = logits + mask
    # As PyTorch's kernels have it: half precision is rounded after the softmax, not in it.
    weights = jax.nn.softmax(logits.astype(jnp.promote_types(logits.dtype, jnp.float32)), axis=-1)
    return jnp.matmul(weights.astype(value.dtype), value)


def _each(value: Any, num: int) -> tuple[int, ...]:
    """One number for each axis of an image."""
    given = tuple(value) if isinstance(value, Sequence) else (value,)
    return given * num if len(given) == 1 else given


def _convolution(
    x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int,
) -> Any:  # fmt: skip
    num = weight.ndim - 2
    is_batch = x.ndim == num + 2
    x = x if is_batch else x[None]
    stride, padding, dilation, extra = (
        _each(value, num) for value in (stride, padding, dilation, output_padding)
    )
    sides = [(p, p) for p in padding]
    options: dict[str, Any] = {"rhs_dilation": dilation, "feature_group_count": groups}
    if transposed:
        # The gradient of a convolution: the kernel is turned, and zeros stand between the entries.
        span = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        sides = [(s - p, s - p + e) for s, p, e in zip(span, padding, extra, strict=True)]
        weight = jnp.flip(weight, tuple(range(2, weight.ndim)))
        old, new, *kernel = weight.shape
        weight = weight.reshape(groups, old // groups, new, *kernel).swapaxes(1, 2)
        weight = weight.reshape(groups * new, old // groups, *kernel)
        options["lhs_dilation"], stride = stride, (1,) * num
    out = lax.conv_general_dilated(x, weight, stride, sides, **options)
    if bias is not None:
        out = out + bias.reshape(-1, *(1,) * num)
    return out if is_batch else out[0]


OPERATIONS: dict[str, Callable[..., Any]] = {
    "addmm": _addmm,
    "baddbmm": _addmm,
    "bmm": jnp.matmul,
    "convolution": _convolution,
    "dot": jnp.dot,
    "einsum": _einsum,
    "linear": _linear,
    "matmul": jnp.matmul,
    "mm": jnp.matmul,
    "mv": jnp.matmul,
    "outer": jnp.outer,
    "scaled_dot_product_attention": attention,
}
