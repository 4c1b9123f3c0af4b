"""Operations that look entries up by indices, or put entries at them."""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp

from jaxsens.adapters.operations.reshaping import bounds_of


def _index(x: Any, indices: Sequence[Any]) -> Any:
    return x[tuple(slice(None) if i is None else i for i in indices)]


def _index_put(x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    place = x.at[tuple(slice(None) if i is None else i for i in indices)]
    values = jnp.asarray(values, x.dtype)
    return place.add(values) if accumulate else place.set(values)


def _index_select(x: Any, axis: int, index: Any) -> Any:
    return jnp.take(x, index, axis, mode="clip")


def _take_along(x: Any, axis: int, index: Any) -> Any:
    """PyTorch lets an index be shorter than x along the other axes."""
    if not x.ndim:
        return x
    axis %= x.ndim
    cut = [slice(None) if a == axis else slice(n) for a, n in enumerate(index.shape)]
    return jnp.take_along_axis(x[tuple(cut)], index, axis, mode="clip")


def _scatter(x: Any, axis: int, index: Any, values: Any, *, reduce: str | None = None) -> Any:
    places = list(jnp.meshgrid(*map(jnp.arange, index.shape), indexing="ij", sparse=True))
    places[axis % x.ndim] = index
    values = jnp.asarray(values, x.dtype)
    values = values[tuple(map(slice, index.shape))] if values.ndim else values
    at = x.at[tuple(places)]
    return at.add(values) if reduce == "add" else at.set(values)


def _select_scatter(x: Any, source: Any, axis: int, index: int) -> Any:
    place = (*(slice(None) for _ in range(axis % x.ndim)), index)
    return x.at[place].set(source)


def _slice_scatter(
    x: Any, source: Any, axis: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    first, last = bounds_of(x.shape[axis], start, end)
    place = (*(slice(None) for _ in range(axis % x.ndim)), slice(first, last, step))
    return x.at[place].set(source)


def _embedding(table: Any, ids: Any, *_: Any, **__: Any) -> Any:
    return table[ids]


def _one_hot(ids: Any, num_classes: int = -1) -> Any:
    if num_classes < 0:
        raise ValueError("one_hot needs num_classes, since it cannot depend on values")
    return (ids[..., None] == jnp.arange(num_classes)).astype(ids.dtype)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "embedding": _embedding,
    "gather": lambda x, axis, index, **_: _take_along(x, axis, index),
    "index": _index,
    "_unsafe_index": _index,
    "index_put": _index_put,
    "_unsafe_index_put": _index_put,
    "index_select": _index_select,
    "one_hot": _one_hot,
    "scatter": _scatter,
    "scatter_add": lambda x, axis, index, values: _scatter(x, axis, index, values, reduce="add"),
    "select_scatter": _select_scatter,
    "slice_scatter": _slice_scatter,
    "take_along_dim": lambda x, index, axis: _take_along(x, axis, index),
}
