"""Texts as rows of norm √d: independent ones, ones with a common mean, and embeddings of words.

    independent    x_i = g_i
    common mean    x_i = √α μ + √(1-α) g_i,    μ and g_i ~ N(0, I), μ the same in a text

then scaled to the norm √d. The second is a surrogate of real embeddings, which have a common
direction. A `Pool` holds real ones: texts are drawn from it without replacement, the first n words
and the first d coordinates are taken, as in the authors' code, and rows scaled.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

Rows = Float[Array, "s n d"]


@runtime_checkable
class Source(Protocol):
    """Where texts come from."""

    @property
    def name(self) -> str:
        """Its name in tables and figures."""

    def texts(self, key: PRNGKeyArray, num: int, n: int, d: int) -> Rows:
        """`num` texts of n words of width d."""

    def labelled(self, key: PRNGKeyArray, num: int, n: int, d: int) -> tuple[Rows, np.ndarray]:
        """The same with labels ±1."""


@dataclass(frozen=True)
class Gaussian:
    """Random rows with a common mean of share α; independent ones for α = 0."""

    mean_share: float = 0.0

    @property
    def name(self) -> str:
        """What it is, with α."""
        return f"common mean, α = {self.mean_share:g}" if self.mean_share else "independent rows"

    def texts(self, key: PRNGKeyArray, num: int, n: int, d: int) -> Rows:
        """`num` texts; the text of a number does not depend on how many there are."""
        keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(num))
        return jax.vmap(lambda each: self._text(each, n, d))(keys)

    def labelled(self, key: PRNGKeyArray, num: int, n: int, d: int) -> tuple[Rows, np.ndarray]:
        """Labels are signs of a random linear function of the text."""
        text_key, label_key = jax.random.split(key)
        x = self.texts(text_key, num, n, d)
        scores = jnp.einsum("snd,nd->s", x, jax.random.normal(label_key, (n, d)))
        return x, np.where(np.asarray(scores) >= 0, 1.0, -1.0)

    def _text(self, key: PRNGKeyArray, n: int, d: int) -> Float[Array, "n d"]:
        own, common = jax.random.split(key)
        rows = (1 - self.mean_share) ** 0.5 * jax.random.normal(own, (n, d))
        return scaled(rows + self.mean_share**0.5 * jax.random.normal(common, (1, d)))


@dataclass(frozen=True, eq=False)
class Pool:
    """Texts as token ids, of different lengths, and how they become rows.

    Attributes:
      name: where they are from.
      tokens: the ids of each text.
      labels: ±1 for each text.
      width: of an embedding.
      embed: from ids (m, n) to embeddings (m, n, width).
    """

    name: str
    tokens: Sequence[Int[np.ndarray, " _"]]
    labels: Int[np.ndarray, " m"]
    width: int
    embed: Callable[[np.ndarray], Any]

    def num_of(self, n: int) -> int:
        """Different texts of at least n words: shorter ones would need padding."""
        return len(self._longer(n))

    def texts(self, key: PRNGKeyArray, num: int, n: int, d: int) -> Rows:
        """`num` different texts."""
        return self.labelled(key, num, n, d)[0]

    def labelled(self, key: PRNGKeyArray, num: int, n: int, d: int) -> tuple[Rows, np.ndarray]:
        """`num` different texts with their labels."""
        longer = np.array(self._longer(n))
        chosen = longer[np.asarray(jax.random.permutation(key, len(longer)))[:num]]
        rows = self.embed(np.stack([self.tokens[i][:n] for i in chosen]))
        return scaled(jnp.asarray(rows)[:, :, :d]), self.labels[chosen].astype(np.float64)

    def _longer(self, n: int) -> list[int]:
        """The texts of at least n words, one of those that begin alike."""
        found: dict[bytes, int] = {}
        for i, tokens in enumerate(self.tokens):
            if len(tokens) >= n:
                found.setdefault(np.ascontiguousarray(tokens[:n]).tobytes(), i)
        return list(found.values())


def scaled(rows: Float[Array, "*s n d"]) -> Float[Array, "*s n d"]:
    """Rows of norm √d.

    >>> scaled(jnp.array([[3.0, 4.0]])).round(3).tolist()
    [[0.849..., 1.131...]]
    """
    return rows * (rows.shape[-1] ** 0.5 / jnp.linalg.norm(rows, axis=-1, keepdims=True))
