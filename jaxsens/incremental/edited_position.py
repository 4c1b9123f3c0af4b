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

#: Entries of a window that are looked at to see whether large numbers have cancelled.
_LOOKED_AT = 32


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
        """Notes whether new entries are so small beside the old ones that they are mostly rounding.

        A sum loses a huge entry for all that is made of it, so a few entries stand for all: those
        in the middle of a window, most of them along its last axis.
        """
        middle = tuple(n // 2 for n in new.shape[:-1])
        looked_at = (*middle, slice(_LOOKED_AT)) if new.ndim else ()
        before, after = (jnp.abs(value[looked_at]).max() for value in (old, new))
        self.doubts.append(after < math.sqrt(jnp.finfo(old.dtype).eps) * before)
