"""Operations that sum, compare or normalise along axes."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxsens.adapters.operations.dtypes import as_dtype


def _axes(x: Any, dims: Any) -> tuple[int, ...]:
    """All axes for None and for no axis at all."""
    dims = dims if isinstance(dims, Sequence) else () if dims is None else (dims,)
    return tuple(axis % x.ndim for axis in dims) if x.ndim and dims else tuple(range(x.ndim))


def _summing(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduced(x: Any, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        is_count = not jnp.issubdtype(x.dtype, jnp.inexact) and function is not jnp.mean
        kind = as_dtype(dtype) or (jax.dtypes.canonicalize_dtype("int64") if is_count else x.dtype)
        return function(x.astype(kind), axis=_axes(x, dims), keepdims=keepdim)

    return reduced


def _spread(function: Callable[..., Any]) -> Callable[..., Any]:
    """Variance or standard deviation, whose arguments differ from overload to overload."""

    def reduced(x: Any, dims: Any = None, *more: Any, **named: Any) -> Any:
        unbiased = [each for each in (dims, *more, named.get("unbiased")) if isinstance(each, bool)]
        correction = named.get("correction", 1)
        if unbiased:
            correction = int(unbiased[0])
        axes = _axes(x, None if isinstance(dims, bool) else named.get("dim", dims))
        keepdims = named.get("keepdim", len(unbiased) > 1 and unbiased[1])
        return function(
            x, axis=axes, ddof=1 if correction is None else correction, keepdims=keepdims
        )

    return reduced


def _var_mean(x: Any, dims: Any = None, **named: Any) -> tuple[Any, Any]:
    keepdim = named.get("keepdim", False)
    return _spread(jnp.var)(x, dims, **named), jnp.mean(x, axis=_axes(x, dims), keepdims=keepdim)


def _comparing(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduced(x: Any, dims: Any = None, keepdim: bool = False) -> Any:
        return function(x, axis=_axes(x, dims), keepdims=keepdim)

    return reduced


def _extreme(extreme: Callable, index: Callable, other: Callable) -> Callable[..., Any]:
    """`max` and `min`: of all entries, along an axis with its indices, or of two arrays."""

    def reduced(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is None:
            return extreme(x)
        if not isinstance(dim, int):
            return other(x, dim)
        return extreme(x, axis=dim, keepdims=keepdim), index(x, axis=dim, keepdims=keepdim)

    return reduced


def _index_of(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduced(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
        return function(x, axis=dim, keepdims=keepdim)

    return reduced


def _softmax(function: Callable[..., Any]) -> Callable[..., Any]:
    def normalised(x: Any, dim: int, dtype: Any = None, **_: Any) -> Any:
        # The third argument of `_softmax` is whether half precision becomes float32.
        kind = {True: jnp.float32, False: x.dtype}.get(dtype) if isinstance(dtype, bool) else None
        return function(x.astype(kind or as_dtype(dtype) or x.dtype), axis=dim)

    return normalised


def _cumulative(function: Callable[..., Any]) -> Callable[..., Any]:
    def summed(x: Any, dim: int, *, dtype: Any = None) -> Any:
        is_count = not jnp.issubdtype(x.dtype, jnp.inexact)
        kind = as_dtype(dtype) or (jax.dtypes.canonicalize_dtype("int64") if is_count else x.dtype)
        return function(x.astype(kind), axis=dim)

    return summed


def _vector_norm(
    x: Any, order: Any = 2, dims: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    x = x if dtype is None else x.astype(as_dtype(dtype))
    axes, sizes = _axes(x, dims), jnp.abs(x)
    if order in (float("inf"), float("-inf")):
        return (jnp.max if order > 0 else jnp.min)(sizes, axis=axes, keepdims=keepdim)
    if order == 2:
        return jnp.sqrt(jnp.sum(sizes**2, axis=axes, keepdims=keepdim))
    return jnp.sum(sizes**order, axis=axes, keepdims=keepdim) ** (1 / order)


def _topk(x: Any, k: int, dim: int = -1, largest: bool = True, *_: Any) -> tuple[Any, Any]:
    moved = jnp.moveaxis(x, dim, -1)
    values, places = lax.top_k(moved if largest else -moved, k)
    values = values if largest else -values
    return jnp.moveaxis(values, -1, dim), jnp.moveaxis(places, -1, dim)


def _sort(x: Any, *args: Any, **named: Any) -> tuple[Any, Any]:
    numbers = [each for each in args if not isinstance(each, bool)]
    dim = named.get("dim", numbers[0] if numbers else -1)
    flags = [each for each in args if isinstance(each, bool)]
    descending = named.get("descending", flags[-1] if flags else False)
    places = jnp.argsort(x, axis=dim, stable=True, descending=descending)
    return jnp.take_along_axis(x, places, axis=dim), places


def _logsumexp(x: Any, dims: Any, keepdim: bool = False) -> Any:
    return jax.nn.logsumexp(x, axis=_axes(x, dims), keepdims=keepdim)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "all": _comparing(jnp.all),
    "amax": _comparing(jnp.max),
    "amin": _comparing(jnp.min),
    "any": _comparing(jnp.any),
    "argmax": _index_of(jnp.argmax),
    "argmin": _index_of(jnp.argmin),
    "argsort": lambda x, *args, **named: _sort(x, *args, **named)[1],
    "cumprod": _cumulative(jnp.cumprod),
    "cumsum": _cumulative(jnp.cumsum),
    "linalg_vector_norm": _vector_norm,
    "logsumexp": _logsumexp,
    "max": _extreme(jnp.max, jnp.argmax, jnp.maximum),
    "mean": _summing(jnp.mean),
    "min": _extreme(jnp.min, jnp.argmin, jnp.minimum),
    "prod": _summing(jnp.prod),
    "sort": _sort,
    "std": _spread(jnp.std),
    "sum": _summing(jnp.sum),
    "topk": _topk,
    "var": _spread(jnp.var),
    "var_mean": _var_mean,
    **dict.fromkeys(("softmax", "_softmax"), _softmax(jax.nn.softmax)),
    **dict.fromkeys(("log_softmax", "_log_softmax"), _softmax(jax.nn.log_softmax)),
}
