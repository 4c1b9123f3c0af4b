"""Which part of an array an edit can reach: static tables, one row per position, NumPy only.

A window is a product of index sets, one for each axis: `tables[a][τ]` are the indices of axis a
that the window of position τ covers, and None stands for the whole axis. A table may hang over the
edge of its axis: an entry below 0 or beyond the end is not there, and its change is 0. So windows
at the border look like all others, and their shapes and offsets are static.

Within that product, `touched[τ]` says which entries the edit can really reach. It is exact where
windows overlap in other shapes than products, as the five patches that a shifted patch reaches do.
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
#: An index that lies outside every axis, whatever is added to it.
NOWHERE = -(1 << 30)


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the windows of all positions lie in an array.

    Attributes:
      shape: of the array.
      tables: for each axis its table, or None where windows cover the whole axis.
      touched: [T, …] what the edit can reach; axes without a table have length 1 here.
    """

    shape: Shape
    tables: tuple[Table | None, ...]
    touched: Bool[np.ndarray, "T ..."]

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
        """The axis's table, which must be there."""
        table = self.tables[axis]
        assert table is not None
        return table

    def valid(self, axis: int) -> Bool[np.ndarray, "T _"]:
        """Which entries of an axis's table are there."""
        table = self.table(axis)
        return (table >= 0) & (table < self.shape[axis])

    def same_as(self, other: "Layout") -> bool:
        """Whether the windows are the same, whatever the edit reaches in them."""
        pairs = zip(self.tables, other.tables, strict=True)
        return self.shape == other.shape and all(same_table(a, b) for a, b in pairs)

    def on(self, shape: Shape, axes: Sequence[int | None]) -> "Layout":
        """The layout of an array whose axis a is this one's axis `axes[a]`, or a whole axis."""
        tables = tuple(None if axis is None else self.tables[axis] for axis in axes)
        kept = [axis for axis in axes if axis is not None]
        gone = tuple(axis for axis in range(len(self.shape)) if axis not in kept)
        over = tuple(axis + 1 for axis in gone)
        touched = np.asarray(self.touched.any(axis=over, keepdims=True))
        places = [0, *(axis + 1 for axis in kept), *(axis + 1 for axis in gone)]
        touched = touched.transpose(places)
        touched = touched.reshape(touched.shape[: len(kept) + 1])
        new = [position for position, axis in enumerate(axes) if axis is None]
        for position in new:
            touched = np.expand_dims(touched, position + 1)
        return Layout(shape, tables, touched)

    def without_wide(self) -> "Layout":
        """With whole axes in place of tables that are no shorter."""
        pairs = list(zip(self.tables, self.shape, strict=True))
        if not any(table is not None and table.shape[1] >= n for table, n in pairs):
            return self
        tables = [None if t is None or t.shape[1] >= n else t for t, n in pairs]
        return as_layout(self.shape, tables, self.touched)

    def pruned(self) -> "tuple[Layout, dict[int, np.ndarray]]":
        """Without the entries that no position touches; and for each axis the entries kept."""
        kept = {}
        tables = list(self.tables)
        for axis in self.axes:
            slots = self.hit(axis).any(axis=0)
            if not slots.all():
                kept[axis] = np.flatnonzero(slots) if slots.any() else np.zeros(1, int)
                tables[axis] = self.table(axis)[:, kept[axis]]
        return Layout(self.shape, tuple(tables), self.touched), kept

    def hit(self, axis: int) -> Bool[np.ndarray, "T _"]:
        """Which entries of an axis's table the edit reaches."""
        others = tuple(a + 1 for a in range(len(self.shape)) if a != axis)
        reached = np.asarray(self.touched.any(axis=others))
        table = self.table(axis)
        rows = np.arange(len(table))[:, None]
        return self.valid(axis) & reached[rows, np.clip(table, 0, self.shape[axis] - 1)]


def same_table(a: Table | None, b: Table | None) -> bool:
    """Whether two axes are covered alike."""
    if a is None or b is None:
        return a is b
    return a is b or (a.shape == b.shape and bool((a == b).all()))


def contiguous(table: Table) -> bool:
    """Whether every window is a run of neighbours, perhaps over the edge."""
    neighbours = (table == table[:, :1] + np.arange(table.shape[1])).all()
    return bool(neighbours and (table > NOWHERE // 2).all())


def runs(starts: Int[np.ndarray, " _"], width: int) -> Table:
    """The table of runs of one length."""
    return starts[:, None] + np.arange(width)


def union_of_tables(tables: Sequence[Table | None]) -> Table | None:
    """A table that covers what any of these covers."""
    return functools.reduce(_pair_union, tables)


def _pair_union(a: Table | None, b: Table | None) -> Table | None:
    if a is None or b is None:
        return None
    if same_table(a, b):
        return a
    if contiguous(a) and contiguous(b):
        starts = np.minimum(a[:, 0], b[:, 0])
        ends = np.maximum(a[:, -1], b[:, -1]) + 1
        width = int((ends - starts).max())
        if width <= a.shape[1] + b.shape[1]:
            return runs(starts, width)
    # A window's own entries keep their places, so that most moves between tables are static.
    new = np.where((b[:, :, None] == a[:, None, :]).any(axis=2), NOWHERE, b)
    return np.concatenate([a, new[:, (new != NOWHERE).any(axis=0)]], axis=1)


def union(layouts: Sequence[Layout], shape: Shape) -> Layout:
    """A layout of the broadcast shape that covers the windows of all these arrays."""
    tables: list[Table | None] = []
    for axis, n in enumerate(shape):
        whole = any(lay.shape[axis] != n for lay in layouts)
        tables.append(None if whole else union_of_tables([lay.tables[axis] for lay in layouts]))
    touched = functools.reduce(np.logical_or, [lay.touched for lay in layouts])
    return as_layout(shape, tables, touched)


def as_layout(shape: Shape, tables: Sequence[Table | None], touched: np.ndarray) -> Layout:
    """A layout in which full tables are whole axes, of length 1 in `touched`."""
    tables = [
        None if table is None or _is_whole(table, n) else table
        for table, n in zip(tables, shape, strict=True)
    ]
    for axis, table in enumerate(tables):
        if table is None and touched.shape[axis + 1] != 1:
            touched = np.asarray(touched.any(axis=axis + 1, keepdims=True))
    return Layout(shape, tuple(tables), touched)


def _is_whole(table: Table, n: int) -> bool:
    return table.shape[1] == n and bool((table == np.arange(n)).all())


def moves(old: Table | None, new: Table | None, n: int) -> Int[np.ndarray, "T _"]:
    """For every entry of the new table its place in the old one, or -1 where it has none.

    Where the new entry is not there itself, any place will do: the most frequent one is given, so
    that a column is constant wherever it can be.
    """
    num = len(old) if old is not None else len(new) if new is not None else 1
    old = np.broadcast_to(np.arange(n), (num, n)) if old is None else old
    new = np.broadcast_to(np.arange(n), (num, n)) if new is None else new
    same = new[:, :, None] == old[:, None, :]
    places = np.where(same.any(axis=2), same.argmax(axis=2), -1)
    there = (new >= 0) & (new < n)
    for column in range(new.shape[1]):
        of_column = places[there[:, column], column]
        if of_column.size and (of_column == of_column[0]).all():
            places[:, column] = of_column[0]
        elif not of_column.size:
            places[:, column] = -1
    return places
