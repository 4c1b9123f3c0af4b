"""What an edit makes of a value: nothing, a window of it, or all of it.

    Clean      the same as without the edit
    Windowed   differs in a window alone; kept as its new entries, as its change, or as both
    Dense      may differ everywhere

Sums and products with weights pass a change on without looking at the clean value; other operations
need new entries. Either is made from the other when it is asked for.

Rules rely on two invariants of a windowed value:

    superset   every entry that differs from the clean value is in the window, and marked in
               `layout.reachable`;
    zero       `change` is 0 at slots that are out of bounds, so that a sum over the window needs no
               mask of its own. `new` may be anything there.

`Windowed` itself holds the second. The first is each rule's to keep, and nothing at run time can
see that it was broken: the result is silently wrong, up to the self-check of a measurement.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array

from jaxsens.incremental.edited_position import EditedPosition
from jaxsens.incremental.layout import Layout
from jaxsens.incremental.windows import (
    clean_window,
    move_window,
    take_static_slots,
    write_window,
    zero_out_of_bounds,
)


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

    Args:
      clean: the whole value without the edit.
      layout: where the windows of all positions lie in it.
      position: whose window is edited.
      new: the window's new entries, or
      change: the window's new minus its clean entries. Whatever is given at slots that are out of
        bounds is replaced by 0.
    """

    def __init__(
        self,
        clean: Array,
        layout: Layout,
        position: EditedPosition,
        *,
        new: Array | None = None,
        change: Array | None = None,
    ):
        given = new if new is not None else change
        assert given is not None
        assert given.shape == layout.window, f"{given.shape} is not {layout.window}"
        self.clean, self.layout, self.position = clean, layout, position
        self._new = new
        self._change = None if change is None else zero_out_of_bounds(change, layout, position)
        #: Whether it was given as a change. What was given as new entries is passed on as such: the
        #: way over `new - clean` and back loses digits where the clean entry is the larger one.
        self.is_change = new is None

    @property
    def new(self) -> Array:
        """The new entries of the window; anything at slots that are out of bounds."""
        if self._new is None:
            assert self._change is not None
            old = clean_window(self.clean, self.layout, self.position)
            self._new = old + self._change
            self.position.rely_on(self.clean)
            self.position.doubt_cancellation(old, self._new)
        return self._new

    @property
    def change(self) -> Array:
        """New minus clean entries; 0 at slots that are out of bounds."""
        if self._change is None:
            assert self._new is not None
            old = clean_window(self.clean, self.layout, self.position)
            # Equal infinities have no difference. Equal finite entries have one of 0, and a
            # derivative, which `worst_case` follows.
            both_infinite = (self._new == old) & jnp.isinf(old)
            change = jnp.where(both_infinite, jnp.zeros_like(old), self._new - old)
            self._change = zero_out_of_bounds(change, self.layout, self.position)
            self.position.rely_on(self.clean)
        return self._change

    @property
    def given(self) -> Array:
        """The change or the new entries, whichever it was given as."""
        return self.change if self.is_change else self.new

    def like(self, clean: Array, layout: Layout, given: Array) -> "Windowed":
        """Another windowed value of the same edit, given in the same form as this one."""
        if self.is_change:
            return Windowed(clean, layout, self.position, change=given)
        return Windowed(clean, layout, self.position, new=given)

    def to(self, layout: Layout) -> "Windowed":
        """The same value with another window, which must cover what is reachable."""
        if self.layout.has_windows_of(layout):
            return self
        if self.is_change and jnp.issubdtype(self.clean.dtype, jnp.inexact):
            change, _ = move_window(self.change, self.layout, layout, self.position)
            return Windowed(self.clean, layout, self.position, change=change)
        new, found = move_window(self.new, self.layout, layout, self.position)
        if found is not None:
            new = jnp.where(found, new, clean_window(self.clean, layout, self.position))
        return Windowed(self.clean, layout, self.position, new=new)

    def pruned(self) -> "Windowed":
        """Without the slots that no position's edit reaches."""
        layout, kept = self.layout.pruned()
        if not kept:
            return self
        window = self.given
        for axis, slots in kept.items():
            window = take_static_slots(window, slots, axis)
        return self.like(self.clean, layout, window)

    def dense(self) -> Array:
        """The whole array, with the window in its place."""
        return write_window(self.clean, self.new, self.layout, self.position)


Value = Clean | Windowed | Dense


def edited_array(value: Value) -> Array:
    """The whole array as the edit leaves it."""
    return value.dense() if isinstance(value, Windowed) else value.value


def clean_array(value: Value) -> Array:
    """The whole array without the edit, of a value that is not dense."""
    assert not isinstance(value, Dense)
    return value.clean if isinstance(value, Windowed) else value.value


def array_shape(value: Value) -> tuple[int, ...]:
    """The shape of the whole array."""
    return value.layout.shape if isinstance(value, Windowed) else value.value.shape
