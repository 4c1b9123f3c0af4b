"""Frost: a random piece of an ice photograph over the image.

    out = a·X + b·texture[y : y + H, x : x + W]

The official pipeline picks one of five photographs, keeps every fifth pixel of every fifth row, and
cuts a piece of the image's size. `load_frost` does the same with a folder of photographs. Without
one the textures are procedural: needles of ice in the three directions of a hexagonal crystal over
a cloudy ground, with the mean colours and the contrasts of the five photographs. They are made
from a fixed stream, so they never change; but they are not the photographs, and accuracies under
frost may differ from the official ones.
"""

import functools
import os
from dataclasses import dataclass
from pathlib import PurePath

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt8

from jaxsens.corruptions.base import Corruption, uniform
from jaxsens.data.errors import CorruptDataError, DatasetNotFoundError
from jaxsens.data.sources import files, pictures
from jaxsens.data.sources.folders import expanded

_NUM_TEXTURES = 5
_STRIDE = 5
_SMALLEST = 33  # one more than a CIFAR-10 image, so that there is a piece to choose
_SUFFIXES = (".png", ".jpg", ".jpeg")
#: The official photographs have at most 540,000 pixels and 1.2 MB.
_MAX_PIXELS = 25_000_000
_MAX_FILE = 1 << 26

# Mean red, green, blue and standard deviation of the official photographs frost1 to frost5, of
# which the second and third are the same picture.
_MEANS = ((78, 149, 166), (201, 205, 214), (201, 205, 214), (138, 153, 165), (112, 123, 135))
_STDS = (20.0, 22.0, 22.0, 29.0, 43.0)
_SIDE = 128


@dataclass(frozen=True, eq=False)
class FrostTextures:
    """Textures that frost is cut from. Compared and hashed as one object, not by their pixels.

    Attributes:
      pixels: uint8 (k, height, width, 3), smaller ones padded at the bottom and on the right.
      sizes: (k, 2), the height and width of each.

    Example:
      >>> textures = FrostTextures(np.zeros((1, 60, 80, 3), np.uint8), np.array([[60, 80]]))
      >>> Frost(0.9, 0.4, textures)
      Frost(image_weight=0.9, frost_weight=0.4, textures=FrostTextures(1 textures))
    """

    pixels: UInt8[np.ndarray, "k height width 3"]
    sizes: Int[np.ndarray, "k 2"]

    def __repr__(self) -> str:
        return f"FrostTextures({len(self.sizes)} textures)"


@dataclass(frozen=True)
class Frost(Corruption):
    """Weights of image and frost, and the textures, procedural ones by default."""

    image_weight: float
    frost_weight: float
    textures: FrostTextures | None = None

    def apply(self, key: PRNGKeyArray, image: Float[Array, "H W 3"]) -> Float[Array, "H W 3"]:
        """The image under a random piece of a random texture."""
        textures = procedural_frost() if self.textures is None else self.textures
        height, width, channels = image.shape
        if (textures.sizes <= np.array([[height, width]])).any():
            raise ValueError(
                f"Frost needs textures larger than the image, {height}×{width}; got sizes "
                f"{textures.sizes.tolist()}"
            )
        u = uniform(key, 3)
        which = jnp.floor(u[0] * len(textures.sizes)).astype(jnp.int32)
        room = jnp.asarray(textures.sizes - np.array([[height, width]]), image.dtype)[which]
        row, column = jnp.floor(u[1:] * room).astype(jnp.int32)
        start = (which, row, column, jnp.zeros_like(which))
        pixels = jnp.asarray(textures.pixels)
        piece = jax.lax.dynamic_slice(pixels, start, (1, height, width, channels))[0]
        ice = piece.astype(image.dtype) / 255
        return self.image_weight * image + self.frost_weight * ice


def load_frost(folder: str | os.PathLike[str]) -> FrostTextures:
    """Returns the textures of the first five PNG or JPEG images of a folder, by name.

    Args:
      folder: for the official frost, the one with frost1.png to frost6.jpg of hendrycks/robustness.

    Raises:
      DatasetNotFoundError: the folder is not there, or has no image.
      CorruptDataError: an image cannot be read, or is too small to cut 32×32 pieces from.

    Example:
      >>> import tempfile
      >>> from PIL import Image
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     Image.new("RGB", (400, 300)).save(f"{folder}/frost1.png")
      ...     load_frost(folder).sizes.tolist()  # every fifth pixel
      [[60, 80]]
    """
    root = expanded(folder)
    paths = [path for path in files.listed(root) if path.suffix.lower() in _SUFFIXES]
    if not paths:
        raise DatasetNotFoundError(
            f"{root}: expected a folder with PNG or JPEG images of frost, got none; leave it out "
            "for procedural frost"
        )
    return _stack([_read_texture(path) for path in paths[:_NUM_TEXTURES]])


@functools.cache
def procedural_frost() -> FrostTextures:
    """Five textures that look like ice, always the same."""
    return _stack([_ice(seed, *look) for seed, look in enumerate(zip(_MEANS, _STDS, strict=True))])


def _read_texture(path: PurePath) -> UInt8[np.ndarray, "height width 3"]:
    content = files.read_bytes(path, _MAX_FILE)
    try:
        image = pictures.open_picture(content)
        _, (height, width, _) = pictures.dtype_and_shape(image)
        if height * width > _MAX_PIXELS:
            raise CorruptDataError(
                f"{path}: expected at most {_MAX_PIXELS} pixels, got {height}×{width}"
            )
        photograph = pictures.pixels(image, 3)
    except CorruptDataError:
        raise
    except ValueError as error:
        raise CorruptDataError(
            f"{path}: expected a PNG or JPEG image, got {len(content)} bytes that Pillow does not "
            f"read ({error}); get the file again"
        ) from None
    # Where OpenCV's linear interpolation samples when it shrinks by exactly five.
    texture = photograph[_STRIDE // 2 :: _STRIDE, _STRIDE // 2 :: _STRIDE]
    if min(texture.shape[:2]) < _SMALLEST:
        raise CorruptDataError(
            f"{path}: expected at least {_SMALLEST * _STRIDE} pixels on each side, "
            f"got {photograph.shape[0]}×{photograph.shape[1]}"
        )
    return texture


def _stack(textures: list[np.ndarray]) -> FrostTextures:
    sizes = np.array([texture.shape[:2] for texture in textures])
    pixels = np.zeros((len(textures), *sizes.max(axis=0), 3), np.uint8)
    for target, texture in zip(pixels, textures, strict=True):
        target[: texture.shape[0], : texture.shape[1]] = texture
    return FrostTextures(pixels, sizes)


def _ice(seed: int, mean: tuple[int, int, int], std: float) -> UInt8[np.ndarray, "height width 3"]:
    """Needles along three directions 60° apart, over clouds, of given mean colour and contrast."""
    stream = np.random.PCG64(seed)  # its raw stream is one that NumPy promises to keep

    def filtered(along: float, across: float, angle: float) -> np.ndarray:
        white = stream.random_raw(_SIDE**2).reshape(_SIDE, _SIDE) / 2.0**64 - 0.5
        fy, fx = np.meshgrid(*2 * [np.fft.fftfreq(_SIDE)], indexing="ij")
        u, v = (np.cos(angle) * fx + np.sin(angle) * fy, np.cos(angle) * fy - np.sin(angle) * fx)
        gain = np.exp(-2 * np.pi**2 * ((along * u) ** 2 + (across * v) ** 2))
        smooth = np.fft.ifft2(np.fft.fft2(white) * gain).real
        return (smooth - smooth.mean()) / smooth.std()

    tilt = np.pi * stream.random_raw() / 2.0**64
    needles = [filtered(6.0, 0.7, tilt + k * np.pi / 3) for k in range(3)]
    height = 1.2 * np.maximum.reduce(needles) + filtered(9.0, 9.0, 0.0)
    height = (height - height.mean()) / height.std()
    return np.clip(np.array(mean) + std * height[..., None], 0, 255).astype(np.uint8)
