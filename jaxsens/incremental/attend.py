"""Attention after an edit: new rows for edited queries, new columns for edited tokens.

For a query that is not edited, the tokens outside the window give the same sums for all samples of
a position: the numerator N and the denominator D of

    out_i = (N_i + Σ_w e^{l_iw} v_w W) / (D_i + Σ_w e^{l_iw}),

with logits taken relative to their largest. They are sums over the tokens outside, not the clean
sums minus the old tokens: a difference would cancel where attention is sharp.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxsens.attention import Activation, Kind, attention, kind_of
from jaxsens.incremental.call import Call
from jaxsens.incremental.layout import Layout, runs
from jaxsens.incremental.values import Clean, Dense, Value, Windowed, clean_of, clean_window

_TOKENS = 1
#: Windows of more tokens than this share of them are computed whole.
_FEW = 1 / 3


def prepare(
    q: Float[Array, "n Q h e"],
    k: Float[Array, "n T h e"],
    v: Float[Array, "n T h e"],
    visible: Bool[Array, "m Q T"],
    *out: Float[Array, "h e d"],
) -> tuple[Float[Array, "h Q T"], Float[Array, "T h d"]]:
    """Clean logits and, through the output projection, clean values of the first example."""
    return _logits(q[0], k[0], visible[0]), _projected(v[0], *out)


def _projected(v: Float[Array, "T h e"], *out: Float[Array, "h e d"]) -> Float[Array, "T h d"]:
    return jnp.einsum("the,hed->thd", v, out[0]) if out else v


def attend(call: Call) -> list[Value]:
    """The rule of `jaxsens.attention`."""
    kind = kind_of(call.operation.name)
    assert kind is not None
    q, k, v, visible, *out = call.inputs
    edited = [value for value in (q, k, v) if isinstance(value, Windowed)]
    tokens_alone = all(value.layout.axes == (_TOKENS,) for value in edited)
    if call.is_dense or not tokens_alone or not all(isinstance(c, Clean) for c in (visible, *out)):
        return call.densely()
    if isinstance(k, Clean) and isinstance(v, Clean):
        assert isinstance(q, Windowed)
        return [_some_queries(call, kind, q.layout)]
    if kind.causal:
        return [_some_queries(call, kind, _from_first(edited))]
    if not (isinstance(k, Windowed) and isinstance(v, Windowed)):
        return call.densely()
    if not k.layout.same_as(v.layout) or k.layout.window[_TOKENS] > _FEW * k.layout.shape[_TOKENS]:
        return call.densely()
    if isinstance(q, Windowed) and not np.array_equal(
        q.layout.table(_TOKENS), k.layout.table(_TOKENS)
    ):
        return call.densely()
    return [_few_tokens(call, kind, q, k, v)]


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


def _some_queries(call: Call, kind: Kind, layout: Layout) -> Value:
    """Some queries' attention to all tokens."""
    q, k, v, visible, *out = call.inputs
    if layout.window[_TOKENS] == layout.shape[_TOKENS]:
        return call.densely()[0]
    queries = (
        q.to(layout).new
        if isinstance(q, Windowed)
        else clean_window(clean_of(q), layout, call.place)
    )
    seen = clean_window(clean_of(visible), _on_visible(layout, clean_of(visible)), call.place)
    keys, values = (x.dense() if isinstance(x, Windowed) else clean_of(x) for x in (k, v))
    new = attention(
        queries, keys, values, *map(clean_of, out), visible=seen, activation=kind.activation
    )
    rank = call.clean[0].ndim
    axes: list[int | None] = [None, _TOKENS, *[None] * (rank - 2)]
    return call.result(layout.on(call.clean[0].shape, axes), new=new)


def _on_visible(layout: Layout, visible: Array) -> Layout:
    return layout.on(visible.shape, [None, _TOKENS, None])


def _few_tokens(call: Call, kind: Kind, q: Value, k: Windowed, v: Windowed) -> Value:
    visible, *out = (clean_of(value) for value in call.inputs[3:])
    layout, place = k.layout, call.place
    table, length = layout.table(_TOKENS), layout.shape[_TOKENS]
    there = place.row((table >= 0) & (table < length))
    outside = place.row(~(table[:, :, None] == np.arange(length)).any(axis=1))
    # Values go through the output projection first: few of them are new.
    old_logits, old_v = call.extra
    old_q, old_k = clean_of(q)[0], k.clean[0]
    new_k, new_v = k.new[0], _projected(v.new[0], *out)
    seen = visible[0]
    seen_new = jnp.take(seen, place.row(np.clip(table, 0, length - 1)), axis=1, mode="clip")
    columns = _Columns(kind.activation, there, outside)
    rows = columns.updated(
        old_logits, _logits(old_q, new_k, seen_new), old_v, new_v, kind.projected
    )
    if isinstance(q, Windowed):
        own = clean_window(visible, _on_visible(q.layout, visible), place)[0]
        own_new = jnp.take(own, place.row(np.clip(table, 0, length - 1)), axis=1, mode="clip")
        edited = columns.together(
            _logits(q.new[0], old_k, own), _logits(q.new[0], new_k, own_new), old_v, new_v,
            kind.projected,
        )  # fmt: skip
        axes: list[int | None] = [None, _TOKENS, *[None] * (call.clean[0].ndim - 2)]
        where = q.layout.on(call.clean[0].shape, axes)
        rows = Windowed(rows[None], where, place, new=edited[None]).dense()[0]
    return Dense(rows[None])


def _logits(
    q: Float[Array, "Q h e"], k: Float[Array, "T h e"], seen: Bool[Array, "Q T"]
) -> Float[Array, "h Q T"]:
    logits = jnp.einsum("qhe,the->hqt", q, k)
    return jnp.where(seen[None], logits, jnp.finfo(logits.dtype).min)


class _Columns:
    """Weighted sums over the tokens outside the window and the new ones inside."""

    def __init__(
        self, activation: Activation, there: Bool[Array, " w"], outside: Bool[Array, " T"]
    ):
        self.activation, self.there, self.outside = activation, there, outside

    def updated(
        self, old: Float[Array, "h Q T"], new: Float[Array, "h Q w"], old_v: Float[Array, "T h d"],
        new_v: Float[Array, "w h d"], projected: bool,
    ) -> Float[Array, "Q ..."]:  # fmt: skip
        """Rows of queries that are not edited: what is outside comes once a position."""
        if self.activation == "relu":
            zero = jnp.zeros((), old.dtype)
            kept = jnp.where(self.outside[None, None], jnp.maximum(old, zero), zero)
            fresh = jnp.where(self.there[None, None], jnp.maximum(new, zero), zero)
            return _sum(kept, old_v, projected) + _sum(fresh, new_v, projected)
        lowest = jnp.finfo(old.dtype).min
        before = jnp.where(self.outside[None, None], old, lowest).max(axis=-1)
        kept = jnp.where(self.outside[None, None], jnp.exp(old - before[..., None]), 0.0)
        numerators, denominators = jnp.einsum("hqt,thd->hqd", kept, old_v), kept.sum(axis=-1)
        new = jnp.where(self.there[None, None], new, -jnp.inf)
        largest = jnp.maximum(before, new.max(axis=-1))
        shrink, fresh = jnp.exp(before - largest), jnp.exp(new - largest[..., None])
        total = denominators * shrink + fresh.sum(axis=-1)
        form = "hqd,hq->qd" if projected else "hqd,hq->qhd"
        return jnp.einsum(form, numerators, shrink / total) + _sum(
            fresh / total[..., None], new_v, projected
        )

    def together(
        self, old: Float[Array, "h Q T"], new: Float[Array, "h Q w"], old_v: Float[Array, "T h d"],
        new_v: Float[Array, "w h d"], projected: bool,
    ) -> Float[Array, "Q ..."]:  # fmt: skip
        """Rows of edited queries."""
        nothing = jnp.asarray(-jnp.inf if self.activation == "softmax" else 0.0, old.dtype)
        old = jnp.where(self.outside[None, None], old, nothing)
        new = jnp.where(self.there[None, None], new, nothing)
        if self.activation == "relu":
            kept, fresh = jnp.maximum(old, nothing), jnp.maximum(new, nothing)
        else:
            largest = jnp.maximum(old.max(axis=-1), new.max(axis=-1))[..., None]
            kept, fresh = jnp.exp(old - largest), jnp.exp(new - largest)
            total = (kept.sum(axis=-1) + fresh.sum(axis=-1))[..., None]
            kept, fresh = kept / total, fresh / total
        return _sum(kept, old_v, projected) + _sum(fresh, new_v, projected)


def _sum(
    weights: Float[Array, "h Q t"], values: Float[Array, "t h d"], projected: bool
) -> Float[Array, "Q ..."]:
    return jnp.einsum("hqt,thd->qd" if projected else "hqt,thd->qhd", weights, values)
