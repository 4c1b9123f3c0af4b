"""What all corruptions share: a frozen value that maps (key, image) to a corrupted image.

Assumption: an image is float32 (H, W, 3) in [0, 1], where v / 255 stands for the stored byte v. An
image in [-1, 1] would pass every shape check and come out wrong: `to_uint8` converts it.
"""

import abc
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

# Far below one grey level, far above what float32 loses on the way: a value that is a whole number
# of levels in exact arithmetic stays that number.
_ROUNDING = 1e-3


class Corruption(abc.ABC):
    """A pure `(key, image) -> image`. Implementations are frozen dataclasses, hence hashable.

    >>> from jaxsens.corruptions import corruption
    >>> contrast, image = corruption("contrast", 5), jnp.array([[[0.0] * 3, [1.0] * 3]])
    >>> print((255 * contrast(jax.random.key(0), image)[0, :, 0]).round())  # black and white
    [108. 147.]
    """

    def __call__(self, key: PRNGKeyArray, image: Array, /) -> Array:
        """The corrupted image.

        Args:
          key: the draw's own key; not used where there is no randomness.
          image: float32 (H, W, 3) in [0, 1].

        Returns:
          An image of the same shape and dtype, clipped to [0, 1].

        Raises:
          ValueError: the image has another shape or dtype, or a size that has no such corruption.
        """
        if image.ndim != 3 or image.shape[-1] != 3 or image.dtype != jnp.float32:
            raise ValueError(
                f"{type(self).__name__} needs a float32 image (H, W, 3) in [0, 1]; got "
                f"{image.dtype} {image.shape}; repeat the channel of a grey image three times, "
                "divide bytes by 255, and jax.vmap over more than one"
            )
        return jnp.clip(self.apply(key, image), 0.0, 1.0)

    @abc.abstractmethod
    def apply(self, key: PRNGKeyArray, image: Float[Array, "H W 3"]) -> Float[Array, "H W 3"]:
        """The corruption itself, before clipping."""


def floor_levels(image: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Grey levels 0..255 by truncation, as the official files are stored, still as floats.

    >>> floor_levels(jnp.array([0.0, 3 / 255, 0.999, 1.0]))
    Array([  0.,   3., 254., 255.], dtype=float32)
    """
    return jnp.floor(jnp.clip(image, 0.0, 1.0) * 255 + _ROUNDING)


def round_levels(levels: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """The nearest level of 0..255, halves upwards, as image libraries store a computed value."""
    return jnp.clip(jnp.floor(levels + 0.5), 0.0, 255.0)


def uniform(key: PRNGKeyArray, *shape: int) -> Float[Array, "..."]:
    """Independent draws from [0, 1).

    Drawn flat: the numbers are the same, and XLA on a CPU compiles them in 1 s, not in 4 to 11 s.
    """
    return jax.random.uniform(key, (math.prod(shape),)).reshape(shape)


def normal(key: PRNGKeyArray, *shape: int) -> Float[Array, "..."]:
    """Independent draws from N(0, 1), drawn flat for the same reason."""
    return jax.random.normal(key, (math.prod(shape),)).reshape(shape)
