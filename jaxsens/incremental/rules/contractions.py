"""Sums of products: only the change is multiplied, by the weights it meets.

A product over another axis keeps the window. A contraction over a windowed axis gives the clean
result plus (change · the weights at the window's indices); this needs a change that is 0 at slots
out of bounds.

Assumption: such a sum is as exact as the clean one. Where a clean entry is many times larger than
all that an edit puts in its place, rounding of the clean sum stays in the result.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxsens.incremental.layout import Layout, union_of_layouts
from jaxsens.incremental.rules.rule_call import RuleCall, rule
from jaxsens.incremental.values import Dense, Value, Windowed, clean_array
from jaxsens.incremental.windows import clean_window, window_mask, zero_out_of_bounds


@rule("dot_general")
def dot_general(call: RuleCall) -> list[Value]:
    """A product with a clean operand; of two edited ones if only their shared axes are windowed."""
    if call.has_dense_input or is_too_narrow(call):
        return call.densely()
    if len(call.windowed_inputs) == 2:
        return _dot_of_two(call, *call.windowed_inputs.values())
    ((side, value),) = call.windowed_inputs.items()
    other = clean_array(call.inputs[1 - side])
    dims = call.params["dimension_numbers"]
    (contract, batch), (other_contract, other_batch) = _sides(dims, side)
    shared = dict(zip((*contract, *batch), (*other_contract, *other_batch), strict=True))
    # Which axis of the edited operand each axis of the result is.
    axes = _result_axes(value.layout.shape, other.shape, dims, side)
    layout = value.layout.with_axes(call.clean[0].shape, axes)
    other = clean_window(other, _layout_on(other.shape, value.layout, shared), call.position)
    contracted = any(value.layout.tables[axis] is not None for axis in contract)
    as_change = value.is_change or contracted
    edited = value.change if as_change else value.new
    (product,) = call.operation.apply(*((edited, other) if side == 0 else (other, edited)))
    return [call.result(layout, change=product) if as_change else call.result(layout, new=product)]


def is_too_narrow(call: RuleCall) -> bool:
    """Whether the change of an operand would be rounded, or wrap, before it is summed."""
    dtype = call.clean[0].dtype
    narrow = any(value.clean.dtype != dtype for value in call.windowed_inputs.values())
    return narrow or not jnp.issubdtype(dtype, jnp.inexact)


def _sides(dims: Any, side: int) -> tuple:
    (contract, batch) = dims
    return (contract[side], batch[side]), (contract[1 - side], batch[1 - side])


def _result_axes(shape: Sequence[int], other: Sequence[int], dims: Any, side: int) -> list:
    (contract, batch), (other_contract, other_batch) = _sides(dims, side)
    own: list[int | None] = [a for a in range(len(shape)) if a not in (*contract, *batch)]
    theirs = len(other) - len(other_contract) - len(other_batch)
    return [*batch, *own, *[None] * theirs] if side == 0 else [*batch, *[None] * theirs, *own]


def _layout_on(shape: tuple[int, ...], layout: Layout, shared: dict[int, int]) -> Layout:
    """The window on an array of that shape, whose axis `shared[a]` is the layout's axis a."""
    axes: list[int | None] = [None] * len(shape)
    for axis, of_shape in shared.items():
        axes[of_shape] = axis
    return layout.with_axes(shape, axes)


def _dot_of_two(call: RuleCall, left: Windowed, right: Windowed) -> list[Value]:
    """A product of two edited operands, whose windowed axes must be shared by both."""
    (contract, batch) = call.params["dimension_numbers"]
    shared = [(*contract[side], *batch[side]) for side in (0, 1)]
    inside = all(
        axis in shared[side]
        for side, value in enumerate((left, right))
        for axis in value.layout.axes
    )
    if not inside:
        return call.densely()
    to_right = dict(zip(*shared, strict=True))
    to_left = dict(zip(*shared[::-1], strict=True))
    of_left = union_of_layouts(
        [left.layout, _layout_on(left.layout.shape, right.layout, to_left)], left.layout.shape
    )
    of_right = _layout_on(right.layout.shape, of_left, to_right)
    (new,) = call.operation.apply(_zero_padded(left.to(of_left)), _zero_padded(right.to(of_right)))
    axes = [*batch[0], *[None] * (len(call.clean[0].shape) - len(batch[0]))]
    layout = of_left.with_axes(call.clean[0].shape, axes)
    if set(of_left.axes) <= set(batch[0]):
        return [call.result(layout, new=new)]
    if set(of_left.axes) & set(batch[0]):
        return call.densely()
    outside = (
        jnp.where(window_mask(own, call.position), jnp.zeros_like(value.clean), value.clean)
        for value, own in ((left, of_left), (right, of_right))
    )
    return [Dense(call.operation.apply(*outside)[0] + new)]


def _zero_padded(value: Windowed) -> Array:
    """New entries, 0 at slots that are out of bounds."""
    return zero_out_of_bounds(value.new, value.layout, value.position)
