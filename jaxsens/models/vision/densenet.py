"""DenseNet-121 for small images: every layer reads the outputs of all layers of its block."""

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxsens.models.layers.basics import avg_pool, batch_norm, conv, max_pool, uniform_fan_in


def _conv(features: int, channels: int, kernel: int) -> nn.Conv:
    """A bias-free convolution that keeps the image's size and starts N(0, 2/fan_in)."""
    init = nn.initializers.variance_scaling(2.0, "fan_in", "normal")
    return conv(features, channels, kernel, padding=kernel // 2, bias=False, kernel_init=init)


class DenseLayer(nn.Module):
    """`growth` new features: norm, ReLU, 1×1 convolution to 4·growth; norm, ReLU, 3×3."""

    growth: int

    @nn.compact
    def __call__(self, x: Float[Array, "n H W C"], *, train: bool) -> Float[Array, "n H W F"]:
        """The input with the new features behind it."""
        inner = 4 * self.growth
        y = _conv(inner, x.shape[-1], 1)(nn.relu(batch_norm(train=train)(x)))
        y = _conv(self.growth, inner, 3)(nn.relu(batch_norm(train=train)(y)))
        return jnp.concatenate([x, y], axis=-1)


class Transition(nn.Module):
    """Half the channels and half the image's side."""

    @nn.compact
    def __call__(self, x: Float[Array, "n H W C"], *, train: bool) -> Float[Array, "n h w F"]:
        """The input of the next block."""
        x = nn.relu(batch_norm(train=train)(x))
        return avg_pool(_conv(x.shape[-1] // 2, x.shape[-1], 1)(x))


class DenseNet(nn.Module):
    """The paper's DenseNet-121.

    Example:
      >>> import jax
      >>> model = DenseNet(num_classes=10, blocks=(1, 1))
      >>> x = jax.ShapeDtypeStruct((1, 32, 32, 3), "float32")
      >>> shapes = jax.eval_shape(model.init, jax.random.key(0), x)
      >>> sum(leaf.size for leaf in jax.tree.leaves(shapes["params"]))  # weights
      96426
    """

    num_classes: int
    growth: int = 32
    blocks: tuple[int, ...] = (6, 12, 24, 16)

    @nn.compact
    def __call__(self, x: Float[Array, "n H W C"], *, train: bool = False) -> Float[Array, "n K"]:
        """Logits; with `train` the collection "batch_stats" must be mutable.

        Raises:
          ValueError: the image is too small to be halved once for each block.
        """
        smallest = 2 ** len(self.blocks)
        if min(x.shape[1:3]) < smallest:
            raise ValueError(
                f"{len(self.blocks)} blocks halve the image {len(self.blocks)} times and need a "
                f"side of at least {smallest}; got {x.shape[1]}×{x.shape[2]}; use fewer blocks"
            )
        x = _conv(2 * self.growth, x.shape[-1], 3)(x)
        x = nn.relu(batch_norm(train=train)(x))
        x = max_pool(x, 3, stride=2, padding=1)
        for index, num_layers in enumerate(self.blocks):
            if index > 0:
                x = Transition()(x, train=train)
            for _ in range(num_layers):
                x = DenseLayer(self.growth)(x, train=train)
        x = nn.relu(batch_norm(train=train)(x)).mean(axis=(1, 2))
        # Unlike in the other models, the bias starts at 0.
        return nn.Dense(self.num_classes, kernel_init=uniform_fan_in(x.shape[-1]))(x)
