"""Sums of products: the change of a window meets the weights it meets, and no others.

A product over another axis keeps the window; a contraction over a windowed axis gives the clean
result plus (change · the weights at the window's indices); a convolution grows the window by its
halo and shrinks it by its stride.

Assumption: such a sum is as exact as the clean one. Where a clean entry is many times larger than
all that an edit puts in its place, rounding of the clean sum stays in the result.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxsens.incremental.layout import Layout, as_layout, contiguous, runs, union
from jaxsens.incremental.rules.rule_call import Call, Rule
from jaxsens.incremental.values import (
    Clean,
    Dense,
    Value,
    Windowed,
    clean_of,
    clean_window,
    inside_mask,
    only_there,
    pad,
    there_mask,
)


def dot_general(call: Call) -> list[Value]:
    """A product with a clean operand; of two edited ones if only their shared axes are windowed."""
    if call.is_dense or _is_narrow(call):
        return call.densely()
    if len(call.edited) == 2:
        return _dot_of_two(call)
    side = call.edited[0]
    value, other = call.windowed(side), clean_of(call.inputs[1 - side])
    dims = call.params["dimension_numbers"]
    (contract, batch), (other_contract, other_batch) = _sides(dims, side)
    shared = dict(zip((*contract, *batch), (*other_contract, *other_batch), strict=True))
    # Which axis of the edited operand each axis of the result is.
    axes = _result_axes(value.layout.shape, other.shape, dims, side)
    layout = value.layout.on(call.clean[0].shape, axes)
    needed = [shared.get(axis) for axis in range(len(value.layout.shape))]
    of_other = _layout_on(value.layout, needed, other.shape)
    other = clean_window(other, of_other, call.place)
    contracted = any(value.layout.tables[axis] is not None for axis in contract)
    as_change = value.is_change or contracted
    edited = value.change if as_change else value.new
    (product,) = call.operation.apply(*((edited, other) if side == 0 else (other, edited)))
    if not as_change:
        return [call.result(layout, new=product)]
    return [call.result(layout, change=product)]


def _is_narrow(call: Call) -> bool:
    """Whether the change of an operand would be rounded, or wrap, before it is summed."""
    dtype = call.clean[0].dtype
    narrow = any(call.windowed(i).clean.dtype != dtype for i in call.edited)
    return narrow or not jnp.issubdtype(dtype, jnp.inexact)


def _sides(dims: Any, side: int) -> tuple:
    (contract, batch) = dims
    return (contract[side], batch[side]), (contract[1 - side], batch[1 - side])


def _result_axes(shape: Sequence[int], other: Sequence[int], dims: Any, side: int) -> list:
    (contract, batch), (other_contract, other_batch) = _sides(dims, side)
    own: list[int | None] = [a for a in range(len(shape)) if a not in (*contract, *batch)]
    theirs = len(other) - len(other_contract) - len(other_batch)
    return [*batch, *own, *[None] * theirs] if side == 0 else [*batch, *[None] * theirs, *own]


def _layout_on(layout: Layout, needed: Sequence[int | None], shape: tuple[int, ...]) -> Layout:
    """The window's indices on the axes that another operand shares."""
    axes: list[int | None] = [None] * len(shape)
    for axis, at in enumerate(needed):
        if at is not None:
            axes[at] = axis
    return layout.on(shape, axes)


def _dot_of_two(call: Call) -> list[Value]:
    left, right = call.windowed(0), call.windowed(1)
    (contract, batch) = call.params["dimension_numbers"]
    shared = [(*contract[side], *batch[side]) for side in (0, 1)]
    inside = all(
        axis in shared[side]
        for side, value in enumerate((left, right))
        for axis in value.layout.axes
    )
    if not inside:
        return call.densely()
    at: list[int | None] = [None] * len(right.layout.shape)
    back: list[int | None] = [None] * len(left.layout.shape)
    for a, b in zip(*shared, strict=True):
        at[b], back[a] = a, b
    lay = union([left.layout, right.layout.on(left.layout.shape, back)], left.layout.shape)
    other = lay.on(right.layout.shape, at)
    (new,) = call.operation.apply(_there(left.to(lay)), _there(right.to(other)))
    axes = [*batch[0], *[None] * (len(call.clean[0].shape) - len(batch[0]))]
    layout = lay.on(call.clean[0].shape, axes)
    if set(lay.axes) <= set(batch[0]):
        return [call.result(layout, new=new)]
    if set(lay.axes) & set(batch[0]):
        return call.densely()
    outside = (
        jnp.where(inside_mask(own, call.place), jnp.zeros_like(v.clean), v.clean)
        for v, own in ((left, lay), (right, other))
    )
    return [Dense(call.operation.apply(*outside)[0] + new)]


def _there(value: Windowed) -> Array:
    return only_there(value.new, value.layout, value.place)


def convolution(call: Call) -> list[Value]:
    """A convolution of the change, as large as its halo reaches."""
    value, kernel = call.inputs
    params = call.params
    if not isinstance(value, Windowed) or not isinstance(kernel, Clean) or _is_narrow(call):
        return call.densely()
    lhs, rhs, out = params["dimension_numbers"]
    spatial = lhs[2:]
    if (
        params["batch_group_count"] != 1
        or any(d != 1 for d in params["lhs_dilation"])
        or any(axis not in spatial for axis in value.layout.axes)
        or not all(contiguous(value.layout.table(axis)) for axis in value.layout.axes)
    ):
        return call.densely()
    sizes = [kernel.value.shape[axis] for axis in rhs[2:]]
    spans = [(k - 1) * d + 1 for k, d in zip(sizes, params["rhs_dilation"], strict=True)]
    window = _Sliding(spans, params["window_strides"], params["padding"], spatial, out[2:])
    value = window.aligned(value)
    layout, padding = window.result(value.layout, call.clean[0].shape)
    # Cut and padded by itself where entries fall between two strides: XLA's CPU convolution reads
    # beyond its operand if one end is cut and the other padded.
    cut = [(0, 0, 0)] * len(lhs)
    for number, axis in enumerate(spatial):
        if min(padding[number]) < 0:
            cut[axis], padding[number] = (*padding[number], 0), (0, 0)
    change = pad(value.change, cut)
    (change,) = call.operation.apply(change, kernel.value, padding=tuple(padding))
    return [call.result(layout, change=change)]


class _Sliding:
    """A window that slides over some axes: a convolution's kernel, or a pooling window."""

    def __init__(self, spans: Any, strides: Any, padding: Any, axes: Any, out_axes: Any):
        self.spans, self.strides, self.axes, self.out_axes = spans, strides, axes, out_axes
        self.padding = [tuple(map(int, each)) for each in padding]

    def aligned(self, value: Windowed) -> Windowed:
        """Windows that start at the same place within a stride, for all positions."""
        tables = list(value.layout.tables)
        for number, axis in enumerate(self.axes):
            table, stride = tables[axis], self.strides[number]
            if table is None or stride == 1:
                continue
            phase = (table[:, 0] + self.padding[number][0]) % stride
            if (phase != phase[0]).any():
                tables[axis] = runs(table[:, 0] - phase, table.shape[1] + stride - 1)
        return value.to(replace(value.layout, tables=tuple(tables)))

    def result(self, layout: Layout, shape: tuple[int, ...]) -> tuple[Layout, list]:
        """The windows of the result, and the padding that makes them from the operand's windows."""
        tables: list = [None] * len(shape)
        padding = list(self.padding)
        reached = layout.touched
        for number, axis in enumerate(self.axes):
            if layout.tables[axis] is None:
                continue
            span, stride, (low, _) = self.spans[number], self.strides[number], self.padding[number]
            start, width = layout.table(axis)[:, 0], layout.table(axis).shape[1]
            first = -((-(start + low - span + 1)) // stride)
            last = (start + width - 1 + low) // stride
            num = max(1, int((last - first).max()) + 1)
            tables[self.out_axes[number]] = runs(first, num)
            before = int((start - (first * stride - low))[0])
            padding[number] = (before, (num - 1) * stride + span - before - width)
            reached = self._dilated(reached, axis, number, shape[self.out_axes[number]])
        order: list[int | None] = [None] * len(shape)
        for axis, out in zip(self.axes, self.out_axes, strict=True):
            order[out] = axis
        moved = replace(layout, touched=reached).on(shape, order)
        return as_layout(shape, tables, moved.touched), padding

    def _dilated(self, touched: np.ndarray, axis: int, number: int, length: int) -> np.ndarray:
        """Which outputs see a touched entry."""
        low, stride = self.padding[number][0], self.strides[number]
        found = np.zeros((*touched.shape[: axis + 1], length, *touched.shape[axis + 2 :]), bool)
        n = touched.shape[axis + 1]
        for offset in range(self.spans[number]):
            places = np.arange(length) * stride - low + offset
            inside = (places >= 0) & (places < n)
            seen = np.take(touched, np.clip(places, 0, n - 1), axis=axis + 1)
            shape = [1] * touched.ndim
            shape[axis + 1] = length
            found |= seen & inside.reshape(shape)
        return found


def pooling(call: Call) -> list[Value]:
    """Sums and maxima over sliding windows."""
    value, params = call.inputs[0], call.params
    is_float = jnp.issubdtype(call.clean[0].dtype, jnp.floating)
    if not isinstance(value, Windowed) or len(call.inputs) != 1 or not is_float:
        return call.densely()
    layout = value.layout
    sizes = params["window_dimensions"]
    dilation = params.get("window_dilation") or (1,) * len(sizes)
    if any(d != 1 for d in params.get("base_dilation") or ()) or not all(
        contiguous(layout.table(axis)) for axis in layout.axes
    ):
        return call.densely()
    spans = [(k - 1) * d + 1 for k, d in zip(sizes, dilation, strict=True)]
    axes = range(len(sizes))
    window = _Sliding(spans, params["window_strides"], params["padding"], axes, axes)
    value = window.aligned(value)
    result, padding = window.result(value.layout, call.clean[0].shape)
    # Neighbours count as they are.
    tables = list(value.layout.tables)
    for axis in layout.axes:
        table, (before, after) = value.layout.table(axis), padding[axis]
        tables[axis] = runs(table[:, 0] - before, before + table.shape[1] + after)
    region = replace(value.layout, tables=tuple(tables))
    entries = value.to(region).new
    mask = there_mask(region, call.place)
    if mask is not None:
        nothing = jnp.asarray(_NOTHING[call.operation.name], entries.dtype)
        entries = jnp.where(mask, entries, nothing)
    none = [(0, 0) if axis in layout.axes else each for axis, each in enumerate(padding)]
    (new,) = call.operation.apply(entries, padding=tuple(none))
    return [call.result(result, new=new)]


#: What changes nothing in a pooling window.
_NOTHING = {"reduce_window_sum": 0.0, "reduce_window_max": -jnp.inf, "reduce_window_min": jnp.inf}

RULES: dict[str, Rule] = {
    "dot_general": dot_general,
    "conv_general_dilated": convolution,
    **dict.fromkeys(_NOTHING, pooling),
}
