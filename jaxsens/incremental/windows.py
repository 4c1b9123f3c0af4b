"""Windows of arrays: read, moved from one layout to another, and written back.

What is static stays static: windows of neighbours are slices, and slots that are the same for all
positions are taken by static indices, several times faster than by traced ones.

A slot that is out of bounds belongs to no entry. Reading gives anything there, writing leaves it
out, and whoever sums over a window has to put zeros there first (`zero_out_of_bounds`).
"""

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Int

from jaxsens.incremental.edited_position import EditedPosition
from jaxsens.incremental.layout import Layout, Table, is_contiguous, source_slots


def clean_window(value: Array, layout: Layout, position: EditedPosition) -> Array:
    """The entries of an array in a window; anything at slots that are out of bounds.

    An axis of length 1 that is broadcast to the layout's shape stays as it is.
    """
    if value.ndim == 0:
        return value
    axes = [axis for axis in layout.axes if value.shape[axis] == layout.shape[axis]]
    sliced = [axis for axis in axes if is_contiguous(layout.table(axis))]
    if sliced:
        padding = [(0, 0, 0)] * value.ndim
        starts = [jnp.int32(0)] * value.ndim
        sizes = list(value.shape)
        for axis in sliced:
            low, high = _overhang(layout.table(axis), layout.shape[axis])
            padding[axis] = (low, high, 0)
            starts[axis] = position.row(layout.table(axis)[:, 0] + low)
            sizes[axis] = layout.window[axis]
        value = pad(value, padding)
        value = lax.dynamic_slice(value, starts, sizes)
    for axis in axes:
        if axis not in sliced:
            table = np.clip(layout.table(axis), 0, layout.shape[axis] - 1)
            value = jnp.take(value, position.row(table), axis=axis, mode="clip")
    return value


def _overhang(table: Table, n: int) -> tuple[int, int]:
    """How far windows reach beyond the two ends of an axis."""
    return max(0, -int(table.min())), max(0, int(table.max()) + 1 - n)


def pad(value: Array, padding: list[tuple[int, int, int]]) -> Array:
    """`lax.pad` with zeros; the array itself where nothing is padded."""
    if all(each == (0, 0, 0) for each in padding):
        return value
    return lax.pad(value, jnp.zeros((), value.dtype), padding)


def in_bounds_mask(layout: Layout, position: EditedPosition) -> Array | None:
    """False at slots out of bounds, broadcastable to the window; None if none ever is."""
    mask = None
    for axis in layout.axes:
        in_bounds = layout.in_bounds(axis)
        if in_bounds.all():
            continue
        of_axis = _along(position.row(in_bounds), axis, len(layout.shape))
        mask = of_axis if mask is None else mask & of_axis
    return mask


def zero_out_of_bounds(window: Array, layout: Layout, position: EditedPosition) -> Array:
    """The window with 0 at slots that are out of bounds."""
    mask = in_bounds_mask(layout, position)
    return window if mask is None else jnp.where(mask, window, jnp.zeros_like(window))


def window_mask(layout: Layout, position: EditedPosition) -> Array:
    """True where the window is, broadcastable to the whole array; some axis must have a table."""
    mask = None
    for axis in layout.axes:
        covered = (layout.table(axis)[:, :, None] == np.arange(layout.shape[axis])).any(axis=1)
        of_axis = _along(position.row(covered), axis, len(layout.shape))
        mask = of_axis if mask is None else mask & of_axis
    assert mask is not None
    return mask


def _along(row: Array, axis: int, num_axes: int) -> Array:
    """A row as an array whose other axes have length 1."""
    shape = [1] * num_axes
    shape[axis] = -1
    return row.reshape(shape)


def move_window(
    window: Array, old: Layout, new: Layout, position: EditedPosition
) -> tuple[Array, Array | None]:
    """A window's entries in the slots of another layout, 0 where the old window lacks the entry.

    Returns:
      The new window, and a mask that is False where the entry was missing; None if none is.
    """
    mask: Array | None = None
    for axis, n in enumerate(old.shape):
        if (old.tables[axis] is None and new.tables[axis] is None) or n != new.shape[axis]:
            continue
        sources = source_slots(old.tables[axis], new.tables[axis], n)
        window = take_slots(window, sources, axis, position)
        if (sources < 0).any():
            of_axis = _along(position.row(sources >= 0), axis, window.ndim)
            mask = of_axis if mask is None else mask & of_axis
    return window, mask


def take_slots(
    window: Array, slots: Int[np.ndarray, "T _"], axis: int, position: EditedPosition
) -> Array:
    """The window at each position's slots of an axis, 0 where the slot is -1."""
    if (slots == slots[:1]).all():
        return take_static_slots(window, slots[0], axis)
    # A missing entry is taken from beyond the end, which gives 0.
    beyond = np.where(slots >= 0, slots, window.shape[axis])
    return jnp.take(window, position.row(beyond), axis=axis, mode="fill", fill_value=0)


def take_static_slots(window: Array, slots: Int[np.ndarray, " _"], axis: int) -> Array:
    """The window at slots of an axis that are the same for all positions, 0 where one is -1."""
    found = np.flatnonzero(slots >= 0)
    if not found.size:
        shape = list(window.shape)
        shape[axis] = len(slots)
        return jnp.zeros(shape, window.dtype)
    first, last = int(found[0]), int(found[-1])
    inner = slots[first : last + 1]
    start, step = int(inner[0]), int(inner[1] - inner[0]) if len(inner) > 1 else 1
    if step > 0 and (inner == start + step * np.arange(len(inner))).all():
        window = lax.slice_in_dim(window, start, int(inner[-1]) + 1, step, axis)
        padding = [(0, 0, 0)] * window.ndim
        padding[axis] = (first, len(slots) - 1 - last, 0)
        return pad(window, padding)
    parts = []
    for slot in slots:
        part = lax.slice_in_dim(window, max(int(slot), 0), max(int(slot), 0) + 1, 1, axis)
        parts.append(part if slot >= 0 else jnp.zeros_like(part))
    return jnp.concatenate(parts, axis)


def write_window(clean: Array, window: Array, layout: Layout, position: EditedPosition) -> Array:
    """The whole array, with the window's entries in their places."""
    axes = layout.axes
    if not axes:
        return window
    if all(is_contiguous(layout.table(axis)) for axis in axes):
        return _write_neighbours(clean, window, layout, position)
    if len(axes) > 1:
        return _write_one_by_one(clean, window, layout, position)
    (axis,) = axes
    index = (*(slice(None) for _ in range(axis)), position.row(_beyond_the_end(layout, axis)))
    return clean.at[index].set(window, mode="drop")


def _write_neighbours(
    clean: Array, window: Array, layout: Layout, position: EditedPosition
) -> Array:
    """Writes a slice; what hangs over the edge goes into a border that is then cut off."""
    padding = [(0, 0, 0)] * clean.ndim
    starts = [jnp.int32(0)] * clean.ndim
    for axis in layout.axes:
        low, high = _overhang(layout.table(axis), layout.shape[axis])
        padding[axis] = (low, high, 0)
        starts[axis] = position.row(layout.table(axis)[:, 0] + low)
    whole = lax.dynamic_update_slice(pad(clean, padding), window, starts)
    lows = [low for low, _, _ in padding]
    ends = [low + n for low, n in zip(lows, clean.shape, strict=True)]
    return lax.slice(whole, lows, ends)


def _write_one_by_one(
    clean: Array, window: Array, layout: Layout, position: EditedPosition
) -> Array:
    """Writes entry by entry: for windows on several axes that are no slices."""
    front = list(layout.axes)
    rows = [
        _along(position.row(_beyond_the_end(layout, axis)), number, len(front))
        for number, axis in enumerate(front)
    ]
    moved = jnp.moveaxis(clean, front, range(len(front)))
    entries = jnp.moveaxis(window, front, range(len(front)))
    moved = moved.at[tuple(jnp.broadcast_arrays(*rows))].set(entries, mode="drop")
    return jnp.moveaxis(moved, range(len(front)), front)


def _beyond_the_end(layout: Layout, axis: int) -> Table:
    """The axis's table, with slots out of bounds beyond its end: writing there is dropped."""
    return np.where(layout.in_bounds(axis), layout.table(axis), layout.shape[axis])
