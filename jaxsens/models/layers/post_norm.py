"""Transformer layers with the norm after the residual sum, as `torch.nn.Transformer` has them.

    y = norm(x + attention(x))        z = norm(y + W₂ relu(W₁ y))

A decoder layer attends twice: to the tokens before it, then to the encoder's.
"""

import math
from dataclasses import dataclass

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxsens.incremental.attention_operation import as_weights, masked
from jaxsens.models.layers.basics import uniform_fan_in
from jaxsens.models.layers.multi_head import Heads, Projection, multi_head_attention

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
    def __call__(
        self, queries: Float[Array, "n Q d"], x: Tokens, visible: Bool[Array, "n T"] | None = None
    ) -> Float[Array, "n Q d"]:
        """What `queries` receive from `x`, or from those of it that are visible."""
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
        seen = _visible(queries.shape[1], x.shape[1], causal=self.causal)
        if visible is not None:
            seen = seen & visible[:, None]
        # Trained and measured by the same call: in the order of products that training takes.
        return multi_head_attention(heads, queries, x, seen, scale=scale, train=True)


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
    def __call__(
        self, x: Tokens, queries: Float[Array, "n Q d"], visible: Bool[Array, "n T"] | None = None
    ) -> Float[Array, "n Q d"]:
        """What becomes of the queries: all tokens, or a few where no other is read.

        Args:
          x: the tokens that are looked at.
          queries: the tokens that look.
          visible: which of `x` can be seen; default all.
        """
        received = Attention(self.layer, name="attention")(queries, x, visible)
        return _after_attention(self.layer, queries, received)


class FirstLayer(nn.Module):
    """An `EncoderLayer` of bits: the same weights and outputs, by tables of the few tokens.

    There are two different tokens per position, 2T in all. Queries, keys, values and their way
    through the output projection are computed for those alone, whatever the number of inputs; an
    input then chooses logits from a table, and one product with the table of values serves all
    inputs. At the paper's width this is a third of a layer's operations.
    """

    layer: Layer

    @nn.compact
    def __call__(
        self,
        table: Float[Array, "2 T d"],
        bits: Int[Array, "n T"],
        visible: Bool[Array, "n T"] | None = None,
    ) -> Tokens:
        """All tokens.

        Args:
          table: the token of a 0 and of a 1 at every position.
          bits: the inputs.
          visible: which positions can be seen; default all.
        """
        x = jnp.where(bits[..., None] == 1, table[1][None], table[0][None])
        received = TabulatedAttention(self.layer, name="attention")(table, bits, visible)
        return _after_attention(self.layer, x, received)


class TabulatedAttention(nn.Module):
    """`Attention` of all tokens to all, with the same weights, where bits give the tokens."""

    layer: Layer

    @nn.compact
    def __call__(
        self,
        table: Float[Array, "2 T d"],
        bits: Int[Array, "n T"],
        visible: Bool[Array, "n T"] | None = None,
    ) -> Tokens:
        """What every token receives."""
        num, width = self.layer.heads, self.layer.width
        n, length = bits.shape
        split = (2, length, num, width // num)
        zeros = nn.initializers.zeros

        def projected(name: str) -> Float[Array, "2 T h e"]:
            kernel, bias = Projection(width, _FUSED, zeros, name=name)(width)
            return (table @ kernel + bias[None, None]).reshape(split)

        query, key, value = (projected(name) for name in ("query", "key", "value"))
        out, out_bias = Projection(width, self.layer.kernel_init, zeros, name="out")(width)
        scale = jnp.asarray(1 / math.sqrt(width // num), table.dtype)
        logits = jnp.einsum("aihe,bjhe->abhij", scale * query, key)
        of_query, of_key = (bits == 1)[:, None, :, None], (bits == 1)[:, None, None, :]
        zero, one = (jnp.where(of_key, pair[1][None], pair[0][None]) for pair in logits)
        chosen = jnp.where(of_query, one, zero)
        if visible is not None:
            seen = jnp.broadcast_to(visible[:, None], (n, length, length))
            chosen = masked(chosen, seen)
        weights = as_weights(chosen, "softmax")
        # Each key twice, once for either bit: one of the two weights is 0.
        by_bit = jnp.stack([jnp.where(of_key, 0, weights), jnp.where(of_key, weights, 0)], axis=2)
        given = jnp.einsum("bjhe,hed->hbjd", value, out.reshape(*split[2:], width))
        by_query = jnp.moveaxis(by_bit, 3, 1).reshape(n, length, -1)
        return by_query @ given.reshape(-1, width) + out_bias[None, None]


def _after_attention(
    layer: Layer, x: Float[Array, "n Q d"], received: Float[Array, "n Q d"]
) -> Float[Array, "n Q d"]:
    """The rest of an encoder's layer; to be called inside a compact module."""
    x = norm("norm_attention")(x + received)
    return norm("norm_feed_forward")(x + FeedForward(layer, name="feed_forward")(x))


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
