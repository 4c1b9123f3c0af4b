"""ViT-simple: a vision transformer with fixed positions, mean pooling and no dropout."""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxsens.models.layers.basics import layer_norm, linear, uniform_fan_in
from jaxsens.models.layers.multi_head import Heads, multi_head_attention
from jaxsens.models.vision.vision_transformer import Layout, Part, VisionTransformer
from jaxsens.models.vision.vit import FeedForward, patches


def sincos_positions(rows: int, columns: int, width: int) -> Float[np.ndarray, "T d"]:
    """[sin xω, cos xω, sin yω, cos yω] for each patch (y, x), ω from 1 down to 1/10000.

    Raises:
      ValueError: the width does not split into these four parts of at least two frequencies.
    """
    if width % 4 or width < 8:
        raise ValueError(f"width must be a multiple of 4 and at least 8; got {width}")
    omega = 10_000.0 ** -np.linspace(0, 1, width // 4)
    y, x = (np.outer(axis.ravel(), omega) for axis in np.indices((rows, columns)))
    return np.concatenate([np.sin(x), np.cos(x), np.sin(y), np.cos(y)], axis=1)


class Attention(nn.Module):
    """Multi-head attention of every token to every token, itself included, without biases."""

    heads: int
    head_dim: int = 64

    @nn.compact
    def __call__(self, x: Float[Array, "n T d"], *, train: bool) -> Float[Array, "n T d"]:
        """The residual branch's output."""
        x = layer_norm()(x)
        heads = Heads(
            self.heads,
            self.head_dim,
            kernel_init=uniform_fan_in(x.shape[-1]),
            bias_init=None,
            out_kernel_init=uniform_fan_in(self.heads * self.head_dim),
            out_bias_init=None,
        )
        visible = jnp.ones((1, x.shape[1], x.shape[1]), bool)
        scale = jnp.float32(self.head_dim**-0.5)
        return multi_head_attention(heads, x, x, visible, scale=scale, train=train)


class ViTSimple(VisionTransformer):
    """The paper's ViT-simple: a token sees its own patch alone.

    Example:
      >>> import jax
      >>> model = ViTSimple(num_classes=10)
      >>> x = jax.ShapeDtypeStruct((1, 32, 32, 3), "float32")
      >>> shapes = jax.eval_shape(model.init, jax.random.key(0), x)
      >>> sum(leaf.size for leaf in jax.tree.leaves(shapes["params"]))  # weights
      1975210
    """

    patch: int = 4
    depth: int = 6
    heads: int = 16
    hidden: int = 512
    width: int = 64
    head_dim: int = 64

    @nn.nowrap
    def patch_rows(self, x: Float[Array, "n H W C"]) -> Float[Array, "n T r"]:
        """The patches."""
        return patches(x, self.patch)

    @nn.compact
    def layers(
        self, x: Float[Array, "n T _"], part: Part, layout: Layout, *, train: bool = False
    ) -> Float[Array, "n ..."]:
        """Some of the layers; `train` changes nothing but the order of products."""
        if part != "rest":
            x = layer_norm(name="LayerNorm_1")(x)
            x = layer_norm(name="LayerNorm_0")(linear(self.width, x.shape[-1], name="Dense_0")(x))
        if part == "embedding":
            return x
        x = x + jnp.asarray(sincos_positions(*layout, self.width)[None], x.dtype)
        for _ in range(self.depth):
            x = x + Attention(self.heads, self.head_dim)(x, train=train)
            x = x + FeedForward(self.hidden, dropout=0.0)(x, train=train)
        x = layer_norm(name="LayerNorm_2")(x).mean(axis=1)
        return linear(self.num_classes, self.width, name="Dense_1")(x)
