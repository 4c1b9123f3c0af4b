"""The three maps of a convolution, as functions of JAX arrays that oneDNN computes.

With y the output, x the images and K the kernel, y is linear in each of x and K, so the maps are
each other's derivatives and need no others:

    map                      gradient of its first          gradient of its second argument
    forward(x, K) = y        input_gradient(K, ·)           kernel_gradient(x, ·)
    input_gradient(K, g)     kernel_gradient(·, g)          forward(·, K)
    kernel_gradient(x, g)    input_gradient(·, g)           forward(x, ·)

Images are NHWC and kernels HWIO, as XLA lays them out; oneDNN may want another order of a kernel,
which is then copied.

Assumption: float32 on one device (`is_available`).
"""

import functools
from collections.abc import Callable
from ctypes import c_void_p
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jaxsens.core.onednn import handler, library
from jaxsens.core.onednn.plans import Plan, Role, plan_of

Images = Float[Array, "n H W C"]
Kernel = Float[Array, "k l D F"]
Maps = Float[Array, "n h w F"]

_TRAINING, _DIRECT = 64, 1
#: What each map reads, and last what it writes: the numbers of argument and query, and the array.
_ROLES = {
    "forward": ((1, 129, "images"), (33, 131, "kernel"), (17, 133, "output")),
    "input_gradient": ((33, 131, "kernel"), (145, 134, "output"), (129, 130, "images")),
    "kernel_gradient": ((1, 129, "images"), (145, 134, "output"), (161, 132, "kernel")),
}


class ConvolutionShape(NamedTuple):
    """Sizes of one convolution.

    Attributes:
      images: n, H, W, C.
      kernel: k, l, D, F; D is C, or 1 if each channel has kernels of its own.
      strides: down and across.
      padding: zeros above, below, left and right.
    """

    images: tuple[int, int, int, int]
    kernel: tuple[int, int, int, int]
    strides: tuple[int, int]
    padding: tuple[int, int, int, int]

    @property
    def output(self) -> tuple[int, int, int, int]:
        """n, h, w, F.

        >>> ConvolutionShape((2, 9, 8, 3), (3, 3, 3, 16), (2, 1), (1, 1, 0, 0)).output
        (2, 5, 6, 16)
        """
        n, height, width, _ = self.images
        top, bottom, left, right = self.padding
        h = (height + top + bottom - self.kernel[0]) // self.strides[0] + 1
        w = (width + left + right - self.kernel[1]) // self.strides[1] + 1
        return n, h, w, self.kernel[3]


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def forward(x: Images, kernel: Kernel, shape: ConvolutionShape) -> Maps:
    """Cross-correlation of the padded images."""
    return _of_images("forward", shape, kernel, x)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def input_gradient(kernel: Kernel, grad: Maps, shape: ConvolutionShape) -> Images:
    """The gradient of the images, given that of the output."""
    return _of_images("input_gradient", shape, kernel, grad)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def kernel_gradient(x: Images, grad: Maps, shape: ConvolutionShape) -> Kernel:
    """The gradient of the kernel, given that of the output."""
    return _call("kernel_gradient", shape, x, grad)


def _with_arguments(fn: Callable[..., Array]) -> Callable[..., Any]:
    return lambda first, second, shape: (fn(first, second, shape), (first, second))


forward.defvjp(
    _with_arguments(forward),
    lambda shape, saved, grad: (
        input_gradient(saved[1], grad, shape),
        kernel_gradient(saved[0], grad, shape),
    ),
)
input_gradient.defvjp(
    _with_arguments(input_gradient),
    lambda shape, saved, x: (
        kernel_gradient(x, saved[1], shape),
        forward(x, saved[0], shape),
    ),
)
kernel_gradient.defvjp(
    _with_arguments(kernel_gradient),
    lambda shape, saved, kernel: (
        input_gradient(kernel, saved[1], shape),
        forward(saved[0], kernel, shape),
    ),
)


def _of_images(map_name: str, shape: ConvolutionShape, kernel: Kernel, images: Array) -> Array:
    """Under `vmap` over images alone, one call with more of them."""

    @jax.custom_batching.custom_vmap
    def mapped(kernel: Kernel, images: Array) -> Array:
        pair = (images, kernel) if map_name == "forward" else (kernel, images)
        return _call(map_name, shape, *pair)

    @mapped.def_vmap
    def of_batches(size: int, batched: list[bool], kernel: Array, images: Array) -> Any:
        if batched[0]:
            many = images if batched[1] else jnp.broadcast_to(images, (size, *images.shape))
            each = functools.partial(_of_images, map_name, shape)
            return lax.map(lambda pair: each(*pair), (kernel, many)), True
        n = shape.images[0]
        larger = shape._replace(images=(size * n, *shape.images[1:]))
        found = _of_images(map_name, larger, kernel, images.reshape(size * n, *images.shape[2:]))
        return found.reshape(size, n, *found.shape[1:]), True

    return mapped(kernel, images)


def _call(map_name: str, shape: ConvolutionShape, *pair: Array) -> Array:
    sizes = {"images": shape.images, "kernel": shape.kernel, "output": shape.output}
    result = jax.ShapeDtypeStruct(sizes[_ROLES[map_name][-1][-1]], jnp.float32)
    what = f"{map_name} {tuple(shape)}"
    return handler.call(what, functools.partial(_plan, map_name, shape), result, *pair)


def _plan(map_name: str, shape: ConvolutionShape) -> Plan:
    layouts = {
        "images": _images_layout(shape.images),
        "kernel": library.layout(*_kernel_axes(shape)),
        "output": _images_layout(shape.output),
    }
    descriptor = _descriptor(map_name, shape, layouts["images"], layouts["output"])
    roles = [Role(given, asked, layouts[array]) for given, asked, array in _ROLES[map_name]]
    return plan_of(descriptor, roles)


def _images_layout(shape: tuple[int, int, int, int]) -> c_void_p:
    """NHWC, in oneDNN's order of axes: n, channels, rows, columns."""
    n, height, width, channels = shape
    strides = (height * width * channels, 1, width * channels, channels)
    return library.layout((n, channels, height, width), strides)


def _kernel_axes(shape: ConvolutionShape) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes and strides of HWIO in oneDNN's order: (groups,) out, in, rows, columns."""
    rows, columns, inner, features = shape.kernel
    groups = shape.images[3] // inner
    strides = (1, features, columns * inner * features, inner * features)
    if groups == 1:
        return (features, inner, rows, columns), strides
    each = features // groups
    return (groups, each, inner, rows, columns), (each, *strides)


def _descriptor(
    map_name: str, shape: ConvolutionShape, images: c_void_p, output: c_void_p
) -> c_void_p:
    """With a kernel in any order, because the plain one of a gradient is ten times as slow."""
    kernel, bias = library.layout(_kernel_axes(shape)[0], None), library.NONE
    top, bottom, left, right = shape.padding
    no_dilation = (0, 0)
    steps = [
        library.dims(each) for each in (shape.strides, no_dilation, (top, left), (bottom, right))
    ]
    create, given = "dnnl_convolution_{}_primitive_desc_create".format, (library.engine(), _DIRECT)
    forward = library.made(
        create("forward"),
        *(library.engine(), _TRAINING, _DIRECT, images, kernel, bias, output, *steps, library.NONE),
    )
    if map_name == "forward":
        return forward
    if map_name == "input_gradient":
        name, arrays = "backward_data", [images, kernel, output]
    else:
        name, arrays = "backward_weights", [images, kernel, bias, output]
    return library.made(create(name), *given, *arrays, *steps, forward, library.NONE)
