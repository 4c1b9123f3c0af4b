"""Pixelation and JPEG compression, without randomness.

Pixelate is Pillow's box filter down and up again, bit for bit, rounding to bytes after each axis.

JPEG does what the quantisation loses, not the lossless part (zigzag, Huffman): colour transform,
chroma at half resolution (4:2:0), 8×8 cosine transform, rounding to multiples of the quantisation
tables of the ITU T.81 annex K scaled by the quality, and all of it back, with the triangle filter
for the chroma. Values are rounded where libjpeg, which Pillow calls, holds integers. It differs
from libjpeg only where the cosine transform of that one, in integers, is off by a rounding.
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, PRNGKeyArray

from jaxsens.corruptions import operators
from jaxsens.corruptions.base import Corruption, round_levels

_BLOCK = 8
_LUMA_STEPS = np.array(
    [
        [16, 11, 10, 16, 24, 40, 51, 61],
        [12, 12, 14, 19, 26, 58, 60, 55],
        [14, 13, 16, 24, 40, 57, 69, 56],
        [14, 17, 22, 29, 51, 87, 80, 62],
        [18, 22, 37, 56, 68, 109, 103, 77],
        [24, 35, 55, 64, 81, 104, 113, 92],
        [49, 64, 78, 87, 103, 121, 120, 101],
        [72, 92, 95, 98, 112, 100, 103, 99],
    ]
)
_CHROMA_STEPS = np.full((8, 8), 99)
_CHROMA_STEPS[:4, :4] = [[17, 18, 24, 47], [18, 21, 26, 66], [24, 26, 56, 99], [47, 66, 99, 99]]

# Rows: Y, Cb, Cr. JFIF's definition of Cb and Cr from the weights of Y.
_RGB_TO_YCC = np.array(
    [
        [0.299, 0.587, 0.114],
        [-0.299 / 1.772, -0.587 / 1.772, 0.5],
        [0.5, -0.587 / 1.402, -0.114 / 1.402],
    ]
)
_CENTRE = np.array([0, 128, 128], np.float32)[None, None, :]


@dataclass(frozen=True)
class Pixelate(Corruption):
    """Shrinks the image to ⌊factor·size⌋ pixels and enlarges it again."""

    factor: float

    def apply(self, key: PRNGKeyArray, image: Float[Array, "H W 3"]) -> Float[Array, "H W 3"]:
        """Down (columns, then rows, as Pillow does), and up, which only repeats pixels."""
        height, width, _ = image.shape
        small_height, small_width = (int(n * self.factor) for n in (height, width))
        levels = round_levels(image * 255)
        levels = round_levels(_along(1, operators.box(width, small_width), levels))
        levels = round_levels(_along(0, operators.box(height, small_height), levels))
        levels = _along(1, operators.box(small_width, width), levels)
        return round_levels(_along(0, operators.box(small_height, height), levels)) / 255


@dataclass(frozen=True)
class JpegCompression(Corruption):
    """A JPEG file of this quality, 1 to 100, and back; sides must be multiples of 16."""

    quality: int

    def apply(self, key: PRNGKeyArray, image: Float[Array, "H W 3"]) -> Float[Array, "H W 3"]:
        """Encodes and decodes."""
        height, width, _ = image.shape
        if height % 16 or width % 16:
            raise ValueError(
                f"JpegCompression needs sides that are multiples of 16; got {height}×{width}; pad "
                f"to {-height % 16 + height}×{-width % 16 + width}"
            )
        ycc = round_levels(_mix(_RGB_TO_YCC, image * 255) + _CENTRE)
        luma, chroma = ycc[..., :1], _halve(ycc[..., 1:])
        luma = through_blocks(luma, quantisation(_LUMA_STEPS, self.quality))
        chroma = through_blocks(chroma, quantisation(_CHROMA_STEPS, self.quality))
        decoded = jnp.concatenate([luma, _double(chroma)], axis=-1) - _CENTRE
        return round_levels(_mix(np.linalg.inv(_RGB_TO_YCC), decoded)) / 255


def quantisation(steps: np.ndarray, quality: int) -> Float32[np.ndarray, "8 8"]:
    """The table for a quality: steps·5000/quality % below 50, steps·(200 - 2·quality) % from there.

    >>> quantisation(_LUMA_STEPS, 50)[0]
    array([16., 11., 10., 16., 24., 40., 51., 61.], dtype=float32)
    """
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    return np.clip((steps * percent + 50) // 100, 1, 255).astype(np.float32)


def through_blocks(
    levels: Float[Array, "H W C"], table: Float32[np.ndarray, "8 8"]
) -> Float[Array, "H W C"]:
    """Cosine transform of every 8×8 block, rounding to multiples of the table, and back."""
    height, width, _ = levels.shape
    rows, columns = (_block_cosines(n) for n in (height, width))
    steps = np.tile(table, (height // _BLOCK, width // _BLOCK))[..., None]
    coefficients = operators.separable(rows, columns, levels - 128)
    # libjpeg has integers of 1/8 here, and rounds halves away from zero.
    eighths = jnp.round(8 * coefficients)
    multiples = jnp.floor(jnp.abs(eighths) / (8 * steps) + 0.5)
    coefficients = jnp.sign(eighths) * multiples * steps
    return round_levels(operators.separable(rows.T, columns.T, coefficients) + 128)


def _block_cosines(size: int) -> Float32[np.ndarray, "size size"]:
    """The orthonormal 8-point cosine transform of every block of 8."""
    frequency, position = np.arange(_BLOCK)[:, None], np.arange(_BLOCK)[None, :]
    cosines = np.cos(np.pi * (2 * position + 1) * frequency / (2 * _BLOCK)) / 2
    cosines[0] /= np.sqrt(2)
    return np.kron(np.eye(size // _BLOCK), cosines).astype(np.float32)


def _halve(chroma: Float[Array, "H W C"]) -> Float[Array, "h w C"]:
    """Mean of 2×2; libjpeg rounds quarters down and up in turn along a row."""
    height, width, channels = chroma.shape
    total = chroma.reshape(height // 2, 2, width // 2, 2, channels).sum(axis=(1, 3))
    bias = np.resize(np.array([1, 2], np.float32), width // 2)[None, :, None]
    return jnp.floor((total + bias) / 4)


def _double(chroma: Float[Array, "h w C"]) -> Float[Array, "H W C"]:
    """Weights 3/4 for the nearest and 1/4 for the next pixel on each axis, in sixteenths."""
    height, width, _ = chroma.shape
    rows, columns = (4 * _triangle(n) for n in (height, width))
    sixteenths = operators.separable(rows, columns, chroma)
    bias = np.resize(np.array([8, 7], np.float32), 2 * width)[None, :, None]
    # The products are whole numbers, but for float32's rounding in the sum.
    return jnp.floor((jnp.round(sixteenths) + bias) / 16)


def _triangle(size: int) -> Float32[np.ndarray, "out size"]:
    position = np.arange(2 * size) / 2 - 0.25
    return operators.linear(size, np.clip(position, 0, size - 1))


def _along(axis: int, matrix: np.ndarray, image: Float[Array, "H W C"]) -> Array:
    same = np.eye(image.shape[1 - axis], dtype=np.float32)
    rows, columns = (matrix, same) if axis == 0 else (same, matrix)
    return operators.separable(rows, columns, image)


def _mix(matrix: np.ndarray, image: Float[Array, "H W 3"]) -> Float[Array, "H W 3"]:
    rows = [sum(float(weight) * image[..., c] for c, weight in enumerate(row)) for row in matrix]
    return jnp.stack(rows, axis=-1)
