"""Needs of operations that cut arrays, put them together, or take entries at known indices."""

from typing import Any

import numpy as np
from jax import lax

from jaxsens.incremental.needed.parts import (
    Indices,
    Part,
    all_indices,
    crop,
    lengths,
    narrowed,
    union,
    whole,
)
from jaxsens.incremental.needed.steps import NeedCall, Step, need


def _as_taken(array: Any, *_: Any) -> list[Any]:
    """What is taken of the first operand is what is needed."""
    return [array]


@need("slice", is_cut=True)
def slice_(call: NeedCall) -> Step | None:
    """Every s-th entry from a start on."""
    (shape,), (result,) = call.shapes, call.results
    starts = call.params["start_indices"]
    steps = call.params["strides"] or (1,) * len(starts)
    taken = tuple(
        narrowed(start + step * all_indices(a, m), n)
        for a, n, m, start, step in zip(call.part, shape, result, starts, steps, strict=True)
    )
    return Step([taken], [call.part], _as_taken)


@need("dynamic_slice", is_cut=True)
def dynamic_slice(call: NeedCall) -> Step | None:
    """A slice whose start is known; else only axes that are not cut are asked what is needed."""
    starts = call.operation.inputs[1:]
    shape, (result,), part = call.shapes[0], call.results, call.part
    is_cut = [n != m for n, m in zip(shape, result, strict=True)]
    known = [
        call.indices(start) if cut else None for start, cut in zip(starts, is_cut, strict=True)
    ]
    if all(start is not None for start, cut in zip(known, is_cut, strict=True) if cut):
        firsts = [0 if start is None else int(start) for start in known]
        taken = tuple(
            narrowed(min(max(first, 0), n - m) + all_indices(a, m), n)
            for a, n, m, first in zip(part, shape, result, firsts, strict=True)
        )
        return Step([taken, *[None] * len(starts)], [part], _as_taken)
    given = tuple(None if cut else a for a, cut in zip(part, is_cut, strict=True))
    sizes = lengths(given, result)

    def apply(array: Any, *starts: Any) -> list[Any]:
        return call.operation.apply(array, *starts, slice_sizes=sizes)

    return Step([given, *[()] * len(starts)], [given], apply)


@need("gather", is_cut=True)
def gather(call: NeedCall) -> Step | None:
    """Rows at known indices of an axis; of other look-ups, the indices of the rows needed."""
    dims = call.params["dimension_numbers"]
    if dims.operand_batching_dims or len(call.shapes) != 2:
        return None
    return _rows(call) or (_look_ups(call) if call.is_partial else None)


def _rows(call: NeedCall) -> Step | None:
    """Rows of one axis, each once and in order, or one row alone: a slice, in fact."""
    dims, sizes = call.params["dimension_numbers"], call.params["slice_sizes"]
    (shape, _), (result,) = call.shapes, call.results
    indices = call.indices(call.operation.inputs[1])
    if indices is None or len(dims.start_index_map) != 1:
        return None
    (axis,) = dims.start_index_map
    is_row = dims.collapsed_slice_dims == (axis,)
    if not is_row or any(n != m for a, (n, m) in enumerate(zip(shape, sizes, strict=True))
                         if a != axis):  # fmt: skip
        return None
    rows = indices[..., 0]
    in_order = rows.size == 1 or (rows.ndim == 1 and bool((np.diff(rows) > 0).all()))
    if not in_order or not rows.size or rows.min() < 0 or rows.max() >= shape[axis]:
        return None
    of_rows = [a for a in range(len(result)) if a not in dims.offset_dims]
    of_others = [a for a in range(len(shape)) if a != axis]
    part: list[Indices] = list(call.part)
    chosen = rows.reshape(-1) if rows.size == 1 else rows[all_indices(part[of_rows[0]], len(rows))]
    taken: list[Indices] = [None] * len(shape)
    taken[axis] = narrowed(chosen, shape[axis])
    for own, of_result in zip(of_others, dims.offset_dims, strict=True):
        taken[own] = part[of_result]
    given = lengths(tuple(part), result)

    def apply(array: Any, _: Any) -> list[Any]:
        if rows.size == 1:
            return [lax.reshape(array, given)]
        order = list(of_others)
        order.insert(of_rows[0], axis)
        return [array if order == sorted(order) else lax.transpose(array, order)]

    return Step([tuple(taken), None], [tuple(part)], apply)


def _look_ups(call: NeedCall) -> Step:
    """Whole rows of a table at the indices of what is needed."""
    offset = call.params["dimension_numbers"].offset_dims
    given = tuple(None if axis in offset else a for axis, a in enumerate(call.part))
    of_indices = (*(a for axis, a in enumerate(call.part) if axis not in offset), None)
    return Step([whole(call.shapes[0]), of_indices], [given], call.operation.apply)


@need("concatenate", is_cut=True)
def concatenate(call: NeedCall) -> Step | None:
    """Of every operand what is needed of it; nothing of some."""
    axis, (result,), part = call.params["dimension"], call.results, call.part
    ends = np.cumsum([shape[axis] for shape in call.shapes])
    indices = all_indices(part[axis], result[axis])
    taken: list[Part | None] = []
    for shape, end in zip(call.shapes, ends, strict=True):
        own = indices[(indices >= end - shape[axis]) & (indices < end)] - (end - shape[axis])
        of_operand = (*part[:axis], narrowed(own, shape[axis]), *part[axis + 1 :])
        taken.append(of_operand if own.size else None)

    def apply(*operands: Any) -> list[Any]:
        some = [each for each in operands if each is not None]
        return some if len(some) == 1 else call.operation.apply(*some)

    return Step(taken, [part], apply)


@need("split")
def split(call: NeedCall) -> Step | None:
    """Pieces of an axis: those that are needed are cut out."""
    axis, (shape,) = call.params["axis"], call.shapes
    starts = np.cumsum([0, *call.params["sizes"][:-1]])
    pieces: list[Part | None] = []
    for part, start, result in zip(call.needed, starts, call.results, strict=True):
        if part is None:
            pieces.append(None)
            continue
        indices = narrowed(int(start) + all_indices(part[axis], result[axis]), shape[axis])
        pieces.append((*part[:axis], indices, *part[axis + 1 :]))
    taken = union([piece for piece in pieces if piece is not None], shape)

    def apply(array: Any) -> list[Any]:
        return [None if piece is None else crop(array, taken, piece) for piece in pieces]

    return Step([taken], call.needed, apply)
