"""Operations that move entries without changing them: views, permutations, joins, cuts."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax


def _sizes(sizes: Any, others: tuple[Any, ...] = ()) -> tuple[int, ...]:
    """Sizes that are given one by one or as a sequence."""
    return tuple(sizes) if isinstance(sizes, Sequence) else (sizes, *others)


def _expand(x: Any, sizes: Sequence[int], **_: Any) -> Any:
    num_new = len(sizes) - x.ndim
    kept = (*(1 for _ in range(num_new)), *x.shape)
    shape = tuple(k if size == -1 else size for size, k in zip(sizes, kept, strict=True))
    return jnp.broadcast_to(x, shape)


def _squeeze(x: Any, axes: Any = None) -> Any:
    axes = range(x.ndim) if axes is None else _sizes(axes)
    axes = [axis % x.ndim for axis in axes] if x.ndim else []
    return x.reshape([n for axis, n in enumerate(x.shape) if axis not in axes or n != 1])


def _flatten(x: Any, start: int = 0, end: int = -1) -> Any:
    if not x.ndim:
        return x.reshape(1)
    start, end = start % x.ndim, end % x.ndim
    merged = math.prod(x.shape[start : end + 1])
    return x.reshape(*x.shape[:start], merged, *x.shape[end + 1 :])


def _unflatten(x: Any, axis: int, sizes: Sequence[int]) -> Any:
    axis %= x.ndim
    return x.reshape(*x.shape[:axis], *sizes, *x.shape[axis + 1 :])


def _split(x: Any, size: Any, axis: int = 0) -> list[Any]:
    length = x.shape[axis]
    sizes = size if isinstance(size, Sequence) else [size] * (length // size)
    ends, parts = 0, []
    for each in sizes:
        parts.append(lax.slice_in_dim(x, ends, ends + each, axis=axis % x.ndim))
        ends += each
    if not isinstance(size, Sequence) and (ends < length or not parts):
        parts.append(lax.slice_in_dim(x, ends, length, axis=axis % x.ndim))
    return parts


def _chunk(x: Any, num: int, axis: int = 0) -> list[Any]:
    return _split(x, max(1, -(-x.shape[axis] // num)), axis)


def _unbind(x: Any, axis: int = 0) -> list[Any]:
    return [lax.index_in_dim(x, i, axis % x.ndim, False) for i in range(x.shape[axis])]


def _select(x: Any, axis: int, index: int) -> Any:
    return lax.index_in_dim(x, index % x.shape[axis], axis % x.ndim, False)


def bounds_of(length: int, start: Any, end: Any) -> tuple[int, int]:
    """The first and the last index but one of a slice, as Python counts them."""
    first, last, _ = slice(start, end).indices(length)
    return first, max(first, last)


def _slice(x: Any, axis: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    first, last = bounds_of(x.shape[axis], start, end)
    return lax.slice_in_dim(x, first, last, step, axis % x.ndim)


def _narrow(x: Any, axis: int, start: int, length: int) -> Any:
    start %= x.shape[axis]
    return lax.slice_in_dim(x, start, start + length, axis=axis % x.ndim)


def _repeat(x: Any, repeats: Sequence[int]) -> Any:
    return jnp.tile(x, tuple(repeats))


def _pad_widths(x: Any, pad: Sequence[int]) -> list[tuple[int, int]]:
    """PyTorch counts axes from the last, each with its two sides."""
    given = list(zip(pad[::2], pad[1::2], strict=True))
    return [(0, 0)] * (x.ndim - len(given)) + given[::-1]


def _constant_pad(x: Any, pad: Sequence[int], value: Any = 0) -> Any:
    widths = [(low, high, 0) for low, high in _pad_widths(x, pad)]
    return lax.pad(x, jnp.asarray(value or 0, x.dtype), widths)


def _pad(x: Any, pad: Sequence[int], mode: str = "constant", value: Any = None) -> Any:
    if mode == "constant":
        return _constant_pad(x, pad, value)
    modes = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    return jnp.pad(x, _pad_widths(x, pad), mode=modes[mode])


def _padded(mode: str) -> Callable[..., Any]:
    return lambda x, pad: _pad(x, pad, mode)


def _flip(x: Any, axes: Any) -> Any:
    return jnp.flip(x, tuple(_sizes(axes)))


def _roll(x: Any, shifts: Any, axes: Any = ()) -> Any:
    return jnp.roll(x, tuple(_sizes(shifts)), tuple(_sizes(axes)) or None)


def _pixel_shuffle(x: Any, factor: int) -> Any:
    *lead, channels, height, width = x.shape
    x = x.reshape(*lead, channels // factor**2, factor, factor, height, width)
    k = len(lead)
    x = x.transpose(*range(k), k, k + 3, k + 1, k + 4, k + 2)
    return x.reshape(*lead, channels // factor**2, height * factor, width * factor)


OPERATIONS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("view", "reshape", "_unsafe_view"), lambda x, sizes: x.reshape(tuple(sizes))),
    **dict.fromkeys(("permute",), lambda x, axes: x.transpose(tuple(axes))),
    **dict.fromkeys(("transpose", "swapaxes"), lambda x, a, b: x.swapaxes(a, b)),
    "adjoint": lambda x: x.swapaxes(-1, -2),
    "broadcast_to": _expand,
    "cat": lambda arrays, axis=0: jnp.concatenate([a for a in arrays if a.shape != (0,)], axis),
    "chunk": _chunk,
    "constant_pad_nd": _constant_pad,
    "diagonal": lambda x, offset=0, a=0, b=1: jnp.diagonal(x, offset, a, b),
    "expand": _expand,
    "expand_as": lambda x, other: _expand(x, other.shape),
    "flatten": _flatten,
    "flip": _flip,
    "mT": lambda x: x.swapaxes(-1, -2),
    "movedim": lambda x, source, target: jnp.moveaxis(x, source, target),
    "narrow": _narrow,
    "pad": _pad,
    "pixel_shuffle": _pixel_shuffle,
    "reflection_pad1d": _padded("reflect"),
    "reflection_pad2d": _padded("reflect"),
    "repeat": _repeat,
    "replication_pad1d": _padded("replicate"),
    "replication_pad2d": _padded("replicate"),
    "reshape_as": lambda x, other: x.reshape(other.shape),
    "roll": _roll,
    "select": _select,
    "slice": _slice,
    "split": _split,
    "split_with_sizes": _split,
    "squeeze": _squeeze,
    "stack": lambda arrays, axis=0: jnp.stack(arrays, axis),
    "t": lambda x: x.swapaxes(0, 1) if x.ndim == 2 else x,
    "tril": lambda x, diagonal=0: jnp.tril(x, diagonal),
    "triu": lambda x, diagonal=0: jnp.triu(x, diagonal),
    "unbind": _unbind,
    "unflatten": _unflatten,
    "unsqueeze": lambda x, axis: jnp.expand_dims(x, axis),
    "view_as": lambda x, other: x.reshape(other.shape),
}
