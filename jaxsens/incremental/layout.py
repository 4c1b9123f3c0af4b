"""Which part of an array an edit can reach: static tables, one row per position, NumPy only.

A window is a product of index sets, one for each axis. `tables[a][τ]` lists the indices of axis a
that the window of position τ covers; its columns are the window's slots. None instead of a table
stands for the whole axis. A table may hang over the edge of its axis: a slot whose index is below 0
or beyond the end is out of bounds, and belongs to no entry of the array. So windows at the border
look like all others, and their shapes and offsets are static.

Within that product, `reachable[τ]` says which entries the edit can really change, where windows
overlap in other shapes than products, as the five patches that a shifted patch reaches do. Rules
rely on one thing: **reachable is a superset**. An entry that changes and is not marked, or that
lies outside the window, keeps its clean value in all that follows, and the result is wrong. One
that is marked and does not change only costs time.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

Shape = tuple[int, ...]
#: Indices [T, w] of an axis that each position's window covers.
Table = Int[np.ndarray, "T _"]
#: An index that is out of bounds on every axis, whatever is added to it.
NOWHERE = -(1 << 30)


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the windows of all positions lie in an array.

    Attributes:
      shape: of the array.
      tables: for each axis its table, or None where windows cover the whole axis.
      reachable: [T, …] which entries of the array the edit of each position can change; axes
        without a table have length 1 here.
    """

    shape: Shape
    tables: tuple[Table | None, ...]
    reachable: Bool[np.ndarray, "T ..."]

    @property
    def num_positions(self) -> int:
        """T, how many positions there are."""
        return len(self.reachable)

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes that have a table."""
        return tuple(axis for axis, table in enumerate(self.tables) if table is not None)

    @property
    def window(self) -> Shape:
        """The static shape of the windows."""
        pairs = zip(self.shape, self.tables, strict=True)
        return tuple(n if table is None else table.shape[1] for n, table in pairs)

    @property
    def share(self) -> float:
        """Size of the window, as a share of the array's."""
        return math.prod(self.window) / max(1, math.prod(self.shape))

    def table(self, axis: int) -> Table:
        """The table of an axis that has one."""
        table = self.tables[axis]
        assert table is not None
        return table

    def in_bounds(self, axis: int) -> Bool[np.ndarray, "T _"]:
        """Which slots of an axis's table belong to an entry of the array."""
        return is_in_bounds(self.table(axis), self.shape[axis])

    def has_windows_of(self, other: "Layout") -> bool:
        """Whether the windows are the same, whatever is reachable in them."""
        pairs = zip(self.tables, other.tables, strict=True)
        return self.shape == other.shape and all(same_table(a, b) for a, b in pairs)

    def with_axes(self, shape: Shape, axes: Sequence[int | None]) -> "Layout":
        """The layout of an array whose axis a is this one's axis `axes[a]`, or a whole axis."""
        tables = tuple(None if axis is None else self.tables[axis] for axis in axes)
        kept = [axis for axis in axes if axis is not None]
        gone = [axis for axis in range(len(self.shape)) if axis not in kept]
        over = tuple(axis + 1 for axis in gone)
        reachable = np.asarray(self.reachable.any(axis=over, keepdims=True))
        reachable = reachable.transpose([0, *(axis + 1 for axis in (*kept, *gone))])
        reachable = reachable.reshape(reachable.shape[: len(kept) + 1])
        for axis, source in enumerate(axes):
            if source is None:
                reachable = np.expand_dims(reachable, axis + 1)
        return Layout(shape, tables, reachable)

    def without_wide_tables(self) -> "Layout":
        """With whole axes in place of tables that have as many slots as the axis has entries."""
        pairs = list(zip(self.tables, self.shape, strict=True))
        if not any(table is not None and table.shape[1] >= n for table, n in pairs):
            return self
        tables = [None if t is None or t.shape[1] >= n else t for t, n in pairs]
        return make_layout(self.shape, tables, self.reachable)

    def pruned(self) -> "tuple[Layout, dict[int, np.ndarray]]":
        """Without the slots that no position's edit reaches; and by axis the slots that stay."""
        kept = {}
        tables = list(self.tables)
        for axis in self.axes:
            slots = self._reachable_slots(axis).any(axis=0)
            if not slots.all():
                kept[axis] = np.flatnonzero(slots) if slots.any() else np.zeros(1, int)
                tables[axis] = self.table(axis)[:, kept[axis]]
        return Layout(self.shape, tuple(tables), self.reachable), kept

    def _reachable_slots(self, axis: int) -> Bool[np.ndarray, "T _"]:
        others = tuple(a + 1 for a in range(len(self.shape)) if a != axis)
        indices = np.asarray(self.reachable.any(axis=others))
        table = self.table(axis)
        rows = np.arange(len(table))[:, None]
        return self.in_bounds(axis) & indices[rows, np.clip(table, 0, self.shape[axis] - 1)]


def make_layout(shape: Shape, tables: Sequence[Table | None], reachable: np.ndarray) -> Layout:
    """A layout in which a table of all indices in order is None, and length 1 in `reachable`."""
    tables = [
        None if table is None or _is_whole(table, n) else table
        for table, n in zip(tables, shape, strict=True)
    ]
    for axis, table in enumerate(tables):
        if table is None and reachable.shape[axis + 1] != 1:
            reachable = np.asarray(reachable.any(axis=axis + 1, keepdims=True))
    return Layout(shape, tuple(tables), reachable)


def _is_whole(table: Table, n: int) -> bool:
    return table.shape[1] == n and bool((table == np.arange(n)).all())


def is_in_bounds(table: Table, n: int) -> Bool[np.ndarray, "T _"]:
    """Which slots of a table belong to one of the n entries of an axis."""
    return (table >= 0) & (table < n)


def is_nowhere(indices: Int[np.ndarray, "..."]) -> Bool[np.ndarray, "..."]:
    """Which indices of a table are `NOWHERE`: no arithmetic may bring them back."""
    return indices < NOWHERE // 2


def whole_table(num_positions: int, n: int) -> Table:
    """The table of an axis that every window covers whole."""
    return np.broadcast_to(np.arange(n), (num_positions, n))


def contiguous_table(starts: Int[np.ndarray, " _"], width: int) -> Table:
    """The table of windows of neighbours, given where each starts."""
    return starts[:, None] + np.arange(width)


def is_contiguous(table: Table) -> bool:
    """Whether every window consists of neighbours, perhaps over the edge."""
    neighbours = (table == table[:, :1] + np.arange(table.shape[1])).all()
    return bool(neighbours and not is_nowhere(table).any())


def same_table(a: Table | None, b: Table | None) -> bool:
    """Whether two axes are covered alike."""
    if a is None or b is None:
        return a is b
    return a is b or (a.shape == b.shape and bool((a == b).all()))


def union_of_layouts(layouts: Sequence[Layout], shape: Shape) -> Layout:
    """A layout of the broadcast shape that covers the windows of all these arrays."""
    tables: list[Table | None] = []
    for axis, n in enumerate(shape):
        is_whole = any(layout.shape[axis] != n for layout in layouts)
        of_axis = [layout.tables[axis] for layout in layouts]
        tables.append(None if is_whole else union_of_tables(of_axis))
    reachable = functools.reduce(np.logical_or, [layout.reachable for layout in layouts])
    return make_layout(shape, tables, reachable)


def union_of_tables(tables: Sequence[Table | None]) -> Table | None:
    """A table that covers what any of these covers."""
    return functools.reduce(_union_of_two, tables)


def _union_of_two(a: Table | None, b: Table | None) -> Table | None:
    if a is None or b is None:
        return None
    if same_table(a, b):
        return a
    if is_contiguous(a) and is_contiguous(b):
        starts = np.minimum(a[:, 0], b[:, 0])
        ends = np.maximum(a[:, -1], b[:, -1]) + 1
        width = int((ends - starts).max())
        if width <= a.shape[1] + b.shape[1]:
            return contiguous_table(starts, width)
    # The entries of `a` keep their slots, so that most of them are found by static indices.
    new = np.where((b[:, :, None] == a[:, None, :]).any(axis=2), NOWHERE, b)
    return np.concatenate([a, new[:, (new != NOWHERE).any(axis=0)]], axis=1)


def source_slots(old: Table | None, new: Table | None, n: int) -> Int[np.ndarray, "T _"]:
    """For every slot of the new table the old table's slot of the same entry, or -1 if none is.

    A new slot that is out of bounds may be given any source. It gets that of the others in its
    column if these agree, so that a column is constant wherever it can be.
    """
    num = len(old) if old is not None else len(new) if new is not None else 1
    old = whole_table(num, n) if old is None else old
    new = whole_table(num, n) if new is None else new
    same = new[:, :, None] == old[:, None, :]
    sources = np.where(same.any(axis=2), same.argmax(axis=2), -1)
    in_bounds = is_in_bounds(new, n)
    for column in range(new.shape[1]):
        of_column = sources[in_bounds[:, column], column]
        if of_column.size and (of_column == of_column[0]).all():
            sources[:, column] = of_column[0]
        elif not of_column.size:
            sources[:, column] = -1
    return sources
