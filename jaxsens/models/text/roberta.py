"""RoBERTa trained from scratch, with softmax or ReLU attention.

Word, position and type embeddings, layer norm; post-norm blocks with exact GELU; a tanh head that
reads the first token. Only that token is read, so the last block computes no other: the same output
for less work.
"""

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxsens.models.layers.basics import Dropout, gelu, layer_norm
from jaxsens.models.text.text_model import (
    Activation,
    Embedded,
    Logits,
    Mask,
    MultiHeadAttention,
    TextModel,
    Tokens,
    dense,
)
from jaxsens.text.special_ids import PAD_ID

_normal = nn.initializers.normal(0.02)


def _words_init(key, shape, dtype=jnp.float32, out_sharding=None):
    """N(0, 0.02²), and 0 for padding."""
    return _normal(key, shape, dtype).at[PAD_ID].set(0)


class PostNormBlock(nn.Module):
    """Attention and feed-forward, each added to its input and then layer-normed."""

    heads: int
    hidden: int
    activation: Activation
    dropout: float

    @nn.compact
    def __call__(
        self, x: Float[Array, "n T d"], visible: Bool[Array, "n Q T"], *, train: bool
    ) -> Float[Array, "n Q d"]:
        """The first Q tokens after the block."""
        queries = x[:, : visible.shape[1]]
        attend = MultiHeadAttention(self.heads, self.activation, self.dropout)
        y = attend(queries, x, visible, train=train)
        y = layer_norm()(queries + Dropout(self.dropout)(y, train=train))
        z = gelu(dense(self.hidden)(y))
        z = Dropout(self.dropout)(dense(x.shape[-1])(z), train=train)
        return layer_norm()(y + z)


class RoBERTa(TextModel):
    """The paper's RoBERTa: 4 layers, 8 heads, width 256, and roberta-base's feed-forward width.

    Attributes:
      vocab_size: number of token ids.
      num_classes: outputs.
      depth: blocks.
      heads: heads of each.
      width: d.
      hidden: feed-forward width; the authors kept the 3072 of roberta-base (4·width would be 1024).
      attention: "softmax" or "relu".
      max_positions: size of the position table; ids start at 2, so sequences may be 2 shorter.
      dropout: rate on embeddings, attention weights, residual branches and in the head.
    """

    vocab_size: int
    num_classes: int = 2
    depth: int = 4
    heads: int = 8
    width: int = 256
    hidden: int = 3072
    attention: Activation = "softmax"
    max_positions: int = 514
    dropout: float = 0.1

    def setup(self):
        """Makes the layers."""
        self.words = nn.Embed(self.vocab_size, self.width, embedding_init=_words_init)
        self.positions = nn.Embed(self.max_positions, self.width, embedding_init=_words_init)
        self.types = nn.Embed(1, self.width, embedding_init=_normal)
        self.norm = layer_norm()
        self.embedding_dropout = Dropout(self.dropout)
        self.blocks = [
            PostNormBlock(self.heads, self.hidden, self.attention, self.dropout)
            for _ in range(self.depth)
        ]
        self.pooler, self.head = dense(self.width), dense(self.num_classes)
        self.pooler_dropout, self.head_dropout = Dropout(self.dropout), Dropout(self.dropout)

    def embed(self, tokens: Tokens) -> Embedded:
        """LN(word + position + type)."""
        return self.embed_again(self.words(tokens), tokens != PAD_ID)

    def embed_again(self, e: Embedded, mask: Mask) -> Embedded:
        """LN(e + position + type).

        The authors' code sends noisy embeddings through this a second time, which adds the position
        twice and shrinks the noise to the scale of an embedding.
        """
        places = jnp.where(mask, jnp.arange(e.shape[1])[None] + 2, PAD_ID)
        return self.normalise(e + self.positions(places) + self.types.embedding[None])

    def normalise(self, e: Embedded) -> Embedded:
        """The embeddings' layer norm."""
        return self.norm(e)

    def from_embeddings(self, e: Embedded, mask: Mask, *, train: bool = False) -> Logits:
        """Blocks, then the head on the first token."""
        x, num_tokens = self.embedding_dropout(e, train=train), e.shape[1]
        for index, block in enumerate(self.blocks):
            num_queries = 1 if index + 1 == self.depth else num_tokens
            visible = jnp.broadcast_to(mask[:, None], (len(e), num_queries, num_tokens))
            x = block(x, visible, train=train)
        y = self.pooler_dropout(x[:, 0], train=train)
        return self.head(self.head_dropout(nn.tanh(self.pooler(y)), train=train))
