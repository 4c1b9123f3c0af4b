"""Grids: where the windows of an example are.

A grid gives the static shape of its windows and the first index of window τ, τ = 0 … T-1. A new
modality is a new grid.

Assumption: all windows of a grid have one shape and do not depend on the input's values.
"""

import math
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from jaxtyping import Array, Int

from jaxsens.core.scalars import as_whole, one_line

Shape = tuple[int, ...]
Position = int | Int[Array, ""]
#: Where the channels of an image are: (H, W, C), as in JAX, or (C, H, W), as in PyTorch.
Channels = Literal["last", "first"]


@runtime_checkable
class Grid(Protocol):
    """Where the windows of one example are. Implementations are frozen dataclasses.

    >>> grid = Patches(4)
    >>> grid.layout((28, 28, 1)), grid.window_shape((28, 28, 1)), grid.start(8, (28, 28, 1))
    ((7, 7), (4, 4, 1), (4, 4, 0))
    >>> isinstance(grid, Grid)
    True
    """

    def layout(self, shape: Shape) -> Shape:
        """The shape in which positions are arranged, with product T.

        Raises:
          ValueError: the grid does not fit examples of this shape.
        """

    def window_shape(self, shape: Shape) -> Shape:
        """The shape of every window, which has as many axes as the example."""

    def start(self, position: Position, shape: Shape) -> tuple[Position, ...]:
        """The first index of window `position` on every axis of the example."""


@dataclass(frozen=True, repr=False)
class _Squares:
    """Square windows of an image, all channels: what both grids of patches share."""

    size: int
    channels: Channels = "last"

    def __post_init__(self):
        size, name = as_whole(self.size), type(self).__name__
        if size is None:
            raise ValueError(
                f"{name} needs a whole number of pixels as its size; got {one_line(self.size)}"
            )
        if self.channels not in ("last", "first"):
            raise ValueError(
                f"{name} needs channels='last', for images (H, W, C), or 'first', for (C, H, W); "
                f"got {one_line(self.channels)}"
            )
        # A Python int, so that equal grids print and compare alike.
        object.__setattr__(self, "size", size)

    def __repr__(self) -> str:
        # Channels are named only where they come first: estimates of before that print the same.
        channels = "" if self.channels == "last" else f", channels={self.channels!r}"
        return f"{type(self).__name__}(size={self.size}{channels})"

    def window_shape(self, shape: Shape) -> Shape:
        """(p, p, C), or (C, p, p)."""
        if self.channels == "first":
            return shape[0], self.size, self.size
        return self.size, self.size, shape[2]

    @property
    def _axes(self) -> str:
        """The axes of an image, as messages name them."""
        return "(H, W, C)" if self.channels == "last" else "(C, H, W)"

    def _sides(self, shape: Shape) -> Shape:
        """H and W."""
        return shape[:2] if self.channels == "last" else shape[1:]

    def _corner(self, row: Position, column: Position) -> tuple[Position, ...]:
        return (row, column, 0) if self.channels == "last" else (0, row, column)

    def _exchanged(self, shape: Shape) -> str:
        """What to say of an image whose channels seem to be at its other end."""
        if self.channels == "last" and len(shape) == 3 and shape[0] < min(shape[1:]):
            return f"; if {shape} is (C, H, W), give {type(self).__name__} channels='first'"
        if self.channels == "first" and len(shape) == 3 and shape[2] < min(shape[:2]):
            return f"; if {shape} is (H, W, C), leave channels='first' out"
        return ""


@dataclass(frozen=True, repr=False)
class Patches(_Squares):
    """The non-overlapping p×p patches of an (H, W, C) image, all channels, in row-major order.

    T = (H/p)·(W/p); p must divide both sides.

    Args:
      size: p, in pixels.
      channels: "last" for images (H, W, C); "first" for (C, H, W), as PyTorch has them.

    Raises:
      ValueError: `size` is no whole number, or `channels` is neither.

    >>> Patches(4).layout((28, 28, 1)), Patches(4, channels="first").layout((3, 32, 32))
    ((7, 7), (8, 8))
    """

    def layout(self, shape: Shape) -> Shape:
        """Rows and columns of patches."""
        if len(shape) != 3:
            raise ValueError(f"Patches needs images {self._axes}; got an example of shape {shape}")
        sides = self._sides(shape)
        common = math.gcd(*sides)
        if self.size < 1 or common % self.size:
            side = next((side for side in sides if self.size < 1 or side % self.size), common)
            divisors = ", ".join(str(p) for p in range(1, common + 1) if common % p == 0)
            raise ValueError(
                f"patch={self.size} does not divide image side {side}; choose one of {divisors}"
                f"{self._exchanged(shape)}"
            )
        return sides[0] // self.size, sides[1] // self.size

    def start(self, position: Position, shape: Shape) -> tuple[Position, ...]:
        """Top-left corner of the patch."""
        columns = self._sides(shape)[1] // self.size
        return self._corner(position // columns * self.size, position % columns * self.size)


@dataclass(frozen=True)
class Tokens:
    """The single tokens of a sequence: rows of a (T, d) matrix, or ids of a (T,) vector.

    >>> Tokens().window_shape((50, 59))
    (1, 59)
    """

    def layout(self, shape: Shape) -> Shape:
        """(T,)."""
        if not shape:
            raise ValueError("Tokens needs sequences (T, …); got a scalar for each example")
        return shape[:1]

    def window_shape(self, shape: Shape) -> Shape:
        """(1, d), or (1,) for token ids."""
        return 1, *shape[1:]

    def start(self, position: Position, shape: Shape) -> tuple[Position, ...]:
        """The token's row."""
        return position, *(0 for _ in shape[1:])


@dataclass(frozen=True)
class Bits(Tokens):
    """The single coordinates of a point (d,) of the Boolean cube, so T = d.

    >>> Bits().layout((20,))
    (20,)
    """

    def layout(self, shape: Shape) -> Shape:
        """(d,)."""
        if len(shape) != 1:
            raise ValueError(f"Bits needs points of the cube (d,); got an example of shape {shape}")
        return shape


@dataclass(frozen=True, repr=False)
class OverlappingPatches(_Squares):
    """The p×p patches of an (H, W, C) image at every offset, all channels, in row-major order.

    T = (H-p+1)·(W-p+1).

    Args:
      size: p, in pixels.
      channels: "last" for images (H, W, C); "first" for (C, H, W), as PyTorch has them.

    Raises:
      ValueError: `size` is no whole number, or `channels` is neither.

    >>> OverlappingPatches(4).layout((32, 32, 3))
    (29, 29)
    """

    def layout(self, shape: Shape) -> Shape:
        """Rows and columns of offsets."""
        sides = self._sides(shape)
        if len(shape) != 3 or not 1 <= self.size <= min(sides):
            raise ValueError(
                f"OverlappingPatches({self.size}) needs images {self._axes} with sides of at least "
                f"that many pixels; got an example of shape {shape}{self._exchanged(shape)}"
            )
        return sides[0] - self.size + 1, sides[1] - self.size + 1

    def start(self, position: Position, shape: Shape) -> tuple[Position, ...]:
        """Top-left corner of the patch."""
        columns = self._sides(shape)[1] - self.size + 1
        return self._corner(position // columns, position % columns)


@dataclass(frozen=True)
class Whole:
    """The whole example as one window, so T = 1, for edits that choose themselves what changes.

    >>> Whole().layout((28, 28, 1))
    (1,)
    """

    def layout(self, shape: Shape) -> Shape:
        """(1,)."""
        return (1,)

    def window_shape(self, shape: Shape) -> Shape:
        """The example's own shape."""
        return shape

    def start(self, position: Position, shape: Shape) -> tuple[Position, ...]:
        """The origin."""
        return tuple(0 for _ in shape)
