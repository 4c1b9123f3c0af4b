"""What attention does to logits before it takes their softmax, for any block of them."""

import abc
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxsens.incremental.layout import Layout
from jaxsens.incremental.values import Place, clean_window


class Mask(abc.ABC):
    """Arrays that broadcast to (h, Q, T), or their shapes, and a function of them and logits."""

    @abc.abstractmethod
    def __call__(self, logits: Float[Array, "h Q T"]) -> Float[Array, "h Q T"]:
        """Logits as the softmax takes them."""

    def across(self) -> "Mask":
        """For logits (h, T, Q)."""
        return jax.tree.map(lambda array: array.swapaxes(-1, -2), self)

    def taken(self, indices: Array, axis: int) -> "Mask":
        """For the logits at some indices of an axis."""

        def take(array: Array) -> Array:
            if array.shape[axis] == 1:
                return array
            return jnp.take(array, indices, axis=axis, mode="clip")

        return jax.tree.map(take, self)

    def of_queries(self, layout: Layout, axis: int, place: Place) -> "Mask":
        """For the queries in a window, which lies on that axis of their layout."""

        def window(array: Array) -> Array:
            if array.shape[1] == 1:
                return array
            return clean_window(array, layout.on(array.shape, [None, axis, None]), place)

        return jax.tree.map(window, self)


@dataclass(frozen=True)
class Visible(Mask):
    """Other numbers, the lowest ones, in place of what a query does not see."""

    seen: Any
    hidden: Any

    def __call__(self, logits: Float[Array, "h Q T"]) -> Float[Array, "h Q T"]:
        """Logits as the softmax takes them."""
        return jnp.where(self.seen, logits, self.hidden)


@dataclass(frozen=True)
class Affine(Mask):
    """Any mask, bias and scale: scale · logits + offset, with scale 0 where a fill is chosen."""

    scale: Any
    offset: Any

    def __call__(self, logits: Float[Array, "h Q T"]) -> Float[Array, "h Q T"]:
        """Logits as the softmax takes them."""
        return self.scale * logits + self.offset


jax.tree_util.register_dataclass(Visible)
jax.tree_util.register_dataclass(Affine)
