"""The paper's LSTM: layer-normed embeddings, unidirectional layers, read at the last real token.

    i, f, g, o = W x_t + b + U h_{t-1} + c,     c_t = σ(f) c_{t-1} + σ(i) tanh(g),
    h_t = σ(o) tanh(c_t)

A layer's input products W x_t are computed for all t at once; only U h_{t-1} waits for its turn.
The gradient of U is one product of all t too.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jaxsens.models.layers.basics import Dropout, layer_norm, linear, uniform_fan_in
from jaxsens.models.text.text_model import Embedded, Logits, Mask, TextModel, Tokens
from jaxsens.text.special_ids import PAD_ID


def _words_init(key, shape, dtype=jnp.float32, out_sharding=None):
    """N(0, 1), and 0 for padding."""
    return jax.random.normal(key, shape, dtype).at[PAD_ID].set(0)


#: Of all steps, W x_t + b + c (G = 4e) and hidden states; and U.
Gates = Float[Array, "T n G"]
States = Float[Array, "T n e"]
Recurrent = Float[Array, "e G"]


@jax.custom_vjp
def _recurrence(gates: Gates, recurrent: Recurrent) -> States:
    """The hidden state after every step."""
    _, hidden = lax.scan(lambda *now: _step(recurrent, *now)[:2], _zeros(gates), gates)
    return hidden


def _step(recurrent, state, gates):
    hidden, cell = state
    # σ(x) = (1 + tanh(x/2)) / 2: one function for all four gates takes half the time.
    bent = jnp.tanh((gates + hidden @ recurrent) * _scale(gates))
    i, f, g, o = _opened(bent)
    cell = f * cell + i * g
    hidden = o * jnp.tanh(cell)
    return (hidden, cell), hidden, (hidden, cell, bent)


def _scale(gates: Float[Array, "n G"]) -> Float[Array, "1 G"]:
    factors = jnp.asarray([0.5, 0.5, 1.0, 0.5], gates.dtype)
    return jnp.repeat(factors, gates.shape[-1] // 4)[None]


def _opened(bent: Float[Array, "n G"]) -> list[Float[Array, "n e"]]:
    """i, f, g and o."""
    i, f, _, o = jnp.split(0.5 + 0.5 * bent, 4, axis=-1)
    return [i, f, jnp.split(bent, 4, axis=-1)[2], o]


def _zeros(gates: Gates) -> tuple[Float[Array, "n e"], Float[Array, "n e"]]:
    zero = jnp.zeros((gates.shape[1], gates.shape[2] // 4), gates.dtype)
    return zero, zero


def _forward(gates, recurrent):
    def step(state, gates):
        state, _, kept = _step(recurrent, state, gates)
        return state, kept

    _, kept = lax.scan(step, _zeros(gates), gates)
    return kept[0], (recurrent, *kept)


def _backward(saved, grad):
    """U's gradient is one product over all steps; JAX's own would add up one for each step."""
    recurrent, hidden, cells, bent = saved
    zeros = jnp.zeros_like(hidden[:1])
    cells_before = jnp.concatenate([zeros, cells[:-1]])
    hidden_before = jnp.concatenate([zeros, hidden[:-1]])

    def step(state, now):
        grad_hidden, grad_cell = state
        grad, cell, cell_before, bent = now
        i, f, g, o = _opened(bent)
        grad_hidden, bent_cell = grad_hidden + grad, jnp.tanh(cell)
        grad_cell = grad_cell + grad_hidden * o * (1 - bent_cell**2)
        of_gates = (grad_cell * g, grad_cell * cell_before, grad_cell * i, grad_hidden * bent_cell)
        # i = (1 + tanh(x/2)) / 2 has the slope (1 - tanh²(x/2)) / 4, and so have f and o.
        grad_gates = jnp.concatenate(of_gates, axis=-1) * (1 - bent**2) * _scale(bent) ** 2
        return (grad_gates @ recurrent.T, grad_cell * f), grad_gates

    _, grad_gates = lax.scan(
        step, (zeros[0], zeros[0]), (grad, cells, cells_before, bent), reverse=True
    )
    return grad_gates, jnp.einsum("tne,tng->eg", hidden_before, grad_gates)


_recurrence.defvjp(_forward, _backward)


class LSTMLayer(nn.Module):
    """One layer over time, from the zero state; gates in the order i, f, g, o."""

    width: int

    @nn.compact
    def __call__(self, x: Float[Array, "n T d"]) -> Float[Array, "n T e"]:
        """The hidden state after every token."""
        init = uniform_fan_in(self.width)
        gates = nn.Dense(4 * self.width, kernel_init=init, bias_init=init, name="input")(x)
        recurrent = self.param("recurrent", init, (self.width, 4 * self.width))
        # A second bias says nothing new, but the paper's model has it, and it is trained.
        gates = gates + self.param("recurrent_bias", init, (4 * self.width,))[None, None]
        return jnp.swapaxes(_recurrence(jnp.swapaxes(gates, 0, 1), recurrent), 0, 1)


class LSTM(TextModel):
    """The paper's LSTM: 4 layers of width 256.

    Attributes:
      vocab_size: number of token ids.
      num_classes: outputs.
      depth: layers.
      width: d, of embeddings and hidden states alike.
      dropout: rate between two layers.
    """

    vocab_size: int
    num_classes: int = 2
    depth: int = 4
    width: int = 256
    dropout: float = 0.1

    def setup(self):
        """Makes the layers."""
        self.words = nn.Embed(self.vocab_size, self.width, embedding_init=_words_init)
        self.norm = layer_norm()
        self.layers = [LSTMLayer(self.width) for _ in range(self.depth)]
        self.between = [Dropout(self.dropout) for _ in range(self.depth - 1)]
        self.head = linear(self.num_classes, self.width)

    def embed(self, tokens: Tokens) -> Embedded:
        """LN(word)."""
        return self.normalise(self.words(tokens))

    def normalise(self, e: Embedded) -> Embedded:
        """The embeddings' layer norm."""
        return self.norm(e)

    def from_embeddings(self, e: Embedded, mask: Mask, *, train: bool = False) -> Logits:
        """Layers, then the head on the hidden state after the last real token."""
        x = self.layers[0](e)
        for dropout, layer in zip(self.between, self.layers[1:], strict=True):
            x = layer(dropout(x, train=train))
        last = mask.sum(axis=1) - 1
        return self.head(jnp.take_along_axis(x, last[:, None, None], axis=1)[:, 0])
