"""Blurs that are the same everywhere in the image: Gaussian, defocus, glass and zoom.

Gaussian, defocus and zoom are linear and follow the official pipeline to float32 rounding.

Glass blur is often described as random swaps of neighbours. The official loop says so too, but it
assigns two rows of one NumPy array to each other, and the first assignment overwrites what the
second reads: pixel (h, w) gets a copy of (h - a, w - b), a and b in {0, 1}, and that one keeps its
value. The official files were made that way, so this module copies as well. As the loop runs from
the last pixel to the first, every copy reads a pixel that has not changed yet, and the whole loop
is one choice among four shifted images.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float32, PRNGKeyArray

from jaxsens.corruptions import operators
from jaxsens.corruptions.base import Corruption, floor_levels, uniform


@dataclass(frozen=True)
class GaussianBlur(Corruption):
    """Gaussian smoothing, cut off at 4σ, with the edge pixel repeated."""

    sigma: float

    def apply(self, key: PRNGKeyArray, image: Float[Array, "H W 3"]) -> Float[Array, "H W 3"]:
        """No randomness."""
        return gaussian_blur(image, self.sigma)


@dataclass(frozen=True)
class DefocusBlur(Corruption):
    """Mean over a disk whose rim is softened by a 3×3 Gaussian, mirrored at the border."""

    radius: float
    alias_sigma: float

    def apply(self, key: PRNGKeyArray, image: Float[Array, "H W 3"]) -> Float[Array, "H W 3"]:
        """No randomness."""
        kernel = disk(self.radius, self.alias_sigma)
        reach, (height, width, _) = len(kernel) // 2, image.shape
        padded = jnp.pad(image, ((reach, reach), (reach, reach), (0, 0)), mode="reflect")
        taps = (
            float(kernel[i, j]) * padded[i : i + height, j : j + width]
            for i, j in np.argwhere(kernel)
        )
        return sum(taps, jnp.zeros_like(image))


@dataclass(frozen=True)
class GlassBlur(Corruption):
    """Gaussian blur, pixels that copy a random neighbour above and left of them, blur again."""

    sigma: float
    max_delta: int
    iterations: int

    def __post_init__(self):
        if self.max_delta != 1:
            raise ValueError(
                f"GlassBlur needs max_delta=1, as in CIFAR-10-C; got {self.max_delta}: a copy from "
                "further away may read a changed pixel, which one pass cannot do"
            )

    def apply(self, key: PRNGKeyArray, image: Float[Array, "H W 3"]) -> Float[Array, "H W 3"]:
        """The first blur is stored in bytes, the second is not."""
        height, width, _ = image.shape
        moves = uniform(key, self.iterations, 2, height - 2, width - 2, 1) < 0.5
        blurred = floor_levels(gaussian_blur(image, self.sigma)) / 255
        shuffled, _ = jax.lax.scan(
            lambda pixels, move: (copy_neighbours(pixels, move[0], move[1]), None), blurred, moves
        )
        return gaussian_blur(shuffled, self.sigma)


@dataclass(frozen=True)
class ZoomBlur(Corruption):
    """Mean of the image and of its enlargements by start, start + step, … below stop.

    The official range is NumPy's floating-point one: it has 7 and 12 factors for the stops 1.06 and
    1.11, the stop itself among them, and 16, 21 and 26 for the others, without it.
    """

    start: float
    stop: float
    step: float

    def apply(self, key: PRNGKeyArray, image: Float[Array, "H W 3"]) -> Float[Array, "H W 3"]:
        """No randomness."""
        factors = np.arange(self.start, self.stop, self.step)
        total = image
        for factor in factors:
            rows, columns = (operators.clipped_zoom(n, factor) for n in image.shape[:2])
            total = total + operators.separable(rows, columns, image)
        return total / (len(factors) + 1)


def gaussian_blur(image: Float[Array, "H W 3"], sigma: float) -> Float[Array, "H W 3"]:
    """Gaussian smoothing of both axes."""
    rows, columns = (operators.gaussian(n, sigma, border="edge") for n in image.shape[:2])
    return operators.separable(rows, columns, image)


def copy_neighbours(
    image: Float[Array, "H W 3"],
    up: Bool[Array, "H-2 W-2 1"],
    left: Bool[Array, "H-2 W-2 1"],
) -> Float[Array, "H W 3"]:
    """Pixel (h, w) becomes pixel (h - up, w - left), for h, w >= 2; the first two stay."""
    here, above = image[2:], image[1:-1]
    source = jnp.where(
        up,
        jnp.where(left, above[:, 1:-1], above[:, 2:]),
        jnp.where(left, here[:, 1:-1], here[:, 2:]),
    )
    return jnp.concatenate([image[:2], jnp.concatenate([image[2:, :2], source], axis=1)], axis=0)


def disk(radius: float, alias_sigma: float) -> Float32[np.ndarray, "k k"]:
    """A disk's indicator, smoothed by exp(-k²/2σ²) over 3×3 pixels; the sum is 1.

    >>> disk(1.0, 0.2).round(3)
    array([[0. , 0. , 0. , 0. , 0. ],
           [0. , 0. , 0.2, 0. , 0. ],
           [0. , 0.2, 0.2, 0.2, 0. ],
           [0. , 0. , 0.2, 0. , 0. ],
           [0. , 0. , 0. , 0. , 0. ]], dtype=float32)
    """
    reach = int(radius) + 1
    offsets = np.arange(-reach, reach + 1)
    inside = offsets[:, None] ** 2 + offsets[None, :] ** 2 <= radius**2
    neighbour = np.exp(-0.5 / alias_sigma**2)
    soft = np.array([neighbour, 1, neighbour]) / (1 + 2 * neighbour)
    smooth = sum(soft[k] * np.eye(len(offsets), k=k - 1) for k in range(3))
    return (smooth @ (inside / inside.sum()) @ smooth).astype(np.float32)
