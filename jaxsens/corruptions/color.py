"""Brightness, contrast and saturation: every pixel by itself, without randomness.

They follow the official pipeline to float32 rounding.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jaxsens.corruptions.base import Corruption


@dataclass(frozen=True)
class Brightness(Corruption):
    """Adds to the value of hue, saturation, value, clipped to [0, 1]."""

    add: float

    def apply(self, key: PRNGKeyArray, image: Float[Array, "H W 3"]) -> Float[Array, "H W 3"]:
        """V + add."""
        hue, saturation, value = rgb_to_hsv(image)
        return hsv_to_rgb(hue, saturation, jnp.clip(value + self.add, 0.0, 1.0))


@dataclass(frozen=True)
class Saturate(Corruption):
    """Scales the saturation of hue, saturation, value and adds to it, clipped to [0, 1]."""

    factor: float
    add: float

    def apply(self, key: PRNGKeyArray, image: Float[Array, "H W 3"]) -> Float[Array, "H W 3"]:
        """factor·S + add; a grey pixel has hue 0, so it turns red where `add` is not 0."""
        hue, saturation, value = rgb_to_hsv(image)
        return hsv_to_rgb(hue, jnp.clip(saturation * self.factor + self.add, 0.0, 1.0), value)


@dataclass(frozen=True)
class Contrast(Corruption):
    """Draws every channel towards its mean over the image."""

    factor: float

    def apply(self, key: PRNGKeyArray, image: Float[Array, "H W 3"]) -> Float[Array, "H W 3"]:
        """(X - mean)·factor + mean."""
        mean = jnp.mean(image, axis=(0, 1), keepdims=True)
        return (image - mean) * self.factor + mean


def rgb_to_hsv(
    image: Float[Array, "H W 3"],
) -> tuple[Float[Array, "H W"], Float[Array, "H W"], Float[Array, "H W"]]:
    """Hue, saturation and value, all in [0, 1]; a grey pixel has hue and saturation 0."""
    red, green, blue = (image[..., c] for c in range(3))
    value = image.max(axis=-1)
    spread = value - image.min(axis=-1)
    safe = jnp.where(spread == 0, 1.0, spread)
    # The later channel wins a tie for the largest, as in scikit-image; both give the same hue.
    sixth = jnp.where(
        blue == value,
        4 + (red - green) / safe,
        jnp.where(green == value, 2 + (blue - red) / safe, (green - blue) / safe),
    )
    hue = jnp.where(spread == 0, 0.0, jnp.mod(sixth / 6, 1.0))
    return hue, spread / jnp.where(value == 0, 1.0, value), value


def hsv_to_rgb(
    hue: Float[Array, "H W"], saturation: Float[Array, "H W"], value: Float[Array, "H W"]
) -> Float[Array, "H W 3"]:
    """The inverse: channel c is V - V·S·clip(min(k, 4 - k), 0, 1), k = (o_c + 6H) mod 6."""

    def channel(origin: float) -> Float[Array, "H W"]:
        k = jnp.mod(origin + 6 * hue, 6.0)
        return value - value * saturation * jnp.clip(jnp.minimum(k, 4 - k), 0.0, 1.0)

    return jnp.stack([channel(5.0), channel(3.0), channel(1.0)], axis=-1)
