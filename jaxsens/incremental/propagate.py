"""An edit through a traced function, operation by operation.

Operations whose operands are all clean are skipped: their clean results hold. Every other one is
asked for its rule; one without a rule makes everything dense, which is right for any operation.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxsens.incremental.edited_position import EditedPosition
from jaxsens.incremental.layout import Layout
from jaxsens.incremental.rules.rule_call import PREPARATIONS, RULES, RuleCall
from jaxsens.incremental.trace import Constant, Operand, Operation, Trace, operation_scope
from jaxsens.incremental.values import Clean, Dense, Value, Windowed, edited_array


def propagate(
    trace: Trace,
    clean: Sequence[Any],
    edited_input: int,
    layout: Layout,
    new: Array,
    position: EditedPosition,
) -> tuple[Array, dict[int, Value]]:
    """What the function gives for an edited input.

    Args:
      trace: the function.
      clean: all its values without the edit, by their numbers.
      edited_input: the number of the input that is edited.
      layout: where the windows of all positions lie in it.
      new: the new entries of the window.
      position: whose window it is.

    Returns:
      The function's result, and the values that the edit reaches, by their numbers.
    """
    reached: dict[int, Value] = {
        edited_input: Windowed(clean[edited_input], layout, position, new=new)
        if layout.axes
        else Dense(new)
    }

    def value(operand: Operand) -> Value:
        if isinstance(operand, Constant):
            return Clean(jnp.asarray(operand.value))
        return reached[operand] if operand in reached else Clean(clean[operand])

    def step(operation: Operation) -> None:
        inputs = [value(operand) for operand in operation.inputs]
        if all(isinstance(each, Clean) for each in inputs):
            return
        outputs = [clean[output] for output in operation.outputs]
        call = RuleCall(operation, inputs, outputs, clean[operation.prepared], position)
        results = RULES.get(operation.name, RuleCall.densely)(call)
        if results is not None:
            reached.update(zip(operation.outputs, results, strict=True))
            return
        for part in operation.parts:
            step(part)

    for index, operation in enumerate(trace.operations):
        with operation_scope(index):
            step(operation)
    (output,) = trace.outputs
    return edited_array(value(output)), reached


def prepare(operation: Operation, inputs: Sequence[Any]) -> Any:
    """What an operation's rule wants to know of its clean operands: done once per example."""
    prepare_it = PREPARATIONS.get(operation.name)
    return None if prepare_it is None else prepare_it(operation, inputs)
