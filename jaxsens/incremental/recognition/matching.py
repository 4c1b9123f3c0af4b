"""From one product of two arrays, step by step, as far as it looks like attention.

    logits  →  largest  →  shifted  →  exp  →  sum  →  weights  →  · v

A match follows everything that is made of q · k. It fails as soon as an operation does not belong
to a softmax over tokens, or something on the way is used elsewhere.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsens.incremental.recognition import axis_labels
from jaxsens.incremental.recognition.axis_labels import LEFT, REPEATED, RIGHT, AxisLabel, AxisLabels
from jaxsens.incremental.recognition.written_attention import (
    HeadsView,
    LogitChain,
    WrittenAttention,
)
from jaxsens.incremental.trace import Constant, Operand, Operation, Trace

#: Of the softmax. Lower precision would show in sums over all tokens but the edited ones.
_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
#: Of queries, keys, values, logits before the softmax, and weights after it.
_ROUNDED = (*_DTYPES, np.dtype(jnp.bfloat16), np.dtype(np.float16))


@dataclass(frozen=True)
class _Stage:
    """How far a value is on the way from logits to weights.

    Attributes:
      name: "logits", "largest", "shifted", "exp", "sum" or "weights".
      labels: of its axes.
      logits: the number of the logits it is made of, whatever the order of their axes.
      tokens: the label of the axis that the softmax is over, once it is known.
    """

    name: str
    labels: AxisLabels
    logits: int
    tokens: AxisLabel = None


class AttentionMatch:
    """What has been matched so far, from a product that may be one of queries and keys.

    Attributes:
      indices: of the operations after that product, in order.
    """

    def __init__(
        self, trace: Trace, first: Operation, sides: Sequence[AxisLabels], logits: AxisLabels
    ):
        self.trace, self.first, self.sides = trace, first, sides
        self.indices: list[int] = []
        self.chain: list[Operation] = []
        (self.product,) = first.outputs
        self.stages = {self.product: _Stage("logits", logits, self.product)}

    @classmethod
    def start(cls, trace: Trace, first: Operation) -> "AttentionMatch | None":
        """A match of a product alone; None if it cannot be one of queries and keys."""
        shapes = [_aval(trace, operand).shape for operand in first.inputs]
        labels = axis_labels.of_product(shapes, first.params["dimension_numbers"])
        match = None if labels is None else cls(trace, first, *labels)
        return match if match is not None and match._has_dtypes(first) else None

    def _has_dtypes(self, operation: Operation, allowed: Sequence[Any] = _ROUNDED) -> bool:
        """Whether results and floating-point operands have allowed dtypes."""
        inputs = [_aval(self.trace, each).dtype for each in operation.inputs]
        results = [self.trace.avals[each].dtype for each in operation.outputs]
        floats = [each for each in inputs if jnp.issubdtype(each, jnp.inexact)]
        return all(each in allowed for each in (*floats, *results))

    def completes(self, users: dict[int, list[int]]) -> bool:
        """Whether all that is made of the logits ends in one product of weights and values."""
        left = list(users[self.product])
        while left:
            index = heapq.heappop(left)
            if self.indices and self.indices[-1] == index:
                continue
            if index == len(self.trace.operations):
                return False
            operation = self.trace.operations[index]
            self.indices.append(index)
            if operation.name == "dot_general":
                is_last = set(left) <= {index}
                return is_last and self._has_dtypes(operation) and self._ends_with(operation)
            stage = self._stage_after(operation)
            if stage is None:
                return False
            is_outside = stage.name == "logits" or (
                stage.name == "weights" and operation.name != "div"
            )
            if not self._has_dtypes(operation, _ROUNDED if is_outside else _DTYPES):
                return False
            (number,) = operation.outputs
            self.stages[number] = stage
            for user in users[number]:
                heapq.heappush(left, user)
        return False

    def _stage_after(self, operation: Operation) -> _Stage | None:
        """The stage of an operation's result; None if it does not belong to attention."""
        inputs = operation.inputs
        matched = [each for each in inputs if isinstance(each, int) and each in self.stages]
        if len(operation.outputs) != 1:
            return None
        if len(matched) == len(inputs) == 2:
            return self._after_two(operation, *matched)
        return self._after_one(operation, *matched) if len(matched) == 1 else None

    def _after_two(self, operation: Operation, left: int, right: int) -> _Stage | None:
        a, b = self.stages[left], self.stages[right]
        name = {("sub", "logits", "largest"): "shifted", ("div", "exp", "sum"): "weights"}.get(
            (operation.name, a.name, b.name)
        )
        same = a.logits == b.logits and a.tokens in (None, b.tokens)
        if name is None or not same or not axis_labels.stand_beside(b.labels, a.labels):
            return None
        if name == "shifted":
            self.final = left
        return _Stage(name, a.labels, a.logits, b.tokens)

    def _after_one(self, operation: Operation, number: int) -> _Stage | None:
        stage, name = self.stages[number], operation.name
        if name in ("reduce_max", "reduce_sum"):
            return self._after_reduction(operation, stage)
        if name == "exp":
            return replace(stage, name="exp") if stage.name == "shifted" else None
        shapes = [self.trace.avals[each].shape for each in (number, *operation.outputs)]
        is_logits = stage.name == "logits"
        if is_logits and _is_affine(operation, number) and shapes[0] == shapes[1]:
            self.chain.append(operation)
            return replace(stage, logits=operation.outputs[0])
        unchanged = name == "max" and _is_with_lowest(operation)
        labels = stage.labels if unchanged else axis_labels.moved(operation, stage.labels, *shapes)
        # A derivative finds the scale of logits, so they must have one; and nothing may grow them.
        stopped = is_logits and name == "stop_gradient"
        may_grow = stage.name in ("largest", "sum")
        if labels is None or stopped or (REPEATED in labels and not may_grow):
            return None
        if is_logits:
            self.chain.append(operation)
        return replace(stage, labels=labels)

    def _after_reduction(self, operation: Operation, stage: _Stage) -> _Stage | None:
        name = {("reduce_max", "logits"): "largest", ("reduce_sum", "exp"): "sum"}.get(
            (operation.name, stage.name)
        )
        gone = [int(axis) for axis in operation.params["axes"]]
        over = {stage.labels[axis] for axis in gone} - {None}
        one_side = over in ({LEFT}, {RIGHT}) and stage.tokens in (None, *over)
        if name is None or not one_side:
            return None
        labels = tuple(label for axis, label in enumerate(stage.labels) if axis not in gone)
        return _Stage(name, labels, stage.logits, *over)

    def _ends_with(self, last: Operation) -> bool:
        """Whether a product is one of weights and values."""
        stages = [self.stages.get(each) if isinstance(each, int) else None for each in last.inputs]
        stage = stages[0] or stages[1]
        if None not in stages or stage is None or stage.name != "weights":
            return False
        self.side, self.tokens = stages.index(stage), stage.tokens
        if axis_labels.groups(self.sides[1 - self._side_of_queries]):
            return False
        values = _aval(self.trace, last.inputs[1 - self.side]).shape
        labels = axis_labels.of_weighted_sum(
            stage.labels, values, last.params["dimension_numbers"], self.side, self.tokens,
            axis_labels.heads(self.sides[0]),
        )  # fmt: skip
        if labels is None:
            return False
        self.last, (self.v_labels, self.out_labels) = last, labels
        return True

    def operands(self) -> tuple[Operand, Operand, Operand]:
        """The queries, keys and values of a complete match."""
        of_q = self._side_of_queries
        v = self.last.inputs[1 - self.side]
        return self.first.inputs[of_q], self.first.inputs[1 - of_q], v

    @property
    def _side_of_queries(self) -> int:
        return 1 if self.tokens == LEFT else 0

    def written_attention(self) -> WrittenAttention:
        """What a complete match has found."""
        of_q, tokens = self._side_of_queries, self.tokens
        queries = (LEFT, RIGHT)[of_q]
        (q, k, v), (out,) = self.operands(), self.last.outputs
        groups = axis_labels.groups(self.sides[of_q])
        heads = [*axis_labels.heads(self.sides[0]), *groups]
        q_shape = _aval(self.trace, q).shape
        repeats = math.prod(q_shape[self.sides[of_q].index(label)] for label in groups)

        def view(
            operand: Operand, labels: AxisLabels, of: AxisLabel, kind: str, repeats: int = 1
        ) -> HeadsView:
            shape = _aval(self.trace, operand).shape
            return axis_labels.heads_view(shape, labels, of, heads, kind, repeats)

        views = (
            view(q, self.sides[of_q], queries, axis_labels.PRODUCT),
            view(k, self.sides[1 - of_q], tokens, axis_labels.PRODUCT, repeats),
            view(v, self.v_labels, tokens, axis_labels.VALUE, repeats),
            view(out, self.out_labels, queries, axis_labels.VALUE),
        )
        order = axis_labels.order(self.stages[self.final].labels, [*heads, queries, tokens])
        shape = (views[0].heads, views[0].length, views[1].length)
        aval = self.trace.avals[self.product]
        dtype = self.trace.avals[self.final].dtype
        logits = LogitChain(self.product, aval, tuple(self.chain), self.final, dtype, order, shape)
        return WrittenAttention(*views, logits)


def _is_with_lowest(operation: Operation) -> bool:
    """Whether a maximum is one with -∞, which changes nothing."""
    others = [each.value for each in operation.inputs if isinstance(each, Constant)]
    return len(others) == 1 and np.ndim(others[0]) == 0 and bool(others[0] == -np.inf)


def _is_affine(operation: Operation, number: int) -> bool:
    """Whether the result is affine in that operand, entry by entry."""
    if operation.name in ("div", "select_n"):
        return (operation.inputs[0] == number) == (operation.name == "div")
    return operation.name in ("mul", "add", "sub", "neg")


def _aval(trace: Trace, operand: Operand) -> Any:
    return jax.typeof(operand.value) if isinstance(operand, Constant) else trace.avals[operand]
