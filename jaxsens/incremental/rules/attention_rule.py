"""Attention after an edit: new rows for edited queries, new columns for edited tokens.

For a query that is not edited, the tokens outside the window give the same sums for all samples of
a position: the numerator N and the denominator D of

    out_i = (N_i + Σ_w e^{l_iw} v_w W) / (D_i + Σ_w e^{l_iw}),

with logits taken relative to their largest. They are sums over the tokens outside, not the clean
sums minus the old tokens: a difference would cancel where attention is sharp.

Where attention is causal, only queries from the first edited token on are computed anew, in the
same way where few tokens are edited, and earlier ones count as clean. A mask that lets a query see
a later token, but is called causal, would make that wrong.
"""

import functools
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxsens.incremental.attention_masks import Mask, VisibilityMask
from jaxsens.incremental.attention_operation import (
    AttentionKind,
    attended,
    attention_kind,
    hidden,
    kinds_by_mark,
)
from jaxsens.incremental.layout import Layout, contiguous_table, is_in_bounds, same_table
from jaxsens.incremental.rules.rule_call import RuleCall, rule
from jaxsens.incremental.trace import Operation
from jaxsens.incremental.values import (
    Clean,
    Dense,
    Value,
    Windowed,
    clean_array,
    edited_array,
)
from jaxsens.incremental.windows import clean_window, write_window

_TOKENS = 1
#: If a window covers more than this share of the tokens, all of them are computed anew.
_LARGEST_SHARE_OF_TOKENS = 1 / 3


class Prepared(NamedTuple):
    """What an edit needs of clean attention, heads first: as the products below take it.

    Arrays, or their shapes where costs are counted.

    Attributes:
      mask: what attention does to its logits.
      logits: (h, Q, T), of every query and token, masked.
      values: (h, T, d), through the output projection.
      queries: (h, e, Q), transposed.
      keys: (h, e, T), transposed.
    """

    mask: Mask
    logits: Any
    values: Any
    queries: Any
    keys: Any


def prepare(
    q: Float[Array, "n Q h e"],
    k: Float[Array, "n T h e"],
    v: Float[Array, "n T h f"],
    mask: Mask,
    *out: Float[Array, "h f d"],
) -> Prepared:
    """What edits need of the first example's clean attention."""
    queries, keys = q[0].transpose(1, 2, 0), k[0].transpose(1, 2, 0)
    logits = mask(q[0].transpose(1, 0, 2) @ keys)
    return Prepared(mask, logits, _projected(v[0], *out), queries, keys)


def _prepare_marked(operation: Operation, inputs: Sequence[Any]) -> Prepared:
    """The same, for the operands of `jaxsens.attention`."""
    kind = attention_kind(operation.name)
    assert kind is not None
    q, k, v, visible, *out = map(jnp.asarray, inputs)
    fill = hidden(q.shape[1], k.shape[1], q.dtype, causal=kind.causal)
    return prepare(q, k, v, VisibilityMask(visible[:1], fill), *out)


def _projected(v: Float[Array, "T h f"], *out: Float[Array, "h f d"]) -> Float[Array, "h T d"]:
    v = v.transpose(1, 0, 2)
    return v @ out[0] if out else v


@rule(*kinds_by_mark(), prepare=_prepare_marked)
def marked_attention(call: RuleCall) -> list[Value]:
    """Calls of `jaxsens.attention`."""
    kind = attention_kind(call.operation.name)
    assert kind is not None
    visible, *out = call.inputs[3:]
    if not all(isinstance(value, Clean) for value in (visible, *out)):
        return call.densely()
    found = edited_attention(call, kind, [clean_array(value) for value in out])
    return call.densely() if found is None else [found]


def edited_attention(call: RuleCall, kind: AttentionKind, out: Sequence[Array]) -> Value | None:
    """What an edit makes of attention whose first operands are q, k and v; None if all is new."""
    q, k, v = call.inputs[:3]
    edited = [value for value in (q, k, v) if isinstance(value, Windowed)]
    if call.has_dense_input or any(value.layout.axes != (_TOKENS,) for value in edited):
        return None
    if isinstance(k, Clean) and isinstance(v, Clean):
        assert isinstance(q, Windowed)
        return _some_queries(call, kind, out, q.layout)
    later = _from_first(edited) if kind.causal else None
    # Through the output projection, sums over tokens are as many times as wide as there are heads:
    # then all rows of later queries cost no more.
    if later is not None and (kind.projected or not _are_few(edited, k, v)):
        return _some_queries(call, kind, out, later)
    return _few_tokens(call, kind, out, q, k, v, later) if _are_few(edited, k, v) else None


def _are_few(edited: list[Windowed], k: Value, v: Value) -> bool:
    """Whether keys and values are edited at the same few tokens, and queries nowhere else."""
    if not (isinstance(k, Windowed) and isinstance(v, Windowed)):
        return False
    table, length = k.layout.table(_TOKENS), k.layout.shape[_TOKENS]
    alike = all(same_table(table, value.layout.table(_TOKENS)) for value in edited)
    return alike and table.shape[1] <= _LARGEST_SHARE_OF_TOKENS * length


def _from_first(edited: list[Windowed]) -> Layout:
    """From the first token that any position of the group reaches, on to the last."""
    length = edited[0].layout.shape[_TOKENS]
    reached = np.zeros((edited[0].layout.num_positions, length), bool)
    for value in edited:
        reached |= value.layout.reachable.any(axis=(1, 3, 4))
    reached = np.maximum.accumulate(reached, axis=1)
    first = int(reached.argmax(axis=1).min())
    starts = np.full(len(reached), first)
    tables = (None, contiguous_table(starts, length - first), None, None)
    return Layout(edited[0].layout.shape, tables, reached[:, None, :, None, None])


def _some_queries(
    call: RuleCall, kind: AttentionKind, out: Sequence[Array], layout: Layout
) -> Value | None:
    """Some queries' attention to all tokens."""
    q, k, v = call.inputs[:3]
    if layout.window[_TOKENS] == layout.shape[_TOKENS]:
        return None
    queries = (
        q.to(layout).new
        if isinstance(q, Windowed)
        else clean_window(clean_array(q), layout, call.position)
    )
    keys, values = edited_array(k), edited_array(v)
    mask = call.prepared.mask.of_queries(layout, _TOKENS, call.position)
    new = attended(queries, keys, values, *out, mask=jax.vmap(mask), activation=kind.activation)
    return call.result(_on_result(layout, call), new=new)


def _on_result(layout: Layout, call: RuleCall) -> Layout:
    """The layout of queries, on the shape of what attention gives."""
    shape = call.clean[0].shape
    return layout.with_axes(shape, [None, _TOKENS, *[None] * (len(shape) - 2)])


def _few_tokens(
    call: RuleCall, kind: AttentionKind, out: Sequence[Array], q: Value, k: Value, v: Value,
    later: Layout | None,
) -> Value:  # fmt: skip
    """All queries' attention after an edit of few tokens; if causal, that of later queries."""
    assert isinstance(k, Windowed)
    assert isinstance(v, Windowed)
    layout, position, old = k.layout, call.position, call.prepared
    table, length = layout.table(_TOKENS), layout.shape[_TOKENS]
    in_bounds = position.row(is_in_bounds(table, length))
    outside = position.row(~(table[:, :, None] == np.arange(length)).any(axis=1))
    # Values go through the output projection first: few of them are new.
    new_k, new_v = k.new[0].transpose(1, 0, 2), _projected(v.new[0], *out)
    tokens = position.row(np.clip(table, 0, length - 1))
    sums = _WeightedSums(kind, in_bounds, outside, old.values, new_v)
    first = 0 if later is None else int(later.table(_TOKENS)[0, 0])
    mask_of_new = old.mask.from_query(first).transposed().at_indices(tokens, axis=-2)
    new_logits = mask_of_new(new_k @ old.queries[:, :, first:])
    rows = sums.of_clean_queries(old.logits[:, first:], new_logits)
    if isinstance(q, Windowed):
        mask = old.mask.of_queries(q.layout, _TOKENS, position)
        new_q = q.new[0].transpose(1, 0, 2)
        new_to_new = mask.at_indices(tokens, axis=-1)(jnp.einsum("hqe,hwe->hqw", new_q, new_k))
        edited = sums.of_new_queries(mask(new_q @ old.keys), new_to_new)
        of_rows = _behind(first, _on_result(q.layout, call))
        rows = write_window(rows[None], edited[None], of_rows, position)[0]
    if later is None or not first:
        return Dense(rows[None])
    return call.result(_on_result(later, call), new=rows[None])


def _behind(first: int, layout: Layout) -> Layout:
    """The layout of the same windows in an array that begins with token `first`."""
    shape, tables = list(layout.shape), list(layout.tables)
    shape[_TOKENS] -= first
    tables[_TOKENS] = layout.table(_TOKENS) - first
    return Layout(tuple(shape), tuple(tables), layout.reachable[:, :, first:])


class _WeightedSums:
    """Weighted sums over the tokens outside the window and the new ones inside."""

    def __init__(
        self, kind: AttentionKind, in_bounds: Bool[Array, " w"], outside: Bool[Array, " T"],
        old_v: Float[Array, "h T d"], new_v: Float[Array, "h w d"],
    ):  # fmt: skip
        self.kind, self.in_bounds, self.outside = kind, in_bounds, outside
        # Slots that are out of bounds may hold anything, and zero times nan is nan.
        self.old_v = old_v
        self.new_v = jnp.where(in_bounds[None, :, None], new_v, jnp.zeros_like(new_v))

    def of_clean_queries(
        self, old: Float[Array, "h Q T"], new: Float[Array, "h w Q"]
    ) -> Float[Array, "Q ..."]:
        """Rows of queries that are not edited; all samples of a position share what is outside."""
        in_bounds = self.in_bounds[None, :, None]
        if self.kind.activation == "relu":
            kept = jnp.where(self.outside[None, None], jnp.maximum(old, 0.0), 0.0)
            fresh = jnp.where(in_bounds, jnp.maximum(new, 0.0), 0.0)
            return self._sum("hqt,htd", kept, self.old_v) + self._sum("hwq,hwd", fresh, self.new_v)
        lowest = jnp.finfo(old.dtype).min
        before = jnp.where(self.outside[None, None], old, lowest).max(axis=-1)
        kept = jnp.where(self.outside[None, None], jnp.exp(old - before[..., None]), 0.0)
        numerators, denominators = kept @ self.old_v, kept.sum(axis=-1)
        new = jnp.where(in_bounds, new, -jnp.inf)
        largest = jnp.maximum(before, new.max(axis=1))
        shrink, fresh = jnp.exp(before - largest), jnp.exp(new - largest[:, None])
        total = denominators * shrink + fresh.sum(axis=1)
        share = (shrink / total)[..., None]
        if self.kind.projected:
            # Written out as a sum: as a product it would be one of many tiny matrices.
            outside = functools.reduce(
                operator.add, [numerators[h] * share[h] for h in range(len(share))]
            )
        else:
            outside = (numerators * share).transpose(1, 0, 2)
        return outside + self._sum("hwq,hwd", fresh / total[:, None], self.new_v)

    def of_new_queries(
        self, old: Float[Array, "h q T"], new: Float[Array, "h q w"]
    ) -> Float[Array, "q ..."]:
        """Rows of edited queries."""
        no_weight = jnp.asarray(-jnp.inf if self.kind.activation == "softmax" else 0.0, old.dtype)
        old = jnp.where(self.outside[None, None], old, no_weight)
        new = jnp.where(self.in_bounds[None, None], new, no_weight)
        if self.kind.activation == "relu":
            kept, fresh = jnp.maximum(old, no_weight), jnp.maximum(new, no_weight)
        else:
            largest = jnp.maximum(old.max(axis=-1), new.max(axis=-1))[..., None]
            kept, fresh = jnp.exp(old - largest), jnp.exp(new - largest)
            total = (kept.sum(axis=-1) + fresh.sum(axis=-1))[..., None]
            kept, fresh = kept / total, fresh / total
        return self._sum("hqt,htd", kept, self.old_v) + self._sum("hqt,htd", fresh, self.new_v)

    def _sum(self, inputs: str, weights: Array, values: Array) -> Float[Array, "q ..."]:
        return jnp.einsum(f"{inputs}->{'qd' if self.kind.projected else 'qhd'}", weights, values)
