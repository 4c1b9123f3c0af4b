"""ConvMixer: patches mixed in turn across space (depthwise) and across channels (1×1)."""

import flax.linen as nn
from jaxtyping import Array, Float

from jaxsens.models.layers.basics import batch_norm, conv, gelu, linear


class ConvMixer(nn.Module):
    """The paper's ConvMixer; an incomplete last row or column of patches is left out.

    Example:
      >>> import jax
      >>> model = ConvMixer(num_classes=10)
      >>> x = jax.ShapeDtypeStruct((1, 32, 32, 3), "float32")
      >>> shapes = jax.eval_shape(model.init, jax.random.key(0), x)
      >>> sum(leaf.size for leaf in jax.tree.leaves(shapes["params"]))  # weights
      570634
    """

    num_classes: int
    width: int = 256
    depth: int = 8
    kernel: int = 3
    patch: int = 4

    @nn.compact
    def __call__(self, x: Float[Array, "n H W C"], *, train: bool = False) -> Float[Array, "n K"]:
        """Logits; with `train` the collection "batch_stats" must be mutable."""
        width = self.width

        def activate(x):
            return batch_norm(train=train)(gelu(x))

        x = activate(conv(width, x.shape[-1], self.patch, stride=self.patch)(x))
        for _ in range(self.depth):
            x = x + activate(conv(width, width, self.kernel, padding="SAME", groups=width)(x))
            x = activate(conv(width, width, 1)(x))
        return linear(self.num_classes, width)(x.mean(axis=(1, 2)))
