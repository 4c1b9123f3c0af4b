"""Operations that rearrange axes and keep every entry: the window's entries move along.

`reshape` is the hard one: it merges axes and splits them again. Each group of axes that is merged
and split on its own becomes one axis in between. A window that is a product before need not be one
afterwards, so the new window is the smallest product that covers it, without the slots that no
position's edit reaches.
"""

import math
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxsens.incremental.layout import (
    NOWHERE,
    Layout,
    Shape,
    Table,
    contiguous_table,
    is_in_bounds,
    is_nowhere,
    make_layout,
    same_table,
    source_slots,
    whole_table,
)
from jaxsens.incremental.rules.rule_call import RuleCall, rule
from jaxsens.incremental.values import Value, Windowed
from jaxsens.incremental.windows import clean_window, take_slots


@rule("transpose")
def transpose(call: RuleCall) -> list[Value]:
    """Axes in another order."""
    value, order = call.inputs[0], call.params["permutation"]
    if not isinstance(value, Windowed):
        return call.densely()
    return [_rearranged(call, value.layout.with_axes(call.clean[0].shape, order), value)]


@rule("broadcast_in_dim")
def broadcast_in_dim(call: RuleCall) -> list[Value]:
    """New axes, and axes of length 1 repeated: both are covered whole."""
    value = call.inputs[0]
    if not isinstance(value, Windowed) or len(call.inputs) > 1:
        return call.densely()
    shape, targets = call.clean[0].shape, call.params["broadcast_dimensions"]
    axes: list[int | None] = [None] * len(shape)
    for axis, target in enumerate(targets):
        axes[target] = axis if value.layout.shape[axis] == shape[target] else None
    layout = value.layout.with_axes(shape, axes)
    return [_rearranged(call, layout, value, shape=layout.window)]


@rule("squeeze")
def squeeze(call: RuleCall) -> list[Value]:
    """Axes of length 1 go."""
    value, gone = call.inputs[0], call.params["dimensions"]
    if not isinstance(value, Windowed):
        return call.densely()
    axes = [axis for axis in range(len(value.layout.shape)) if axis not in gone]
    return [_rearranged(call, value.layout.with_axes(call.clean[0].shape, axes), value)]


@rule("expand_dims")
def expand_dims(call: RuleCall) -> list[Value]:
    """New axes of length 1."""
    value, new = call.inputs[0], call.params["dimensions"]
    if not isinstance(value, Windowed):
        return call.densely()
    shape = call.clean[0].shape
    old = iter(range(len(value.layout.shape)))
    axes = [None if axis in new else next(old) for axis in range(len(shape))]
    return [_rearranged(call, value.layout.with_axes(shape, axes), value)]


def _rearranged(call: RuleCall, layout: Layout, value: Windowed, **changed: Shape) -> Value:
    """The operation itself, applied to the window."""
    (window,) = call.operation.apply(value.given, **changed)
    return call.result_like(value, layout, window)


@rule("reshape")
def reshape(call: RuleCall) -> list[Value]:
    """Axes merged and split."""
    value = call.inputs[0]
    if not isinstance(value, Windowed) or call.params.get("dimensions") is not None:
        return call.densely()
    old, shape = value.layout, call.clean[0].shape
    groups = axis_groups(old.shape, shape)
    # Of each group's one axis in between: its table as it was merged, and as it is then split.
    merged, split, tables = [], [], []
    for old_axes, new_axes in groups:
        lengths = [shape[axis] for axis in new_axes]
        table = _merged_table(
            [old.tables[axis] for axis in old_axes],
            [old.shape[axis] for axis in old_axes],
            old.num_positions,
        )
        parts = _split_table(table, lengths)
        merged.append(table)
        split.append(_merged_table(parts, lengths, old.num_positions))
        tables += parts
    layout = Layout(shape, tuple(tables), _reachable_after(old, shape, groups))
    window = value.given.reshape([math.prod(old.window[a] for a in axes) for axes, _ in groups])
    found: Array | None = None
    for axis, (before, after) in enumerate(zip(merged, split, strict=True)):
        if same_table(before, after):
            continue
        sources = source_slots(before, after, math.prod(shape[out] for out in groups[axis][1]))
        window = take_slots(window, sources, axis, call.position)
        others = [other for other in range(window.ndim) if other != axis]
        of_axis = jnp.expand_dims(call.position.row(sources >= 0), others)
        found = of_axis if found is None else found & of_axis
    if found is not None and not value.is_change:
        # A slot that the old window lacks holds the clean entry.
        found = jnp.broadcast_to(found, window.shape).reshape(layout.window)
        clean = clean_window(call.clean[0], layout, call.position)
        window = jnp.where(found, window.reshape(layout.window), clean)
    window = window.reshape(layout.window)
    layout = make_layout(shape, tables, layout.reachable)
    result = value.like(call.clean[0], layout, window).pruned()
    return [call.result_like(result, result.layout, result.given)]


def axis_groups(old: Shape, new: Shape) -> list[tuple[list[int], list[int]]]:
    """Axes of both shapes in groups of equal size, as small as they can be.

    >>> axis_groups((2, 3, 4), (6, 2, 2))
    [([0, 1], [0]), ([2], [1, 2])]
    """
    groups, i, j = [], 0, 0
    while i < len(old) or j < len(new):
        old_axes, new_axes, old_size, new_size = [], [], 1, 1
        if i < len(old):
            old_axes, old_size, i = [i], old[i], i + 1
        if j < len(new) and (not old_axes or new[j] == old_size or old_size != 1):
            new_axes, new_size, j = [j], new[j], j + 1
        while old_size != new_size:
            if old_size < new_size:
                old_axes, old_size, i = [*old_axes, i], old_size * old[i], i + 1
            else:
                new_axes, new_size, j = [*new_axes, j], new_size * new[j], j + 1
        groups.append((old_axes, new_axes))
    return groups


def _merged_table(
    tables: Sequence[Table | None], lengths: Sequence[int], num_positions: int
) -> Table | None:
    """One table for several axes that become one."""
    if all(table is None for table in tables):
        return None
    if sum(n != 1 for n in lengths) == 1:
        # Nothing is merged with anything: the table, and what hangs over the edge, stay.
        return next(t for t, n in zip(tables, lengths, strict=True) if n != 1)
    indices = np.zeros((num_positions, 1), int)
    in_bounds = np.ones((num_positions, 1), bool)
    for table, n in zip(tables, lengths, strict=True):
        table = whole_table(num_positions, n) if table is None else table
        inside = is_in_bounds(table, n)
        inner = np.where(inside, table, 0)
        indices = (indices[:, :, None] * n + inner[:, None, :]).reshape(num_positions, -1)
        in_bounds = (in_bounds[:, :, None] & inside[:, None, :]).reshape(num_positions, -1)
    return np.where(in_bounds, indices, NOWHERE)


def _split_table(table: Table | None, lengths: Sequence[int]) -> list[Table | None]:
    """Tables for the axes that one axis becomes, which together cover its table."""
    if table is None:
        return [None] * len(lengths)
    if sum(n != 1 for n in lengths) <= 1:
        return [table if n != 1 else None for n in lengths]
    tables: list[Table | None] = []
    rest = table
    for number, _ in enumerate(lengths):
        inner = math.prod(lengths[number + 1 :])
        gone = is_nowhere(rest)
        part = np.where(gone, NOWHERE, rest // inner)
        tables.append(_distinct(part, lengths[number]))
        rest = np.where(gone, NOWHERE, rest % inner)
    return tables


def _distinct(table: Table, n: int) -> Table | None:
    """A table of the different indices of each row, of neighbours if it can be."""
    rows = [np.unique(row[~is_nowhere(row)]) for row in table]
    width = max(1, max(len(row) for row in rows))
    if width >= n and all((row >= 0).all() and (row < n).all() for row in rows):
        return None
    spans = [(row[0], row[-1] - row[0] + 1) for row in rows if row.size]
    if spans and max(span for _, span in spans) == width and all(row.size for row in rows):
        return contiguous_table(np.array([row[0] for row in rows]), width)
    distinct = np.full((len(rows), width), NOWHERE)
    for number, row in enumerate(rows):
        distinct[number, : len(row)] = row
    return distinct


def _reachable_after(old: Layout, shape: Shape, groups: list) -> np.ndarray:
    """What is reachable, in the new shape; axes of groups without a table have length 1."""
    reachable, num = old.reachable, old.num_positions
    sizes: list[int] = []
    expanded = list(reachable.shape[1:])
    for old_axes, new_axes in groups:
        if any(old.tables[axis] is not None for axis in old_axes):
            for axis in old_axes:
                expanded[axis] = old.shape[axis]
            sizes += [shape[axis] for axis in new_axes]
        else:
            sizes += [1] * len(new_axes)
    return np.broadcast_to(reachable, (num, *expanded)).reshape(num, *sizes)
