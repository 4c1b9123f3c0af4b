"""The layers that the papers' models are made of, with the weights that they were trained from.

Weights and biases of `linear` and `conv` start as U(-1/√fan_in, 1/√fan_in), which is narrower than
Flax's default. That matters: SGD with small steps, as in the papers, ends near where it started.
"""

import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jaxsens.models.layers.convolution import conv_general_dilated


def uniform_fan_in(fan_in: int) -> nn.initializers.Initializer:
    """U(-1/√fan_in, 1/√fan_in), for weights and biases alike."""
    bound = 1 / math.sqrt(fan_in)

    def init(key, shape, dtype=jnp.float32, out_sharding=None):
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return init


def linear(features: int, fan_in: int, *, bias: bool = True, name: str | None = None) -> nn.Dense:
    """A dense layer from `fan_in` to `features`."""
    init = uniform_fan_in(fan_in)
    return nn.Dense(features, use_bias=bias, kernel_init=init, bias_init=init, name=name)


def conv(
    features: int,
    channels: int,
    kernel: int,
    *,
    stride: int = 1,
    padding: int | str = "VALID",
    groups: int = 1,
    bias: bool = True,
    kernel_init: nn.initializers.Initializer | None = None,
    name: str | None = None,
) -> nn.Conv:
    """A kernel×kernel convolution from `channels` to `features`.

    An integer pads every side by that many zeros. With stride 2 that is not Flax's "SAME", which
    pads one side more than the other and so looks at other pixels.
    """
    init = uniform_fan_in(channels // groups * kernel * kernel)
    return nn.Conv(
        features,
        (kernel, kernel),
        strides=stride,
        padding=padding,
        feature_group_count=groups,
        use_bias=bias,
        kernel_init=kernel_init or init,
        bias_init=init,
        conv_general_dilated=conv_general_dilated,
        name=name,
    )


def batch_norm(*, train: bool, name: str | None = None) -> nn.BatchNorm:
    """Batch norm whose running averages keep 9/10 of the past at each training step.

    The running variance averages Σ(x-x̄)²/N, PyTorch's Σ(x-x̄)²/(N-1). They differ by the factor
    1 - 1/N, where N is examples × pixels: 1e-5 for a hundred 32×32 images.
    """
    return nn.BatchNorm(use_running_average=not train, momentum=0.9, epsilon=1e-5, name=name)


def layer_norm(*, learned: bool = True, name: str | None = None) -> nn.LayerNorm:
    """Layer norm with the papers' epsilon, 1e-5; Flax's own default is 1e-6.

    Args:
      learned: whether a scale and a bias for each channel are trained.
      name: of the layer, if Flax is not to choose one.
    """
    return nn.LayerNorm(epsilon=1e-5, use_bias=learned, use_scale=learned, name=name)


class Dropout(nn.Module):
    """Sets a random share `rate` of all values to 0 in training, and scales the others up.

    Flax's own dropout, number for number, but drawn flat: XLA on a CPU compiles a draw of several
    axes several times slower (2.0 s instead of 0.3 s for the weights of 8 heads).
    """

    rate: float

    @nn.compact
    def __call__(self, x: Float[Array, "*shape"], *, train: bool) -> Float[Array, "*shape"]:
        """With `train` the rng stream "dropout" is needed."""
        if not train or self.rate == 0:
            return x
        kept = jax.random.bernoulli(self.make_rng("dropout"), 1 - self.rate, (x.size,))
        return jnp.where(kept.reshape(x.shape), x / (1 - self.rate), jnp.zeros_like(x))


def gelu(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """The exact GELU, x Φ(x), with Φ by erf as PyTorch has it.

    Flax's exact GELU takes erfc, which keeps the digits of tiny results far below 0 (here the error
    is below 1e-6, not relative to them) and is two and a half times as slow on a CPU.
    """
    return 0.5 * x * (1 + lax.erf(x * math.sqrt(0.5)))


def max_pool(
    x: Float[Array, "n H W C"], size: int = 2, *, stride: int | None = None, padding: int = 0
) -> Float[Array, "n h w C"]:
    """Maximum over size×size windows, by default side by side; an incomplete last one is left out.

    The maximum of strided slices, first of rows, then of columns: its gradient is six times faster
    on a CPU than that of a window reduction. Equal maxima share the gradient.
    """
    stride = stride or size
    border = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    x = jnp.pad(x, border, constant_values=-jnp.inf) if padding else x
    for axis in (1, 2):
        last = x.shape[axis] - size
        slices = [
            lax.slice_in_dim(x, start, start + last + 1, stride, axis) for start in range(size)
        ]
        x = functools.reduce(jnp.maximum, slices)
    return x


def avg_pool(x: Float[Array, "n H W C"], size: int = 2) -> Float[Array, "n h w C"]:
    """Mean of size×size windows without overlap; a last incomplete row or column is left out."""
    n, height, width, channels = x.shape
    rows, columns = height // size, width // size
    x = x[:, : rows * size, : columns * size]
    return x.reshape(n, rows, size, columns, size, channels).mean(axis=(2, 4))
