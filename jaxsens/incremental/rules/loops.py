"""Loops over time: steps before the first edited one give what they gave without the edit.

A loop starts again at the first step that any position of the group reaches, from the state that
the clean loop had there. All steps from there on count as changed.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.extend
import numpy as np
from jax import lax
from jaxtyping import Array

from jaxsens.incremental.layout import Layout, contiguous_table
from jaxsens.incremental.rules.rule_call import RuleCall, rule
from jaxsens.incremental.trace import Operation
from jaxsens.incremental.values import Clean, Dense, Value, Windowed, clean_array


def states_before_steps(operation: Operation, inputs: Sequence[Any]) -> list[Array]:
    """The state of a clean loop before each of its steps."""
    num_consts, num_carry = operation.params["num_consts"], operation.params["num_carry"]
    body = jax.extend.core.jaxpr_as_fun(operation.params["jaxpr"])
    consts, start = inputs[:num_consts], inputs[num_consts : num_consts + num_carry]

    def step(state: list[Array], entries: list[Array]) -> tuple[list[Array], list[Array]]:
        return list(body(*consts, *state, *entries)[:num_carry]), state

    sequences = list(inputs[num_consts + num_carry :])
    reverse, length = operation.params["reverse"], operation.params["length"]
    return lax.scan(step, list(start), sequences, length, reverse)[1]


@rule("scan", prepare=states_before_steps)
def scan(call: RuleCall) -> list[Value]:
    """A loop over time goes on from the clean state before the first edit of the group."""
    num_consts, num_carry = call.params["num_consts"], call.params["num_carry"]
    consts, sequences = call.inputs[:num_consts], call.inputs[num_consts + num_carry :]
    before = call.inputs[: num_consts + num_carry]
    is_clean = all(isinstance(value, Clean) for value in before)
    if call.has_dense_input or call.params["reverse"] or not is_clean:
        return call.densely()
    length = call.params["length"]
    edited = [value.layout for value in call.windowed_inputs.values()]
    reached = np.zeros((edited[0].num_positions, length), bool)
    for layout in edited:
        reached |= layout.reachable.any(axis=tuple(range(2, layout.reachable.ndim)))
    reached = np.maximum.accumulate(reached, axis=1)
    first = int(reached.argmax(axis=1).min())
    if first == 0:
        return call.densely()
    state = [lax.index_in_dim(states, first, keepdims=False) for states in call.prepared]
    table = contiguous_table(np.full(len(reached), first), length - first)
    results = call.operation.apply(
        *(clean_array(value) for value in consts),
        *state,
        *(_from_step(first, value, table) for value in sequences),
        length=length - first,
    )
    values: list[Value] = [Dense(final) for final in results[:num_carry]]
    for output, new in enumerate(results[num_carry:], num_carry):
        shape = call.clean[output].shape
        reachable = reached.reshape(len(reached), length, *(1,) * (len(shape) - 1))
        layout = Layout(shape, (table, *(None for _ in shape[1:])), reachable)
        values.append(call.result(layout, new=new, output=output))
    return values


def _from_step(first: int, value: Value, table: np.ndarray) -> Array:
    """A sequence from that step on."""
    if not isinstance(value, Windowed):
        return lax.slice_in_dim(clean_array(value), first, clean_array(value).shape[0])
    old = value.layout
    axes = tuple(range(2, old.reachable.ndim))
    tables = (table, *(None for _ in old.shape[1:]))
    reachable = np.asarray(old.reachable.any(axis=axes, keepdims=True))
    return value.to(Layout(old.shape, tables, reachable)).new
