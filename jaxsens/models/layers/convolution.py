"""A convolution that trains fast on a CPU.

Where oneDNN is installed (`jaxsens.core.onednn`) and a CPU is one device, it computes all three
maps of a convolution that is trained: forward, and the gradients of images and of the kernel.

Elsewhere, what XLA's CPU compiler makes of a convolution depends on how it is written: the two
convolutions of its gradient become naive loops inside a scanned epoch, and one without any padding
takes 26 ms where one with a row of it takes 6 (100 images of 26×26×32, jaxlib 0.10). So everything
that training needs is written as what runs fast there. With y the output, s the stride and (i, j)
running over the entries of the kernel K,

    y = Σ_ij x[:, i::s, j::s] · K[i, j]

is a sum of matrix products (of multiplications if depthwise), and so is its gradient:

    kernel                 output              gradient of x         gradient of K
    1×1, depthwise         products            products              products
    3×3, stride 1, wide    Winograd            Winograd              Winograd
    other, stride 1        XLA, padded         XLA, padded           patches in chunks
    other                  XLA, padded         patches in chunks     patches in chunks

GPUs and TPUs keep XLA's own convolution and gradient. A pass of which no derivative is taken has
XLA's convolution, padded, or products for the kernels of the first line, on a CPU too: exact reuse
understands both (whole passes of a measurement take oneDNN's all the same, see
`jaxsens.measurement.fast_convolutions`). Patches and tiles of a chunk stay below `PATCH_BYTES` and
`winograd.TILE_BYTES`.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jaxsens.core import onednn
from jaxsens.models.layers import winograd
from jaxsens.models.layers.chunks import chunk_size, mapped, summed

Images = Float[Array, "n H W C"]
Kernel = Float[Array, "k l D F"]
Maps = Float[Array, "n h w F"]
Strides = tuple[int, int]
Padding = tuple[tuple[int, int], tuple[int, int]]

NO_PADDING = ((0, 0), (0, 0))

#: Bytes of the patches of a chunk of images.
PATCH_BYTES = 2 << 20

#: Channels, in and out, from which Winograd's transforms cost less than they save.
WIDE = 64


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def padded_convolution(
    x: Images, kernel: Kernel, strides: Strides = (1, 1), padding: Padding = NO_PADDING
) -> Maps:
    """Cross-correlation of images with zeros around them.

    Args:
      x: images.
      kernel: dense if D is C; depthwise, a kernel for each channel, if D is 1 and F is C.
      strides: steps between windows, down and across.
      padding: rows of zeros above and below, columns of zeros left and right.
    """
    if _only_products(x, kernel):
        return lax.platform_dependent(
            _padded(x, padding),
            kernel,
            cpu=functools.partial(_products, strides=strides),
            default=functools.partial(_xla, strides=strides),
        )
    if padding != NO_PADDING:
        return _xla(x, kernel, strides, padding)
    return lax.platform_dependent(
        x,
        kernel,
        cpu=functools.partial(_xla_with_padding, strides=strides, padding=padding),
        default=functools.partial(_xla, strides=strides),
    )


def _forward(
    x: Images, kernel: Kernel, strides: Strides, padding: Padding
) -> tuple[Maps, tuple[Images, Kernel]]:
    y = lax.platform_dependent(
        x,
        kernel,
        cpu=functools.partial(_forward_cpu, strides=strides, padding=padding),
        default=functools.partial(_xla, strides=strides, padding=padding),
    )
    return y, (x, kernel)


def _backward(
    strides: Strides, padding: Padding, residuals: tuple[Images, Kernel], grad: Maps
) -> tuple[Images, Kernel]:
    return lax.platform_dependent(
        *residuals,
        grad,
        cpu=functools.partial(_backward_cpu, strides=strides, padding=padding),
        default=functools.partial(_backward_xla, strides=strides, padding=padding),
    )


padded_convolution.defvjp(_forward, _backward)


def _is_depthwise(x: Images, kernel: Kernel) -> bool:
    return kernel.shape[2] != x.shape[-1]


def _only_products(x: Images, kernel: Kernel) -> bool:
    return _is_depthwise(x, kernel) or kernel.shape[:2] == (1, 1)


def _by_winograd(x: Images, kernel: Kernel, strides: Strides, padding: Padding) -> bool:
    return (
        kernel.shape[:2] == (3, 3)
        and strides == (1, 1)
        and min(kernel.shape[2:]) >= WIDE
        # A larger one would make the padding of the gradient negative.
        and max(map(max, padding)) <= 2
        and winograd.saves(*_output_sides(x, kernel, strides, padding))
    )


def _padded(x: Images, padding: Padding) -> Float[Array, "n A B C"]:
    return jnp.pad(x, ((0, 0), *padding, (0, 0)))


def _xla(
    x: Images, kernel: Kernel, strides: Strides = (1, 1), padding: Padding = NO_PADDING
) -> Maps:
    return lax.conv_general_dilated(
        x,
        kernel,
        strides,
        padding,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=x.shape[-1] // kernel.shape[2],
    )


def _backward_xla(
    x: Images, kernel: Kernel, grad: Maps, *, strides: Strides, padding: Padding
) -> tuple[Images, Kernel]:
    convolution = functools.partial(_xla, strides=strides, padding=padding)
    return jax.vjp(convolution, x, kernel)[1](grad)


# --- On a CPU -------------------------------------------------------------------------------------


def _forward_cpu(x: Images, kernel: Kernel, *, strides: Strides, padding: Padding) -> Maps:
    if onednn.is_available(x, kernel):
        return onednn.forward(x, kernel, _shape(x, kernel, strides, padding))
    if _only_products(x, kernel):
        return _products(_padded(x, padding), kernel, strides)
    if _by_winograd(x, kernel, strides, padding):
        return winograd.convolve(x, kernel, padding)
    return _xla_with_padding(x, kernel, strides, padding)


def _backward_cpu(
    x: Images, kernel: Kernel, grad: Maps, *, strides: Strides, padding: Padding
) -> tuple[Images, Kernel]:
    if onednn.is_available(x, kernel, grad):
        shape = _shape(x, kernel, strides, padding)
        return onednn.input_gradient(kernel, grad, shape), onednn.kernel_gradient(x, grad, shape)
    if _by_winograd(x, kernel, strides, padding):
        around: Any = tuple((2 - low, 2 - high) for low, high in padding)
        grad_x = _forward_cpu(grad, _mirrored(kernel), strides=strides, padding=around)
        return grad_x, winograd.kernel_gradient(x, grad, padding)
    x = _padded(x, padding)
    if _is_depthwise(x, kernel):
        grad_kernel = _depthwise_kernel_gradient(x, kernel, grad, strides)
    elif kernel.shape[:2] == (1, 1):
        grad_kernel = jnp.einsum("nhwf,nhwc->fc", grad, _windows(x, (1, 1), strides)[0]).T
    else:
        grad_kernel = _kernel_gradient(x, kernel, grad, strides)
    if _only_products(x, kernel):
        (grad_x,) = jax.vjp(lambda x: _products(x, kernel, strides), x)[1](grad)
    else:
        grad_x = _input_gradient(x, kernel, grad, strides)
    (top, bottom), (left, right) = padding
    inner = grad_x[:, top : x.shape[1] - bottom, left : x.shape[2] - right]
    return inner, grad_kernel.reshape(kernel.shape)


def _shape(x: Any, kernel: Any, strides: Strides, padding: Padding) -> onednn.ConvolutionShape:
    (top, bottom), (left, right) = padding
    return onednn.ConvolutionShape(x.shape, kernel.shape, strides, (top, bottom, left, right))


def _output_sides(x: Images, kernel: Kernel, strides: Strides, padding: Padding) -> tuple[int, int]:
    height, width = (
        (side + sum(ends) - k) // stride + 1
        for side, ends, k, stride in zip(
            x.shape[1:3], padding, kernel.shape[:2], strides, strict=True
        )
    )
    return height, width


def _windows(x: Images, size: tuple[int, ...], strides: Strides) -> list[Float[Array, "n h w C"]]:
    """What each entry (i, j) of the kernel sees: x[:, i::s, j::s], row by row of the kernel."""
    height, width = x.shape[1] - size[0] + 1, x.shape[2] - size[1] + 1
    return [
        x[:, i : i + height : strides[0], j : j + width : strides[1]]
        for i in range(size[0])
        for j in range(size[1])
    ]


def _products(x: Images, kernel: Kernel, strides: Strides) -> Maps:
    windows = _windows(x, kernel.shape[:2], strides)
    entries = kernel.reshape(len(windows), *kernel.shape[2:])
    if _is_depthwise(x, kernel):
        terms = [window * entry[None, None] for window, entry in zip(windows, entries, strict=True)]
    else:
        terms = [window @ entry for window, entry in zip(windows, entries, strict=True)]
    return functools.reduce(jnp.add, terms)


def _xla_with_padding(x: Images, kernel: Kernel, strides: Strides, padding: Padding) -> Maps:
    """XLA's convolution, computing a row too many where it would have no padding: see above."""
    if padding != NO_PADDING:
        return _xla(x, kernel, strides, padding)
    return _xla(x, kernel, strides, ((0, strides[0]), (0, 0)))[:, :-1]


def _kernel_gradient(
    x: Images, kernel: Kernel, grad: Maps, strides: Strides
) -> Float[Array, "klC F"]:
    """Patchesᵀ · grad, the patches of a few images at a time."""
    size, features = kernel.shape[:2], grad.shape[-1]

    def some(x: Images, grad: Maps) -> Float[Array, "klC F"]:
        patches = jnp.concatenate(_windows(x, size, strides), axis=-1)
        # Transposed for itself: as part of the product it takes twice as long.
        columns = lax.optimization_barrier(patches.reshape(-1, patches.shape[-1]).T)
        return columns @ grad.reshape(-1, features)

    entries = grad.shape[1] * grad.shape[2] * size[0] * size[1] * x.shape[-1]
    chunk = chunk_size(x.shape[0], entries * x.dtype.itemsize, PATCH_BYTES)
    return summed(some, (x, grad), chunk)


def _depthwise_kernel_gradient(
    x: Images, kernel: Kernel, grad: Maps, strides: Strides
) -> Float[Array, "kl C"]:
    """Σ window · grad, first over images, pixel by pixel, then over pixels.

    The sum over both at once would take ten times as long.
    """

    def one(x: Images, grad: Maps) -> list[Maps]:
        return [window * grad for window in _windows(x, kernel.shape[:2], strides)]

    sums = summed(one, (x, grad), chunk_size(x.shape[0], bytes_of_one=1, limit=1))
    return jnp.stack([each.sum(axis=(0, 1, 2)) for each in sums])


def _input_gradient(x: Images, kernel: Kernel, grad: Maps, strides: Strides) -> Images:
    """The gradient of x[:, p::s, q::s] from K[p::s, q::s] alone, for each phase (p, q).

    Each is a convolution with the mirrored entries; nothing is multiplied by the zeros between two
    strides.
    """
    height, width, channels = x.shape[1:]
    if strides == (1, 1):
        high, wide = (size - 1 for size in kernel.shape[:2])
        return _xla_with_padding(grad, _mirrored(kernel), strides, ((high, high), (wide, wide)))
    s, r = strides
    rows, columns = -(-height // s), -(-width // r)

    def some(grad: Maps) -> Images:
        phases = [
            jnp.stack([_phase(kernel[p::s, q::r], grad, rows, columns) for q in range(r)], axis=3)
            for p in range(s)
        ]
        whole = jnp.stack(phases, axis=2).reshape(-1, rows * s, columns * r, channels)
        return whole[:, :height, :width]

    entries = rows * columns * kernel.size // channels
    chunk = chunk_size(x.shape[0], entries * x.dtype.itemsize, PATCH_BYTES)
    return mapped(some, grad, chunk)


def _phase(kernel: Kernel, grad: Maps, rows: int, columns: int) -> Images:
    """Gradient of the `rows`×`columns` entries that meet these entries of the kernel."""
    high, wide, channels, features = kernel.shape
    if high * wide == 0:
        return jnp.zeros((grad.shape[0], rows, columns, channels), grad.dtype)
    ends = ((high - 1, rows - grad.shape[1]), (wide - 1, columns - grad.shape[2]))
    patches = jnp.concatenate(_windows(_padded(grad, ends), (high, wide), (1, 1)), axis=-1)
    return patches @ _mirrored(kernel).reshape(high * wide * features, channels)


def _mirrored(kernel: Kernel) -> Float[Array, "k l F D"]:
    return kernel[::-1, ::-1].swapaxes(2, 3)


def conv_general_dilated(
    lhs: Array, rhs: Array, window_strides: Sequence[int], padding: Any, **options: Any
) -> Array:
    """Stand-in for `lax.conv_general_dilated` in `flax.linen.Conv`.

    Convolutions with dilation, an explicit precision, or groups that are not single channels, keep
    XLA's gradient.
    """
    groups = options.get("feature_group_count", 1)
    plain = (
        lhs.ndim == 4
        and tuple(options.get("lhs_dilation") or (1, 1)) == (1, 1)
        and tuple(options.get("rhs_dilation") or (1, 1)) == (1, 1)
        and (groups == 1 or groups == lhs.shape[-1] == rhs.shape[-1])
        and options.get("precision") is None
    )
    if not plain:
        return lax.conv_general_dilated(lhs, rhs, window_strides, padding, **options)
    if isinstance(padding, str):
        padding = lax.padtype_to_pads(lhs.shape[1:3], rhs.shape[:2], window_strides, padding)
    rows, columns = (tuple(ends) for ends in padding)
    return padded_convolution(lhs, rhs, tuple(window_strides), (rows, columns))
