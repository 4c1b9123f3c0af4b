"""Which entries of an array are needed: a product of index sets, one for each axis.

An axis of a part is None where all of it is needed, else the sorted indices of what is. A part may
say more than is needed, never less.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Int

Shape = tuple[int, ...]
#: Indices of an axis that are needed, in order and each once; None for all of them.
Indices = Int[np.ndarray, " _"] | None
Part = tuple[Indices, ...]

#: Entries in more runs of neighbours than this are taken by their indices.
_MOST_SLICES = 8


def whole(shape: Sequence[int]) -> Part:
    """All of an array."""
    return (None,) * len(shape)


def is_whole(part: Part) -> bool:
    """Whether that is all of the array."""
    return all(indices is None for indices in part)


def lengths(part: Part, shape: Sequence[int]) -> Shape:
    """The shape of a part of an array."""
    return tuple(n if a is None else len(a) for a, n in zip(part, shape, strict=True))


def all_indices(indices: Indices, n: int) -> Int[np.ndarray, " _"]:
    """The indices themselves, of all n entries too."""
    return np.arange(n) if indices is None else indices


def narrowed(indices: Int[np.ndarray, " _"], n: int) -> Indices:
    """Indices in order and each once; None if these are all n."""
    indices = np.unique(indices)
    return None if len(indices) == n else indices


def union(parts: Sequence[Part], shape: Sequence[int]) -> Part:
    """What is needed of an array if all these parts of it are."""
    return tuple(
        None if any(a is None for a in of_axis) else narrowed(np.concatenate(of_axis), n)
        for of_axis, n in zip(zip(*parts, strict=True), shape, strict=True)
    )


def merged(indices: Sequence[Indices], sizes: Sequence[int]) -> Indices:
    """The indices on one axis that several axes become, in row-major order."""
    if all(each is None for each in indices):
        return None
    found = np.zeros(1, int)
    for each, n in zip(indices, sizes, strict=True):
        found = (found[:, None] * n + all_indices(each, n)[None]).reshape(-1)
    return found


def split(indices: Indices, sizes: Sequence[int]) -> list[Indices] | None:
    """The indices on several axes that one axis becomes; None if they are no product of sets."""
    if indices is None:
        return [None] * len(sizes)
    found = [
        narrowed(of_axis, n)
        for of_axis, n in zip(np.unravel_index(indices, tuple(sizes)), sizes, strict=True)
    ]
    num = math.prod(n if a is None else len(a) for a, n in zip(found, sizes, strict=True))
    return found if num == len(indices) else None


def crop(array: Any, have: Part, want: Part) -> Any:
    """A smaller part of an array of which a part is there.

    Args:
      array: the part that is there.
      have: which that is.
      want: which it shall be; nothing that is not there.
    """
    for axis, (old, new) in enumerate(zip(have, want, strict=True)):
        if new is None or (old is not None and np.array_equal(old, new)):
            continue
        array = _taken(array, new if old is None else np.searchsorted(old, new), axis)
    return array


def _taken(array: Any, places: Int[np.ndarray, " _"], axis: int) -> Any:
    steps = np.diff(places)
    if len(places) == 1 or (steps == steps[0]).all():
        step = int(steps[0]) if len(steps) else 1
        return lax.slice_in_dim(array, int(places[0]), int(places[-1]) + 1, step, axis)
    runs = np.split(places, np.flatnonzero(steps != 1) + 1)
    if len(runs) > _MOST_SLICES:
        return jnp.take(array, places.astype(np.int32), axis=axis, mode="clip")
    parts = [lax.slice_in_dim(array, int(r[0]), int(r[-1]) + 1, axis=axis) for r in runs]
    return lax.concatenate(parts, axis)
