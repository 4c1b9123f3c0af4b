"""What attention does to logits before it takes their softmax, for any block of them.

A rule computes a few rows and columns of logits anew, so a mask must be known entry by entry: its
arrays broadcast to (h, Q, T), and the same rows and columns are cut out of them.
"""

import abc
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxsens.incremental.edited_position import EditedPosition
from jaxsens.incremental.layout import Layout
from jaxsens.incremental.windows import clean_window


class Mask(abc.ABC):
    """Arrays that broadcast to (h, Q, T), or their shapes, and a function of them and logits."""

    @abc.abstractmethod
    def __call__(self, logits: Float[Array, "h Q T"]) -> Float[Array, "h Q T"]:
        """Logits as the softmax takes them."""

    def transposed(self) -> "Mask":
        """For logits (h, T, Q)."""
        return jax.tree.map(lambda array: array.swapaxes(-1, -2), self)

    def from_query(self, first: int) -> "Mask":
        """For the logits of the queries from one on."""

        def rest(array: Array) -> Array:
            return array if array.shape[1] == 1 else array[:, first:]

        return jax.tree.map(rest, self)

    def at_indices(self, indices: Array, axis: int) -> "Mask":
        """For the logits at some indices of an axis."""

        def take(array: Array) -> Array:
            if array.shape[axis] == 1:
                return array
            return jnp.take(array, indices, axis=axis, mode="clip")

        return jax.tree.map(take, self)

    def of_queries(self, layout: Layout, axis: int, position: EditedPosition) -> "Mask":
        """For the queries in a window, which lies on that axis of their layout."""

        def window(array: Array) -> Array:
            if array.shape[1] == 1:
                return array
            return clean_window(array, layout.with_axes(array.shape, [None, axis, None]), position)

        return jax.tree.map(window, self)


@dataclass(frozen=True)
class VisibilityMask(Mask):
    """Logits where a query sees a token, and the lowest numbers where it does not.

    Attributes:
      seen: which token each query sees.
      hidden: what stands in place of the other logits.
    """

    seen: Any
    hidden: Any

    def __call__(self, logits: Float[Array, "h Q T"]) -> Float[Array, "h Q T"]:
        """Logits as the softmax takes them."""
        return jnp.where(self.seen, logits, self.hidden)


@dataclass(frozen=True)
class AffineMask(Mask):
    """Any mask, bias and scale: scale · logits + offset, with scale 0 where a fill is chosen.

    Attributes:
      scale: what logits are multiplied by.
      offset: what is added then.
    """

    scale: Any
    offset: Any

    def __call__(self, logits: Float[Array, "h Q T"]) -> Float[Array, "h Q T"]:
        """Logits as the softmax takes them."""
        return self.scale * logits + self.offset


jax.tree_util.register_dataclass(VisibilityMask)
jax.tree_util.register_dataclass(AffineMask)
