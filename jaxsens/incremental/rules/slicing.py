"""Operations that cut arrays and put them together along axes: the window's entries move along.

Each entry of a result is one entry of an operand, or a fill that no edit reaches.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from jaxsens.incremental.layout import (
    NOWHERE,
    Layout,
    Table,
    is_in_bounds,
    is_nowhere,
    make_layout,
    union_of_tables,
    whole_table,
)
from jaxsens.incremental.rules.rule_call import RuleCall, rule
from jaxsens.incremental.values import Clean, Value, Windowed, array_shape
from jaxsens.incremental.windows import clean_window, in_bounds_mask, take_static_slots


@rule("slice")
def slice_(call: RuleCall) -> list[Value]:
    """Every s-th entry from a start to a limit."""
    value = call.inputs[0]
    if not isinstance(value, Windowed):
        return call.densely()
    starts, limits = call.params["start_indices"], call.params["limit_indices"]
    steps = call.params["strides"] or (1,) * len(starts)
    cuts = list(zip(starts, limits, steps, strict=True))
    tables, reachable = list(value.layout.tables), value.layout.reachable
    kept = {}
    for axis, (start, limit, step) in enumerate(cuts):
        table = tables[axis]
        if table is None:
            continue
        is_taken = (table - start) % step == 0
        kept[axis] = np.flatnonzero(is_taken.any(axis=0))
        moved = (table - start) // step
        moved = np.where(is_taken & ~is_nowhere(table), moved, NOWHERE)
        tables[axis] = moved[:, kept[axis]]
        reachable = np.take(reachable, np.arange(start, limit, step), axis=axis + 1)
    if not reachable.any() or not all(slots.size for slots in kept.values()):
        return [Clean(call.clean[0])]
    window = value.given
    for axis, cut in enumerate(cuts):
        if axis in kept:
            window = take_static_slots(window, kept[axis], axis)
        else:
            window = _sliced(window, axis, *cut)
    layout = make_layout(call.clean[0].shape, tables, reachable)
    return [call.result_like(value, layout, window)]


def _sliced(window: Array, axis: int, start: int, limit: int, step: int) -> Array:
    if (start, limit, step) == (0, window.shape[axis], 1):
        return window
    return lax.slice_in_dim(window, start, limit, step, axis)


@rule("pad")
def pad(call: RuleCall) -> list[Value]:
    """Entries around and between: the window keeps its entries."""
    value, filler = call.inputs
    if not isinstance(value, Windowed) or not isinstance(filler, Clean):
        return call.densely()
    shape = call.clean[0].shape
    tables, reachable = list(value.layout.tables), value.layout.reachable
    config = [tuple(map(int, each)) for each in call.params["padding_config"]]
    for axis, (low, _, inner) in enumerate(config):
        if config[axis] == (0, 0, 0):
            continue
        n = value.layout.shape[axis]
        table = tables[axis]
        if table is None:
            table = whole_table(len(reachable), n)
            reachable = np.repeat(reachable, n, axis=axis + 1)
        moved = table * (inner + 1) + low
        tables[axis] = np.where(is_nowhere(table), NOWHERE, moved)
        spread = np.zeros(
            (*reachable.shape[: axis + 1], shape[axis], *reachable.shape[axis + 2 :]), bool
        )
        target = np.arange(n) * (inner + 1) + low
        stays = (target >= 0) & (target < shape[axis])
        index: list[Any] = [slice(None)] * spread.ndim
        index[axis + 1] = target[stays]
        spread[tuple(index)] = np.compress(stays, reachable, axis=axis + 1)
        reachable = spread
    if not reachable.any():
        return [Clean(call.clean[0])]
    layout = make_layout(shape, tables, reachable)
    if value.is_change:
        return [call.result(layout, change=value.change)]
    # A slot that was out of bounds may be one of padding now: it must hold the clean entry.
    mask = in_bounds_mask(value.layout, call.position)
    new = value.new
    if mask is not None:
        new = jnp.where(mask, new, clean_window(call.clean[0], layout, call.position))
    return [call.result(layout, new=new)]


@rule("concatenate")
def concatenate(call: RuleCall) -> list[Value]:
    """Windows of several operands side by side, in one window that covers them all."""
    if call.has_dense_input:
        return call.densely()
    axis, shape = call.params["dimension"], call.clean[0].shape
    edited = [*call.windowed_inputs.values()]
    as_change = all(value.is_change for value in edited)
    tables: list[Table | None] = [
        None if other == axis else union_of_tables([v.layout.tables[other] for v in edited])
        for other in range(len(shape))
    ]
    num = edited[0].layout.num_positions
    sizes = [array_shape(value)[axis] for value in call.inputs]
    offsets = np.cumsum([0, *sizes[:-1]])
    windows, columns, reachable = [], [], []
    for value, size, offset in zip(call.inputs, sizes, offsets, strict=True):
        dims = [1 if tables[a] is None else n for a, n in enumerate(shape)]
        dims[axis] = size
        if not isinstance(value, Windowed):
            reachable.append(np.zeros((num, *dims), bool))
            continue
        table = value.layout.tables[axis]
        layout = _with_tables(value.layout, [*tables[:axis], table, *tables[axis + 1 :]])
        moved = value.to(layout)
        windows.append(moved.change if as_change else moved.new)
        table = whole_table(num, size) if table is None else table
        columns.append(np.where(is_in_bounds(table, size), table + offset, NOWHERE))
        reachable.append(np.broadcast_to(layout.reachable, (num, *dims)))
    tables[axis] = np.concatenate(columns, axis=1)
    layout = make_layout(shape, tables, np.concatenate(reachable, axis=axis + 1))
    window = jnp.concatenate(windows, axis)
    return [call.result(layout, change=window) if as_change else call.result(layout, new=window)]


def _with_tables(layout: Layout, tables: list[Table | None]) -> Layout:
    """The same array with other windows; an axis that is whole now has length 1 in `reachable`."""
    whole = tuple(axis + 1 for axis, table in enumerate(tables) if table is None)
    reachable = np.asarray(layout.reachable.any(axis=whole, keepdims=True))
    return Layout(layout.shape, tuple(tables), reachable)


@rule("split")
def split(call: RuleCall) -> list[Value]:
    """Several pieces of an axis: in each, what of the window lies there."""
    value = call.inputs[0]
    if not isinstance(value, Windowed) or value.layout.tables[call.params["axis"]] is not None:
        return call.densely()
    old, results = value.layout, []
    for output, piece in enumerate(call.operation.apply(value.given)):
        layout = Layout(call.clean[output].shape, old.tables, old.reachable)
        results.append(call.result_like(value, layout, piece, output=output))
    return results
