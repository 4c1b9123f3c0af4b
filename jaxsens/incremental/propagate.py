"""An edit through a traced function, operation by operation."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxsens.incremental.attention_operation import kind_of
from jaxsens.incremental.layout import Layout
from jaxsens.incremental.recognition import written_attention
from jaxsens.incremental.rules import (
    attention_rule,
    contractions,
    elementwise,
    loops,
    reductions,
    reshaping,
)
from jaxsens.incremental.rules.rule_call import Call, Rule
from jaxsens.incremental.trace import Constant, Operand, Operation, Trace, scope
from jaxsens.incremental.values import Clean, Dense, Place, Value, Windowed, full

RULES: dict[str, Rule] = {
    **elementwise.RULES,
    **reshaping.RULES,
    **contractions.RULES,
    **reductions.RULES,
    **loops.RULES,
}


def propagate(
    trace: Trace, clean: Sequence[Any], edited: int, layout: Layout, new: Array, place: Place
) -> tuple[Array, dict[int, Value]]:
    """What the function gives for an edited input.

    Args:
      trace: the function.
      clean: all its values without the edit.
      edited: the number of the value that is edited.
      layout: where its windows lie.
      new: the new entries of the window.
      place: which position's window it is.

    Returns:
      The function's result, and the values that the edit reaches, by their numbers.
    """
    reached: dict[int, Value] = {
        edited: Windowed(clean[edited], layout, place, new=new) if layout.axes else Dense(new)
    }

    def operand(each: Operand) -> Value:
        if isinstance(each, Constant):
            return Clean(jnp.asarray(each.value))
        return reached[each] if each in reached else Clean(clean[each])

    def step(operation: Operation) -> None:
        inputs = [operand(each) for each in operation.inputs]
        if all(isinstance(value, Clean) for value in inputs):
            return
        outputs = [clean[output] for output in operation.outputs]
        call = Call(operation, inputs, outputs, clean[operation.extra], place)
        results = rule_of(operation)(call)
        if results is not None:
            reached.update(zip(operation.outputs, results, strict=True))
            return
        for part in operation.parts:
            step(part)

    for number, operation in enumerate(trace.operations):
        with scope(number):
            step(operation)
    (result_of,) = trace.outputs
    return full(operand(result_of)), reached


def prepare(operation: Operation, inputs: Sequence[Any]) -> Any:
    """What an operation's rule wants to know of its clean inputs: done once per example."""
    if operation.parts:
        return written_attention.prepare(operation, inputs)
    kind = kind_of(operation.name)
    if kind is not None:
        return attention_rule.prepare_marked(kind, *map(jnp.asarray, inputs))
    return loops.states(operation, inputs) if operation.name == "scan" else None


def rule_of(operation: Operation) -> Rule:
    """The rule of an operation; one that is not known makes everything dense."""
    if operation.parts:
        return written_attention.attend_written
    if kind_of(operation.name) is not None:
        return attention_rule.attend
    return RULES.get(operation.name, Call.densely)
