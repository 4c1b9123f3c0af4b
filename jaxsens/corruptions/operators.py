"""Blurs and resamplings along one axis, as matrices that are built once in NumPy.

A separable linear operation of an image X is R X Cᵀ with one matrix for the rows and one for the
columns. The border rule is part of the matrix, so it costs nothing and has no special case, and two
products of 32×32 are what a processor does fastest.

Assumption: the operation is linear and the same for every image. Clipping or rounding between the
two axes is not (`jaxsens.corruptions.digital.Pixelate` does its rounding itself).
"""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32

Matrix = Float32[np.ndarray, "out in"]


def separable(
    rows: Float32[np.ndarray, "i H"],
    columns: Float32[np.ndarray, "j W"],
    image: Float[Array, "H W C"],
) -> Float[Array, "i j C"]:
    """R X Cᵀ for every channel, in full float32."""
    precision = jax.lax.Precision.HIGHEST
    half = jnp.einsum("ih,hwc->iwc", rows, image, precision=precision)
    return jnp.einsum("jw,iwc->ijc", columns, half, precision=precision)


def gaussian(
    size: int, sigma: float, *, truncate: float = 4.0, border: Literal["edge", "symmetric"]
) -> Matrix:
    """Gaussian smoothing with weights exp(-k²/2σ²), |k| <= ⌊truncate·σ + 1/2⌋, that sum to 1.

    Args:
      size: length of the axis.
      sigma: standard deviation in pixels; 0 gives the identity.
      truncate: half the window in standard deviations.
      border: "edge" repeats the last pixel (SciPy's "nearest"), "symmetric" mirrors the axis with
        its last pixel (SciPy's "reflect").

    >>> gaussian(3, 0.5, border="edge").sum(axis=1)
    array([1., 1., 1.], dtype=float32)
    """
    radius = int(truncate * sigma + 0.5)
    if radius == 0:
        return np.eye(size, dtype=np.float32)
    offsets = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 * (offsets / sigma) ** 2)
    padded = np.pad(np.eye(size), ((radius, radius), (0, 0)), mode=border)
    shifted = [padded[k : k + size] for k in range(2 * radius + 1)]
    return np.tensordot(weights / weights.sum(), shifted, axes=1).astype(np.float32)


def clipped_zoom(size: int, factor: float) -> Matrix:
    """The middle of the axis, enlarged linearly by `factor` and cut to the old length.

    The middle ⌈size/factor⌉ pixels become round(⌈size/factor⌉·factor) with the first and last
    pixel in place; what is too much is cut on both sides. For factor 1 that is the identity.

    >>> clipped_zoom(4, 2.0)
    array([[0.        , 1.        , 0.        , 0.        ],
           [0.        , 0.6666667 , 0.33333334, 0.        ],
           [0.        , 0.33333334, 0.6666667 , 0.        ],
           [0.        , 0.        , 1.        , 0.        ]], dtype=float32)
    """
    kept = int(np.ceil(size / factor))
    top = (size - kept) // 2
    enlarged = round(kept * factor)
    trim = (enlarged - size) // 2
    position = top + np.arange(trim, trim + size) * (kept - 1) / max(enlarged - 1, 1)
    return linear(size, np.clip(position, top, top + kept - 1))


def linear(size: int, position: Float[np.ndarray, " out"]) -> Matrix:
    """Linear interpolation at positions of [0, size - 1]."""
    distance = np.abs(position[:, None] - np.arange(size)[None, :])
    return np.maximum(1 - distance, 0).astype(np.float32)


def box(size_in: int, size_out: int) -> Matrix:
    """Pillow's box filter: the mean of the pixels whose centre lies in the output pixel.

    Unlike an area mean, a pixel counts wholly or not at all. Enlarging takes the nearest pixel.

    >>> box(4, 3)
    array([[1. , 0. , 0. , 0. ],
           [0. , 0.5, 0.5, 0. ],
           [0. , 0. , 0. , 1. ]], dtype=float32)
    """
    scale = size_in / size_out
    support = max(scale, 1.0) / 2
    center = (np.arange(size_out) + 0.5) * scale
    offset = np.arange(size_in)[None, :] + 0.5 - center[:, None]
    inside = (offset > -support) & (offset <= support)
    return (inside / inside.sum(axis=1, keepdims=True)).astype(np.float32)
