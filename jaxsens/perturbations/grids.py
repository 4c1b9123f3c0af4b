"""Grids: where the windows of an example are.

A grid gives the static shape of its windows and the first index of window τ, τ = 0 … T-1. A new
modality is a new grid.

Assumption: all windows of a grid have one shape and do not depend on the input's values.
"""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Array, Int

from jaxsens.core.scalars import as_whole, one_line

Shape = tuple[int, ...]
Position = int | Int[Array, ""]


@runtime_checkable
class Grid(Protocol):
    """Where the windows of one example are. Implementations are frozen dataclasses."""

    def layout(self, shape: Shape) -> Shape:
        """The shape in which positions are arranged, with product T.

        Raises:
          ValueError: the grid does not fit examples of this shape.
        """

    def window_shape(self, shape: Shape) -> Shape:
        """The shape of every window, which has as many axes as the example."""

    def start(self, position: Position, shape: Shape) -> tuple[Position, ...]:
        """The first index of window `position` on every axis of the example."""


@dataclass(frozen=True)
class Patches:
    """The non-overlapping p×p patches of an (H, W, C) image, all channels, in row-major order.

    T = (H/p)·(W/p); p must divide both sides.

    Args:
      size: p, in pixels.

    Raises:
      ValueError: `size` is no whole number.

    >>> Patches(4).layout((28, 28, 1))
    (7, 7)
    """

    size: int

    def __post_init__(self):
        _keep_whole_size(self)

    def layout(self, shape: Shape) -> Shape:
        """Rows and columns of patches."""
        if len(shape) != 3:
            raise ValueError(f"Patches needs images (H, W, C); got an example of shape {shape}")
        common = math.gcd(*shape[:2])
        if self.size < 1 or common % self.size:
            side = next((side for side in shape[:2] if self.size < 1 or side % self.size), common)
            divisors = ", ".join(str(p) for p in range(1, common + 1) if common % p == 0)
            raise ValueError(
                f"patch={self.size} does not divide image side {side}; choose one of {divisors}"
            )
        return shape[0] // self.size, shape[1] // self.size

    def window_shape(self, shape: Shape) -> Shape:
        """(p, p, C)."""
        return self.size, self.size, shape[2]

    def start(self, position: Position, shape: Shape) -> tuple[Position, ...]:
        """Top-left corner of the patch."""
        columns = shape[1] // self.size
        return position // columns * self.size, position % columns * self.size, 0


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


@dataclass(frozen=True)
class OverlappingPatches:
    """The p×p patches of an (H, W, C) image at every offset, all channels, in row-major order.

    T = (H-p+1)·(W-p+1).

    Args:
      size: p, in pixels.

    Raises:
      ValueError: `size` is no whole number.

    >>> OverlappingPatches(4).layout((32, 32, 3))
    (29, 29)
    """

    size: int

    def __post_init__(self):
        _keep_whole_size(self)

    def layout(self, shape: Shape) -> Shape:
        """Rows and columns of offsets."""
        if len(shape) != 3 or not 1 <= self.size <= min(shape[:2]):
            raise ValueError(
                f"OverlappingPatches({self.size}) needs images (H, W, C) with sides of at least "
                f"that many pixels; got an example of shape {shape}"
            )
        return shape[0] - self.size + 1, shape[1] - self.size + 1

    def window_shape(self, shape: Shape) -> Shape:
        """(p, p, C)."""
        return self.size, self.size, shape[2]

    def start(self, position: Position, shape: Shape) -> tuple[Position, ...]:
        """Top-left corner of the patch."""
        columns = shape[1] - self.size + 1
        return position // columns, position % columns, 0


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


def _keep_whole_size(grid: Patches | OverlappingPatches) -> None:
    """Makes the size a Python int, so that equal grids print and compare alike."""
    size = as_whole(grid.size)
    if size is None:
        raise ValueError(
            f"{type(grid).__name__} needs a whole number of pixels as its size; "
            f"got {one_line(grid.size)}"
        )
    object.__setattr__(grid, "size", size)
