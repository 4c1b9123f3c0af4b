"""Transformer layers with the norm after the residual sum, as `torch.nn.Transformer` has them.

    y = norm(x + attention(x))        z = norm(y + W₂ relu(W₁ y))

A decoder layer attends twice: to the tokens before it, then to the encoder's.
"""

import math
from dataclasses import dataclass

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxsens.models.layers.basics import uniform_fan_in
from jaxsens.models.layers.multi_head import Heads, multi_head_attention

Tokens = Float[Array, "n T d"]

#: Xavier-uniform for a d × 3d matrix: PyTorch stores queries, keys and values as one.
_FUSED = nn.initializers.variance_scaling(0.5, "fan_in", "uniform")


@dataclass(frozen=True)
class Layer:
    """Sizes and first weights of a layer.

    Attributes:
      width: d, of a token, and of the feed-forward layer.
      heads: number of heads; must divide d.
      xavier: whether every matrix starts Xavier-uniform; default U(±1/√fan_in) for all but queries,
        keys and values.
    """

    width: int
    heads: int
    xavier: bool = False

    @property
    def kernel_init(self) -> nn.initializers.Initializer:
        """First weights of all matrices but queries, keys and values."""
        return nn.initializers.xavier_uniform() if self.xavier else uniform_fan_in(self.width)

    def dense(self, features: int, name: str) -> nn.Dense:
        """A linear map of a token, with biases U(±1/√d)."""
        bias = uniform_fan_in(self.width)
        return nn.Dense(features, kernel_init=self.kernel_init, bias_init=bias, name=name)


def norm(name: str) -> nn.LayerNorm:
    """PyTorch's layer norm: ε = 1e-5, and the variance not as a difference of two large sums."""
    return nn.LayerNorm(epsilon=1e-5, use_fast_variance=False, name=name)


class Attention(nn.Module):
    """Multi-head attention of some tokens to some others."""

    layer: Layer
    causal: bool = False

    @nn.compact
    def __call__(self, queries: Float[Array, "n Q d"], x: Tokens) -> Float[Array, "n Q d"]:
        """What `queries` receive from `x`."""
        head_width = self.layer.width // self.layer.heads
        zeros = nn.initializers.zeros
        heads = Heads(
            num=self.layer.heads,
            width=head_width,
            kernel_init=_FUSED,
            bias_init=zeros,
            out_kernel_init=self.layer.kernel_init,
            out_bias_init=zeros,
            causal=self.causal,
        )
        scale = jnp.asarray(1 / math.sqrt(head_width), x.dtype)
        visible = _visible(queries.shape[1], x.shape[1], causal=self.causal)
        return multi_head_attention(heads, queries, x, visible, scale=scale, train=False)


class FeedForward(nn.Module):
    """Two linear maps of every token, ReLU between them."""

    layer: Layer

    @nn.compact
    def __call__(self, x: Tokens) -> Tokens:
        """The same shape again."""
        hidden = nn.relu(self.layer.dense(self.layer.width, "up")(x))
        return self.layer.dense(self.layer.width, "down")(hidden)


class EncoderLayer(nn.Module):
    """Attention to all tokens and a feed-forward layer."""

    layer: Layer

    @nn.compact
    def __call__(self, x: Tokens, *, last_only: bool = False) -> Float[Array, "n Q d"]:
        """All tokens, or the last one alone where no other is read."""
        queries = x[:, -1:] if last_only else x
        x = norm("norm_attention")(queries + Attention(self.layer, name="attention")(queries, x))
        return norm("norm_feed_forward")(x + FeedForward(self.layer, name="feed_forward")(x))


class DecoderLayer(nn.Module):
    """Attention to the tokens so far, attention to the encoder's, and a feed-forward layer."""

    layer: Layer

    @nn.compact
    def __call__(self, x: Tokens, encoded: Float[Array, "n E d"]) -> Tokens:
        """All tokens, each from those up to itself."""
        own = Attention(self.layer, causal=True, name="attention")(x, x)
        x = norm("norm_attention")(x + own)
        x = norm("norm_encoded")(x + Attention(self.layer, name="encoded")(x, encoded))
        return norm("norm_feed_forward")(x + FeedForward(self.layer, name="feed_forward")(x))


def _visible(queries: int, tokens: int, *, causal: bool) -> Bool[Array, "1 Q T"]:
    visible = jnp.ones((1, queries, tokens), bool)
    return jnp.tril(visible) if causal else visible
