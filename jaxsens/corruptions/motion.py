"""Motion blur as ImageMagick does it: a half Gaussian along one straight line of whole pixels.

    out(x, y) = Σ_{i=0}^{2r} w_i · in(x + ⌈i·cos θ - ½⌉, y + ⌈i·sin θ - ½⌉),   w_i ∝ exp(-i²/2σ²)

The kernel looks to one side only, so the picture also moves against the angle by about 0.8 σ.
Outside the image the nearest pixel counts. The official pipeline calls ImageMagick through Wand;
the same formula is evaluated here in float32 and rounded once to bytes, where ImageMagick rounds to
16 bits and then to bytes.
"""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jaxsens.corruptions.base import Corruption, round_levels, uniform


@dataclass(frozen=True)
class MotionBlur(Corruption):
    """Blurs along a line whose angle is uniform in [-45°, 45°]."""

    radius: float
    sigma: float

    def apply(self, key: PRNGKeyArray, image: Float[Array, "H W 3"]) -> Float[Array, "H W 3"]:
        """One line for the whole image."""
        angle = -45 + 90 * uniform(key)
        return round_levels(255 * motion_blur(image, self.radius, self.sigma, angle)) / 255


def motion_blur(
    image: Float[Array, "H W C"], radius: float, sigma: float, angle: Float[Array, ""]
) -> Float[Array, "H W C"]:
    """The sum above, unrounded.

    Args:
      image: the image.
      radius: r; 2r + 1 pixels of the line count.
      sigma: standard deviation in pixels.
      angle: θ in degrees.
    """
    width = 2 * math.ceil(radius) + 1
    steps = np.arange(width)
    weights = np.exp(-0.5 * (steps / sigma) ** 2)
    theta = jnp.deg2rad(angle)
    line = steps.astype(np.float32)
    right, down = (
        jnp.ceil(line * direction - 0.5).astype(jnp.int32)
        for direction in (jnp.cos(theta), jnp.sin(theta))
    )
    reach = width - 1
    padded = jnp.pad(image, ((reach, reach), (reach, reach), (0, 0)), mode="edge")

    def add_tap(total, tap):
        weight, row, column = tap
        start = (row + reach, column + reach, jnp.zeros_like(row))
        return total + weight * jax.lax.dynamic_slice(padded, start, image.shape), None

    taps = (weights / weights.sum()).astype(np.float32), down, right
    return jax.lax.scan(add_tap, jnp.zeros_like(image), taps)[0]
