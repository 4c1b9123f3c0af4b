"""Noise on every value of the image by itself: Gaussian, shot, impulse and speckle.

They follow the official pipeline exactly; only the random numbers are others.
"""

import functools
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array, Float, Float32, PRNGKeyArray

from jaxsens.corruptions.base import Corruption, normal, uniform

_LEVELS = 255


@dataclass(frozen=True)
class GaussianNoise(Corruption):
    """Adds N(0, σ²).

    >>> import jax
    >>> GaussianNoise(sigma=0.1)(jax.random.key(0), jnp.zeros((32, 32, 3))).shape
    (32, 32, 3)
    """

    sigma: float

    def apply(self, key: PRNGKeyArray, image: Float[Array, "H W 3"]) -> Float[Array, "H W 3"]:
        """X + σ·ξ."""
        return image + self.sigma * normal(key, *image.shape)


@dataclass(frozen=True)
class SpeckleNoise(Corruption):
    """Multiplies by N(1, σ²): dark pixels keep still."""

    sigma: float

    def apply(self, key: PRNGKeyArray, image: Float[Array, "H W 3"]) -> Float[Array, "H W 3"]:
        """X·(1 + σ·ξ)."""
        return image + image * self.sigma * normal(key, *image.shape)


@dataclass(frozen=True)
class ShotNoise(Corruption):
    """Counts photons: Poisson(rate·X) / rate, so that the variance is X / rate."""

    rate: int

    def apply(self, key: PRNGKeyArray, image: Float[Array, "H W 3"]) -> Float[Array, "H W 3"]:
        """Poisson(rate·X) / rate; counts above the rate are white in any case."""
        return poisson_up_to(key, image, self.rate) / self.rate


@dataclass(frozen=True)
class ImpulseNoise(Corruption):
    """Salt and pepper: a share `amount` of all values becomes 0 or 1, with equal odds."""

    amount: float

    def apply(self, key: PRNGKeyArray, image: Float[Array, "H W 3"]) -> Float[Array, "H W 3"]:
        """Each channel of a pixel is hit by itself."""
        u = uniform(key, *image.shape)
        impulse = jnp.where(u < self.amount / 2, 1.0, 0.0)
        return jnp.where(u < self.amount, impulse, image)


def poisson_up_to(
    key: PRNGKeyArray, image: Float[Array, "H W 3"], rate: int
) -> Float[Array, "H W 3"]:
    """Draws min(Poisson(rate·X), m) with some m >= rate, for X in [0, 1].

    `jax.random.poisson` needs 40 s for the 3e7 values of 10,000 images. A sum of Poisson variables
    is Poisson, so rate·X is cut into the part of whole grey levels, drawn by bisection in a table
    of 256 distribution functions, and the rest, at most rate/255, drawn by adding up the few
    probabilities that matter. For images made of bytes the rest is zero.
    """
    u = uniform(key, 2, *image.shape)
    image = jnp.clip(image, 0.0, 1.0)
    level = jnp.floor(image * _LEVELS)
    whole = _bisect(level.astype(jnp.int32), u[0], rate)
    rest = rate * jnp.maximum(image - level / _LEVELS, 0.0)
    return whole + _small_poisson(rest, u[1], rate / _LEVELS)


def _bisect(level: Array, u: Array, rate: int) -> Array:
    """The number of k with P(K <= k) < u: the quantile of u."""
    table = _distribution_table(rate)
    width = table.shape[1]
    flat, row = jnp.asarray(table.reshape(-1)), level * width
    count, step = jnp.zeros_like(level), width // 2
    while step:
        below = jnp.take(flat, row + count + (step - 1), mode="clip") < u
        count, step = count + step * below.astype(count.dtype), step // 2
    return count.astype(u.dtype)


@functools.lru_cache(maxsize=8)
def _distribution_table(rate: int) -> Float32[np.ndarray, "256 width"]:
    """P(K <= k) for K ~ Poisson(rate·level/255), k < width, a power of two above the rate."""
    width = 1 << int(rate).bit_length()
    mean = rate * np.arange(_LEVELS + 1)[:, None] / _LEVELS
    return scipy.special.pdtr(np.arange(width)[None, :], mean).astype(np.float32)


def _small_poisson(mean: Array, u: Array, largest_mean: float) -> Array:
    probability = jnp.exp(-mean)
    total, count = probability, jnp.zeros_like(mean)
    # Beyond these terms lies less than float32 resolves.
    for k in range(1, int(scipy.special.pdtrik(1 - 1e-8, largest_mean)) + 2):
        count = count + (total < u).astype(mean.dtype)
        probability = probability * mean / k
        total = total + probability
    return count
