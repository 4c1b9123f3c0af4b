"""Attention with its projections, in two forms of the same numbers.

With queries q_i = s (x_i W_Q + b_Q), keys k_j = x_j W_K + b_K and values v_j = x_j W_V + b_V, every
head is

    logits  q_i · k_j   = s (x_i W_Q W_Kᵀ + b_Q W_Kᵀ) · x_j + q_i · b_K
    output  Σ_j a_ij v_j W_O = (Σ_j a_ij x_j) W_V W_O + b_V W_O

since softmax weights a_i sum to 1; nor do they see q_i · b_K, which is the same for all j. So where
a head is as wide as the tokens, keys and values need not be computed: W_Q W_Kᵀ and W_V W_O depend
on the parameters alone, and the tokens themselves stand for the keys and the values of all heads,
in one large product for each example instead of a small one for each head. That is the folded form,
and what a forward pass computes.

Reuse wants the other one, which it knows to update row by row: a trace for it takes `separately` in
place of every folded call (`jaxsens.incremental.trace`).
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxsens.incremental.attention_operation import as_weights, attention, hidden

_MARK = "jaxsens_folded_attention"
#: The names of its calls, and whether each is causal.
CAUSAL_BY_MARK = {_MARK: False, f"{_MARK}_causal": True}
#: Axes of what a folded call takes: tokens, mask and scale; what was folded; the projections.
_RANKS = [3, 3, 3, 0, *(3, 2, 3, 1), *(3, 2, 3, 2, 3, 2, 3)]


class Projections(NamedTuple):
    """What makes queries, keys and values of tokens, and an output of heads.

    Attributes:
      query: (d, h, e).
      query_bias: (h, e).
      key: (d, h, e).
      key_bias: (h, e).
      value: (d, h, e).
      value_bias: (h, e).
      out: (h, e, f), without its bias.
    """

    query: Float[Array, "d h e"]
    query_bias: Float[Array, "h e"]
    key: Float[Array, "d h e"]
    key_bias: Float[Array, "h e"]
    value: Float[Array, "d h e"]
    value_bias: Float[Array, "h e"]
    out: Float[Array, "h e f"]


def folding_saves(num_tokens: int, width: int, head_width: int) -> bool:
    """Whether the folded form takes fewer operations for each token and head.

    Separately they are 4de + 2Te multiplications, folded 2d² + 2Td.

    >>> folding_saves(65, width=64, head_width=64), folding_saves(32, width=256, head_width=32)
    (True, False)
    """
    folded = width**2 + num_tokens * width
    return folded < 2 * width * head_width + num_tokens * head_width


def folded_attention(
    queries: Float[Array, "n Q d"],
    x: Float[Array, "n T d"],
    projections: Projections,
    *,
    visible: Bool[Array, "m Q T"],
    scale: Float[Array, ""],
    causal: bool,
) -> Float[Array, "n Q f"]:
    """Softmax attention of `queries` to the tokens of `x`, in the folded form.

    Args:
      queries: the tokens that receive.
      x: the tokens that are looked at.
      projections: of all heads.
      visible: which tokens each query sees, for each example or (m = 1) for all alike.
      scale: what the logits are multiplied by.
      causal: whether no query sees a token after it; `visible` must say so too.
    """
    both = jnp.einsum("dhe,che->dhc", projections.query, projections.key)
    bias = jnp.einsum("he,che->hc", projections.query_bias, projections.key)
    values = jnp.einsum("dhe,hef->hdf", projections.value, projections.out)
    value_bias = jnp.einsum("he,hef->f", projections.value_bias, projections.out)
    folded = (both, bias, values, value_bias)
    return _marked(causal)(queries, x, visible, scale, *folded, *projections)


@functools.lru_cache
def _marked(causal: bool) -> Callable[..., Array]:
    def marked(queries, x, visible, scale, both, bias, values, value_bias, *_):
        at_tokens = (jnp.einsum("nqd,dhc->nqhc", queries, both) + bias[None, None]) * scale
        # Heads beside queries: what each example multiplies by x, and by xᵀ, is one matrix.
        logits = jnp.einsum("nqhc,ntc->nqht", at_tokens, x)
        num_queries, num_tokens = visible.shape[1:]
        fill = hidden(num_queries, num_tokens, logits.dtype, causal=causal)
        seen = jnp.where(visible[:, :, None], logits, fill[:, :, None])
        received = jnp.einsum("nqht,ntd->nqhd", as_weights(seen, "softmax"), x)
        return jnp.einsum("nqhd,hdf->nqf", received, values) + value_bias[None, None]

    names = {is_causal: name for name, is_causal in CAUSAL_BY_MARK.items()}
    marked.__name__ = marked.__qualname__ = names[causal]
    return jax.jit(marked)


def is_folded(name: str, operands: Sequence[Any], num_results: int) -> bool:
    """Whether a traced call with operands of these shapes is one of `folded_attention`.

    What vmap or a derivative makes of a call keeps its name, but not the axes of its operands.
    """
    is_right = name in CAUSAL_BY_MARK and num_results == 1
    return is_right and [a.ndim for a in operands] == _RANKS


def of_mark(name: str) -> Callable[..., Array]:
    """The folded call of that name, as a function of its operands."""
    return _marked(CAUSAL_BY_MARK[name])


def separately(name: str) -> Callable[..., Array]:
    """What gives the same result as the folded call of that name, with keys and values.

    It takes the operands of the call.
    """
    return functools.partial(_separately, CAUSAL_BY_MARK[name])


def _separately(causal, queries, x, visible, scale, both, bias, values, value_bias, *projections):
    given = Projections(*projections)

    def project(tokens, kernel, bias):
        return jnp.einsum("ntd,dhe->nthe", tokens, kernel) + bias[None, None]

    q = project(queries, given.query, given.query_bias) * scale
    k = project(x, given.key, given.key_bias)
    v = project(x, given.value, given.value_bias)
    return attention(q, k, v, given.out, visible=visible, causal=causal)
