"""Convolutions and pooling: the window grows by the halo and shrinks by the stride.

A convolution multiplies the change alone, which needs a change that is 0 at slots out of bounds. A
pooling takes the window with its clean neighbours.

Assumption: as for `contractions`, the sum of a clean result and a change is as exact as the clean
one.
"""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxsens.incremental.layout import Layout, contiguous_table, is_contiguous, make_layout
from jaxsens.incremental.rules.contractions import is_too_narrow
from jaxsens.incremental.rules.rule_call import RuleCall, rule
from jaxsens.incremental.values import Clean, Value, Windowed
from jaxsens.incremental.windows import in_bounds_mask, pad


@rule("conv_general_dilated")
def convolution(call: RuleCall) -> list[Value]:
    """A convolution of the change, as far as its halo reaches."""
    value, kernel = call.inputs
    params = call.params
    if not isinstance(value, Windowed) or not isinstance(kernel, Clean) or is_too_narrow(call):
        return call.densely()
    lhs, rhs, out = params["dimension_numbers"]
    spatial = lhs[2:]
    if (
        params["batch_group_count"] != 1
        or any(d != 1 for d in params["lhs_dilation"])
        or any(axis not in spatial for axis in value.layout.axes)
        or not all(is_contiguous(value.layout.table(axis)) for axis in value.layout.axes)
    ):
        return call.densely()
    sizes = [kernel.value.shape[axis] for axis in rhs[2:]]
    spans = [(k - 1) * d + 1 for k, d in zip(sizes, params["rhs_dilation"], strict=True)]
    sliding = _SlidingWindow(spans, params["window_strides"], params["padding"], spatial, out[2:])
    value = sliding.aligned(value)
    layout, padding = sliding.result(value.layout, call.clean[0].shape)
    # Cut and padded by itself where entries fall between two strides: XLA's CPU convolution reads
    # beyond its operand if one end is cut and the other padded.
    cut = [(0, 0, 0)] * len(lhs)
    for number, axis in enumerate(spatial):
        if min(padding[number]) < 0:
            cut[axis], padding[number] = (*padding[number], 0), (0, 0)
    change = pad(value.change, cut)
    (change,) = call.operation.apply(change, kernel.value, padding=tuple(padding))
    return [call.result(layout, change=change)]


class _SlidingWindow:
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
                tables[axis] = contiguous_table(table[:, 0] - phase, table.shape[1] + stride - 1)
        return value.to(replace(value.layout, tables=tuple(tables)))

    def result(self, layout: Layout, shape: tuple[int, ...]) -> tuple[Layout, list]:
        """The windows of the result, and the padding that makes them from the operand's windows."""
        tables: list = [None] * len(shape)
        padding = list(self.padding)
        reachable = layout.reachable
        for number, axis in enumerate(self.axes):
            if layout.tables[axis] is None:
                continue
            span, stride, (low, _) = self.spans[number], self.strides[number], self.padding[number]
            start, width = layout.table(axis)[:, 0], layout.table(axis).shape[1]
            first = -((-(start + low - span + 1)) // stride)
            last = (start + width - 1 + low) // stride
            num = max(1, int((last - first).max()) + 1)
            tables[self.out_axes[number]] = contiguous_table(first, num)
            before = int((start - (first * stride - low))[0])
            padding[number] = (before, (num - 1) * stride + span - before - width)
            length = shape[self.out_axes[number]]
            reachable = self._sees_reachable(reachable, axis, number, length)
        order: list[int | None] = [None] * len(shape)
        for axis, out in zip(self.axes, self.out_axes, strict=True):
            order[out] = axis
        moved = replace(layout, reachable=reachable).with_axes(shape, order)
        return make_layout(shape, tables, moved.reachable), padding

    def _sees_reachable(
        self, reachable: np.ndarray, axis: int, number: int, length: int
    ) -> np.ndarray:
        """Which entries of the result see a reachable one along an axis."""
        low, stride = self.padding[number][0], self.strides[number]
        found = np.zeros((*reachable.shape[: axis + 1], length, *reachable.shape[axis + 2 :]), bool)
        n = reachable.shape[axis + 1]
        for offset in range(self.spans[number]):
            indices = np.arange(length) * stride - low + offset
            inside = (indices >= 0) & (indices < n)
            seen = np.take(reachable, np.clip(indices, 0, n - 1), axis=axis + 1)
            shape = [1] * reachable.ndim
            shape[axis + 1] = length
            found |= seen & inside.reshape(shape)
        return found


#: What changes nothing in a pooling window.
_NEUTRAL = {"reduce_window_sum": 0.0, "reduce_window_max": -jnp.inf, "reduce_window_min": jnp.inf}


@rule(*_NEUTRAL)
def pooling(call: RuleCall) -> list[Value]:
    """Sums and maxima over sliding windows."""
    value, params = call.inputs[0], call.params
    is_float = jnp.issubdtype(call.clean[0].dtype, jnp.floating)
    if not isinstance(value, Windowed) or len(call.inputs) != 1 or not is_float:
        return call.densely()
    layout = value.layout
    sizes = params["window_dimensions"]
    dilation = params.get("window_dilation") or (1,) * len(sizes)
    if any(d != 1 for d in params.get("base_dilation") or ()) or not all(
        is_contiguous(layout.table(axis)) for axis in layout.axes
    ):
        return call.densely()
    spans = [(k - 1) * d + 1 for k, d in zip(sizes, dilation, strict=True)]
    axes = range(len(sizes))
    sliding = _SlidingWindow(spans, params["window_strides"], params["padding"], axes, axes)
    value = sliding.aligned(value)
    result, padding = sliding.result(value.layout, call.clean[0].shape)
    # The clean neighbours count as well: a maximum has no change of its own.
    tables = list(value.layout.tables)
    for axis in layout.axes:
        table, (before, after) = value.layout.table(axis), padding[axis]
        tables[axis] = contiguous_table(table[:, 0] - before, before + table.shape[1] + after)
    region = replace(value.layout, tables=tuple(tables))
    entries = value.to(region).new
    mask = in_bounds_mask(region, call.position)
    if mask is not None:
        neutral = jnp.asarray(_NEUTRAL[call.operation.name], entries.dtype)
        entries = jnp.where(mask, entries, neutral)
    rest = [(0, 0) if axis in layout.axes else each for axis, each in enumerate(padding)]
    (new,) = call.operation.apply(entries, padding=tuple(rest))
    return [call.result(result, new=new)]
