"""The feature maps of the experiment, each as a function of one word of a text."""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, PRNGKeyArray

from jaxsens.models.tokens.feature_maps import (
    AttentionOfWord,
    RandomAttentionFeatures,
    RandomFeatures,
    Scoring,
    UnitsOfWord,
    random_first_word,
)

from .config import Config

#: Weights of RF that are held at a time while the features of many texts are computed.
_WEIGHTS_AT_ONCE = 2**25


@dataclass(frozen=True)
class FeatureMap:
    """RF, DRF, RAF or ReLU-RAF.

    Attributes:
      name: its key in records.
      label: its name in tables and figures.
      index: which of a seed's random keys it uses.
      depth: layers, for random features.
      scoring: for attention; None for random features.
    """

    name: str
    label: str
    index: int
    depth: int = 1
    scoring: Scoring | None = None

    @property
    def gain(self) -> float:
        """Variance of a weight times its fan-in, for random features."""
        return 1.0 if self.name == "rf" else 2.0

    @property
    def dense(self) -> bool:
        """Whether it has layers of D × D weights."""
        return self.name.startswith("drf")

    def module(self, n: int, d: int) -> nn.Module:
        """The map for texts of n words, with all its weights."""
        if self.scoring is not None:
            return RandomAttentionFeatures(self.scoring)
        return RandomFeatures(n, d, depth=self.depth, gain=self.gain)

    def of_first_word(self, key: PRNGKeyArray, text: Float[Array, "n d"]) -> Any:
        """With random weights, as a function of the first word."""
        n, d = text.shape
        if self.scoring is not None:
            params = self.module(n, d).init(key, text[None])
            return self.of_word(params, text, 0)
        return random_first_word(key, n, d, units=n * d, depth=self.depth, gain=self.gain)

    def of_word(self, params: Any, text: Float[Array, "n d"], place: Any) -> Any:
        """With these weights, as a function of the word at `place`."""
        return self.module(*text.shape).apply(params, text, place, method="with_word")

    def fitted(
        self, key: PRNGKeyArray, texts: Float[Array, "N n d"]
    ) -> tuple[Float[Array, "N p"], Any]:
        """Features of all texts, and the map of the last one as a function of its first word."""
        return (_fitted_units if self.scoring is None else _fitted_attention)(self, key, texts)


RF = FeatureMap("rf", "RF", 0)
RAF = FeatureMap("raf", "RAF (softmax)", 1, scoring="softmax")
RELU = FeatureMap("relu-raf", "ReLU-RAF", 2, scoring="relu")


def deep(depth: int) -> FeatureMap:
    """DRF of L layers."""
    return FeatureMap(f"drf-{depth}", f"DRF, L = {depth}", 2 + depth, depth=depth)


def maps_at(config: Config, n: int, d: int) -> list[FeatureMap]:
    """The maps of a cell of the grid: all, or all whose weights have room."""
    room = n * d <= config.dense_limit
    return [RF, *(map(deep, config.depths) if room else ()), RAF, RELU]


@functools.partial(jax.jit, static_argnums=0)
def _fitted_attention(
    feature_map: FeatureMap, key: PRNGKeyArray, texts: Float[Array, "N n d"]
) -> tuple[Float[Array, "N p"], AttentionOfWord]:
    module = feature_map.module(*texts.shape[1:])
    params = module.init(key, texts[:1])
    # One by one: the logits of all texts together may not have room.
    features = jax.lax.map(lambda text: module.apply(params, text[None])[0], texts)
    return features, feature_map.of_word(params, texts[-1], 0)


@functools.partial(jax.jit, static_argnums=0)
def _fitted_units(
    feature_map: FeatureMap, key: PRNGKeyArray, texts: Float[Array, "N n d"]
) -> tuple[Float[Array, "N k"], UnitsOfWord]:
    """Some units at a time: all weights of the first layer together may not have room."""
    num, n, d = texts.shape
    k, flat = n * d, texts.reshape(num, n * d)
    blocks = max(1, k * k // _WEIGHTS_AT_ONCE)
    while k % blocks:
        blocks += 1
    first_key, layers_key = jax.random.split(key)
    std = (feature_map.gain / k) ** 0.5

    width = k // blocks

    def add(index: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        before, block = state
        weights = std * jax.random.normal(keys[index], (k, width))
        first = index * width
        before = jax.lax.dynamic_update_slice_in_dim(before, flat @ weights, first, axis=1)
        return before, jax.lax.dynamic_update_slice_in_dim(block, weights[:d], first, axis=1)

    # Into one array: a stack of the units' parts, and its transpose, would be two more of them.
    keys = jax.random.split(first_key, blocks)
    before, block = jax.lax.fori_loop(
        0, blocks, add, (jnp.zeros((num, k), flat.dtype), jnp.zeros((d, k), flat.dtype))
    )
    rest = before[-1] - texts[-1, 0] @ block
    shape = (feature_map.depth - 1, k, k)
    layers = std * jax.random.normal(layers_key, shape)
    features = nn.relu(before)
    for layer in range(feature_map.depth - 1):
        features = nn.relu(features @ layers[layer])
    return features, UnitsOfWord(rest, block, layers)
