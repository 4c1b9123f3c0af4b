"""Finds attention that a model writes out among its operations, and makes one operation of it.

    q · k  →  scales, biases, masks  →  softmax over tokens  →  · v

Axes are followed by labels: what each axis of q · k was an axis of. All that is made on the way
must be used on the way alone; whatever does not fit stays as it is, which is right and not fast.
"""

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxsens.incremental.attention_operation import Kind
from jaxsens.incremental.recognition import axis_labels as axes
from jaxsens.incremental.recognition.axis_labels import Label, Labels
from jaxsens.incremental.recognition.written_attention import PARAM, Scores, Written
from jaxsens.incremental.rules.masks import Affine
from jaxsens.incremental.trace import Constant, Operand, Operation, Trace, run

#: Lower precision would show in sums over all tokens but the edited ones.
_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
#: At or below `_HIDDEN` a logit has no weight beside one above `_SEEN`.
_HIDDEN, _SEEN = -1e30, -1e20


def recognise(trace: Trace) -> Trace:
    """The same function, with one operation for each attention that it writes out."""
    users, constants = _users(trace), _Constants(trace)
    operations: dict[int, Operation] = dict(enumerate(trace.operations))
    for place, operation in enumerate(trace.operations):
        walk = _Walk.start(trace, operation) if operation.name == "dot_general" else None
        if walk is None or not walk.goes_through(users):
            continue
        places = (place, *walk.places)
        if any(operations.get(at) is not trace.operations[at] for at in places):
            # Logits that are a sum of two products, q · k + q · r: they belong to the first.
            continue
        parts = tuple(operations.pop(at) for at in places)
        operations[places[-1]] = _merged(parts, walk.written(), constants)
    return replace(trace, operations=tuple(operations[place] for place in sorted(operations)))


def _users(trace: Trace) -> dict[int, list[int]]:
    """The places of the operations that use a value; one beyond the last if it is a result."""
    users: dict[int, list[int]] = defaultdict(list)
    for place, operation in enumerate(trace.operations):
        for number in {operand for operand in operation.inputs if isinstance(operand, int)}:
            users[number].append(place)
    for operand in trace.outputs:
        if isinstance(operand, int):
            users[operand].append(len(trace.operations))
    return users


@dataclass(frozen=True)
class _State:
    """How far a value is on the way from logits to weights.

    Attributes:
      stage: "logits", "largest", "shifted", "exp", "sum" or "weights".
      labels: of its axes.
      logits: the number of the logits it is made of, whatever the order of their axes.
      over: the label of the axis that the softmax is over.
    """

    stage: str
    labels: Labels
    logits: int
    over: Label = None


class _Walk:
    """From one product of two arrays as far as it looks like attention."""

    def __init__(self, trace: Trace, first: Operation, sides: Sequence[Labels], logits: Labels):
        self.trace, self.first, self.sides = trace, first, sides
        self.places: list[int] = []
        self.chain: list[Operation] = []
        (self.raw,) = first.outputs
        self.states = {self.raw: _State("logits", logits, self.raw)}

    @classmethod
    def start(cls, trace: Trace, first: Operation) -> "_Walk | None":
        """The labels of a product, if it may be one of queries and keys."""
        shapes = [_aval(trace, operand).shape for operand in first.inputs]
        found = axes.of_product(shapes, first.params["dimension_numbers"])
        walk = None if found is None else cls(trace, first, *found)
        return walk if walk is not None and walk.precise(first) else None

    def precise(self, operation: Operation) -> bool:
        """Whether results and floating-point operands have the one dtype of the logits."""
        dtype = self.trace.avals[self.raw].dtype
        inputs = [_aval(self.trace, each).dtype for each in operation.inputs]
        results = [self.trace.avals[each].dtype for each in operation.outputs]
        floats = [each for each in inputs if jnp.issubdtype(each, jnp.inexact)]
        return dtype in _DTYPES and all(each == dtype for each in (*floats, *results))

    def goes_through(self, users: dict[int, list[int]]) -> bool:
        """Whether all that is made of the logits ends in one product of weights and values."""
        left = list(users[self.raw])
        while left:
            place = heapq.heappop(left)
            if self.places and self.places[-1] == place:
                continue
            if place == len(self.trace.operations):
                return False
            operation = self.trace.operations[place]
            self.places.append(place)
            if operation.name == "dot_general":
                return set(left) <= {place} and self.precise(operation) and self._ends(operation)
            state = self._next(operation)
            if state is None or not self.precise(operation):
                return False
            (number,) = operation.outputs
            self.states[number] = state
            for user in users[number]:
                heapq.heappush(left, user)
        return False

    def _next(self, operation: Operation) -> _State | None:
        """The state of an operation's result."""
        inputs = operation.inputs
        known = [each for each in inputs if isinstance(each, int) and each in self.states]
        if len(operation.outputs) != 1:
            return None
        if len(known) == len(inputs) == 2:
            return self._of_two(operation, *known)
        return self._of_one(operation, *known) if len(known) == 1 else None

    def _of_two(self, operation: Operation, left: int, right: int) -> _State | None:
        a, b = self.states[left], self.states[right]
        stage = {("sub", "logits", "largest"): "shifted", ("div", "exp", "sum"): "weights"}.get(
            (operation.name, a.stage, b.stage)
        )
        same = a.logits == b.logits and a.over in (None, b.over)
        if stage is None or not same or not axes.fit(b.labels, a.labels):
            return None
        if stage == "shifted":
            self.final = left
        return _State(stage, a.labels, a.logits, b.over)

    def _of_one(self, operation: Operation, number: int) -> _State | None:
        state, name = self.states[number], operation.name
        stage = state.stage
        if name in ("reduce_max", "reduce_sum"):
            return self._reduced(operation, state)
        if name == "exp":
            return replace(state, stage="exp") if stage == "shifted" else None
        shapes = [self.trace.avals[each].shape for each in (number, *operation.outputs)]
        if stage == "logits" and _is_affine(operation, number) and shapes[0] == shapes[1]:
            self.chain.append(operation)
            return replace(state, logits=operation.outputs[0])
        unchanged = name == "max" and self._with_lowest(operation)
        moved = state.labels if unchanged else axes.moved(operation, state.labels, *shapes)
        # A derivative finds the scale of logits, so they must have one; and nothing may grow them.
        stopped = stage == "logits" and name == "stop_gradient"
        grown = stage not in ("largest", "sum") and moved is not None and axes.REPEATED in moved
        if moved is None or stopped or grown:
            return None
        if stage == "logits":
            self.chain.append(operation)
        return replace(state, labels=moved)

    def _reduced(self, operation: Operation, state: _State) -> _State | None:
        stage = {("reduce_max", "logits"): "largest", ("reduce_sum", "exp"): "sum"}.get(
            (operation.name, state.stage)
        )
        gone = [int(axis) for axis in operation.params["axes"]]
        over = {state.labels[axis] for axis in gone} - {None}
        one_side = over in ({axes.LEFT}, {axes.RIGHT}) and state.over in (None, *over)
        if stage is None or not one_side:
            return None
        labels = tuple(label for axis, label in enumerate(state.labels) if axis not in gone)
        return _State(stage, labels, state.logits, *over)

    def _with_lowest(self, operation: Operation) -> bool:
        """Whether it is the maximum with -∞, which changes nothing."""
        others = [each.value for each in operation.inputs if isinstance(each, Constant)]
        return len(others) == 1 and np.ndim(others[0]) == 0 and bool(others[0] == -np.inf)

    def _ends(self, last: Operation) -> bool:
        """Whether a product is one of weights and values."""
        known = [self.states.get(each) if isinstance(each, int) else None for each in last.inputs]
        state = known[0] or known[1]
        if None not in known or state is None or state.stage != "weights":
            return False
        self.side, self.over = known.index(state), state.over
        values = _aval(self.trace, last.inputs[1 - self.side]).shape
        found = axes.of_weighted(
            state.labels, values, last.params["dimension_numbers"], self.side, self.over,
            axes.heads(self.sides[0]),
        )  # fmt: skip
        if found is None:
            return False
        self.last, (self.v, self.out) = last, found
        return True

    def written(self) -> "tuple[Written, tuple[Operand, Operand, Operand]]":
        """What was found, and its queries, keys and values."""
        of_q = 1 if self.over == axes.LEFT else 0
        query = (axes.LEFT, axes.RIGHT)[of_q]
        heads, trace = axes.heads(self.sides[0]), self.trace
        q, k = self.first.inputs[of_q], self.first.inputs[1 - of_q]
        v, (out,) = self.last.inputs[1 - self.side], self.last.outputs

        def view(operand: Operand, labels: Labels, tokens: Label, kind: str) -> Any:
            return axes.view(_aval(trace, operand).shape, labels, tokens, heads, kind)

        views = (
            view(q, self.sides[of_q], query, axes.PRODUCT),
            view(k, self.sides[1 - of_q], self.over, axes.PRODUCT),
            view(v, self.v, self.over, axes.VALUE),
            view(out, self.out, query, axes.VALUE),
        )
        labels = self.states[self.final].labels
        order = axes.order(labels, [*heads, query, self.over])
        shape = (views[0].heads, views[0].length, views[1].length)
        scores = Scores(
            self.raw, trace.avals[self.raw], tuple(self.chain), self.final, order, shape
        )
        return Written(*views, scores), (q, k, v)


def _is_affine(operation: Operation, number: int) -> bool:
    """Whether the result is affine in that operand, entry by entry."""
    if operation.name in ("div", "select_n"):
        return (operation.inputs[0] == number) == (operation.name == "div")
    return operation.name in ("mul", "add", "sub", "neg")


def _aval(trace: Trace, operand: Operand) -> Any:
    return jax.typeof(operand.value) if isinstance(operand, Constant) else trace.avals[operand]


def _merged(
    parts: tuple[Operation, ...],
    found: tuple[Written, tuple[Operand, Operand, Operand]],
    constants: "_Constants",
) -> Operation:
    """One operation for all these."""
    written, of = found
    own = {number for part in parts for number in part.outputs}
    chain = [operand for part in written.scores.chain for operand in part.inputs]
    others = [each for each in dict.fromkeys(n for n in chain if isinstance(n, int))
              if each not in own]  # fmt: skip
    mask = constants.mask(written.scores, others)
    causal = mask is not None and _is_causal(mask, written.scores.shape)
    written = replace(written, mask=mask, kind=Kind(causal=causal))
    inputs, outputs = (*of, *others), parts[-1].outputs

    def apply(*values: Any) -> list[Any]:
        given = {n: value for n, value in zip(inputs, values, strict=True) if isinstance(n, int)}
        run(parts, given)
        return [given[number] for number in outputs]

    name = f"{'causal ' if causal else ''}attention (recognised)"
    return Operation(name, apply, {PARAM: written}, inputs, outputs, parts[-1].extra, parts)


def _is_causal(mask: Affine, shape: tuple[int, int, int]) -> bool:
    """Whether every query sees something, and nothing that is later than itself."""
    if shape[1] != shape[2]:
        return False
    scale, offset = (np.broadcast_to(np.asarray(a), shape) for a in (mask.scale, mask.offset))
    later = np.triu(np.ones(shape[1:], bool), 1)
    hidden = ((scale == 0) & (offset <= _HIDDEN)) | (offset == -np.inf)
    # A query that sees nothing takes the mean of all tokens, later ones too.
    sees = (~later & (offset > _SEEN)).any(axis=-1)
    return bool(hidden[:, later].all() and sees.all())


class _Constants:
    """The values that do not depend on the function's arguments, computed if asked for."""

    def __init__(self, trace: Trace):
        self.makers: dict[int, Operation] = {}
        self.values: dict[int, Any] = {}
        for operation in trace.operations:
            if all(self._is_known(operand) for operand in operation.inputs):
                self.makers.update(dict.fromkeys(operation.outputs, operation))

    def _is_known(self, operand: Operand) -> bool:
        if isinstance(operand, Constant):
            return not isinstance(operand.value, jax.core.Tracer)
        return operand in self.makers

    def _make(self, numbers: Sequence[int]) -> None:
        """Computes these values and what they are made of, in the order of the trace."""
        wanted: set[int] = set()
        left = [number for number in numbers if number not in self.values]
        while left:
            number = left.pop()
            if number in wanted or number in self.values:
                continue
            operation = self.makers[number]
            wanted.update(operation.outputs)
            left += [operand for operand in operation.inputs if isinstance(operand, int)]
        # An operation with several results is run once; numbers grow in the order of the trace.
        operations = {id(self.makers[number]): self.makers[number] for number in sorted(wanted)}
        run(list(operations.values()), self.values)

    def mask(self, scores: Scores, others: Sequence[int]) -> Affine | None:
        """The scale and the offset of logits, if they are constants; as small as they can be."""
        chain = [operand for operation in scores.chain for operand in operation.inputs]
        tracers = any(isinstance(c, Constant) and not self._is_known(c) for c in chain)
        if tracers or not all(map(self._is_known, others)):
            return None
        with jax.ensure_compile_time_eval():
            self._make(others)
            scale, offset = scores.affine({number: self.values[number] for number in others})
            return Affine(_smallest(scale), _smallest(offset))


def _smallest(array: Array) -> Array:
    """With length 1 for axes along which nothing changes."""
    small = np.asarray(array)
    for axis in range(small.ndim):
        first = small.take([0], axis)
        small = first if (small == first).all() else small
    return jnp.asarray(small)
