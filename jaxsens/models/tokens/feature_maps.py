"""Random feature maps of texts: fully connected, deep, and attention without value matrices.

For a text X of T words of width d, D = T·d, from *Towards Understanding the Word Sensitivity of
Attention Layers* (Bombari and Mondelli, arXiv 2402.02969), which has n for T:

    RF         φ(X) = relu(V flat(X))                          V_ij ~ N(0, 1/D)
    DRF        h ← relu(V_l h), L times, from h = flat(X)      V_l,ij ~ N(0, 2/fan_in)
    RAF        φ(X) = flat(A X), A = softmax(X W Xᵀ/√d) by rows     W_ij ~ N(0, 1/d)
    ReLU-RAF   the same with A = relu(X W Xᵀ/√d), each row divided by its sum if that is not 0

They are random and stay so: what is trained is a linear map of φ.

`with_word` of each gives φ as a function of one word alone, the others fixed. It does once what
does not depend on that word, so that an evaluation costs O(k d) for RF, and O(T d + d²) for
attention in place of O(T d² + T² d).

Assumption: rows have the norm √d. Then the logits of attention and the units of RF are of order 1.
"""

from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Int, PRNGKeyArray

Texts = Float[Array, "n T d"]
Text = Float[Array, "T d"]
Word = Float[Array, " d"]
Place = int | Int[Array, ""]
#: What turns the logits of attention into weights.
Scoring = Literal["softmax", "relu"]


class UnitsOfWord(struct.PyTreeNode):
    """RF or DRF as a function of one word: relu(… relu(rest + block·word)).

    Attributes:
      rest: the other words' part of the first layer.
      block: the part of the first layer's weights that the word meets.
      layers: weights of the layers after the first, by layer.
    """

    rest: Float[Array, " k"]
    block: Float[Array, "d k"]
    layers: Float[Array, "L k k"]

    def __call__(self, word: Word) -> Float[Array, " k"]:
        """φ of the text with this word."""
        units = nn.relu(self.rest + word @ self.block)
        for layer in range(self.layers.shape[0]):
            units = nn.relu(units @ self.layers[layer])
        return units


class AttentionOfWord(struct.PyTreeNode):
    """RAF or ReLU-RAF as a function of one word.

    Every other row j attends to the same words as before, whose sum is known, and to the new one:
    φ_j = (Σ_{m≠p} a_jm x_m + a_jp z)/(Σ_{m≠p} a_jm + a_jp), z the word at place p. Only row p
    attends anew.

    Attributes:
      text: X; its row p does not matter.
      place: p.
      kernel: W/√d.
      projected: X W/√d.
      others: Σ_{m≠p} a_jm x_m for every row j, for softmax divided by Σ_{m≠p} a_jm.
      mass: Σ_{m≠p} a_jm for every row j, for softmax its logarithm.
      scoring: "softmax" or "relu".
    """

    text: Text
    place: Int[Array, ""]
    kernel: Float[Array, "d d"]
    projected: Text
    others: Text
    mass: Float[Array, " T"]
    scoring: Scoring = struct.field(pytree_node=False)

    def __call__(self, word: Word) -> Float[Array, " Td"]:
        """φ of the text with this word."""
        to_word = self.projected @ word
        here = jnp.arange(self.text.shape[0]) == self.place
        query = word @ self.kernel
        logits = jnp.where(here, query @ word, self.text @ query)
        if self.scoring == "softmax":
            share = nn.sigmoid(to_word - self.mass)[:, None]
            rows = (1 - share) * self.others + share * word[None]
            attended = nn.softmax(logits)
        else:
            added = nn.relu(to_word)
            rows = self.others + added[:, None] * word[None]
            rows = rows / _or_one(self.mass + added)[:, None]
            attended = nn.relu(logits)
            attended = attended / _or_one(attended.sum())
        words = jnp.where(here[:, None], word[None], self.text)
        return jnp.where(here[:, None], (attended @ words)[None], rows).reshape(-1)


class RandomFeatures(nn.Module):
    """RF, and DRF for a depth of more than one layer.

    Attributes:
      length: T.
      width: d.
      units: k of every layer; D if None, as in the paper.
      depth: L.
      gain: variance of a weight times its fan-in: 1 for RF, 2 for DRF. It scales φ, nothing else.

    Example:
      >>> model = RandomFeatures(length=8, width=4)
      >>> x = jax.ShapeDtypeStruct((1, 8, 4), "float32")
      >>> shapes = jax.eval_shape(model.init, jax.random.key(0), x)
      >>> sum(leaf.size for leaf in jax.tree.leaves(shapes["params"]))  # weights
      1024
    """

    length: int
    width: int
    units: int | None = None
    depth: int = 1
    gain: float = 1.0

    def setup(self):
        """Makes V as (T, d, k), and the layers after it."""
        fan_in = self.length * self.width
        k = self.units or fan_in
        first = nn.initializers.normal((self.gain / fan_in) ** 0.5)
        later = nn.initializers.normal((self.gain / k) ** 0.5)
        self.kernel = self.param("kernel", first, (self.length, self.width, k))
        self.layers = self.param("layers", later, (self.depth - 1, k, k))

    def __call__(self, x: Texts) -> Float[Array, "n k"]:
        """φ of every text."""
        units = nn.relu(jnp.einsum("ntd,tdk->nk", x, self.kernel))
        for layer in range(self.depth - 1):
            units = nn.relu(units @ self.layers[layer])
        return units

    def with_word(self, text: Text, place: Place) -> UnitsOfWord:
        """φ of one text as a function of the word at `place`."""
        block = self.kernel[place]
        rest = jnp.einsum("td,tdk->k", text.at[place].set(0.0), self.kernel)
        return UnitsOfWord(rest, block, self.layers)


class RandomAttentionFeatures(nn.Module):
    """RAF and ReLU-RAF.

    Attributes:
      scoring: "softmax", or "relu" for ReLU-RAF.

    Example:
      >>> model = RandomAttentionFeatures()
      >>> x = jax.ShapeDtypeStruct((1, 8, 4), "float32")
      >>> shapes = jax.eval_shape(model.init, jax.random.key(0), x)
      >>> sum(leaf.size for leaf in jax.tree.leaves(shapes["params"]))  # weights
      16
    """

    scoring: Scoring = "softmax"

    @nn.compact
    def __call__(self, x: Texts) -> Float[Array, "n Td"]:
        """φ of every text."""
        logits = jnp.einsum("ntd,de,nse->nts", x, self._kernel(x.shape[-1]), x)
        if self.scoring == "softmax":
            weights = nn.softmax(logits)
        else:
            weights = nn.relu(logits)
            weights = weights / _or_one(weights.sum(axis=-1, keepdims=True))
        return (weights @ x).reshape(x.shape[0], -1)

    @nn.compact
    def with_word(self, text: Text, place: Place) -> AttentionOfWord:
        """φ of one text, of at least two words, as a function of the word at `place`."""
        kernel = self._kernel(text.shape[1])
        projected = text @ kernel
        logits = projected @ text.T
        here = (jnp.arange(text.shape[0]) == place)[None, :]
        if self.scoring == "softmax":
            masked = jnp.where(here, -jnp.inf, logits)
            others, mass = nn.softmax(masked) @ text, nn.logsumexp(masked, axis=1)
        else:
            weights = jnp.where(here, 0.0, nn.relu(logits))
            others, mass = weights @ text, weights.sum(axis=1)
        index = jnp.asarray(place, jnp.int32)
        return AttentionOfWord(text, index, kernel, projected, others, mass, self.scoring)

    def _kernel(self, d: int) -> Float[Array, "d d"]:
        """W/√d."""
        kernel = self.param("kernel", nn.initializers.normal(d**-0.5), (d, d))
        return kernel / d**0.5


def random_first_word(
    key: PRNGKeyArray, length: int, width: int, *, units: int, depth: int = 1, gain: float = 1.0
) -> UnitsOfWord:
    """RF or DRF as a function of the first word, without the weights that other words meet.

    For words of norm √d the sum of T - 1 of them, each times its own weights, is N(0, gain (T-1)/T)
    in every unit, whatever the words. So it is drawn in place of (T-1)·d·k weights: the same law as
    that of `RandomFeatures.with_word` with random weights.

    Args:
      key: decides everything.
      length: T.
      width: d.
      units: k.
      depth: L.
      gain: see `RandomFeatures`.
    """
    rest_key, block_key, layers_key = jax.random.split(key, 3)
    rest = (gain * (length - 1) / length) ** 0.5 * jax.random.normal(rest_key, (units,))
    block = _normal_rows(block_key, width, units, (gain / (length * width)) ** 0.5)
    layers = _normal_rows(layers_key, (depth - 1) * units, units, (gain / units) ** 0.5)
    return UnitsOfWord(rest, block, layers.reshape(depth - 1, units, units))


def _normal_rows(key: PRNGKeyArray, rows: int, columns: int, std: float) -> Float[Array, "r c"]:
    """N(0, std²), row by row: the bits of all rows together would take as much memory again."""
    if not rows:
        return jnp.zeros((0, columns))
    keys = jax.random.split(key, rows)
    return jax.lax.map(lambda each: std * jax.random.normal(each, (columns,)), keys)


def _or_one(sums: Float[Array, "*n"]) -> Float[Array, "*n"]:
    return jnp.where(sums > 0, sums, 1.0)
