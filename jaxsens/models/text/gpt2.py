"""GPT-2 trained from scratch: causal, pre-norm blocks, read at the last real token.

Only the last real token is read, so the last block computes no other: the same output for less
work.
"""

import math

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxsens.models.layers.basics import Dropout, layer_norm
from jaxsens.models.text.text_model import (
    Embedded,
    Logits,
    Mask,
    MultiHeadAttention,
    TextModel,
    Tokens,
    dense,
)


class PreNormBlock(nn.Module):
    """Attention and feed-forward, each layer-norming its input and added to it."""

    heads: int
    dropout: float
    out_std: float

    @nn.compact
    def __call__(
        self,
        queries: Float[Array, "n Q d"],
        x: Float[Array, "n T d"],
        visible: Bool[Array, "n Q T"],
        *,
        train: bool,
    ) -> Float[Array, "n Q d"]:
        """The queries after the block; they are tokens of `x`."""
        width, norm = x.shape[-1], layer_norm()
        causal = queries.shape[1] == x.shape[1]
        attend = MultiHeadAttention(self.heads, "softmax", self.dropout, self.out_std, causal)
        y = attend(norm(queries), norm(x), visible, train=train)
        y = queries + Dropout(self.dropout)(y, train=train)
        z = nn.gelu(dense(4 * width)(layer_norm()(y)), approximate=True)
        return y + Dropout(self.dropout)(dense(width, self.out_std)(z), train=train)


class GPT2(TextModel):
    """The paper's GPT-2: 4 layers, 8 heads, width 256.

    Attributes:
      vocab_size: number of token ids.
      num_classes: outputs.
      depth: blocks.
      heads: heads of each.
      width: d.
      max_positions: size of the position table.
      dropout: rate on embeddings, attention weights and residual branches.
      normalised: whether embeddings are layer-normed (without parameters), so that noise of one
        variance means the same for all text models. GPT-2 itself has no such norm: coordinates of
        its word embeddings start with a standard deviation of 0.02, and noise of variance 15 is two
        hundred times as large.

    Example:
      >>> import jax
      >>> model = GPT2(vocab_size=1000)
      >>> x = jax.ShapeDtypeStruct((1, 8), "int32")
      >>> shapes = jax.eval_shape(model.init, jax.random.key(0), x)
      >>> sum(leaf.size for leaf in jax.tree.leaves(shapes["params"]))  # weights
      3678208
    """

    vocab_size: int
    num_classes: int = 2
    depth: int = 4
    heads: int = 8
    width: int = 256
    max_positions: int = 1024
    dropout: float = 0.1
    normalised: bool = True

    def setup(self):
        """Makes the layers."""
        normal = nn.initializers.normal(0.02)
        self.words = nn.Embed(self.vocab_size, self.width, embedding_init=normal)
        self.positions = nn.Embed(self.max_positions, self.width, embedding_init=normal)
        self.embedding_dropout = Dropout(self.dropout)
        out_std = 0.02 / math.sqrt(2 * self.depth)
        self.blocks = [PreNormBlock(self.heads, self.dropout, out_std) for _ in range(self.depth)]
        self.norm, self.head = layer_norm(), dense(self.num_classes, bias=False)
        self.unit = layer_norm(learned=False)

    def embed(self, tokens: Tokens) -> Embedded:
        """Word + position, layer-normed if `normalised`."""
        return self.normalise(
            self.words(tokens) + self.positions.embedding[None, : tokens.shape[1]]
        )

    def embed_again(self, e: Embedded, mask: Mask) -> Embedded:
        """The positions once more, as in the authors' code."""
        return self.normalise(e + self.positions.embedding[None, : e.shape[1]])

    def normalise(self, e: Embedded) -> Embedded:
        """Mean 0 and variance 1 for every token, if `normalised`."""
        return self.unit(e) if self.normalised else e

    def from_embeddings(self, e: Embedded, mask: Mask, *, train: bool = False) -> Logits:
        """Causal blocks, then the head on the last real token."""
        x, places = self.embedding_dropout(e, train=train), jnp.arange(e.shape[1])
        visible = (places[None, :] <= places[:, None])[None] & mask[:, None]
        for block in self.blocks[:-1]:
            x = block(x, x, visible, train=train)
        last = mask.sum(axis=1, keepdims=True) - 1
        query = jnp.take_along_axis(x, last[..., None], axis=1)
        y = self.blocks[-1](query, x, mask[:, None], train=train)
        return self.head(self.norm(y[:, 0]))
