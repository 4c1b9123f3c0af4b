"""Linear maps with the initialisation that the papers' models were trained from.

Weights and biases are U(-1/√fan_in, 1/√fan_in). It is narrower than Flax's default, and small-step
SGD, as in the papers, remembers where it started.
"""

import math

import flax.linen as nn
import jax
from jaxtyping import Array, Float

from jaxsens.models.convolution import conv_general_dilated


def uniform_fan_in(fan_in: int) -> nn.initializers.Initializer:
    """U(-1/√fan_in, 1/√fan_in), for weights and biases alike."""
    bound = 1 / math.sqrt(fan_in)

    def init(key, shape, dtype=jax.numpy.float32, out_sharding=None):
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return init


def linear(features: int, fan_in: int, *, bias: bool = True, name: str | None = None) -> nn.Dense:
    """A dense layer from `fan_in` to `features`."""
    init = uniform_fan_in(fan_in)
    return nn.Dense(features, use_bias=bias, kernel_init=init, bias_init=init, name=name)


def conv(
    features: int, channels: int, kernel: int, *, padding: str = "VALID", name: str | None = None
) -> nn.Conv:
    """A kernel×kernel convolution from `channels` to `features`, with bias."""
    init = uniform_fan_in(channels * kernel * kernel)
    return nn.Conv(
        features,
        (kernel, kernel),
        padding=padding,
        kernel_init=init,
        bias_init=init,
        conv_general_dilated=conv_general_dilated,
        name=name,
    )


def max_pool(x: Float[Array, "n H W C"], size: int = 2) -> Float[Array, "n h w C"]:
    """Maximum over size×size windows without overlap; a last incomplete row or column is left out.

    By reshaping: its gradient is six times faster on a CPU than that of a window reduction.
    """
    n, height, width, channels = x.shape
    rows, columns = height // size, width // size
    x = x[:, : rows * size, : columns * size]
    return x.reshape(n, rows, size, columns, size, channels).max(axis=(2, 4))
