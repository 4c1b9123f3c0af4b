"""ViT-small: a vision transformer for small datasets.

Shifted patch tokenisation (the image and its four one-pixel shifts side by side), locality
self-attention (learned temperature, no token attends to itself), pre-norm blocks, class token.
"""

import math

import einops
import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxsens.models.layers.basics import Dropout, gelu, layer_norm, linear, uniform_fan_in
from jaxsens.models.layers.multi_head import Heads, multi_head_attention
from jaxsens.models.vision.vision_transformer import Layout, Part, VisionTransformer


def shifted(x: Float[Array, "n H W C"]) -> Float[Array, "n H W 5*C"]:
    """The image and its shifts by one pixel right, left, down and up, filled with zeros."""
    height, width = x.shape[1:3]
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    offsets = ((1, 1), (1, 0), (1, 2), (0, 1), (2, 1))
    return jnp.concatenate([padded[:, i : i + height, j : j + width] for i, j in offsets], axis=-1)


def patches(x: Float[Array, "n H W C"], size: int) -> Float[Array, "n T {size}*{size}*C"]:
    """Patches row by row, each flattened as (row, column, channel), the channel fastest."""
    return einops.rearrange(x, "n (h p) (w q) c -> n (h w) (p q c)", p=size, q=size)


class LocalityAttention(nn.Module):
    """Multi-head attention in which no token attends to itself, with a learned temperature.

    Attributes:
      heads: number of heads.
      head_dim: width of a head.
      dropout: rate on the attention weights and on the output.
    """

    heads: int
    head_dim: int = 64
    dropout: float = 0.1

    @nn.compact
    def __call__(
        self, x: Float[Array, "n T d"], *, num_queries: int, train: bool
    ) -> Float[Array, "n Q d"]:
        """Output for the first `num_queries` tokens, which attend to all others."""
        x = layer_norm()(x)
        log_scale = self.param(
            "log_scale", nn.initializers.constant(-0.5 * math.log(self.head_dim)), ()
        )
        visible = ~jnp.eye(num_queries, x.shape[1], dtype=bool)[None]
        inner = self.heads * self.head_dim
        heads = Heads(
            self.heads,
            self.head_dim,
            kernel_init=uniform_fan_in(x.shape[-1]),
            bias_init=None,
            out_kernel_init=uniform_fan_in(inner),
            out_bias_init=uniform_fan_in(inner),
            dropout=self.dropout,
        )
        out = multi_head_attention(
            heads, x[:, :num_queries], x, visible, scale=jnp.exp(log_scale), train=train
        )
        return Dropout(self.dropout)(out, train=train)


class FeedForward(nn.Module):
    """Layer norm, a hidden layer with exact GELU, back to the width of the input."""

    hidden: int
    dropout: float = 0.1

    @nn.compact
    def __call__(self, x: Float[Array, "n T d"], *, train: bool) -> Float[Array, "n T d"]:
        """The residual branch's output."""
        width = x.shape[-1]
        y = gelu(linear(self.hidden, width)(layer_norm()(x)))
        y = Dropout(self.dropout)(y, train=train)
        y = linear(width, self.hidden)(y)
        return Dropout(self.dropout)(y, train=train)


class ViTSmall(VisionTransformer):
    """The paper's ViT-small.

    Only the class token is read out, so the last block computes no other token: the same output for
    less work.

    Attributes:
      num_classes: outputs.
      patch: side of a patch in pixels.
      depth: blocks.
      heads: heads of each.
      hidden: feed-forward width.
      width: d.
      head_dim: width of a head.
      dropout: rate on tokens, attention weights and residual branches.
      shifts: whether tokens also see the four one-pixel shifts of the image. Without them a token
        sees its own patch alone, as in the first vision transformers.
    """

    depth: int
    heads: int
    hidden: int
    width: int = 64
    head_dim: int = 64
    dropout: float = 0.1
    shifts: bool = True

    @nn.nowrap
    def patch_rows(self, x: Float[Array, "n H W C"]) -> Float[Array, "n T r"]:
        """The patches of the image and of its shifts, side by side in each row."""
        return patches(shifted(x) if self.shifts else x, self.patch)

    @nn.compact
    def layers(
        self, x: Float[Array, "n T _"], part: Part, layout: Layout, *, train: bool = False
    ) -> Float[Array, "n ..."]:
        """Some of the layers; with `train` the rng stream "dropout" is needed."""
        if part != "rest":
            x = layer_norm(name="LayerNorm_0")(x)
            x = linear(self.width, x.shape[-1], name="Dense_0")(x)
        if part == "embedding":
            return x
        normal = nn.initializers.normal(1.0)
        token = self.param("class_token", normal, (1, 1, self.width))
        position = self.param("position", normal, (1, x.shape[1] + 1, self.width))
        x = jnp.concatenate([jnp.broadcast_to(token, (x.shape[0], 1, self.width)), x], axis=1)
        x = Dropout(self.dropout)(x + position, train=train)
        for layer in range(self.depth):
            num_queries = 1 if layer == self.depth - 1 else x.shape[1]
            attention = LocalityAttention(self.heads, self.head_dim, self.dropout)
            x = x[:, :num_queries] + attention(x, num_queries=num_queries, train=train)
            x = x + FeedForward(self.hidden, self.dropout)(x, train=train)
        x = layer_norm(name="LayerNorm_1")(x[:, 0])
        return linear(self.num_classes, self.width, name="Dense_1")(x)
