"""Operations that move entries: the window moves along."""

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from jaxsens.incremental.layout import (
    NOWHERE,
    Layout,
    Shape,
    Table,
    as_layout,
    moves,
    runs,
    same_table,
    union_of_tables,
)
from jaxsens.incremental.rules.rule_call import Call, Rule
from jaxsens.incremental.values import (
    Clean,
    Value,
    Windowed,
    clean_window,
    full,
    taken,
    there_mask,
)


def transpose(call: Call) -> list[Value]:
    """Axes in another order."""
    value, order = call.inputs[0], call.params["permutation"]
    if not isinstance(value, Windowed):
        return call.densely()
    return [_moved(call, value.layout.on(call.clean[0].shape, order), value)]


def broadcast_in_dim(call: Call) -> list[Value]:
    """New axes, and axes of length 1 repeated: both are covered whole."""
    value = call.inputs[0]
    if not isinstance(value, Windowed) or len(call.inputs) > 1:
        return call.densely()
    shape, target = call.clean[0].shape, call.params["broadcast_dimensions"]
    axes: list[int | None] = [None] * len(shape)
    for axis, to in enumerate(target):
        axes[to] = axis if value.layout.shape[axis] == shape[to] else None
    layout = value.layout.on(shape, axes)
    return [_moved(call, layout, value, shape=layout.window)]


def squeeze(call: Call) -> list[Value]:
    """Axes of length 1 go."""
    value, gone = call.inputs[0], call.params["dimensions"]
    if not isinstance(value, Windowed):
        return call.densely()
    axes = [axis for axis in range(len(value.layout.shape)) if axis not in gone]
    return [_moved(call, value.layout.on(call.clean[0].shape, axes), value)]


def expand_dims(call: Call) -> list[Value]:
    """New axes of length 1."""
    value, new = call.inputs[0], call.params["dimensions"]
    if not isinstance(value, Windowed):
        return call.densely()
    shape = call.clean[0].shape
    old = iter(range(len(value.layout.shape)))
    axes = [None if axis in new else next(old) for axis in range(len(shape))]
    return [_moved(call, value.layout.on(shape, axes), value)]


def _moved(call: Call, layout: Layout, value: Windowed, **changed: Shape) -> Value:
    form = "change" if value.is_change else "new"
    window = value.change if value.is_change else value.new
    (moved,) = call.operation.apply(window, **changed)
    return call.result(layout, **{form: moved})


def slice_(call: Call) -> list[Value]:
    """Every s-th entry from a start to a limit."""
    value = call.inputs[0]
    if not isinstance(value, Windowed):
        return call.densely()
    starts = call.params["start_indices"]
    steps = call.params["strides"] or (1,) * len(starts)
    shape = call.clean[0].shape
    tables, touched, slots = list(value.layout.tables), value.layout.touched, {}
    limits = call.params["limit_indices"]
    for axis, table in enumerate(tables):
        if table is None:
            continue
        hit = (table - starts[axis]) % steps[axis] == 0
        kept = np.flatnonzero(hit.any(axis=0))
        if not kept.size:
            return [Clean(call.clean[0])]
        moved = (table - starts[axis]) // steps[axis]
        tables[axis] = np.where(hit & (table > NOWHERE // 2), moved, NOWHERE)[:, kept]
        slots[axis] = kept
        places = np.arange(starts[axis], limits[axis], steps[axis])
        touched = np.take(touched, places, axis=axis + 1)
    if not touched.any():
        return [Clean(call.clean[0])]
    layout = as_layout(shape, tables, touched)
    window = value.change if value.is_change else value.new
    for axis, table in enumerate(value.layout.tables):
        if table is None:
            window = _sliced(window, axis, starts[axis], limits[axis], steps[axis])
        else:
            window = taken(window, slots[axis][None], axis, call.place)
    form = "change" if value.is_change else "new"
    return [call.result(layout, **{form: window})]  # type: ignore[arg-type]


def _sliced(window: Array, axis: int, start: int, limit: int, step: int) -> Array:
    if (start, limit, step) == (0, window.shape[axis], 1):
        return window
    return lax.slice_in_dim(window, start, limit, step, axis)


def pad(call: Call) -> list[Value]:
    """Entries around and between: the window keeps its entries."""
    value, filler = call.inputs
    if not isinstance(value, Windowed) or not isinstance(filler, Clean):
        return call.densely()
    shape = call.clean[0].shape
    tables, touched = list(value.layout.tables), value.layout.touched
    config = [tuple(map(int, each)) for each in call.params["padding_config"]]
    for axis, (low, _, inner) in enumerate(config):
        if config[axis] == (0, 0, 0):
            continue
        n = value.layout.shape[axis]
        table = tables[axis]
        if table is None:
            num = len(touched)
            table = np.broadcast_to(np.arange(n), (num, n))
            touched = np.repeat(touched, n, axis=axis + 1)
        there = table > NOWHERE // 2
        tables[axis] = np.where(there, table * (inner + 1) + low, NOWHERE)
        spread = np.zeros(
            (*touched.shape[: axis + 1], shape[axis], *touched.shape[axis + 2 :]), bool
        )
        to = np.arange(n) * (inner + 1) + low
        inside = (to >= 0) & (to < shape[axis])
        index: list[Any] = [slice(None)] * spread.ndim
        index[axis + 1] = to[inside]
        spread[tuple(index)] = np.compress(inside, touched, axis=axis + 1)
        touched = spread
    if not touched.any():
        return [Clean(call.clean[0])]
    layout = as_layout(shape, tables, touched)
    if value.is_change:
        return [call.result(layout, change=value.change)]
    # Entries that were not there may be padding now: they must be clean ones.
    mask = there_mask(value.layout, call.place)
    new = value.new
    if mask is not None:
        new = jnp.where(mask, new, clean_window(call.clean[0], layout, call.place))
    return [call.result(layout, new=new)]


def concatenate(call: Call) -> list[Value]:
    """Windows of several operands side by side, in one window that covers them all."""
    if call.is_dense:
        return call.densely()
    axis, shape = call.params["dimension"], call.clean[0].shape
    edited = [call.windowed(i) for i in call.edited]
    form = "change" if all(value.is_change for value in edited) else "new"
    tables: list[Table | None] = [
        None if other == axis else union_of_tables([v.layout.tables[other] for v in edited])
        for other in range(len(shape))
    ]
    num = len(edited[0].layout.touched)
    sizes = [full_shape(value)[axis] for value in call.inputs]
    offsets = np.cumsum([0, *sizes[:-1]])
    parts, columns, reached = [], [], []
    for value, size, offset in zip(call.inputs, sizes, offsets, strict=True):
        dims = [1 if tables[a] is None else n for a, n in enumerate(shape)]
        if not isinstance(value, Windowed):
            reached.append(np.zeros((num, *dims[:axis], size, *dims[axis + 1 :]), bool))
            continue
        own = value.layout.tables[axis]
        across = [*tables]
        across[axis] = own
        # An axis that is whole in the union has length 1 in `touched`.
        whole_axes = tuple(a + 1 for a, t in enumerate(across) if t is None)
        touched = np.asarray(value.layout.touched.any(axis=whole_axes, keepdims=True))
        layout = Layout(value.layout.shape, tuple(across), touched)
        parts.append(getattr(value.to(layout), form))
        whole = np.broadcast_to(np.arange(size), (num, size))
        table = whole if own is None else own
        there = (table >= 0) & (table < size)
        columns.append(np.where(there, table + offset, NOWHERE))
        dims[axis] = size
        reached.append(np.broadcast_to(touched, (num, *dims)))
    tables[axis] = np.concatenate(columns, axis=1)
    layout = as_layout(shape, tables, np.concatenate(reached, axis=axis + 1))
    window = jnp.concatenate(parts, axis)
    return [call.result(layout, **{form: window})]  # type: ignore[arg-type]


def full_shape(value: Value) -> Shape:
    """The shape of the whole array."""
    return value.layout.shape if isinstance(value, Windowed) else full(value).shape


def split(call: Call) -> list[Value]:
    """Several pieces of an axis: in each, what of the window lies there."""
    value = call.inputs[0]
    axis = call.params["axis"]
    if not isinstance(value, Windowed) or value.layout.tables[axis] is not None:
        return call.densely()
    form = "change" if value.is_change else "new"
    pieces = call.operation.apply(value.change if value.is_change else value.new)
    results = []
    for output, piece in enumerate(pieces):
        old = value.layout
        layout = Layout(call.clean[output].shape, old.tables, old.touched)
        results.append(call.result(layout, output=output, **{form: piece}))
    return results


def reshape(call: Call) -> list[Value]:
    """Axes merged and split; entries of the new window that no position touches are left out."""
    value = call.inputs[0]
    if not isinstance(value, Windowed) or call.params.get("dimensions") is not None:
        return call.densely()
    old, shape, num = value.layout, call.clean[0].shape, len(value.layout.touched)
    grouped = groups(old.shape, shape)
    # Each group of axes is one axis in between: its table before, and after it was split.
    before, after, tables = [], [], []
    for ins, outs in grouped:
        lengths = [shape[a] for a in outs]
        table = _merged([old.tables[a] for a in ins], [old.shape[a] for a in ins], num)
        parts = _split(table, lengths)
        before.append(table)
        after.append(_merged(parts, lengths, num))
        tables += parts
    form = "change" if value.is_change else "new"
    window = getattr(value, form)
    window = window.reshape([math.prod(old.window[a] for a in ins) for ins, _ in grouped])
    there: Array | None = None
    for axis, ((_, outs), a, b) in enumerate(zip(grouped, before, after, strict=True)):
        if not same_table(a, b):
            places = moves(a, b, math.prod(shape[out] for out in outs))
            window = taken(window, places, axis, call.place)
            others = [other for other in range(window.ndim) if other != axis]
            of_axis = jnp.expand_dims(call.place.row(places >= 0), others)
            there = of_axis if there is None else there & of_axis
    layout = Layout(shape, tuple(tables), _reached(old, shape, grouped))
    if there is not None and not value.is_change:
        there = jnp.broadcast_to(there, window.shape).reshape(layout.window)
        clean = clean_window(call.clean[0], layout, call.place)
        window = jnp.where(there, window.reshape(layout.window), clean)
    window = window.reshape(layout.window)
    layout = as_layout(shape, tables, layout.touched)
    result = Windowed(call.clean[0], layout, call.place, **{form: window}).pruned()
    return [call.result(result.layout, **{form: getattr(result, form)})]


def groups(old: Shape, new: Shape) -> list[tuple[list[int], list[int]]]:
    """Axes of both shapes in groups of equal size, as small as they can be.

    >>> groups((2, 3, 4), (6, 2, 2))
    [([0, 1], [0]), ([2], [1, 2])]
    """
    found, i, j = [], 0, 0
    while i < len(old) or j < len(new):
        ins, outs, left, right = [], [], 1, 1
        if i < len(old):
            ins, left, i = [i], old[i], i + 1
        if j < len(new) and (not ins or new[j] == left or left != 1):
            outs, right, j = [j], new[j], j + 1
        while left != right:
            if left < right:
                ins, left, i = [*ins, i], left * old[i], i + 1
            else:
                outs, right, j = [*outs, j], right * new[j], j + 1
        found.append((ins, outs))
    return found


def _merged(tables: Sequence[Table | None], lengths: Sequence[int], num: int) -> Table | None:
    """One table for several axes that become one."""
    if all(table is None for table in tables):
        return None
    total = np.zeros((num, 1), int)
    there = np.ones((num, 1), bool)
    kept = [n for n in lengths if n != 1]
    if len(kept) == 1:
        # Nothing is merged with anything: the table, and what hangs over the edge, stay.
        return next(t for t, n in zip(tables, lengths, strict=True) if n != 1)
    for table, n in zip(tables, lengths, strict=True):
        table = np.broadcast_to(np.arange(n), (num, n)) if table is None else table
        valid = (table >= 0) & (table < n)
        total = (total[:, :, None] * n + np.where(valid, table, 0)[:, None, :]).reshape(num, -1)
        there = (there[:, :, None] & valid[:, None, :]).reshape(num, -1)
    return np.where(there, total, NOWHERE)


def _split(table: Table | None, lengths: Sequence[int]) -> list[Table | None]:
    """Tables for the axes that one axis becomes, which together cover its table."""
    if table is None:
        return [None] * len(lengths)
    if sum(n != 1 for n in lengths) <= 1:
        return [table if n != 1 else None for n in lengths]
    tables: list[Table | None] = []
    rest = table
    for number, _ in enumerate(lengths):
        inner = math.prod(lengths[number + 1 :])
        gone = rest < NOWHERE // 2
        part = np.where(gone, NOWHERE, rest // inner)
        tables.append(_distinct(part, lengths[number]))
        rest = np.where(gone, NOWHERE, rest % inner)
    return tables


def _distinct(part: np.ndarray, n: int) -> Table | None:
    """The different entries of each row, as runs if they are."""
    rows = [np.unique(row[row > NOWHERE // 2]) for row in part]
    width = max(1, max(len(row) for row in rows))
    if width >= n and all((row >= 0).all() and (row < n).all() for row in rows):
        return None
    spans = [(row[0], row[-1] - row[0] + 1) for row in rows if row.size]
    if spans and max(span for _, span in spans) == width and all(row.size for row in rows):
        return runs(np.array([row[0] for row in rows]), width)
    table = np.full((len(rows), width), NOWHERE)
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return table


def _reached(old: Layout, shape: Shape, grouped: list) -> np.ndarray:
    """What the edit reaches, in the new shape; axes of untouched groups have length 1."""
    touched, num = old.touched, len(old.touched)
    sizes: list[int] = []
    expanded = list(touched.shape[1:])
    for ins, outs in grouped:
        if any(old.tables[a] is not None for a in ins):
            for a in ins:
                expanded[a] = old.shape[a]
            sizes += [shape[a] for a in outs]
        else:
            sizes += [1] * len(outs)
    return np.broadcast_to(touched, (num, *expanded)).reshape(num, *sizes)


RULES: dict[str, Rule] = {
    "transpose": transpose,
    "broadcast_in_dim": broadcast_in_dim,
    "squeeze": squeeze,
    "expand_dims": expand_dims,
    "slice": slice_,
    "pad": pad,
    "concatenate": concatenate,
    "split": split,
    "reshape": reshape,
}
