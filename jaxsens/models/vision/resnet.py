"""ResNet-18 for small images: the first convolution keeps every pixel and no pooling follows it."""

import flax.linen as nn
from jaxtyping import Array, Float

from jaxsens.models.layers.basics import batch_norm, conv, linear


class BasicBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut, which is projected where the shape changes."""

    features: int
    stride: int

    @nn.compact
    def __call__(self, x: Float[Array, "n H W C"], *, train: bool) -> Float[Array, "n h w F"]:
        """The block's output, after the activation."""
        channels, features = x.shape[-1], self.features
        y = conv(features, channels, 3, stride=self.stride, padding=1, bias=False)(x)
        y = nn.relu(batch_norm(train=train)(y))
        y = conv(features, features, 3, padding=1, bias=False)(y)
        y = batch_norm(train=train)(y)
        if self.stride != 1 or channels != features:
            x = conv(features, channels, 1, stride=self.stride, bias=False, name="shortcut")(x)
            x = batch_norm(train=train, name="shortcut_norm")(x)
        return nn.relu(x + y)


class ResNet(nn.Module):
    """The paper's ResNet-18; each stage after the first halves the image and doubles the width.

    Example:
      >>> import jax
      >>> model = ResNet(num_classes=10)
      >>> x = jax.ShapeDtypeStruct((1, 32, 32, 3), "float32")
      >>> shapes = jax.eval_shape(model.init, jax.random.key(0), x)
      >>> sum(leaf.size for leaf in jax.tree.leaves(shapes["params"]))  # weights
      11173962
    """

    num_classes: int
    width: int = 64
    blocks: tuple[int, ...] = (2, 2, 2, 2)

    @nn.compact
    def __call__(self, x: Float[Array, "n H W C"], *, train: bool = False) -> Float[Array, "n K"]:
        """Logits; with `train` the collection "batch_stats" must be mutable."""
        x = conv(self.width, x.shape[-1], 3, padding=1, bias=False)(x)
        x = nn.relu(batch_norm(train=train)(x))
        for stage, num_blocks in enumerate(self.blocks):
            for block in range(num_blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                x = BasicBlock(self.width * 2**stage, stride)(x, train=train)
        return linear(self.num_classes, x.shape[-1])(x.mean(axis=(1, 2)))
