"""Networks with random weights as functions of n bits: transformers, MLPs, LSTMs, and pure noise.

A network's outputs T(x) on all 2ⁿ inputs become a Boolean function by a threshold t,

    f(x) = 1 if T(x) > t, else −1,

whose average sensitivity is counted exactly. At the median of the outputs f is balanced, and only
then is n/2, the mean over all functions, a fair thing to compare with: a random function with a
share p of ones has 2p(1 − p)n, so that an unbalanced one has a low sensitivity trivially.

Assumption: outputs differ. Where many are equal, the median does not cut them into halves; the
share of ones is reported beside every sensitivity.
"""

import functools
from typing import Any, Literal, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from jaxsens import boolean
from jaxsens.models import MLP, BitTransformer
from jaxsens.models.layers.basics import linear
from jaxsens.models.text.lstm import LSTMLayer
from jaxsens.models.tokens.bit_transformer import tie_layers
from jaxsens.training.lanes import by_blocks

from .functions import bits_of

Kind = Literal["transformer", "MLP", "LSTM", "random function"]
KINDS: tuple[Kind, ...] = get_args(Kind)
#: Networks that are drawn and evaluated in one call.
_BLOCK = 8


class BitMLP(nn.Module):
    """An MLP of ±1 inputs with two hidden layers of ReLUs, from PyTorch's first weights."""

    width: int

    @nn.compact
    def __call__(self, bits: Int[Array, "b n"]) -> Float[Array, " b"]:
        """One number per input."""
        signs = (1 - 2 * bits).astype(jnp.float32)
        return MLP(1, (self.width, self.width), nn.relu)(signs)[:, 0]


class BitLSTM(nn.Module):
    """An LSTM of two layers, read after the last bit, from PyTorch's first weights."""

    width: int

    @nn.compact
    def __call__(self, bits: Int[Array, "b n"]) -> Float[Array, " b"]:
        """One number per input."""
        x = nn.Embed(2, self.width, embedding_init=nn.initializers.normal(1.0))(bits)
        for _ in range(2):
            x = LSTMLayer(self.width)(x)
        return linear(1, self.width)(x[:, -1])[:, 0]


def network(kind: Kind, n: int, width: int, layers: int = 2, heads: int = 2) -> nn.Module | None:
    """The network of a kind; None for random functions, which have none."""
    networks: dict[Kind, nn.Module | None] = {
        "transformer": BitTransformer(n, width, layers, heads),
        "MLP": BitMLP(width),
        "LSTM": BitLSTM(width),
        "random function": None,
    }
    return networks[kind]


def random_outputs(
    model: nn.Module | None, n: int, num: int, *, tied: bool = True, key: PRNGKeyArray
) -> Float[Array, "num N"]:
    """Outputs of `num` networks with weights of their own on all 2ⁿ inputs.

    Args:
      model: the network; None for independent normal numbers, a random function.
      n: bits.
      num: how many networks.
      tied: whether the layers of a transformer start from the same weights, as when it is trained.
      key: of all weights.
    """
    keys = jax.vmap(functools.partial(jax.random.fold_in, key))(jnp.arange(num))
    with jax.default_matmul_precision("highest"):
        return by_blocks(functools.partial(_outputs, model, n, tied), (keys,), _BLOCK)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _outputs(
    model: nn.Module | None, n: int, tied: bool, keys: Key[Array, " L"]
) -> Float[Array, "L N"]:
    bits = bits_of(jnp.arange(2**n, dtype=jnp.int32), n)

    def one(key: PRNGKeyArray) -> Float[Array, " N"]:
        if model is None:
            return jax.random.normal(key, (2**n,))
        variables: Any = model.init(key, bits[:1])
        if tied and isinstance(model, BitTransformer):
            variables = tie_layers(variables)
        outputs: Any = model.apply(variables, bits)
        return outputs

    return jax.lax.map(one, keys)


def thresholded(
    outputs: Float[Array, "num N"], threshold: Literal["median", "zero"]
) -> dict[str, Float[np.ndarray, " num"]]:
    """Each row as a Boolean function: its "sensitivity", exact, and its share of "ones".

    >>> table = jnp.array([[3.0, 1.0, 1.5, 4.0]])
    >>> found = thresholded(table, "median")
    >>> found["sensitivity"].tolist(), found["ones"].tolist()
    ([2.0], [0.5])
    """
    cut = jnp.median(outputs, axis=1, keepdims=True) if threshold == "median" else 0.0
    above = np.asarray(outputs > cut)
    return {
        "sensitivity": boolean.average_sensitivity(np.where(above, 1, -1)),
        "ones": above.mean(axis=1),
    }


def expected_sensitivity(ones: Float[np.ndarray, " num"], n: int) -> Float[np.ndarray, " num"]:
    """2p(1 − p)n·N/(N − 1), N = 2ⁿ: the mean over all functions with a share p of ones.

    Two different inputs have different values with probability 2p(1 − p)N/(N − 1).

    >>> expected_sensitivity(np.array([0.0, 0.5]), 1).tolist()
    [0.0, 1.0]
    """
    return 2 * ones * (1 - ones) * n * 2**n / (2**n - 1)
