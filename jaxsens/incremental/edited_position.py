"""The position whose window is edited, and what the result of its edit relies on.

Every table of a layout has one row per position. The position is traced, so one compiled program
serves all positions of a group: it looks its row up when it runs.
"""

import math
from dataclasses import dataclass, field

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int

#: Entries that are looked at to see how large they usually are: along the longest axis, the next.
_LOOKED_AT = 16, 4


@dataclass(frozen=True)
class EditedPosition:
    """One position of a group, traced, with notes that rules leave on the way.

    Attributes:
      index: its row in every table.
      relied_on: the clean values that changes were taken from or added to. If one of them is not
        finite, neither is what reuse makes of it.
      doubts: one flag for each sum that could be the small rest of two large numbers, and is then
        mostly rounding.
    """

    index: Int[Array, ""]
    relied_on: list[Array] = field(default_factory=list)
    doubts: list[Bool[Array, ""]] = field(default_factory=list)

    def row(self, table: np.ndarray) -> Array:
        """This position's row of a table; a constant where all positions have the same."""
        table = table.astype(np.int32) if table.dtype.kind == "i" else table
        if (table == table[:1]).all():
            return jnp.asarray(table[0])
        return lax.dynamic_index_in_dim(jnp.asarray(table), self.index, keepdims=False)

    def rely_on(self, clean: Array) -> None:
        """Notes that the result is right only if this clean value is finite."""
        if jnp.issubdtype(clean.dtype, jnp.inexact):
            self.relied_on.append(clean)

    def doubt_cancellation(self, old: Array, new: Array) -> None:
        """Notes whether a new entry is so small beside the old one that it is mostly rounding.

        A single entry is small by chance now and then, and does no harm where others are not: it
        has to be small beside the old one, and the old one large beside what entries of the window
        usually are. So one channel that loses a huge entry is noticed, also beside one that keeps
        its own.
        """
        least = math.sqrt(jnp.finfo(old.dtype).eps)
        size = jnp.abs(new)
        lost = (least * jnp.abs(old) - size).max(initial=0)
        self.doubts.append(_usual_size(size) < lost)


def _usual_size(sizes: Array) -> Array:
    """What entries usually are, by a mean of some which a few large ones among them do not move."""
    longest = np.argsort([-n for n in sizes.shape], kind="stable")
    for axis, most in zip(longest.tolist(), (*_LOOKED_AT, *[1] * sizes.ndim), strict=False):
        num = sizes.shape[axis]
        step = -(-num // most)
        sizes = lax.slice_in_dim(sizes, (num - 1) % step // 2, num, step, axis)
    return jnp.sqrt(jnp.sqrt(sizes)).mean() ** 4
