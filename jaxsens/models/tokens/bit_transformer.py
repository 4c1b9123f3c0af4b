"""The transformers of *Why are Sensitive Functions Hard for Transformers?*: bits in, a number out.

Inputs are bits, 0 or 1; the target of a Boolean function is 0 or 1, and the output a real number
that is fitted to it by squared error. A token is the embedding of its bit and that of its position
side by side, each of half the width. There is no token beside the bits, and no mask.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxsens.models.layers.post_norm import (
    DecoderLayer,
    EncoderLayer,
    FirstLayer,
    Layer,
    norm,
)

#: The parameter that holds the positions' embeddings: sharpness and weight norms leave it out.
POSITIONS = "positions"

#: The token before the first of the scratchpad.
START = 2


class BitTransformer(nn.Module):
    """A post-norm encoder, read at its last position.

    The paper's: width 128, 2 layers, 2 heads, 199,425 parameters beside the positions. In the code
    released with it all layers start from the same weights, which `tie_layers` does.

    Attributes:
      length: n, the number of bits; one model per length.
      width: d, of a token.
      layers: number of layers.
      heads: per layer.
    """

    length: int
    width: int = 128
    layers: int = 2
    heads: int = 2

    @nn.compact
    def __call__(
        self,
        bits: Int[Array, "b n"],
        visible: Bool[Array, "b n"] | None = None,
        *,
        every_position: bool = False,
    ) -> Float[Array, " b"]:
        """One number per input.

        Args:
          bits: the inputs.
          visible: which bits belong to the input, where inputs are shorter than n; at least one.
            It is read at the last of them.
          every_position: whether the last layer computes positions that are not read. The output
            is the same; layer-norm blow-up, a maximum over all positions, needs them.
        """
        layer, half = Layer(self.width, self.heads), self.width // 2
        init = nn.initializers.normal(1.0)
        tokens = self.param("bits", init, (2, half))
        positions = self.param(POSITIONS, init, (self.length, half))
        table = _side_by_side(jnp.repeat(tokens[:, None], self.length, axis=1), positions)
        x = FirstLayer(layer, name="layer_0")(table, bits, visible)
        for index in range(1, self.layers):
            # Nothing after the last layer reads another position.
            whole = every_position or index < self.layers - 1
            queries = x if whole else _last(x, visible)
            x = EncoderLayer(layer, name=f"layer_{index}")(x, queries, visible)
        read = _last(x, visible) if every_position or self.layers == 1 else x
        return layer.dense(1, "head")(read[:, 0])[:, 0]


class ScratchpadTransformer(nn.Module):
    """An encoder of the bits and a decoder that writes all prefix parities, one after the other.

    The paper's: width 32, 2 + 2 layers, 2 heads, 34,641 parameters beside the positions; every
    matrix starts Xavier-uniform, and both halves end with a layer norm.

    Attributes:
      length: n, the number of bits and of what is written.
      width: d, of a token.
      layers: of the encoder, and of the decoder.
      heads: per layer.

    Example:
      >>> model = ScratchpadTransformer(length=8)
      >>> x = jax.ShapeDtypeStruct((1, 8), "int32")
      >>> shapes = jax.eval_shape(model.init, jax.random.key(0), x, x)
      >>> sum(leaf.size for leaf in jax.tree.leaves(shapes["params"]))  # weights
      34769
    """

    length: int
    width: int = 32
    layers: int = 2
    heads: int = 2

    def setup(self):
        """Makes the layers; bits and what is written share their embeddings."""
        layer, half = Layer(self.width, self.heads, xavier=True), self.width // 2
        init = nn.initializers.xavier_uniform()
        self.bits = self.param("bits", init, (3, half))
        self.positions = self.param(POSITIONS, init, (self.length, half))
        self.encoder = [EncoderLayer(layer) for _ in range(self.layers)]
        self.decoder = [DecoderLayer(layer) for _ in range(self.layers)]
        self.encoder_norm, self.decoder_norm = norm("encoder_norm"), norm("decoder_norm")
        self.head = layer.dense(1, "head")

    def __call__(self, bits: Int[Array, "b n"], written: Int[Array, "b n"]) -> Float[Array, "b n"]:
        """What is written next at every place, if `written` stands there up to it."""
        before = jnp.concatenate([jnp.full_like(written[:, :1], START), written[:, :-1]], axis=1)
        return self.decode(self.encode(bits), before)

    def encode(self, bits: Int[Array, "b n"]) -> Float[Array, "b n d"]:
        """The encoder's tokens."""
        x = self._embed(bits)
        for layer in self.encoder:
            x = layer(x, x)
        return self.encoder_norm(x)

    def decode(
        self, encoded: Float[Array, "b n d"], before: Int[Array, "b n"]
    ) -> Float[Array, "b n"]:
        """The decoder's numbers, from what stands before every place."""
        x = self._embed(before)
        for layer in self.decoder:
            x = layer(x, encoded)
        return self.head(self.decoder_norm(x))[..., 0]

    def _embed(self, tokens: Int[Array, "b n"]) -> Float[Array, "b n d"]:
        return _side_by_side(self.bits[tokens], self.positions)


def written_by(
    model: ScratchpadTransformer, variables: dict[str, Any], bits: Int[Array, "b n"]
) -> Int[Array, "b n"]:
    """What the model writes by itself: each place from what it has written before, not from truth.

    Returns:
      Bits: 1 where the model's number is above one half.
    """
    encoded = model.apply(variables, bits, method="encode")

    def write(place: Int[Array, ""], before: Int[Array, "b m"]) -> Int[Array, "b m"]:
        numbers = model.apply(variables, encoded, before[:, :-1], method="decode")
        bit = jax.lax.dynamic_index_in_dim(numbers, place, axis=1, keepdims=False) > 0.5
        return before.at[:, place + 1].set(bit.astype(bits.dtype))

    start = jnp.full((bits.shape[0], model.length + 1), START, bits.dtype)
    return jax.lax.fori_loop(0, model.length, write, start)[:, 1:]


def tie_layers(variables: dict[str, Any]) -> dict[str, Any]:
    """The same variables, with all layers as the first one.

    PyTorch's `TransformerEncoder` copies the layer that it is given: an accident, and part of the
    published results.
    """
    params = dict(variables["params"])
    for name in params:
        if name.startswith("layer_"):
            params[name] = jax.tree.map(lambda leaf: leaf, params["layer_0"])
    return {**variables, "params": params}


def prefix_parities(bits: Int[Array, "b n"]) -> Int[Array, "b n"]:
    """The scratchpad: place i has the parity of the first i + 1 bits.

    >>> prefix_parities(jnp.array([[1, 0, 1, 1]])).tolist()
    [[1, 1, 0, 1]]
    """
    return jnp.cumsum(bits, axis=1) % 2


def _last(x: Float[Array, "b n d"], visible: Bool[Array, "b n"] | None) -> Float[Array, "b 1 d"]:
    """The last token, or the last one that is visible."""
    if visible is None:
        return x[:, -1:]
    last = x.shape[1] - 1 - jnp.argmax(visible[:, ::-1], axis=1)
    return jnp.take_along_axis(x, last[:, None, None], axis=1)


def _side_by_side(
    tokens: Float[Array, "b n e"], positions: Float[Array, "n e"]
) -> Float[Array, "b n d"]:
    return jnp.concatenate([tokens, jnp.broadcast_to(positions[None], tokens.shape)], axis=-1)
