"""Calls and loops that are opened where less than all of their results is needed.

A function with a derivative of its own becomes the operations that it stands for. Of a loop over
layers, the last step comes after the loop as operations of its own: of the last layer less may be
needed, of the others not.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr

from jaxsens.core.jaxprs import equations
from jaxsens.incremental.needed.parts import Shape, is_whole
from jaxsens.incremental.needed.steps import NeedCall
from jaxsens.incremental.trace import Constant, Operand, Operation, Trace

_PRODUCTS = {"dot_general", "conv_general_dilated"}


class Values:
    """The shapes of the values of a trace, and of others that are added to it.

    Args:
      trace: the trace.
      flat: makes a trace of a function that it calls.
    """

    def __init__(self, trace: Trace, flat: Callable[[ClosedJaxpr], Trace]):
        self._flat = flat
        self._avals = dict(trace.avals)
        self._num = trace.num_values

    def shape(self, operand: Operand) -> Shape:
        """The shape of a value or of a constant."""
        if isinstance(operand, Constant):
            return np.shape(operand.value)
        return tuple(self._avals[operand].shape)

    def dtype(self, operand: Operand) -> Any:
        """Its dtype."""
        aval = jax.typeof(operand.value) if isinstance(operand, Constant) else self._avals[operand]
        return aval.dtype

    def add(self, shape: Shape, dtype: Any) -> int:
        """The number of a new value."""
        self._num += 1
        self._avals[self._num - 1] = jax.ShapeDtypeStruct(shape, dtype)
        return self._num - 1

    def inlined(
        self, called: ClosedJaxpr, inputs: Sequence[Operand], outputs: Sequence[int]
    ) -> list[Operation]:
        """The operations of a function, from these operands to these values."""
        inner = self._flat(called)
        first, self._num = self._num, self._num + inner.num_values
        self._avals.update({first + n: aval for n, aval in inner.avals.items()})

        def moved(operand: Operand) -> Operand:
            return operand if isinstance(operand, Constant) else first + operand

        operations = [
            replace(
                each,
                inputs=tuple(map(moved, each.inputs)),
                outputs=tuple(first + n for n in each.outputs),
            )
            for each in inner.operations
        ]
        starts = zip(inputs, (first + n for n in inner.inputs), strict=True)
        ends = zip(map(moved, inner.outputs), outputs, strict=True)
        return [
            *(_copy(operand, n) for operand, n in starts),
            *operations,
            *(_copy(operand, n) for operand, n in ends),
        ]


def _copy(operand: Operand, number: int) -> Operation:
    return Operation("copy", lambda value: [value], {}, (operand,), (number,), -1)


def opened(call: NeedCall, values: Values) -> list[Operation] | None:
    """The operations that an operation stands for; None if it is to stay as it is."""
    operation = call.operation
    if operation.name == "custom_jvp_call" and call.is_partial:
        called = operation.params["call_jaxpr"]
        return values.inlined(called, operation.inputs, operation.outputs)
    if operation.name == "scan" and _has_a_step_to_spare(call):
        return _last_step_apart(operation, values)
    return None


def _has_a_step_to_spare(call: NeedCall) -> bool:
    """Whether less than all of a loop's last state is needed, and there are products in a step."""
    params = call.params
    state = call.needed[: params["num_carry"]]
    return (
        params["length"] > 1
        and any(part is not None and not is_whole(part) for part in state)
        and any(each.primitive.name in _PRODUCTS for each in equations(params["jaxpr"].jaxpr))
    )


def _last_step_apart(loop: Operation, values: Values) -> list[Operation]:
    params = loop.params
    num_consts, num_carry, length = (params[name] for name in ("num_consts", "num_carry", "length"))
    first = num_consts + num_carry
    consts, start, stacks = (
        loop.inputs[:num_consts], loop.inputs[num_consts:first], loop.inputs[first:]
    )  # fmt: skip
    operations, rests, rows = [], [], []
    for operand in stacks:
        (_, *row), dtype = values.shape(operand), values.dtype(operand)
        rests.append(values.add((length - 1, *row), dtype))
        rows.append(values.add(tuple(row), dtype))
        cut = functools.partial(_cut, is_first=params["reverse"])
        operations.append(
            Operation("last step apart", cut, {}, (operand,), (rests[-1], rows[-1]), -1)
        )
    ends, made = loop.outputs[:num_carry], loop.outputs[num_carry:]
    states = [values.add(values.shape(n), values.dtype(n)) for n in ends]
    others, last = [], []
    for number in made:
        (_, *row), dtype = values.shape(number), values.dtype(number)
        others.append(values.add((length - 1, *row), dtype))
        last.append(values.add(tuple(row), dtype))
    operations.append(
        Operation(
            "scan",
            functools.partial(loop.apply, length=length - 1),
            {**params, "length": length - 1},
            (*consts, *start, *rests),
            (*states, *others),
            -1,
        )
    )
    operations += values.inlined(params["jaxpr"], (*consts, *states, *rows), (*ends, *last))
    join = functools.partial(_joined, is_first=params["reverse"])
    operations += [
        Operation("all steps", join, {}, (before, at_end), (number,), -1)
        for before, at_end, number in zip(others, last, made, strict=True)
    ]
    return operations


def _cut(stack: Any, *, is_first: bool) -> list[Any]:
    """All steps but the last one, and that one."""
    length = stack.shape[0]
    start, last = (1, 0) if is_first else (0, length - 1)
    rest = lax.slice_in_dim(stack, start, start + length - 1)
    return [rest, lax.index_in_dim(stack, last, keepdims=False)]


def _joined(rest: Any, row: Any, *, is_first: bool) -> list[Any]:
    parts = [row[None], rest] if is_first else [rest, row[None]]
    return [lax.concatenate(parts, 0)]
