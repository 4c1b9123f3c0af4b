"""The transformer of the grokking experiments: one attention layer, no residuals, no layer norm.

    e    = words[token] + positions[place]                     (n, T, d)
    o    = softmax(q_T · k_t / √(d/H)) v_t, H heads             the last token's attention, unmasked
    out  = head(down(relu(hidden(out(o)))))                     (n, C), C the size of the vocabulary

Only the last token is read, so nothing else is computed for the others. `out` and `hidden`, and
`down` and `head`, are linear maps one after the other; each pair is multiplied once, not applied
twice to every example. That changes no function, only the rounding.

Where the last token is always the same ("="), its query is too, and scores and values are one
affine map of a token's embedding, e ↦ e M + c. `on_pairs` uses that to project every token once
instead of once per example.

Assumption of `on_pairs`, `operand_map` and `read`: three tokens, the last of them "=", which has
the last id of the vocabulary.
"""

import math

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxsens.models.layers.basics import uniform_fan_in

Logits = Float[Array, "n C"]


class BareTransformer(nn.Module):
    """One layer of multi-head attention and an MLP, read at the last token.

    The paper's: 114 tokens, d = 128, 4 heads, 512 hidden units, 227,442 parameters. Words start as
    N(0, 1), positions at 0, the projections Xavier-uniform as one d × 3d map, all other weights
    U(±1/√fan_in); biases of the attention at 0, the others like their weights.

    Attributes:
      vocab_size: number of token ids, also of outputs.
      length: T.
      width: d.
      heads: H.
      hidden: units of the MLP.

    Example:
      >>> import jax
      >>> model = BareTransformer(vocab_size=114)
      >>> x = jax.ShapeDtypeStruct((1, 3), "int32")
      >>> shapes = jax.eval_shape(model.init, jax.random.key(0), x)
      >>> sum(leaf.size for leaf in jax.tree.leaves(shapes["params"]))  # weights
      227442
    """

    vocab_size: int
    length: int = 3
    width: int = 128
    heads: int = 4
    hidden: int = 512

    def setup(self):
        """Makes the weights."""
        d, hidden, vocab = self.width, self.hidden, self.vocab_size
        zeros = nn.initializers.zeros
        self.words = self.param("words", nn.initializers.normal(1.0), (vocab, d))
        self.positions = self.param("positions", zeros, (self.length, d))
        xavier = nn.initializers.xavier_uniform()
        self.projection = self.param("projection", xavier, (d, 3 * d))
        self.projection_bias = self.param("projection_bias", zeros, (3 * d,))
        self.out = self.param("out", uniform_fan_in(d), (d, d))
        self.out_bias = self.param("out_bias", zeros, (d,))
        self.up = self.param("up", uniform_fan_in(d), (d, hidden))
        self.up_bias = self.param("up_bias", uniform_fan_in(d), (hidden,))
        self.down = self.param("down", uniform_fan_in(hidden), (hidden, d))
        self.down_bias = self.param("down_bias", uniform_fan_in(hidden), (d,))
        self.head = self.param("head", uniform_fan_in(d), (d, vocab))
        self.head_bias = self.param("head_bias", uniform_fan_in(d), (vocab,))

    def __call__(self, tokens: Int[Array, "n T"]) -> Logits:
        """Logits of token ids."""
        return self.from_embeddings(self.embed(tokens))

    def embed(self, tokens: Int[Array, "n T"]) -> Float[Array, "n T d"]:
        """Word + position: where noise enters."""
        return self.words[tokens] + self.positions[None, : tokens.shape[1]]

    def from_embeddings(self, e: Float[Array, "n T d"]) -> Logits:
        """The rest of the network, for any last token."""
        query, key, value = self._projections()
        q = self._heads(e[:, -1] @ query[0] + query[1][None])
        k = self._heads(e @ key[0] + key[1][None, None])
        scores = jnp.einsum("nhe,nthe->nth", q, k)
        return self.read(jnp.concatenate([scores, e @ value[0] + value[1][None, None]], axis=-1))

    def operand_map(self) -> tuple[Float[Array, "d Hd"], Float[Array, " Hd"]]:
        """M and c: e M + c are a token's H scores before "=" and its d values."""
        query, key, value = self._projections()
        q = self._heads(self._equals() @ query[0] + query[1])
        scores = jnp.einsum("ihe,he->ih", self._heads(key[0]), q)
        offsets = jnp.einsum("he,he->h", self._heads(key[1]), q)
        matrix = jnp.concatenate([scores, value[0]], axis=1)
        return matrix, jnp.concatenate([offsets, value[1]])

    def on_pairs(self, a: Int[Array, " n"], b: Int[Array, " n"]) -> Logits:
        """Logits of (a, b, "="), the same as of these tokens, with every token projected once."""
        return self.read(self.attended_pairs(a, b))

    def attended_pairs(self, a: Int[Array, " n"], b: Int[Array, " n"]) -> Float[Array, "n T Hd"]:
        """Scores and values of (a, b, "=")."""
        matrix, offset = self.operand_map()
        words, positions = self.words @ matrix, self.positions @ matrix + offset[None]
        equals = jnp.broadcast_to(words[-1] + positions[2], (a.shape[0], offset.shape[0]))
        first, second = (words[t] + positions[i][None] for i, t in enumerate((a, b)))
        return jnp.stack([first, second, equals], axis=1)

    def read(self, attended: Float[Array, "n T Hd"]) -> Logits:
        """Logits from the scores and values of all tokens."""
        weights = nn.softmax(attended[..., : self.heads], axis=1)
        values = self._heads(attended[..., self.heads :])
        o = jnp.einsum("nth,nthe->nhe", weights, values).reshape(-1, self.width)
        up = self.out @ self.up, self.out_bias @ self.up + self.up_bias
        down = self.down @ self.head, self.down_bias @ self.head + self.head_bias
        return nn.relu(o @ up[0] + up[1][None]) @ down[0] + down[1][None]

    def _equals(self) -> Float[Array, " d"]:
        return self.words[-1] + self.positions[2]

    def _heads(self, x: Float[Array, "*n d"]) -> Float[Array, "*n H e"]:
        return x.reshape(*x.shape[:-1], self.heads, self.width // self.heads)

    def _projections(self) -> list[tuple[Array, Array]]:
        """Kernel and bias of query (divided by √(d/H)), key and value."""
        kernels = jnp.split(self.projection, 3, axis=1)
        biases = jnp.split(self.projection_bias, 3)
        scale = 1 / math.sqrt(self.width / self.heads)
        kernels[0], biases[0] = kernels[0] * scale, biases[0] * scale
        return list(zip(kernels, biases, strict=True))
