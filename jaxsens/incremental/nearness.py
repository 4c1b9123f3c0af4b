"""Whether an edit brings an operand so near to a jump that rounding may decide it.

For every operation that jumps (`jumps`) there is a gap: how far its operand is from where it jumps,
the difference of what is compared, the distance to the next integer, the lead of the largest entry.
An edit is in doubt if a gap is smaller than what rounding may have added to it. A gap that the edit
does not change is as the clean pass has it, and no matter of doubt. Nor is a tie, a gap of exactly
0, of operands that were clipped: relu gives many of them in any pass.

Loops and branches are run once more, with their gaps; there no clean gaps are known.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from jaxsens.incremental.edited_position import EditedPosition
from jaxsens.incremental.jumps import (
    COMPARISONS,
    ORDERINGS,
    Body,
    Jump,
    rounded_values,
    sized_values,
)
from jaxsens.incremental.rules.elementwise import entries_in
from jaxsens.incremental.trace import (
    Constant,
    Operand,
    Operation,
    Trace,
    apply_operation,
    evaluate,
    operation_scope,
    value_of,
)
from jaxsens.incremental.values import Clean, Value, Windowed, edited_array
from jaxsens.incremental.windows import clean_window, in_bounds_mask

#: How many rounding errors of its size an operand may have.
_NUM_ERRORS = 32
#: The size of an array is that of its smaller entries, since masked ones may hold any fill: it is
#: the entry that a quarter of them are below, of so many looked at.
_QUARTER, _LOOKED_AT = 4, 1024

#: From an operand to its entries.
_Entries = Callable[[Operand], Array]


def entry_size(value: Array) -> Float[Array, ""]:
    """How large the entries of an array are that are finite and not 0; 0 if none is."""
    flat = jnp.abs(value.reshape(-1))
    if not flat.size:
        return jnp.float32(0)
    flat = flat[:: -(-flat.size // _LOOKED_AT)]
    is_some = jnp.isfinite(flat) & (flat > 0)
    ordered = jnp.sort(jnp.where(is_some, flat, jnp.inf)).astype(jnp.float32)
    return jnp.where(is_some.any(), ordered[is_some.sum() // _QUARTER], 0)


def near_jumps(
    trace: Trace,
    jumps: Sequence[Jump],
    reached: Mapping[int, Value],
    clean: Sequence[Any],
    sizes: Mapping[int, Array],
    position: EditedPosition,
) -> Iterator[Bool[Array, ""]]:
    """For each operation that jumps and that the edit reaches, whether rounding may decide it.

    Args:
      trace: the function.
      jumps: the operations of it that jump.
      reached: the values that the edit reaches, by their numbers.
      clean: all values without the edit, by their numbers.
      sizes: the `entry_size` of clean values, by their numbers.
      position: whose window is edited.
    """

    def value(operand: Operand) -> Value:
        if isinstance(operand, Constant):
            return Clean(jnp.asarray(operand.value))
        return reached[operand] if operand in reached else Clean(clean[operand])

    def old(operand: Operand) -> Array:
        return jnp.asarray(value_of(clean, operand))

    def near(jump: Jump, results: Sequence[Value | None]) -> Bool[Array, ""]:
        if jump.bodies:
            inputs = [edited_array(value(operand)) for operand in jump.operation.inputs]
            return _run_call(jump, inputs)[1]
        result = None if jump.operation.name in ORDERINGS else results[0]
        if not isinstance(result, Windowed):
            return _unsure(jump, lambda operand: edited_array(value(operand)), old, sizes).any()
        layout = result.layout
        unsure = _unsure(
            jump,
            lambda operand: entries_in(value(operand), layout, position),
            lambda operand: clean_window(old(operand), layout, position),
            sizes,
        )
        in_bounds = in_bounds_mask(layout, position)
        return (unsure if in_bounds is None else unsure & in_bounds).any()

    rounded = rounded_values(trace, reached) if jumps else set()
    indices = {
        id(part): index
        for index, operation in enumerate(trace.operations)
        for part in (operation, *operation.parts)
    }
    for jump in jumps:
        results = [reached.get(number) for number in jump.operation.outputs]
        is_clean = all(result is None or isinstance(result, Clean) for result in results)
        if is_clean or not rounded.intersection(jump.summands):
            continue
        with operation_scope(indices[id(jump.operation)]):
            found = near(jump, results)
        yield found


def _unsure(
    jump: Jump, new: _Entries, old: _Entries | None, sizes: Mapping[int, Array]
) -> Bool[Array, "..."]:
    """Where rounding may decide a jump.

    Args:
      jump: an operation that jumps, with its operands.
      new: the entries of operands as the edit leaves them.
      old: the same without the edit; None if they are not known.
      sizes: of the values that the jump needs them of.
    """
    operation = jump.operation
    entries = [new(operand) for operand in operation.inputs]
    gap = _gap(operation, entries)
    is_new = jnp.asarray(True) if jump.is_direct else gap != 0
    if old is not None:
        is_new &= gap != _gap(operation, [old(operand) for operand in operation.inputs])
    size = _largest(jump.summands, sizes)
    if operation.name not in ORDERINGS:
        size = jnp.maximum(size, _magnitude(entries[0]))
    unsure = (_magnitude(gap) <= _tolerance(entries, size)) & is_new
    if not jump.choices:
        return unsure
    differ = [_differ(choice, new, sizes) for choice in jump.choices]
    return unsure & functools.reduce(jnp.logical_or, differ)


def _differ(choice: Operation, new: _Entries, sizes: Mapping[int, Array]) -> Bool[Array, "..."]:
    """Where it matters which of two cases is chosen."""
    first, second = cases = [new(operand) for operand in choice.inputs[1:]]
    if not jnp.issubdtype(first.dtype, jnp.floating):
        return first != second
    numbers = [operand for operand in choice.inputs[1:] if isinstance(operand, int)]
    size = jnp.maximum(_largest(numbers, sizes), _magnitude(first))
    # Twice, since the distance from the jump is itself part of the difference.
    agree = _magnitude(first - second) <= 2 * _tolerance(cases, size)
    return ~agree & (first != second)


def _magnitude(value: Array) -> Float[Array, "..."]:
    return jnp.abs(value).astype(jnp.float32)


def _largest(numbers: Iterable[int], sizes: Mapping[int, Array]) -> Float[Array, ""]:
    of_floats = [sizes[number] for number in numbers if number in sizes]
    return functools.reduce(jnp.maximum, of_floats, jnp.float32(0))


def _tolerance(entries: Sequence[Array], size: Float[Array, "..."]) -> Float[Array, "..."]:
    floats = [each.dtype for each in entries if jnp.issubdtype(each.dtype, jnp.floating)]
    return jnp.float32(_NUM_ERRORS * max(map(rounding_of, floats))) * size


def rounding_of(dtype: Any) -> float:
    """The relative rounding error of a floating-point dtype."""
    return float(jnp.finfo(dtype).eps)


def _gap(operation: Operation, entries: Sequence[Array]) -> Float[Array, "..."]:
    """How far operands are from where the operation jumps; inf or nan where it cannot jump."""
    name, first = operation.name, entries[0]
    if name in ORDERINGS:
        return _lead(operation, entries)
    if name in COMPARISONS | {"max", "min"}:
        return first - entries[1]
    if name == "clamp":
        below, above = entries[1] - first, entries[2] - entries[1]
        return jnp.where(jnp.abs(below) < jnp.abs(above), below, above)
    if name == "round":
        return first - jnp.floor(first) - jnp.asarray(0.5, first.dtype)
    if name in {"floor", "ceil"}:
        return first - jnp.round(first)
    if name == "rem" or (name == "convert_element_type" and not _is_to_bool(operation)):
        # Towards 0, which is a step at every integer, or multiple, but 0.
        unit = entries[1] if name == "rem" else jnp.ones_like(first)
        nearest = jnp.round(first / unit)
        return jnp.where(nearest == 0, jnp.inf, first - nearest * unit)
    if name == "bitcast_convert_type":
        # Every bit counts: no entry is farther from a jump than one rounding error.
        return first * jnp.finfo(first.dtype).eps
    # A sign, or whether it is 0.
    return first


def _is_to_bool(operation: Operation) -> bool:
    return operation.params["new_dtype"] == jnp.bool_


def _lead(operation: Operation, entries: Sequence[Array]) -> Float[Array, "..."]:
    """How far entries are from those next to them in their order."""
    name, params, first = operation.name, operation.params, entries[0]
    if name == "sort":
        keys = apply_operation(operation, entries)[: params["num_keys"]]
        steps = [_steps(key, params["dimension"]) for key in keys]
        # The next key decides where all before it are equal.
        return functools.reduce(lambda later, key: jnp.where(key == 0, later, key), steps[::-1])
    axis = next(params[key] for key in ("axis", "reduction_dimension", "axes") if key in params)
    axis = int(axis[0] if isinstance(axis, tuple) else axis % first.ndim)
    is_least = name == "argmin" or not params.get("is_max_k", True)
    of_all = _steps(jnp.sort(first if is_least else -first, axis=axis), axis)
    return lax.slice_in_dim(of_all, 0, min(params.get("k", 1), of_all.shape[axis]), axis=axis)


def _steps(ordered: Array, axis: int) -> Float[Array, "..."]:
    return jnp.diff(ordered, axis=axis).astype(jnp.float32)


def _run(body: Body, arguments: Sequence[Array]) -> tuple[list[Array], Bool[Array, ""]]:
    """The results of a function, and whether rounding may decide a jump in it."""
    calls = {id(jump.operation): jump for jump in body.jumps if jump.bodies}
    values: dict[int, Any] = dict(zip(body.trace.inputs, arguments, strict=True))
    unsure = jnp.asarray(False)

    def value(operand: Operand) -> Array:
        return jnp.asarray(value_of(values, operand))

    for operation in body.trace.operations:
        if id(operation) not in calls:
            evaluate([operation], values)
            continue
        inputs = [value(operand) for operand in operation.inputs]
        results, in_call = _run_call(calls[id(operation)], inputs)
        values.update(zip(operation.outputs, results, strict=True))
        unsure |= in_call
    sizes = {number: entry_size(values[number]) for number in sized_values(body.trace, body.jumps)}
    for jump in body.jumps:
        if not jump.bodies:
            unsure |= _unsure(jump, value, None, sizes).any()
    return [value(operand) for operand in body.trace.outputs], unsure


def _run_call(jump: Jump, inputs: Sequence[Array]) -> tuple[list[Array], Bool[Array, ""]]:
    """The results of a loop or a branch, and whether rounding may decide a jump in it."""
    run = {"cond": _run_branch, "scan": _run_scan, "while": _run_while}[jump.operation.name]
    return run(jump, inputs)


def _run_branch(jump: Jump, inputs: Sequence[Array]) -> tuple[list[Array], Bool[Array, ""]]:
    branches = [functools.partial(_run, body) for body in jump.bodies]
    return lax.switch(inputs[0], branches, inputs[1:])


def _run_scan(jump: Jump, inputs: Sequence[Array]) -> tuple[list[Array], Bool[Array, ""]]:
    params, (body,) = jump.operation.params, jump.bodies
    num_consts, num_carry = params["num_consts"], params["num_carry"]
    consts, rest = inputs[:num_consts], inputs[num_consts:]

    def step(state: Any, rows: list[Array]) -> tuple[Any, list[Array]]:
        carry, unsure = state
        results, in_step = _run(body, [*consts, *carry, *rows])
        return (results[:num_carry], unsure | in_step), results[num_carry:]

    start = list(rest[:num_carry]), jnp.asarray(False)
    (carry, unsure), rows = lax.scan(
        step, start, list(rest[num_carry:]), params["length"], params["reverse"]
    )
    return [*carry, *rows], unsure


def _run_while(jump: Jump, inputs: Sequence[Array]) -> tuple[list[Array], Bool[Array, ""]]:
    params, (condition, body) = jump.operation.params, jump.bodies
    first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]

    def goes_on(state: Any) -> tuple[Bool[Array, "..."], Bool[Array, ""]]:
        (flag,), unsure = _run(condition, [*inputs[:first], *state[0]])
        return flag, unsure

    def step(state: Any) -> Any:
        carry, unsure = state
        flag, in_condition = goes_on(state)
        results, in_step = _run(body, [*inputs[first:second], *carry])
        # A loop that was mapped goes on where it has not ended.
        kept = [
            jnp.where(flag.reshape(*flag.shape, *[1] * (new.ndim - flag.ndim)), new, before)
            for new, before in zip(results, carry, strict=True)
        ]
        return kept, unsure | in_step | in_condition

    start = list(inputs[second:]), jnp.asarray(False)
    carry, unsure = ended = lax.while_loop(lambda state: goes_on(state)[0].any(), step, start)
    return carry, unsure | goes_on(ended)[1]
