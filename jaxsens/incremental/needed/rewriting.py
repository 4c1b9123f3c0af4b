"""A traced function written anew for the entries that its results need.

Backwards over the operations: what is needed of an operation's results says what is needed of its
operands. Nothing is needed of what nobody reads. The new function gives what the old one gave
within rounding: sums are the same sums, of the same entries, for fewer rows.

A function that saves next to nothing so stays the very object that it was, and so does one with
effects.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from jaxsens.incremental import flops
from jaxsens.incremental.attention_operation import is_marked, kinds_by_mark
from jaxsens.incremental.folded_attention import CAUSAL_BY_MARK, is_folded
from jaxsens.incremental.known_values import KnownValues
from jaxsens.incremental.needed import axes, cuts
from jaxsens.incremental.needed.opening import Values, opened
from jaxsens.incremental.needed.parts import Part, crop, is_whole, union, whole
from jaxsens.incremental.needed.steps import NeedCall, Step, step_of
from jaxsens.incremental.trace import Constant, Operand, Operation, Trace, flatten

#: Modules that make the rules of operations known as they are imported.
_RULES = (axes, cuts)
#: Calls with derivatives of their own, as which they stay unless part of a result is needed
#: (`opening`). The derivative that a model gives by hand may be of anything, and stays always.
_KEPT = {"custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"}
#: What most of a model's operations are spent on.
_PRODUCTS = {"dot_general", *kinds_by_mark(), *CAUSAL_BY_MARK}
#: A function is written anew if that saves this share of its operations.
_WORTHWHILE = 0.01


def without_unneeded(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same function without what its results do not need.

    The very function that was given, if that would save less than a hundredth of its operations.

    >>> import jax.numpy as jnp
    >>> model = lambda w, x: (x @ w)[:, 0]
    >>> closed = jax.make_jaxpr(model)(jnp.ones((3, 2)), jnp.ones((5, 4, 3)))
    >>> [equation.primitive.name for equation in without_unneeded(closed).jaxpr.eqns]
    ['slice', 'dot_general', 'squeeze']
    """
    if closed.effects:
        return closed
    traced = _flat(closed)
    steps = _Planner(traced, step_of).steps
    if not any(operation.name in _PRODUCTS and _is_partial(step) for operation, step in steps):
        return closed
    # XLA leaves out what nobody reads at all: that is not saved here.
    read = _written(closed, traced, _Planner(traced, NeedCall.wholly).steps)
    needed = _written(closed, traced, steps)
    before, after = flops.count(read.jaxpr), flops.count(needed.jaxpr)
    return needed if before - after > _WORTHWHILE * before else closed


def rewritten(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same, whatever it saves, of a function without effects."""
    traced = _flat(closed)
    return _written(closed, traced, _Planner(traced, step_of).steps)


@functools.lru_cache(maxsize=64)
def needed_alone(function: Callable) -> Callable:
    """The same function without what its results do not need.

    To be used inside of what JAX compiles: every call traces the function by itself. Asked twice,
    it gives the same function, so that nothing is compiled twice.

    >>> import jax.numpy as jnp
    >>> model = needed_alone(lambda x: (x @ jnp.ones((3, 2)))[0])
    >>> model(jnp.ones((4, 3)))
    Array([3., 3.], dtype=float32)
    """

    def call(*arguments: Any) -> Any:
        leaves, tree = jax.tree.flatten(arguments)

        def flat(*leaves: Any) -> Any:
            return function(*jax.tree.unflatten(tree, leaves))

        traced, shapes = jax.make_jaxpr(flat, return_shape=True)(*leaves)
        results = jaxpr_as_fun(without_unneeded(traced))(*leaves)
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    return call


def _flat(closed: ClosedJaxpr) -> Trace:
    return flatten(closed, platform=None, is_mark=_is_mark, kept=_KEPT)


def _is_mark(name: str, operands: Sequence[Any], num_results: int) -> bool:
    """Whether a call is attention, in either form: what comes after needs it as it is."""
    return is_marked(name, operands, num_results) or is_folded(name, operands, num_results)


def _is_partial(step: Step) -> bool:
    return any(part is None or not is_whole(part) for part in step.given)


class _Planner:
    """What is needed of the values of a trace, and how to give it.

    Attributes:
      needs: what is needed of values, by their numbers; what is given of them in the end.
      steps: the operations that are needed, the last one first.
    """

    def __init__(self, trace: Trace, plan: Callable[[NeedCall], Step]):
        self.plan, self.known = plan, KnownValues(trace)
        self.values = Values(trace, _flat)
        self.needs: dict[int, Part] = {}
        self.steps: list[tuple[Operation, Step]] = []
        for operand in trace.outputs:
            self._ask(operand, whole(self.values.shape(operand)))
        left = list(trace.operations)
        while left:
            operation = left.pop()
            needed = tuple(self.needs.get(number) for number in operation.outputs)
            if all(part is None for part in needed):
                continue
            call = NeedCall(
                operation,
                tuple(self.values.shape(operand) for operand in operation.inputs),
                tuple(self.values.shape(number) for number in operation.outputs),
                needed,
                self.known.indices,
            )
            inner = opened(call, self.values) if plan is step_of else None
            if inner is None:
                self._add(call)
            else:
                left += inner

    def _add(self, call: NeedCall) -> None:
        step = self.plan(call)
        self.steps.append((call.operation, step))
        for number, part in zip(call.operation.outputs, step.given, strict=True):
            if part is not None:
                self.needs[number] = part
        for operand, part in zip(call.operation.inputs, step.taken, strict=True):
            if part is not None:
                self._ask(operand, part)

    def _ask(self, operand: Operand, part: Part) -> None:
        """Notes that this part of a value is needed."""
        if isinstance(operand, Constant):
            return
        parts = [part, self.needs[operand]] if operand in self.needs else [part]
        self.needs[operand] = union(parts, self.values.shape(operand))


def _written(
    closed: ClosedJaxpr, trace: Trace, steps: Sequence[tuple[Operation, Step]]
) -> ClosedJaxpr:
    """The function that these steps are, the last one first."""

    def run(*arguments: Any) -> list[Any]:
        values = {
            number: (argument, whole(np.shape(argument)))
            for number, argument in zip(trace.inputs, arguments, strict=True)
        }

        def part_of(operand: Operand, part: Part | None) -> Any:
            if part is None:
                return None
            if isinstance(operand, Constant):
                return crop(operand.value, whole(np.shape(operand.value)), part)
            value, have = values[operand]
            return crop(value, have, part)

        for operation, step in reversed(steps):
            inputs = [
                part_of(operand, part)
                for operand, part in zip(operation.inputs, step.taken, strict=True)
            ]
            for number, value, part in zip(
                operation.outputs, step.apply(*inputs), step.given, strict=True
            ):
                if part is not None:
                    values[number] = value, part
        return [o.value if isinstance(o, Constant) else values[o][0] for o in trace.outputs]

    return jax.make_jaxpr(run)(*closed.in_avals)
