"""Attention that a model writes out itself, as one operation with the rule of `attention_rule`.

Whatever a model does to its logits between q · k and their softmax is affine in them: scales,
biases, masks with a fill. So it is scale · logits + offset, of any block of logits too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxsens.incremental.attention_operation import Kind
from jaxsens.incremental.rules import attention_rule
from jaxsens.incremental.rules.masks import Affine
from jaxsens.incremental.rules.rule_call import Call
from jaxsens.incremental.trace import Operation, run
from jaxsens.incremental.values import Clean, Dense, Value, Windowed


@dataclass(frozen=True)
class View:
    """How an array of the model is seen as (1, tokens, h, e).

    Attributes:
      shape: of the array.
      order: its axes: those of length 1, tokens, heads, features.
      tokens: which axis tokens are; None for a single one.
      heads: h, over all axes of heads.
      features: e, over all axes of features.
    """

    shape: tuple[int, ...]
    order: tuple[int, ...]
    tokens: int | None
    heads: int
    features: int

    @property
    def length(self) -> int:
        """How many tokens there are."""
        return 1 if self.tokens is None else self.shape[self.tokens]

    def seen(self, array: Array) -> Float[Array, "1 _ h e"]:
        """The array, or a window of its tokens."""
        return array.transpose(self.order).reshape(1, -1, self.heads, self.features)

    def unseen(self, array: Float[Array, "1 _ h e"]) -> Array:
        """The way back."""
        lengths = [array.shape[1] if a == self.tokens else self.shape[a] for a in self.order]
        return array.reshape(lengths).transpose(np.argsort(self.order))

    def value(self, value: Value) -> Value | None:
        """An edited array; None if more of it is edited than some tokens."""
        if isinstance(value, Clean):
            return Clean(self.seen(value.value))
        if not isinstance(value, Windowed) or value.layout.axes != (self.tokens,):
            return None
        clean = self.seen(value.clean)
        layout = value.layout.on(clean.shape, [None, self.tokens, None, None])
        if value.is_change:
            return Windowed(clean, layout, value.place, change=self.seen(value.change))
        return Windowed(clean, layout, value.place, new=self.seen(value.new))

    def back(self, value: Value, clean: Array) -> Value:
        """The way back of what an edit made of the clean array."""
        if isinstance(value, Dense):
            return Dense(self.unseen(value.value))
        assert isinstance(value, Windowed)
        axes = [1 if axis == self.tokens else None for axis in range(len(self.shape))]
        layout = value.layout.on(self.shape, axes)
        return Windowed(clean, layout, value.place, new=self.unseen(value.new))


@dataclass(frozen=True, eq=False)
class Scores:
    """The chain from q · k to what the softmax takes.

    Attributes:
      raw: the number of q · k.
      aval: its shape and dtype.
      chain: what is done to it.
      final: the number of what comes out.
      order: the axes of that: those of length 1, heads, queries, tokens.
      shape: (h, Q, T).
    """

    raw: int
    aval: Any
    chain: tuple[Operation, ...]
    final: int
    order: tuple[int, ...]
    shape: tuple[int, int, int]

    def affine(self, others: Mapping[int, Any]) -> tuple[Float[Array, "h Q T"], ...]:
        """Its scale and its offset, given the chain's other operands."""

        def chain(logits: Array) -> Array:
            values = {**others, self.raw: logits}
            run(self.chain, values)
            return values[self.final].transpose(self.order).reshape(self.shape)

        # The derivative, not a difference: an offset of 1e30 would swallow the scale.
        nothing = jnp.zeros(self.aval.shape, self.aval.dtype)
        offset, scale = jax.jvp(chain, (nothing,), (jnp.ones_like(nothing),))
        return scale, offset


@dataclass(frozen=True, eq=False)
class Written:
    """Attention as a model writes it.

    Attributes:
      q: queries.
      k: keys.
      v: values.
      out: what comes out.
      scores: from q · k to the softmax.
      mask: the same as scale and offset, if they are known when the model is traced.
      kind: whether it is causal.
    """

    q: View
    k: View
    v: View
    out: View
    scores: Scores
    mask: Affine | None = None
    kind: Kind = Kind()  # noqa: RUF009 - it is frozen


#: Under which an operation has it among its parameters.
PARAM = "attention"


def prepare(operation: Operation, inputs: Sequence[Any]) -> attention_rule.Prepared:
    """What the rule wants to know of the clean operands q, k, v and those of the chain."""
    written: Written = operation.params[PARAM]
    views = (written.q, written.k, written.v)
    q, k, v = (view.seen(jnp.asarray(a)) for view, a in zip(views, inputs[:3], strict=True))
    mask = written.mask
    if mask is None:
        others = {number: a for number, a in zip(operation.inputs, inputs, strict=True)
                  if isinstance(number, int)}  # fmt: skip
        mask = Affine(*written.scores.affine(others))
    return attention_rule.prepare(q, k, v, mask)


def attend_written(call: Call) -> list[Value] | None:
    """The rule; None where the operations it was made of had better be taken one by one."""
    written: Written = call.params[PARAM]
    q, k, v, *others = call.inputs
    # Where weights are clean, the product with edited values is one of the values' change alone.
    same_weights = isinstance(q, Clean) and isinstance(k, Clean)
    if same_weights or not all(isinstance(value, Clean) for value in others):
        return None
    views = (written.q, written.k, written.v)
    inputs = []
    for view, value in zip(views, (q, k, v), strict=True):
        seen = view.value(value)
        if seen is None:
            return None
        inputs.append(seen)
    clean = call.clean[0]
    alike = replace(call, inputs=inputs, clean=[written.out.seen(clean)])
    found = attention_rule.edited_attention(alike, written.kind, ())
    return None if found is None else [written.out.back(found, clean)]
