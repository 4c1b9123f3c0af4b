"""Attention as one operation that `jaxsens.incremental` knows.

    out_i = Σ_j a_ij v_j W,    a_i = softmax_j(q_i · k_j)  or  ReLU(q_i · k_j)

for every head, summed over heads by the output projection W. The same numbers as the formula
written out; but where an edit changes a few tokens, only their rows and columns are computed anew.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxsens.core.scalars import one_line

Activation = Literal["softmax", "relu"]
_MARK = "jaxsens_attention"


@dataclass(frozen=True)
class AttentionKind:
    """What is static about an attention.

    Attributes:
      activation: what turns logits into weights.
      causal: whether no token sees a later one.
      projected: whether heads are summed by an output projection.
    """

    activation: Activation = "softmax"
    causal: bool = False
    projected: bool = False

    @property
    def mark(self) -> str:
        """The name that a call of it has in a traced function."""
        order, out = "causal" if self.causal else "free", "projected" if self.projected else "heads"
        return f"{_MARK}_{self.activation}_{order}_{out}"


def attention(
    q: Float[Array, "n Q h e"],
    k: Float[Array, "n T h e"],
    v: Float[Array, "n T h e"],
    out: Float[Array, "h e d"] | None = None,
    *,
    visible: Bool[Array, "m Q T"] | None = None,
    activation: Activation = "softmax",
    causal: bool = False,
) -> Float[Array, "..."]:
    """Multi-head attention, with its output projection if that is given.

    Args:
      q: queries, scaled as they should be.
      k: keys.
      v: values.
      out: the output projection, without its bias.
      visible: which tokens each query sees, for each example or (m = 1) for all alike; default all.
      activation: "relu" takes ReLU of the logits for weights and normalises nothing.
      causal: a promise that query i sees no token after i, which `visible` must keep as well. A
        query that sees nothing takes the mean of all tokens; if causal, of those up to itself.

    Returns:
      (n, Q, d), or (n, Q, h, e) without an output projection.

    >>> q = k = v = jnp.ones((1, 4, 2, 3))
    >>> attention(q, k, v).shape
    (1, 4, 2, 3)
    """
    _check(q, k, v, out, visible, activation, causal)
    if visible is None:
        visible = jnp.ones((1, q.shape[1], k.shape[1]), bool)
    kind = AttentionKind(activation, causal, out is not None)
    arguments = (q, k, v, visible) if out is None else (q, k, v, visible, out)
    return of_kind(kind)(*arguments)


def _check(q: Any, k: Any, v: Any, out: Any, visible: Any, activation: Any, causal: Any) -> None:
    """Raises ValueError for operands that do not fit each other, by their shapes alone."""
    given = {"q": q, "k": k, "v": v, "out": out, "visible": visible}
    shapes: dict[str, Any] = {
        name: getattr(array, "shape", None)
        for name, array in given.items()
        if array is not None or name in ("q", "k", "v")
    }
    if not isinstance(activation, str) or activation not in ("softmax", "relu"):
        raise ValueError(f"activation must be 'softmax' or 'relu'; got {one_line(activation)}")
    if not isinstance(causal, bool):
        raise ValueError(f"causal must be True or False; got {one_line(causal)}")
    ranks = {"q": 4, "k": 4, "v": 4, "out": 3, "visible": 3}
    for name, shape in shapes.items():
        if shape is None or len(shape) != ranks[name]:
            got = one_line(given[name]) if shape is None else f"shape {shape}"
            raise ValueError(f"{name} must be an array of {ranks[name]} axes; got {got}")
        if name != "visible" and not jnp.issubdtype(given[name].dtype, jnp.floating):
            raise ValueError(f"{name} must be of floating-point numbers; got {given[name].dtype}")
    (n, num_queries, heads, width), num_tokens = shapes["q"], shapes["k"][1]
    if shapes["k"] != (n, num_tokens, heads, width) or shapes["v"][:3] != shapes["k"][:3]:
        raise ValueError(
            "q (n, Q, h, e), k (n, T, h, e) and v (n, T, h, e) must agree; "
            f"got {shapes['q']}, {shapes['k']} and {shapes['v']}"
        )
    if out is not None and shapes["out"][:2] != shapes["v"][2:]:
        raise ValueError(f"out (h, e, d) must fit v (n, T, h, e); got {out.shape}, {v.shape}")
    if visible is not None:
        expected = num_queries, num_tokens
        if visible.dtype != bool or shapes["visible"] not in ((1, *expected), (n, *expected)):
            raise ValueError(
                f"visible must be bools of shape (n or 1, Q, T) with Q, T = {expected}; "
                f"got {visible.dtype} of shape {visible.shape}"
            )
    if causal and num_queries != num_tokens:
        raise ValueError(f"causal needs as many queries as tokens; got {num_queries}, {num_tokens}")


@functools.lru_cache
def of_kind(kind: AttentionKind) -> Callable[..., Array]:
    """The marked function that computes it: of q, k, v, what is visible, and the projection."""

    def marked(q, k, v, visible, *out):
        mask = functools.partial(masked, visible=visible, causal=kind.causal)
        return attended(q, k, v, *out, mask=mask, activation=kind.activation)

    marked.__name__ = marked.__qualname__ = kind.mark
    return jax.jit(marked)


def attended(
    q: Float[Array, "n Q h e"],
    k: Float[Array, "n T h e"],
    v: Float[Array, "n T h f"],
    out: Float[Array, "h f d"] | None = None,
    *,
    mask: Callable[[Array], Array],
    activation: Activation,
) -> Float[Array, "..."]:
    """Attention written out, with any mask: a function of the logits (n, h, Q, T)."""
    # Heads first and keys across: XLA's CPU code multiplies these layouts twice as fast.
    q, k, v = q.transpose(0, 2, 1, 3), k.transpose(0, 2, 3, 1), v.transpose(0, 2, 1, 3)
    weights = as_weights(mask(jnp.einsum("nhqe,nhet->nhqt", q, k)), activation)
    heads = jnp.einsum("nhqt,nhte->nhqe", weights, v).transpose(0, 2, 1, 3)
    return heads if out is None else jnp.einsum("nqhe,hed->nqd", heads, out)


@functools.lru_cache
def kinds_by_mark() -> dict[str, AttentionKind]:
    """Every kind of attention, by the name of its calls."""
    kinds = [
        AttentionKind(activation, causal, projected)
        for activation in ("softmax", "relu")
        for causal in (False, True)
        for projected in (False, True)
    ]
    return {kind.mark: kind for kind in kinds}


def attention_kind(name: str) -> AttentionKind | None:
    """The kind of attention that a traced call of this name is, if it is one."""
    return kinds_by_mark().get(name)


def is_marked(name: str, operands: Sequence[Any], num_results: int) -> bool:
    """Whether a traced call with operands of these shapes and dtypes is one of `attention` itself.

    What vmap or a derivative makes of a call keeps its name.
    """
    kind = attention_kind(name)
    if kind is None or num_results != 1:
        return False
    ranks = [aval.ndim for aval in operands]
    return ranks == [4, 4, 4, 3, *[3] * kind.projected] and operands[3].dtype == bool


def masked(
    logits: Float[Array, "n h Q T"], visible: Bool[Array, "m Q T"], *, causal: bool = False
) -> Float[Array, "n h Q T"]:
    """The lowest number in place of what a query does not see."""
    num_queries, num_tokens = logits.shape[-2:]
    fill = hidden(num_queries, num_tokens, logits.dtype, causal=causal)
    return jnp.where(visible[:, None], logits, fill[None])


def hidden(num_queries: int, num_tokens: int, dtype: Any, *, causal: bool) -> Float[Array, "1 _ _"]:
    """What stands in place of logits that are not seen: if causal, less for later tokens."""
    lowest = jnp.full((1, 1, 1), jnp.finfo(dtype).min, dtype)
    if not causal:
        return lowest
    earlier = jnp.tri(num_queries, num_tokens, dtype=bool)[None]
    return jnp.where(earlier, lowest, jnp.full_like(lowest, -jnp.inf))


def as_weights(logits: Float[Array, "*a T"], activation: Activation) -> Float[Array, "*a T"]:
    """Weights of the last axis."""
    return jax.nn.softmax(logits) if activation == "softmax" else jax.nn.relu(logits)
