"""Attention that a model writes out itself, as one operation with the rule of `attention_rule`.

Whatever a model does to its logits between q · k and their softmax is affine in them, entry by
entry: scales, biases, masks with a fill. So it is scale · logits + offset, of any block of logits
too. A chain that mixes entries would be wrong here; `matching` takes none.

All of it is computed in the numbers of the softmax. Where a model rounds queries, keys, values,
logits or weights to coarser ones, a sum differs from the model's by such rounding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxsens.core.constants import unfoldable
from jaxsens.incremental.attention_masks import AffineMask
from jaxsens.incremental.attention_operation import AttentionKind
from jaxsens.incremental.recognition.causality import Causality, causality_of
from jaxsens.incremental.rules import attention_rule
from jaxsens.incremental.rules.rule_call import RuleCall, rule
from jaxsens.incremental.trace import Operation, evaluate
from jaxsens.incremental.values import Clean, Dense, Value, Windowed


@dataclass(frozen=True)
class HeadsView:
    """How an array of the model is seen as (1, tokens, h, e).

    Attributes:
      shape: of the array.
      order: its axes: those of length 1, tokens, heads, features.
      tokens: which axis tokens are; None for a single one.
      heads: over all axes of heads.
      features: e, over all axes of features.
      repeats: how many heads of queries share one of these; h is as many times their number.
    """

    shape: tuple[int, ...]
    order: tuple[int, ...]
    tokens: int | None
    heads: int
    features: int
    repeats: int = 1

    @property
    def length(self) -> int:
        """How many tokens there are."""
        return 1 if self.tokens is None else self.shape[self.tokens]

    def to_heads(self, array: Array) -> Float[Array, "1 _ h e"]:
        """The array, or a window of its tokens, as (1, tokens, h, e)."""
        array = array.transpose(self.order).reshape(1, -1, self.heads, self.features)
        return array if self.repeats == 1 else jnp.repeat(array, self.repeats, axis=2)

    def from_heads(self, array: Float[Array, "1 _ h e"]) -> Array:
        """The way back, of an array whose heads are not shared."""
        lengths = [array.shape[1] if a == self.tokens else self.shape[a] for a in self.order]
        return array.reshape(lengths).transpose(np.argsort(self.order))

    def value_to_heads(self, value: Value, dtype: Any) -> Value | None:
        """An edited array as (1, tokens, h, e); None if more of it is edited than some tokens."""
        if isinstance(value, Clean):
            return Clean(self.to_heads(value.value).astype(dtype))
        if not isinstance(value, Windowed) or value.layout.axes != (self.tokens,):
            return None
        clean = self.to_heads(value.clean).astype(dtype)
        layout = value.layout.with_axes(clean.shape, [None, self.tokens, None, None])
        if value.clean.dtype == dtype:
            return value.like(clean, layout, self.to_heads(value.given))
        # What a change makes of an entry is rounded as the model rounds it.
        new = self.to_heads(value.new).astype(dtype)
        return Windowed(clean, layout, value.position, new=new)

    def value_from_heads(self, value: Value, clean: Array) -> Value:
        """The way back, to what an edit makes of the clean array."""
        if isinstance(value, Dense):
            return Dense(self.from_heads(value.value).astype(clean.dtype))
        assert isinstance(value, Windowed)
        axes = [1 if axis == self.tokens else None for axis in range(len(self.shape))]
        layout = value.layout.with_axes(self.shape, axes)
        new = self.from_heads(value.new).astype(clean.dtype)
        return Windowed(clean, layout, value.position, new=new)


@dataclass(frozen=True, eq=False)
class LogitChain:
    """The chain from q · k to what the softmax takes.

    Attributes:
      product: the number of q · k.
      aval: its shape and dtype.
      chain: what is done to it.
      final: the number of what the softmax takes.
      dtype: of that, in which the rule computes.
      order: the axes of that: those of length 1, heads, queries, tokens.
      shape: (h, Q, T).
    """

    product: int
    aval: Any
    chain: tuple[Operation, ...]
    final: int
    dtype: Any
    order: tuple[int, ...]
    shape: tuple[int, int, int]

    def scale_and_offset(self, others: Mapping[int, Any]) -> tuple[Float[Array, "h Q T"], ...]:
        """What the chain does to logits, given its other operands by their numbers."""

        def chain(logits: Array) -> Array:
            values = {**others, self.product: logits}
            evaluate(self.chain, values)
            return values[self.final].transpose(self.order).reshape(self.shape)

        # The derivative, not a difference: an offset of 1e30 would swallow the scale.
        zeros = jnp.zeros(self.aval.shape, self.aval.dtype)
        offset, scale = jax.jvp(chain, (zeros,), (jnp.ones_like(zeros),))
        return scale, offset


@dataclass(frozen=True, eq=False)
class WrittenAttention:
    """Attention as a model writes it.

    Attributes:
      q: queries.
      k: keys.
      v: values.
      out: the result.
      logits: from q · k to the softmax.
      mask: the same as scale and offset, if they are known when the model is traced.
      kind: whether it is causal.
      is_sure: whether that holds whatever the example, its mask and its logits are.
    """

    q: HeadsView
    k: HeadsView
    v: HeadsView
    out: HeadsView
    logits: LogitChain
    mask: AffineMask | None = None
    kind: AttentionKind = AttentionKind()  # noqa: RUF009 - it is frozen
    is_sure: bool = True


#: The name of the parameter under which an operation holds it.
PARAM = "attention"
#: The names of such operations.
NAME, CAUSAL_NAME = "attention (recognised)", "causal attention (recognised)"


class Prepared(NamedTuple):
    """What an edit needs of clean attention.

    Attributes:
      attention: heads first.
      causality: of the example, if only that can tell whether its attention is causal.
    """

    attention: attention_rule.Prepared
    causality: Causality | None


def prepare(operation: Operation, inputs: Sequence[Any]) -> Prepared:
    """What the rule wants to know of the clean operands: q, k, v and those of the chain."""
    written: WrittenAttention = operation.params[PARAM]
    views = (written.q, written.k, written.v)
    q, k, v = (
        view.to_heads(jnp.asarray(a)).astype(written.logits.dtype)
        for view, a in zip(views, inputs[:3], strict=True)
    )
    # A mask that was known when the model was traced is a constant of the program.
    mask = jax.tree.map(unfoldable, written.mask)
    if mask is None:
        others = {number: a for number, a in zip(operation.inputs, inputs, strict=True)
                  if isinstance(number, int)}  # fmt: skip
        mask = AffineMask(*written.logits.scale_and_offset(others))
    causality = None if written.is_sure else causality_of(mask, q, k)
    return Prepared(attention_rule.prepare(q, k, v, mask), causality)


@rule(NAME, CAUSAL_NAME, prepare=prepare)
def written_attention(call: RuleCall) -> list[Value] | None:
    """Attention of edited operands; None where its parts had better be taken one by one."""
    written: WrittenAttention = call.params[PARAM]
    q, k, v, *others = call.inputs
    # Where weights are clean, the product with edited values is one of the values' change alone.
    same_weights = isinstance(q, Clean) and isinstance(k, Clean)
    if same_weights or not all(isinstance(value, Clean) for value in others):
        return None
    views = (written.q, written.k, written.v)
    inputs = []
    for view, value in zip(views, (q, k, v), strict=True):
        as_heads = view.value_to_heads(value, written.logits.dtype)
        if as_heads is None:
            return None
        inputs.append(as_heads)
    clean = call.clean[0]
    of_heads = written.out.to_heads(clean).astype(written.logits.dtype)
    prepared: Prepared = call.prepared
    call_with_heads = replace(call, inputs=inputs, clean=[of_heads], prepared=prepared.attention)
    found = attention_rule.edited_attention(call_with_heads, written.kind, ())
    if found is None:
        return None
    if prepared.causality is not None:
        call.position.doubts.append(prepared.causality.is_in_doubt(inputs[1]))
    return [written.out.value_from_heads(found, clean)]
