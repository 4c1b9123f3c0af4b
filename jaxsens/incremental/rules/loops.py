"""Order in time: what comes before the first edit is clean. Look-ups follow their ids."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.extend
import numpy as np
from jax import lax
from jaxtyping import Array

from jaxsens.incremental.layout import Layout, runs
from jaxsens.incremental.rules.rule_call import Call, Rule
from jaxsens.incremental.trace import Operation
from jaxsens.incremental.values import Clean, Dense, Value, Windowed, clean_of


def states(operation: Operation, inputs: Sequence[Any]) -> list[Array]:
    """The state of a loop before each of its steps."""
    num_consts, num_carry = operation.params["num_consts"], operation.params["num_carry"]
    body = jax.extend.core.jaxpr_as_fun(operation.params["jaxpr"])
    consts, start = inputs[:num_consts], inputs[num_consts : num_consts + num_carry]

    def step(state: list[Array], entries: list[Array]) -> tuple[list[Array], list[Array]]:
        return list(body(*consts, *state, *entries)[:num_carry]), state

    sequences = list(inputs[num_consts + num_carry :])
    reverse, length = operation.params["reverse"], operation.params["length"]
    return lax.scan(step, list(start), sequences, length, reverse)[1]


def scan(call: Call) -> list[Value]:
    """A loop over time goes on from the clean state before the first edit of the bucket."""
    num_consts, num_carry = call.params["num_consts"], call.params["num_carry"]
    start = num_consts + num_carry
    sequences = call.inputs[start:]
    edited = [value for value in sequences if isinstance(value, Windowed)]
    before = call.inputs[:start]
    if call.is_dense or call.params["reverse"] or not all(isinstance(v, Clean) for v in before):
        return call.densely()
    length = call.params["length"]
    reached = np.zeros((len(edited[0].layout.touched), length), bool)
    for value in edited:
        others = tuple(range(2, value.layout.touched.ndim))
        reached |= value.layout.touched.any(axis=others)
    reached = np.maximum.accumulate(reached, axis=1)
    first = int(reached.argmax(axis=1).min())
    if first == 0:
        return call.densely()
    consts = [clean_of(value) for value in before[:num_consts]]
    state = [lax.index_in_dim(states, first, keepdims=False) for states in call.extra]
    table = runs(np.full(len(reached), first), length - first)
    tail = [_tail(value, table, first) for value in sequences]
    results = call.operation.apply(*consts, *state, *tail, length=length - first)
    values: list[Value] = [Dense(state) for state in results[:num_carry]]
    for output, new in enumerate(results[num_carry:], num_carry):
        shape = call.clean[output].shape
        touched = reached.reshape(len(reached), length, *(1,) * (len(shape) - 1))
        layout = Layout(shape, (table, *(None for _ in shape[1:])), touched)
        values.append(call.result(layout, new=new, output=output))
    return values


def _tail(value: Value, table: np.ndarray, first: int):
    if not isinstance(value, Windowed):
        return lax.slice_in_dim(clean_of(value), first, clean_of(value).shape[0])
    old = value.layout
    axes = tuple(range(2, old.touched.ndim))
    tables = (table, *(None for _ in old.shape[1:]))
    layout = Layout(old.shape, tables, np.asarray(old.touched.any(axis=axes, keepdims=True)))
    return value.to(layout).new


def gather(call: Call) -> list[Value]:
    """Rows of a clean table at edited indices."""
    operand, indices = call.inputs
    dims = call.params["dimension_numbers"]
    if (
        not isinstance(operand, Clean)
        or not isinstance(indices, Windowed)
        or dims.operand_batching_dims
        or indices.layout.tables[-1] is not None
    ):
        return call.densely()
    shape = call.clean[0].shape
    batch = iter(range(len(indices.layout.shape) - 1))
    axes = [None if axis in dims.offset_dims else next(batch) for axis in range(len(shape))]
    (new,) = call.operation.apply(operand.value, indices.new)
    return [call.result(indices.layout.on(shape, axes), new=new)]


RULES: dict[str, Rule] = {"scan": scan, "gather": gather}
