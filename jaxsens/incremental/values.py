"""What an edit makes of a value: nothing, a window of it, or all of it.

    Clean      the same as without the edit
    Windowed   differs in a window alone; kept as its new entries, as its change, or as both
    Dense      may differ everywhere

Sums and products with weights pass a change on without a look at the clean value; other operations
need new entries. Either is made from the other when it is asked for.
"""

import math
from dataclasses import dataclass, field

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int

from jaxsens.incremental.layout import Layout, Table, contiguous, moves

#: Entries of a window that are looked at to see whether large numbers have cancelled.
_LOOKED_AT = 32


@dataclass(frozen=True)
class Place:
    """The position whose window is edited: a row of every table, traced.

    Attributes:
      position: which row.
      trusted: the clean values that changes were taken from or added to: if one is not finite,
        neither is what reuse makes of it.
      doubts: whether a result is the small rest of two large numbers, for every place where it
        could be.
    """

    position: Int[Array, ""]
    trusted: list[Array] = field(default_factory=list)
    doubts: list[Bool[Array, ""]] = field(default_factory=list)

    def trust(self, clean: Array) -> None:
        """Notes that the result hangs on this clean value's being finite."""
        if jnp.issubdtype(clean.dtype, jnp.inexact):
            self.trusted.append(clean)

    def row(self, table: np.ndarray) -> Array:
        """This position's row; a constant where all positions have the same."""
        table = table.astype(np.int32) if table.dtype.kind == "i" else table
        if (table == table[:1]).all():
            return jnp.asarray(table[0])
        return lax.dynamic_index_in_dim(jnp.asarray(table), self.position, keepdims=False)


@dataclass(frozen=True)
class Clean:
    """A value that the edit does not reach."""

    value: Array


@dataclass(frozen=True)
class Dense:
    """A value that may differ everywhere."""

    value: Array


class Windowed:
    """A value that differs from the clean one in a window alone.

    A change is 0 where an entry is not there, whatever is given there: sums over the window need no
    mask of their own.
    """

    def __init__(
        self,
        clean: Array,
        layout: Layout,
        place: Place,
        *,
        new: Array | None = None,
        change: Array | None = None,
    ):
        given = new if new is not None else change
        assert given is not None
        assert given.shape == layout.window, f"{given.shape} is not {layout.window}"
        self.clean, self.layout, self.place = clean, layout, place
        self._new = new
        self._change = None if change is None else only_there(change, layout, place)
        #: Whether it was given as a change. What was given as new entries is passed on as such: the
        #: way over `new - clean` and back loses digits where the clean entry is the larger one.
        self.is_change = new is None

    @property
    def new(self) -> Array:
        """The new entries of the window; anything where an entry is not there."""
        if self._new is None:
            assert self._change is not None
            old = clean_window(self.clean, self.layout, self.place)
            self._new = old + self._change
            self.place.trust(self.clean)
            self.place.doubts.append(_cancels(old, self._new))
        return self._new

    @property
    def change(self) -> Array:
        """New minus clean entries; 0 where an entry is not there."""
        if self._change is None:
            assert self._new is not None
            old = clean_window(self.clean, self.layout, self.place)
            # Equal infinities have no difference.
            change = jnp.where(self._new == old, jnp.zeros_like(old), self._new - old)
            self._change = only_there(change, self.layout, self.place)
            self.place.trust(self.clean)
        return self._change

    def to(self, layout: Layout) -> "Windowed":
        """The same value with another window, which must cover what the edit reaches."""
        if self.layout.same_as(layout):
            return self
        if self.is_change and jnp.issubdtype(self.clean.dtype, jnp.inexact):
            change = _moved(self.change, self.layout, layout, self.place)[0]
            return Windowed(self.clean, layout, self.place, change=change)
        new, there = _moved(self.new, self.layout, layout, self.place)
        if there is not None:
            new = jnp.where(there, new, clean_window(self.clean, layout, self.place))
        return Windowed(self.clean, layout, self.place, new=new)

    def pruned(self) -> "Windowed":
        """Without the entries that no position touches."""
        layout, kept = self.layout.pruned()
        if not kept:
            return self
        window = self.change if self.is_change else self.new
        for axis, slots in kept.items():
            window = _static_take(window, slots, axis)
        form = "change" if self.is_change else "new"
        return Windowed(self.clean, layout, self.place, **{form: window})

    def dense(self) -> Array:
        """The whole array, with the window in its place."""
        layout, axes = self.layout, self.layout.axes
        if not axes:
            return self.new
        if all(contiguous(layout.table(axis)) for axis in axes):
            return _put_run(self.clean, self.new, layout, self.place)
        if len(axes) > 1:
            return _put_each(self.clean, self.new, layout, self.place)
        (axis,) = axes
        rows = np.where(layout.valid(axis), layout.table(axis), layout.shape[axis])
        index = (*(slice(None) for _ in range(axis)), self.place.row(rows))
        return self.clean.at[index].set(self.new, mode="drop")


Value = Clean | Windowed | Dense


def full(value: Value) -> Array:
    """The whole array, edited."""
    return value.dense() if isinstance(value, Windowed) else value.value


def clean_of(value: Value) -> Array:
    """The clean value of what is not dense."""
    assert not isinstance(value, Dense)
    return value.clean if isinstance(value, Windowed) else value.value


def clean_window(value: Array, layout: Layout, place: Place) -> Array:
    """The clean entries of a window; anything where an entry is not there.

    An axis of length 1 that is broadcast to the layout's shape stays as it is.
    """
    if value.ndim == 0:
        return value
    axes = [axis for axis in layout.axes if value.shape[axis] == layout.shape[axis]]
    along = [axis for axis in axes if contiguous(layout.table(axis))]
    if along:
        padding = [(0, 0, 0)] * value.ndim
        starts = [jnp.int32(0)] * value.ndim
        sizes = list(value.shape)
        for axis in along:
            low, high = overhang(layout.table(axis), layout.shape[axis])
            padding[axis] = (low, high, 0)
            starts[axis] = place.row(layout.table(axis)[:, 0] + low)
            sizes[axis] = layout.window[axis]
        value = pad(value, padding)
        value = lax.dynamic_slice(value, starts, sizes)
    for axis in axes:
        if axis not in along:
            table = np.clip(layout.table(axis), 0, layout.shape[axis] - 1)
            value = jnp.take(value, place.row(table), axis=axis, mode="clip")
    return value


def overhang(table: Table, n: int) -> tuple[int, int]:
    """How far runs reach beyond the two ends of an axis."""
    return max(0, -int(table.min())), max(0, int(table.max()) + 1 - n)


def pad(value: Array, padding: list[tuple[int, int, int]], fill: float = 0) -> Array:
    """`lax.pad` with a fill of the value's own dtype; nothing where nothing is padded."""
    if all(each == (0, 0, 0) for each in padding):
        return value
    return lax.pad(value, jnp.asarray(fill, value.dtype), padding)


def there_mask(layout: Layout, place: Place) -> Array | None:
    """True at entries that are there, broadcastable to the window; None if all always are."""
    mask = None
    for axis in layout.axes:
        valid = layout.valid(axis)
        if valid.all():
            continue
        shape = [1] * len(layout.shape)
        shape[axis] = -1
        of_axis = place.row(valid).reshape(shape)
        mask = of_axis if mask is None else mask & of_axis
    return mask


def inside_mask(layout: Layout, place: Place) -> Array:
    """True where the window is, broadcastable to the whole array; the window must have an axis."""
    inside = None
    for axis in layout.axes:
        table, n = layout.table(axis), layout.shape[axis]
        shape = [1] * len(layout.shape)
        shape[axis] = n
        of_axis = place.row((table[:, :, None] == np.arange(n)).any(axis=1)).reshape(shape)
        inside = of_axis if inside is None else inside & of_axis
    assert inside is not None
    return inside


def only_there(change: Array, layout: Layout, place: Place) -> Array:
    """0 at entries that are not there."""
    mask = there_mask(layout, place)
    return change if mask is None else jnp.where(mask, change, jnp.zeros_like(change))


def _cancels(old: Array, new: Array) -> Bool[Array, ""]:
    """Whether new entries are so small beside the old ones that rounding of these shows in them.

    A sum loses a huge entry for all that is made of it, so a few entries stand for all: those in
    the middle of a window, most of them along its last axis.
    """
    middle = tuple(n // 2 for n in new.shape[:-1])
    looked_at = (*middle, slice(_LOOKED_AT)) if new.ndim else ()
    before, after = (jnp.abs(value[looked_at]).max() for value in (old, new))
    return after < math.sqrt(jnp.finfo(old.dtype).eps) * before


def _moved(value: Array, old: Layout, new: Layout, place: Place) -> tuple[Array, Array | None]:
    """Entries from one window to another, 0 where they come from nowhere, and where they do not."""
    there: Array | None = None
    for axis, n in enumerate(old.shape):
        if (old.tables[axis] is None and new.tables[axis] is None) or n != new.shape[axis]:
            continue
        places = moves(old.tables[axis], new.tables[axis], n)
        value = taken(value, places, axis, place)
        if (places < 0).any():
            shape = [1] * value.ndim
            shape[axis] = -1
            of_axis = place.row(places >= 0).reshape(shape)
            there = of_axis if there is None else there & of_axis
    return value, there


def taken(value: Array, places: np.ndarray, axis: int, place: Place) -> Array:
    """Entries of a window at places [T, w] of an axis, 0 where the place is -1."""
    if (places == places[:1]).all():
        return _static_take(value, places[0], axis)
    # A missing entry is taken from beyond the end, which gives 0.
    beyond = np.where(places >= 0, places, value.shape[axis])
    return jnp.take(value, place.row(beyond), axis=axis, mode="fill", fill_value=0)


def _static_take(value: Array, places: np.ndarray, axis: int) -> Array:
    """Entries at static places, 0 where the place is -1."""
    found = np.flatnonzero(places >= 0)
    if not found.size:
        shape = list(value.shape)
        shape[axis] = len(places)
        return jnp.zeros(shape, value.dtype)
    first, last = int(found[0]), int(found[-1])
    inner = places[first : last + 1]
    start, step = int(inner[0]), int(inner[1] - inner[0]) if len(inner) > 1 else 1
    if step > 0 and (inner == start + step * np.arange(len(inner))).all():
        value = lax.slice_in_dim(value, start, int(inner[-1]) + 1, step, axis)
        padding = [(0, 0, 0)] * value.ndim
        padding[axis] = (first, len(places) - 1 - last, 0)
        return pad(value, padding)
    parts = []
    for place in places:
        part = lax.slice_in_dim(value, max(int(place), 0), max(int(place), 0) + 1, 1, axis)
        parts.append(part if place >= 0 else jnp.zeros_like(part))
    return jnp.concatenate(parts, axis)


def _put_run(clean: Array, window: Array, layout: Layout, place: Place) -> Array:
    """Writes runs, those over the edge into a border that is then cut off."""
    padding = [(0, 0, 0)] * clean.ndim
    starts = [jnp.int32(0)] * clean.ndim
    for axis in layout.axes:
        low, high = overhang(layout.table(axis), layout.shape[axis])
        padding[axis] = (low, high, 0)
        starts[axis] = place.row(layout.table(axis)[:, 0] + low)
    whole = lax.dynamic_update_slice(pad(clean, padding), window, starts)
    lows = [low for low, _, _ in padding]
    ends = [low + n for low, n in zip(lows, clean.shape, strict=True)]
    return lax.slice(whole, lows, ends)


def _put_each(clean: Array, window: Array, layout: Layout, place: Place) -> Array:
    """Writes entries one by one: for windows that are no runs on several axes."""
    front = list(layout.axes)
    rows = []
    for number, axis in enumerate(front):
        table = np.where(layout.valid(axis), layout.table(axis), layout.shape[axis])
        shape = [1] * len(front)
        shape[number] = -1
        rows.append(place.row(table).reshape(shape))
    moved = jnp.moveaxis(clean, front, range(len(front)))
    entries = jnp.moveaxis(window, front, range(len(front)))
    moved = moved.at[tuple(jnp.broadcast_arrays(*rows))].set(entries, mode="drop")
    return jnp.moveaxis(moved, range(len(front)), front)
