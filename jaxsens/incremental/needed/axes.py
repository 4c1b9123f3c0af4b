"""Needs of operations that keep axes apart: what is needed along an axis stays on it.

Entry by entry, axes moved, merged and split, repeated, summed over; products; attention.
"""

import functools
from typing import Any

from jaxsens.incremental.attention_operation import attention_kind, kinds_by_mark, of_kind
from jaxsens.incremental.folded_attention import CAUSAL_BY_MARK, of_mark
from jaxsens.incremental.needed.parts import Indices, Part, lengths, merged, split, whole
from jaxsens.incremental.needed.steps import NeedCall, Step, need
from jaxsens.incremental.rules.elementwise import ENTRYWISE
from jaxsens.incremental.rules.reshaping import axis_groups


@need(*ENTRYWISE, "name")
def entrywise(call: NeedCall) -> Step | None:
    """The same entries of every operand; of a scalar, or an axis of length 1, what there is."""
    part, (shape,) = call.part, call.results
    if any(len(own) not in (0, len(shape)) for own in call.shapes):
        return None
    taken = [
        tuple(a if n == m else None for a, n, m in zip(part, own, shape, strict=True))
        if own
        else ()
        for own in call.shapes
    ]
    return Step(taken, [part], call.operation.apply)


@need("broadcast_in_dim")
def broadcast_in_dim(call: NeedCall) -> Step | None:
    """New axes, and axes of length 1 repeated: fewer times."""
    if len(call.shapes) != 1:
        return None
    part, (old,), (shape,) = call.part, call.shapes, call.results
    taken = tuple(
        part[target] if old[axis] == shape[target] else None
        for axis, target in enumerate(call.params["broadcast_dimensions"])
    )
    apply = functools.partial(call.operation.apply, shape=lengths(part, shape))
    return Step([taken], [part], apply)


@need("transpose")
def transpose(call: NeedCall) -> Step | None:
    """Axes in another order."""
    taken: list[Indices] = [None] * len(call.part)
    for axis, source in enumerate(call.params["permutation"]):
        taken[source] = call.part[axis]
    return Step([tuple(taken)], [call.part], call.operation.apply)


@need("squeeze")
def squeeze(call: NeedCall) -> Step | None:
    """Axes of length 1 go."""
    (shape,), kept = call.shapes, iter(call.part)
    gone = {axis % len(shape) for axis in call.params["dimensions"]}
    taken = tuple(None if axis in gone else next(kept) for axis in range(len(shape)))
    return Step([taken], [call.part], call.operation.apply)


@need("reshape")
def reshape(call: NeedCall) -> Step | None:
    """Axes merged and split, where the indices on the other side are a product of sets again."""
    if len(call.shapes) != 1 or call.params.get("dimensions") is not None:
        return None
    (old,), (new,) = call.shapes, call.results
    taken, given = list(whole(old)), list(call.part)
    for old_axes, new_axes in axis_groups(old, new):
        indices = merged([given[axis] for axis in new_axes], [new[axis] for axis in new_axes])
        parts = split(indices, [old[axis] for axis in old_axes])
        if parts is None:
            for axis in new_axes:
                given[axis] = None
            continue
        for axis, part in zip(old_axes, parts, strict=True):
            taken[axis] = part
    sizes = lengths(tuple(given), new)
    apply = functools.partial(call.operation.apply, new_sizes=sizes)
    return Step([tuple(taken)], [tuple(given)], apply)


@need("dot_general")
def dot_general(call: NeedCall) -> Step | None:
    """Rows of a product are products of rows."""
    contract, batch = call.params["dimension_numbers"]
    taken = [list(whole(shape)) for shape in call.shapes]
    given = iter(call.part)
    for left, right in zip(*batch, strict=True):
        taken[0][left] = taken[1][right] = next(given)
    for side in (0, 1):
        for axis in range(len(taken[side])):
            if axis not in (*contract[side], *batch[side]):
                taken[side][axis] = next(given)
    return Step([tuple(part) for part in taken], [call.part], call.operation.apply)


@need(
    "reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or",
    "reduce_xor", "argmax", "argmin",
)  # fmt: skip
def reduction(call: NeedCall) -> Step | None:
    """All that is summed over, of the rows that are needed."""
    if len(call.shapes) != 1:
        return None
    (shape,), kept = call.shapes, iter(call.part)
    axes = {int(axis) for axis in call.params["axes"]}
    taken = tuple(None if axis in axes else next(kept) for axis in range(len(shape)))
    return Step([taken], [call.part], call.operation.apply)


@need("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def running(call: NeedCall) -> Step | None:
    """Running sums along one axis, whole there."""
    part = _whole_along(call.part, {call.params["axis"]})
    return Step([part], [part], call.operation.apply)


@need("rev")
def reverse(call: NeedCall) -> Step | None:
    """The opposite order along some axes."""
    (shape,) = call.shapes
    taken = tuple(
        n - 1 - a[::-1] if a is not None and axis in call.params["dimensions"] else a
        for axis, (a, n) in enumerate(zip(call.part, shape, strict=True))
    )
    return Step([taken], [call.part], call.operation.apply)


@need("pad")
def pad(call: NeedCall) -> Step | None:
    """Padded axes whole, the others as they are needed."""
    config = call.params["padding_config"]
    padded = {axis for axis, each in enumerate(config) if tuple(map(int, each)) != (0, 0, 0)}
    part = _whole_along(call.part, padded)
    return Step([part, ()], [part], call.operation.apply)


def _whole_along(part: Part, axes: set[int]) -> Part:
    return tuple(None if axis in axes else each for axis, each in enumerate(part))


@need(*(name for name, kind in kinds_by_mark().items() if not kind.causal))
def marked_attention(call: NeedCall) -> Step | None:
    """`jaxsens.attention` of the queries that are needed, to all tokens.

    A causal one takes as many queries as tokens.
    """
    kind = attention_kind(call.operation.name)
    assert kind is not None
    q, _, _, visible, *out = call.shapes
    examples, queries = call.part[:2]
    of_mask = examples if visible[0] == q[0] else None
    taken: list[Part] = [
        (examples, queries, None, None),
        (examples, None, None, None),
        (examples, None, None, None),
        (of_mask, queries, None),
        *map(whole, out),
    ]
    given = (examples, queries, *(None for _ in call.part[2:]))

    def apply(*operands: Any) -> list[Any]:
        return [of_kind(kind)(*operands)]

    return Step(taken, [given], apply)


@need(*(name for name, is_causal in CAUSAL_BY_MARK.items() if not is_causal))
def folded_attention(call: NeedCall) -> Step | None:
    """The same with its projections folded: tokens stand for keys and values."""
    queries, _, visible, *others = call.shapes
    examples, needed = call.part[:2]
    taken: list[Part] = [
        (examples, needed, None),
        (examples, None, None),
        (examples if visible[0] == queries[0] else None, needed, None),
        *map(whole, others),
    ]

    def apply(*operands: Any) -> list[Any]:
        return [of_mark(call.operation.name)(*operands)]

    return Step(taken, [(examples, needed, None)], apply)
