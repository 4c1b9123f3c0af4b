"""A batch in chunks that fit a CPU's cache, one after the other.

What a convolution makes of a whole batch on its way (patches, tiles) is many times as large as the
batch. Made and used for a few images at a time, it never leaves the cache, and memory is bounded.

Assumption: each image's result depends on that image alone.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

Batch = Float[Array, "n ..."]


def chunk_size(num: int, bytes_of_one: int, limit: int) -> int:
    """How many of `num` images to take at a time, so that they stay below `limit` bytes.

    All of them where several devices may share a batch: a chunk would be that of one device.
    """
    most = max(1, limit // bytes_of_one)
    if most >= num or not _is_alone():
        return num
    divisor = max(size for size in range(1, most + 1) if num % size == 0)
    # A remainder is compiled a second time, but many tiny chunks would be worse.
    return divisor if 2 * divisor >= most else most


def _is_alone() -> bool:
    return jax.device_count() == 1


def mapped(fn: Callable[[Batch], Batch], x: Batch, size: int) -> Batch:
    """`fn` of all images, of `size` images at a time."""
    whole = x.shape[0] // size * size
    if whole == size:
        parts = [fn(x[:whole])]
    else:
        mapped = lax.map(fn, _cut(x, size))
        parts = [mapped.reshape(whole, *mapped.shape[2:])]
    if whole < x.shape[0]:
        parts.append(fn(x[whole:]))
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)


def summed(fn: Callable[..., Any], arrays: tuple[Batch, ...], size: int) -> Any:
    """Σ `fn` of the same images of each array, over chunks of `size` images: a tree of sums."""
    num = arrays[0].shape[0]
    whole = num // size * size
    if whole == size:
        total = fn(*(a[:whole] for a in arrays))
    else:
        cut = tuple(_cut(a, size) for a in arrays)
        like = jax.eval_shape(fn, *(a[0] for a in cut))
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
        total, _ = lax.scan(lambda total, part: (_added(total, fn(*part)), None), zeros, cut)
    return _added(total, fn(*(a[whole:] for a in arrays))) if whole < num else total


def _added(tree: Any, other: Any) -> Any:
    return jax.tree.map(jnp.add, tree, other)


def _cut(x: Batch, size: int) -> Float[Array, "c m ..."]:
    num = x.shape[0] // size
    return x[: num * size].reshape(num, size, *x.shape[1:])
