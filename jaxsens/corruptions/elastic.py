"""Elastic transform: a random affine map, then a smooth random displacement of every pixel.

The official pipeline uses OpenCV for the affine part, which before version 5 rounded source
positions to 1/32 of a pixel; here they are exact. Both resamplings are bilinear. Displacements are
uniform noise smoothed by a Gaussian that is cut off at 3σ.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxsens.corruptions import operators
from jaxsens.corruptions.base import Corruption, uniform

Border = Callable[[Int[Array, "..."], int], Int[Array, "..."]]


@dataclass(frozen=True)
class ElasticTransform(Corruption):
    """All lengths are fractions of the image's shorter side.

    Attributes:
      alpha: scale of the displacement; 0 leaves the affine map alone.
      sigma: standard deviation of its smoothing.
      affine: each coordinate of three corners moves by Uniform(-affine, affine).
    """

    alpha: float
    sigma: float
    affine: float

    def apply(self, key: PRNGKeyArray, image: Float[Array, "H W 3"]) -> Float[Array, "H W 3"]:
        """Affine map, then displacement."""
        height, width, _ = image.shape
        side = min(height, width)
        u = 2 * uniform(key, 6 + 2 * height * width) - 1
        image = warp_affine(image, self.affine * side * u[:6].reshape(3, 2))
        if self.alpha == 0:
            return image
        rows, columns = (
            operators.gaussian(n, self.sigma * side, truncate=3.0, border="symmetric")
            for n in (height, width)
        )
        moves = operators.separable(rows, columns, u[6:].reshape(height, width, 2))
        moves = self.alpha * side * moves
        return displace(image, moves[..., 0], moves[..., 1])


def warp_affine(image: Float[Array, "H W C"], moves: Float[Array, "3 2"]) -> Float[Array, "H W C"]:
    """The image under the affine map that moves three corners of a central square.

    Args:
      image: the image; outside it is mirrored without its last pixel.
      moves: how far each corner moves in x and y. The corners are the middle (H//2, W//2) plus
        (s, s), (s, -s) and (-s, -s), with s a third of the shorter side.
    """
    height, width, _ = image.shape
    side = min(height, width) // 3
    middle = np.array([width // 2, height // 2])
    corners = middle[None, :] + side * np.array([[1, 1], [1, -1], [-1, -1]])
    inverse = np.linalg.inv(np.concatenate([corners, np.ones((3, 1))], axis=1)).astype(np.float32)
    # Rows (x, y, 1) times `forward` are the places they go to.
    targets = corners.astype(np.float32) + moves
    forward = jnp.matmul(inverse, targets, precision=jax.lax.Precision.HIGHEST)
    (a, b), (c, d), (e, f) = forward
    y, x = jnp.meshgrid(
        jnp.arange(height, dtype=image.dtype), jnp.arange(width, dtype=image.dtype), indexing="ij"
    )
    determinant = a * d - b * c
    source_x = (d * (x - e) - c * (y - f)) / determinant
    source_y = (a * (y - f) - b * (x - e)) / determinant
    return bilinear(image, source_y, source_x, mirror)


def displace(
    image: Float[Array, "H W C"], down: Float[Array, "H W"], right: Float[Array, "H W"]
) -> Float[Array, "H W C"]:
    """The image read at (h + down, w + right); outside it is mirrored with its last pixel."""
    rows = jnp.arange(image.shape[0], dtype=image.dtype)[:, None]
    columns = jnp.arange(image.shape[1], dtype=image.dtype)[None, :]
    return bilinear(image, rows + down, columns + right, symmetric)


def bilinear(
    image: Float[Array, "H W C"],
    row: Float[Array, "H W"],
    column: Float[Array, "H W"],
    border: Border,
) -> Float[Array, "H W C"]:
    """Bilinear interpolation at real positions.

    Args:
      image: the image to read.
      row: vertical positions.
      column: horizontal positions.
      border: maps an index outside the image to one inside.
    """
    height, width, channels = image.shape
    flat = image.reshape(height * width, channels)
    top, left = jnp.floor(row), jnp.floor(column)
    down, right = (row - top)[..., None], (column - left)[..., None]
    top, left = top.astype(jnp.int32), left.astype(jnp.int32)

    def corner(i: int, j: int) -> Float[Array, "H W C"]:
        index = border(top + i, height) * width + border(left + j, width)
        return jnp.take(flat, index, axis=0, mode="clip")

    upper = (1 - right) * corner(0, 0) + right * corner(0, 1)
    lower = (1 - right) * corner(1, 0) + right * corner(1, 1)
    return (1 - down) * upper + down * lower


def mirror(index: Int[Array, "..."], size: int) -> Int[Array, "..."]:
    """… 2 1 | 0 1 2 … (SciPy's "mirror", OpenCV's REFLECT_101).

    >>> mirror(jnp.array([-1, 0, 3, 4]), 4)
    Array([1, 0, 3, 2], dtype=int32)
    """
    folded = jnp.mod(index, 2 * size - 2)
    return jnp.minimum(folded, 2 * size - 2 - folded)


def symmetric(index: Int[Array, "..."], size: int) -> Int[Array, "..."]:
    """… 1 0 | 0 1 2 … (SciPy's "reflect").

    >>> symmetric(jnp.array([-1, 0, 3, 4]), 4)
    Array([0, 0, 3, 3], dtype=int32)
    """
    folded = jnp.mod(index, 2 * size)
    return jnp.minimum(folded, 2 * size - 1 - folded)
