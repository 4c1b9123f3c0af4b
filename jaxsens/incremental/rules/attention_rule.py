"""Attention after an edit: new rows for edited queries, new columns for edited tokens.

For a query that is not edited, the tokens outside the window give the same sums for all samples of
a position: the numerator N and the denominator D of

    out_i = (N_i + Σ_w e^{l_iw} v_w W) / (D_i + Σ_w e^{l_iw}),

with logits taken relative to their largest. They are sums over the tokens outside, not the clean
sums minus the old tokens: a difference would cancel where attention is sharp.
"""

import functools
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxsens.incremental.attention_operation import Kind, attended, hidden, kind_of
from jaxsens.incremental.layout import Layout, runs, same_table
from jaxsens.incremental.rules.masks import Mask, Visible
from jaxsens.incremental.rules.rule_call import Call
from jaxsens.incremental.values import Clean, Dense, Value, Windowed, clean_of, clean_window

_TOKENS = 1
#: Windows of more tokens than this share of them are computed whole.
_FEW = 1 / 3


class Prepared(NamedTuple):
    """What an edit needs of clean attention, heads first: as the products below take it.

    Arrays, or their shapes where costs are counted.

    Attributes:
      mask: what it does to logits.
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
    """Of the first example."""
    queries, keys = q[0].transpose(1, 2, 0), k[0].transpose(1, 2, 0)
    logits = mask(q[0].transpose(1, 0, 2) @ keys)
    return Prepared(mask, logits, _projected(v[0], *out), queries, keys)


def prepare_marked(
    kind: Kind, q: Array, k: Array, v: Array, visible: Array, *out: Array
) -> Prepared:
    """For the operands of `jaxsens.attention`."""
    fill = hidden(q.shape[1], k.shape[1], q.dtype, causal=kind.causal)
    return prepare(q, k, v, Visible(visible[:1], fill), *out)


def _projected(v: Float[Array, "T h f"], *out: Float[Array, "h f d"]) -> Float[Array, "h T d"]:
    v = v.transpose(1, 0, 2)
    return v @ out[0] if out else v


def attend(call: Call) -> list[Value]:
    """The rule of `jaxsens.attention`."""
    kind = kind_of(call.operation.name)
    assert kind is not None
    visible, *out = call.inputs[3:]
    if not all(isinstance(value, Clean) for value in (visible, *out)):
        return call.densely()
    found = edited_attention(call, kind, [clean_of(value) for value in out])
    return call.densely() if found is None else [found]


def edited_attention(call: Call, kind: Kind, out: Sequence[Array]) -> Value | None:
    """What an edit makes of attention whose first operands are q, k and v; None if all is new."""
    q, k, v = call.inputs[:3]
    edited = [value for value in (q, k, v) if isinstance(value, Windowed)]
    if call.is_dense or any(value.layout.axes != (_TOKENS,) for value in edited):
        return None
    if isinstance(k, Clean) and isinstance(v, Clean):
        assert isinstance(q, Windowed)
        return _some_queries(call, kind, out, q.layout)
    if kind.causal:
        return _some_queries(call, kind, out, _from_first(edited))
    if not (isinstance(k, Windowed) and isinstance(v, Windowed)):
        return None
    table, length = k.layout.table(_TOKENS), k.layout.shape[_TOKENS]
    alike = all(same_table(table, value.layout.table(_TOKENS)) for value in edited)
    if not alike or table.shape[1] > _FEW * length:
        return None
    return _few_tokens(call, kind, out, q, k, v)


def _from_first(edited: list[Windowed]) -> Layout:
    """From the first token that any position of the bucket touches, on to the last."""
    length = edited[0].layout.shape[_TOKENS]
    reached = np.zeros((len(edited[0].layout.touched), length), bool)
    for value in edited:
        reached |= value.layout.touched.any(axis=(1, 3, 4))
    reached = np.maximum.accumulate(reached, axis=1)
    first = int(reached.argmax(axis=1).min())
    starts = np.full(len(reached), first)
    tables = (None, runs(starts, length - first), None, None)
    return Layout(edited[0].layout.shape, tables, reached[:, None, :, None, None])


def _some_queries(call: Call, kind: Kind, out: Sequence[Array], layout: Layout) -> Value | None:
    """Some queries' attention to all tokens."""
    q, k, v = call.inputs[:3]
    if layout.window[_TOKENS] == layout.shape[_TOKENS]:
        return None
    queries = (
        q.to(layout).new
        if isinstance(q, Windowed)
        else clean_window(clean_of(q), layout, call.place)
    )
    keys, values = (x.dense() if isinstance(x, Windowed) else clean_of(x) for x in (k, v))
    mask = call.extra.mask.of_queries(layout, _TOKENS, call.place)
    new = attended(queries, keys, values, *out, mask=jax.vmap(mask), activation=kind.activation)
    return call.result(_on_result(layout, call), new=new)


def _on_result(layout: Layout, call: Call) -> Layout:
    """The layout of queries, on the shape of what attention gives."""
    shape = call.clean[0].shape
    return layout.on(shape, [None, _TOKENS, *[None] * (len(shape) - 2)])


def _few_tokens(
    call: Call, kind: Kind, out: Sequence[Array], q: Value, k: Windowed, v: Windowed
) -> Value:
    layout, place, old = k.layout, call.place, call.extra
    table, length = layout.table(_TOKENS), layout.shape[_TOKENS]
    there = place.row((table >= 0) & (table < length))
    outside = place.row(~(table[:, :, None] == np.arange(length)).any(axis=1))
    # Values go through the output projection first: few of them are new.
    new_k, new_v = k.new[0].transpose(1, 0, 2), _projected(v.new[0], *out)
    among = place.row(np.clip(table, 0, length - 1))
    columns = _Columns(kind, there, outside, old.values, new_v)
    on_new = old.mask.across().taken(among, axis=-2)
    rows = columns.of_clean_queries(old.logits, on_new(new_k @ old.queries))
    if isinstance(q, Windowed):
        own = old.mask.of_queries(q.layout, _TOKENS, place)
        own_on_new = own.taken(among, axis=-1)
        new_q = q.new[0].transpose(1, 0, 2)
        to_new = jnp.einsum("hqe,hwe->hqw", new_q, new_k)
        edited = columns.of_new_queries(own(new_q @ old.keys), own_on_new(to_new))
        where = _on_result(q.layout, call)
        rows = Windowed(rows[None], where, place, new=edited[None]).dense()[0]
    return Dense(rows[None])


class _Columns:
    """Weighted sums over the tokens outside the window and the new ones inside."""

    def __init__(
        self, kind: Kind, there: Bool[Array, " w"], outside: Bool[Array, " T"],
        old_v: Float[Array, "h T d"], new_v: Float[Array, "h w d"],
    ):  # fmt: skip
        self.kind, self.there, self.outside = kind, there, outside
        # What is not there may be anything, and nothing times nan is nan.
        self.old_v = old_v
        self.new_v = jnp.where(there[None, :, None], new_v, jnp.zeros_like(new_v))

    def of_clean_queries(
        self, old: Float[Array, "h Q T"], new: Float[Array, "h w Q"]
    ) -> Float[Array, "Q ..."]:
        """What is outside comes once per position, all its samples share it."""
        there = self.there[None, :, None]
        if self.kind.activation == "relu":
            kept = jnp.where(self.outside[None, None], jnp.maximum(old, 0.0), 0.0)
            fresh = jnp.where(there, jnp.maximum(new, 0.0), 0.0)
            return self._sum("hqt,htd", kept, self.old_v) + self._sum("hwq,hwd", fresh, self.new_v)
        lowest = jnp.finfo(old.dtype).min
        before = jnp.where(self.outside[None, None], old, lowest).max(axis=-1)
        kept = jnp.where(self.outside[None, None], jnp.exp(old - before[..., None]), 0.0)
        numerators, denominators = kept @ self.old_v, kept.sum(axis=-1)
        new = jnp.where(there, new, -jnp.inf)
        largest = jnp.maximum(before, new.max(axis=1))
        shrink, fresh = jnp.exp(before - largest), jnp.exp(new - largest[:, None])
        total = denominators * shrink + fresh.sum(axis=1)
        share = (shrink / total)[..., None]
        if self.kind.projected:
            # Written out: as a product it would be one of many tiny matrices.
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
        nothing = jnp.asarray(-jnp.inf if self.kind.activation == "softmax" else 0.0, old.dtype)
        old = jnp.where(self.outside[None, None], old, nothing)
        new = jnp.where(self.there[None, None], new, nothing)
        if self.kind.activation == "relu":
            kept, fresh = jnp.maximum(old, nothing), jnp.maximum(new, nothing)
        else:
            largest = jnp.maximum(old.max(axis=-1), new.max(axis=-1))[..., None]
            kept, fresh = jnp.exp(old - largest), jnp.exp(new - largest)
            total = (kept.sum(axis=-1) + fresh.sum(axis=-1))[..., None]
            kept, fresh = kept / total, fresh / total
        return self._sum("hqt,htd", kept, self.old_v) + self._sum("hqt,htd", fresh, self.new_v)

    def _sum(self, inputs: str, weights: Array, values: Array) -> Float[Array, "q ..."]:
        return jnp.einsum(f"{inputs}->{'qd' if self.kind.projected else 'qhd'}", weights, values)
