"""Operations that make arrays of numbers, or of the shape of another array."""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp

from jaxsens.adapters.operations.dtypes import as_dtype


def _arange(start: Any, end: Any = None, step: Any = None, *, dtype: Any = None, **_: Any) -> Any:
    return jnp.arange(start, end, step, as_dtype(dtype))


def _full(size: Sequence[int], value: Any, *, dtype: Any = None, **_: Any) -> Any:
    return jnp.full(tuple(size), value, as_dtype(dtype))


def _like(value: Any) -> Callable[..., Any]:
    def made(x: Any, *, dtype: Any = None, **_: Any) -> Any:
        return jnp.full(x.shape, value, as_dtype(dtype) or x.dtype)

    return made


def _full_like(x: Any, value: Any, *, dtype: Any = None, **_: Any) -> Any:
    return jnp.full(x.shape, value, as_dtype(dtype) or x.dtype)


def _of_size(value: Any) -> Callable[..., Any]:
    def made(size: Sequence[int], *, dtype: Any = None, **_: Any) -> Any:
        return jnp.full(tuple(size), value, as_dtype(dtype) or jnp.float32)

    return made


def _new(value: Any) -> Callable[..., Any]:
    def made(x: Any, size: Sequence[int], *, dtype: Any = None, **_: Any) -> Any:
        return jnp.full(tuple(size), value, as_dtype(dtype) or x.dtype)

    return made


def _new_full(x: Any, size: Sequence[int], value: Any, *, dtype: Any = None, **_: Any) -> Any:
    return jnp.full(tuple(size), value, as_dtype(dtype) or x.dtype)


def _scalar(value: Any, *, dtype: Any = None, **_: Any) -> Any:
    return jnp.asarray(value, as_dtype(dtype))


def _eye(rows: int, columns: int | None = None, *, dtype: Any = None, **_: Any) -> Any:
    return jnp.eye(rows, columns, dtype=as_dtype(dtype) or jnp.float32)


def _linspace(start: Any, end: Any, steps: int, *, dtype: Any = None, **_: Any) -> Any:
    return jnp.linspace(start, end, steps, dtype=as_dtype(dtype) or jnp.float32)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "arange": _arange,
    "empty": _of_size(0),
    "empty_like": _like(0),
    "eye": _eye,
    "full": _full,
    "full_like": _full_like,
    "linspace": _linspace,
    "new_empty": _new(0),
    "new_full": _new_full,
    "new_ones": _new(1),
    "new_zeros": _new(0),
    "ones": _of_size(1),
    "ones_like": _like(1),
    "scalar_tensor": _scalar,
    "zeros": _of_size(0),
    "zeros_like": _like(0),
}
