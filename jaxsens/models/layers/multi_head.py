"""Multi-head attention with its projections, as all transformers here have it.

A single query, such as the class token of a last block, is served without keys and values: with
k_j = W_K x_j and v_j = W_V x_j,

    q · k_j = (W_Kᵀ q) · x_j        Σ_j a_j v_j = W_V Σ_j a_j x_j,

the same numbers for a fraction of the work. Outside of training, heads as wide as the tokens are
served in a similar way (`jaxsens.incremental.folded_attention`). A training step multiplies in the
order in which the formula is written.
"""

from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxsens.incremental.attention_operation import Activation, as_weights, attention, masked
from jaxsens.incremental.folded_attention import Projections, folded_attention, folding_saves
from jaxsens.models.layers.basics import Dropout


class Projection(nn.Module):
    """The kernel and the bias of a dense layer, for callers that multiply in another order.

    Attributes:
      features: outputs.
      kernel_init: first weights.
      bias_init: first biases; None for a layer without biases.
    """

    features: int
    kernel_init: nn.initializers.Initializer
    bias_init: nn.initializers.Initializer | None = None

    @nn.compact
    def __call__(self, width: int) -> tuple[Any, Any]:
        """Both, for inputs of that width; zeros for a missing bias."""
        kernel = self.param("kernel", self.kernel_init, (width, self.features))
        if self.bias_init is None:
            return kernel, jnp.zeros(self.features, kernel.dtype)
        return kernel, self.param("bias", self.bias_init, (self.features,))


@dataclass(frozen=True)
class Heads:
    """How attention is computed, and what its weights start as.

    Attributes:
      num: number of heads.
      width: of a head, e.
      kernel_init: first weights of queries, keys and values.
      bias_init: their first biases; None for none.
      out_kernel_init: first weights of the output projection.
      out_bias_init: its first biases; None for none.
      activation: what turns logits into weights. "relu" is ReLU(q·k), not normalised at all.
      causal: whether no token sees a later one; `visible` must say so too.
      dropout: rate on the weights.
    """

    num: int
    width: int
    kernel_init: nn.initializers.Initializer
    bias_init: nn.initializers.Initializer | None
    out_kernel_init: nn.initializers.Initializer
    out_bias_init: nn.initializers.Initializer | None
    activation: Activation = "softmax"
    causal: bool = False
    dropout: float = 0.0


def multi_head_attention(
    heads: Heads,
    queries: Float[Array, "n Q d"],
    x: Float[Array, "n T d"],
    visible: Bool[Array, "m Q T"],
    *,
    scale: Float[Array, ""],
    train: bool,
) -> Float[Array, "n Q d"]:
    """What `queries` receive from the tokens of `x` that each may see.

    To be called inside a compact module, which then owns the layers query, key, value and out.

    Args:
      heads: how attention is computed.
      queries: the tokens that receive. Where they are all tokens of `x`, in the same order.
      x: the tokens that are looked at.
      visible: which tokens of `x` each query may see, for m = n examples, or m = 1 for all alike.
      scale: what the logits q · k are multiplied by.
      train: whether this is a step of training, which drops weights; then the rng stream "dropout"
        is needed.
    """
    width, inner, split = x.shape[-1], heads.num * heads.width, (heads.num, heads.width)

    def projection(name):
        kernel, bias = Projection(inner, heads.kernel_init, heads.bias_init, name=name)(width)
        return kernel.reshape(width, *split), bias.reshape(split)

    query, key, value = (projection(name) for name in ("query", "key", "value"))
    out, out_bias = Projection(width, heads.out_kernel_init, heads.out_bias_init, name="out")(inner)
    out, out_bias = jnp.asarray(out).reshape(*split, width), out_bias[None, None]
    dropout = Dropout(heads.dropout)

    def weights(logits):
        causal = heads.causal and queries.shape[1] > 1
        seen = masked(logits, visible, causal=causal)
        return dropout(as_weights(seen, heads.activation), train=train)

    q = _project(queries, *query) * scale
    if queries.shape[1] == 1:
        received = _from_tokens(q, x, key, value, weights)
        return jnp.einsum("nqhe,hed->nqd", received, out) + out_bias
    is_softmax = heads.activation == "softmax"
    if is_softmax and not train and folding_saves(x.shape[1], width, heads.width):
        (w_q, b_q), (w_k, b_k), (w_v, b_v) = query, key, value
        projections = Projections(w_q, b_q, w_k, b_k, w_v, b_v, out)
        received = folded_attention(
            queries, x, projections, visible=visible, scale=scale, causal=heads.causal
        )
        return received + out_bias
    k, v = _project(x, *key), _project(x, *value)
    if train and heads.dropout:
        given = weights(jnp.einsum("nqhe,nthe->nhqt", q, k))
        received = jnp.einsum("nhqt,nthe->nqhe", given, v)
        return jnp.einsum("nqhe,hed->nqd", received, out) + out_bias
    received = attention(
        q, k, v, out, visible=visible, activation=heads.activation, causal=heads.causal
    )
    return received + out_bias


def _project(x, kernel, bias):
    return jnp.einsum("ntd,dhe->nthe", x, kernel) + bias[None, None]


def _from_tokens(q, x, key, value, weights):
    """One query's heads, from the tokens themselves."""
    (key_kernel, key_bias), (value_kernel, value_bias) = key, value
    at_tokens = jnp.einsum("nqhe,dhe->nqhd", q, key_kernel)
    logits = jnp.einsum("nqhd,ntd->nhqt", at_tokens, x)
    given = weights(logits + jnp.einsum("nqhe,he->nhq", q, key_bias)[..., None])
    # As a product of these two in this order, x need not be transposed.
    seen = (given[:, :, 0] @ x)[:, None]
    total = jnp.swapaxes(given.sum(axis=-1), 1, 2)[..., None]
    return jnp.einsum("nqhd,dhe->nqhe", seen, value_kernel) + total * value_bias[None, None]
