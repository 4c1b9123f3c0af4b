"""A two-layer perceptron on token ids, with a score for every sequence.

    f(X) = ⟨u, φ(h)⟩,     h = Σ_t W_t[x_t] + b

the control for `TokenAttention`: no attention. "flatten" has its own W_t for every position, as an
MLP on the flattened one-hot rows has; "sum" has one for all, so that the order does not matter.
"""

from typing import Literal

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class TokenMLP(nn.Module):
    """One hidden layer.

    Attributes:
      vocabulary: M, number of token ids.
      length: T.
      pooling: "flatten", or "sum" over the sequence.
      width: of the hidden layer.
      sigma: standard deviation of all initial weights; biases start at 0.

    Example:
      >>> import jax
      >>> model = TokenMLP(vocabulary=20, length=8)
      >>> x = jax.ShapeDtypeStruct((1, 8), "int32")
      >>> shapes = jax.eval_shape(model.init, jax.random.key(0), x)
      >>> sum(leaf.size for leaf in jax.tree.leaves(shapes["params"]))  # weights
      10368
    """

    vocabulary: int
    length: int
    pooling: Literal["flatten", "sum"] = "flatten"
    width: int = 64
    sigma: float = 0.1

    def setup(self):
        """Makes W (T or 1, M, width), b and u."""
        init = nn.initializers.normal(self.sigma)
        places = self.length if self.pooling == "flatten" else 1
        self.embedding = self.param("embedding", init, (places, self.vocabulary, self.width))
        self.bias = self.param("bias", nn.initializers.zeros, (self.width,))
        self.head = self.param("head", init, (self.width,))

    def __call__(self, tokens: Int[Array, "n T"]) -> Float[Array, " n"]:
        """The score of every sequence."""
        return self._score(self._hidden(tokens))

    def edited(self, tokens: Int[Array, " T"]) -> Float[Array, "T M"]:
        """The score of every edit of one sequence: token τ replaced by v, for all τ and v."""
        old = self.embedding[self._places(), tokens]
        new = self.embedding - old[:, None, :]
        return self._score(self._hidden(tokens[None])[0][None, None] + new)

    def _places(self) -> Int[Array, " T"]:
        places = jnp.arange(self.length)
        return places if self.pooling == "flatten" else jnp.zeros_like(places)

    def _hidden(self, tokens: Int[Array, "n T"]) -> Float[Array, "n width"]:
        added = self.embedding[self._places()[None], tokens]
        return added.sum(axis=1) + self.bias[None]

    def _score(self, hidden: Float[Array, "*batch width"]) -> Float[Array, "*batch"]:
        return nn.relu(hidden) @ self.head
