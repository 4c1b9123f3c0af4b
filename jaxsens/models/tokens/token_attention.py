"""One layer of self-attention on token ids, with a score for every sequence.

    Φ(X) = ⟨U, softmax(X W_Q W_Kᵀ Xᵀ) X W_V⟩,     X one-hot rows (T, M), U (T, d)

of Section 4 of Vasudeva et al., arXiv 2403.06925: one head, no scaling, no bias, no positions but
those of U. X only picks rows, so with G = W_Q W_Kᵀ (M, M), H = U W_Vᵀ (T, M) and c_b the number of
times that token b is in the sequence,

    Φ = Σ_t Σ_b c_b e^{G[x_t,b]} H[t,b] / Σ_b c_b e^{G[x_t,b]}:

no product of (T, d) matrices for every sequence. A training step takes a fifth of the CPU time that
it takes as defined (2.6 against 12.2 ms for batch 100, T = 50, M = d = 69, six models vmapped).

Assumption: the attention logits of one query differ by less than 80 over the vocabulary; smaller
ones are taken as 80 below the largest, where float32 has no e^x left.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

Tokens = Int[Array, "n T"]


class TokenAttention(nn.Module):
    """Single-layer self-attention with a position-dependent head.

    Attributes:
      vocabulary: M, number of token ids.
      length: T.
      width: d, of queries, keys and values; M if None.
      sigma: standard deviation of all initial weights.

    Example:
      >>> model = TokenAttention(vocabulary=20, length=8)
      >>> x = jax.ShapeDtypeStruct((1, 8), "int32")
      >>> shapes = jax.eval_shape(model.init, jax.random.key(0), x)
      >>> sum(leaf.size for leaf in jax.tree.leaves(shapes["params"]))  # weights
      1360
    """

    vocabulary: int
    length: int
    width: int | None = None
    sigma: float = 0.1

    def setup(self):
        """Makes W_Q, W_K, W_V (M, d) and U (T, d)."""
        width = self.width or self.vocabulary
        init = nn.initializers.normal(self.sigma)
        self.query = self.param("query", init, (self.vocabulary, width))
        self.key = self.param("key", init, (self.vocabulary, width))
        self.value = self.param("value", init, (self.vocabulary, width))
        self.head = self.param("head", init, (self.length, width))

    def __call__(self, tokens: Tokens) -> Float[Array, " n"]:
        """Φ of every sequence."""
        weights = self._weights()[tokens] * _counts(tokens, self.vocabulary)[:, None, :]
        votes = (weights * self.readout()[None]).sum(axis=-1)
        return (votes / weights.sum(axis=-1)).sum(axis=-1)

    def attention(self, tokens: Tokens) -> Float[Array, "n T T"]:
        """The softmax: how much query t looks at token s."""
        weights = jax.vmap(lambda row: self._weights()[row][:, row])(tokens)
        return weights / weights.sum(axis=-1, keepdims=True)

    def readout(self) -> Float[Array, "T M"]:
        """H = U W_Vᵀ: what full attention of query t to token b adds to the score."""
        return self.head @ self.value.T

    def edited(self, tokens: Int[Array, " T"]) -> Float[Array, "T M"]:
        """Φ of every edit of one sequence: token τ replaced by v, for all τ and v.

        What is left without token τ is computed once, for all queries a that can be: Σ e^{G[a,x_s]}
        over s ≠ τ, and the same weighted by H. Then v is added to each sum; query τ becomes v.
        """
        weights, readout = self._weights(), self.readout()
        kept = 1 - jnp.eye(self.length, dtype=weights.dtype)
        seen = weights[:, tokens]  # (M, T): query a, token s
        mass = seen @ kept  # (M, T): query a, without token τ
        mine, here = seen[tokens], readout[:, tokens]  # (T, T): query t, token s
        votes = (mine * here) @ kept
        added = weights[tokens]
        whole = votes[:, :, None] + (added * readout)[:, None, :]
        others = whole / (mass[tokens][:, :, None] + added[:, None, :])
        diagonal = jnp.diagonal(weights)
        own_votes = (kept * here) @ seen.T + readout * diagonal[None, :]
        own = own_votes / (mass + diagonal[:, None]).T
        return (others * kept[:, :, None]).sum(axis=0) + own

    def _weights(self) -> Float[Array, "M M"]:
        """e^G, each row divided by its largest entry, which the softmax does not see."""
        logits = self.query @ self.key.T
        below = logits - jax.lax.stop_gradient(logits.max(axis=1, keepdims=True))
        return jnp.exp(jnp.maximum(below, -80.0))


def _counts(tokens: Tokens, vocabulary: int) -> Float[Array, "n M"]:
    return jax.nn.one_hot(tokens, vocabulary).sum(axis=1)
