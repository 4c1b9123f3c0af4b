"""A 3×3 convolution by Winograd's F(2×2, 3×3): 16 products for 4 outputs instead of 36.

A tile d of 4×4 inputs gives the 2×2 outputs

    y = Aᵀ [(G K Gᵀ) ⊙ (Bᵀ d B)] A,

where ⊙ becomes, over all channels and tiles, 16 matrix products (A. Lavin, S. Gray, "Fast
algorithms for convolutional neural networks", 2016). Tiles overlap by two entries; the gradient of
the kernel is the adjoint of the same map. All coefficients are 0, ±1/2 and ±1, so rounding is that
of a few more additions.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from jaxsens.models.layers.chunks import chunk_size, mapped, summed

Images = Float[Array, "n H W C"]
Kernel = Float[Array, "3 3 C F"]
Maps = Float[Array, "n h w F"]
Padding = tuple[tuple[int, int], tuple[int, int]]
#: Entry [a][b] of every tile.
Tiles = list[list[Float[Array, "n t u C"]]]

#: Bytes of the tiles of a chunk of images.
TILE_BYTES = 6 << 20

_G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], np.float32)


def saves(height: int, width: int) -> bool:
    """Whether outputs of this size need clearly fewer products: incomplete tiles cost as much.

    >>> saves(8, 8), saves(3, 3)
    (True, False)
    """
    num_tiles = _half(height) * _half(width)
    return 9 * height * width >= 1.25 * 16 * num_tiles


def convolve(x: Images, kernel: Kernel, padding: Padding) -> Maps:
    """Cross-correlation of the padded images."""
    size = _chunk(x, padding)
    # Once, not once per chunk.
    products = jnp.einsum("ai,bj,ijcf->abcf", _G, _G, kernel, precision=lax.Precision.HIGHEST)

    def some(x: Images) -> Maps:
        height, width = _output(x, padding)
        tiles = _input_tiles(x, padding)
        found = [[tiles[a][b] @ products[a, b] for b in range(4)] for a in range(4)]
        columns = [_both(row) for row in found]
        outputs = [_both([column[q] for column in columns]) for q in range(2)]
        rows = [jnp.stack([outputs[q][p] for q in range(2)], axis=3) for p in range(2)]
        whole = jnp.stack(rows, axis=2)
        n, t, _, u, _, features = whole.shape
        return whole.reshape(n, 2 * t, 2 * u, features)[:, :height, :width]

    return mapped(some, x, size)


def kernel_gradient(x: Images, grad: Maps, padding: Padding) -> Kernel:
    """The gradient of the kernel, given that of the output."""

    def some(x: Images, grad: Maps) -> Float[Array, "4 4 C F"]:
        tiles, grads = _input_tiles(x, padding), _gradient_tiles(grad)
        rows = [
            jnp.stack([_summed_products(tiles[a][b], grads[a][b]) for b in range(4)])
            for a in range(4)
        ]
        return jnp.stack(rows)

    found = summed(some, (x, grad), _chunk(x, padding))
    return jnp.einsum("ai,bj,abcf->ijcf", _G, _G, found, precision=lax.Precision.HIGHEST)


def _summed_products(x: Float[Array, "n t u C"], grad: Maps) -> Float[Array, "C F"]:
    # In this order, because it is the faster one.
    return jnp.einsum("ntuf,ntuc->fc", grad, x).T


def _input_tiles(x: Images, padding: Padding) -> Tiles:
    """Bᵀ d B of every tile."""
    t, u = (_half(side) for side in _output(x, padding))
    ends = [
        (low, 2 * num + 2 - side - low)
        for num, side, (low, _) in zip((t, u), x.shape[1:3], padding, strict=True)
    ]
    x = lax.pad(x, jnp.zeros((), x.dtype), ((0, 0, 0), *((*end, 0) for end in ends), (0, 0, 0)))
    return [_combined(_fours(row, 2, u)) for row in _combined(_fours(x, 1, t))]


def _fours(x: Array, axis: int, num: int) -> list[Array]:
    """Entry 0, 1, 2, 3 of every run of four along an axis, of which the next begins at its 2."""
    return [lax.slice_in_dim(x, i, i + 2 * num - 1, 2, axis) for i in range(4)]


def _combined(d: Sequence[Array]) -> list[Array]:
    """Bᵀ d."""
    return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]


def _both(m: Sequence[Array]) -> list[Array]:
    """Aᵀ m."""
    return [m[0] + m[1] + m[2], m[1] - m[2] - m[3]]


def _gradient_tiles(grad: Maps) -> Tiles:
    """A g Aᵀ of every 2×2 tile."""
    n, height, width, features = grad.shape
    t, u = _half(height), _half(width)
    grad = jnp.pad(grad, ((0, 0), (0, 2 * t - height), (0, 2 * u - width), (0, 0)))
    pairs = grad.reshape(n, t, 2, u, 2, features)
    rows = _spread(pairs[:, :, 0], pairs[:, :, 1])
    return [_spread(row[:, :, :, 0], row[:, :, :, 1]) for row in rows]


def _spread(first: Array, second: Array) -> list[Array]:
    """A g."""
    return [first, first + second, first - second, -second]


def _output(x: Images, padding: Padding) -> tuple[int, int]:
    height, width = (side + sum(ends) - 2 for side, ends in zip(x.shape[1:3], padding, strict=True))
    return height, width


def _half(side: int) -> int:
    return (side + 1) // 2


def _chunk(x: Images, padding: Padding) -> int:
    height, width = _output(x, padding)
    tiles = 16 * _half(height) * _half(width) * x.shape[-1] * x.dtype.itemsize
    return chunk_size(x.shape[0], tiles, TILE_BYTES)
