"""What the axes of attention's arrays are, followed from operation to operation.

An axis of q · k is one of heads, or comes from its left or its right operand. Which of these two
has the queries and which the tokens shows in the softmax. Where several heads of queries share one
of keys, queries have one axis more, of the heads in a group. An axis of length 1 has no label: it
may come and go.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from jaxsens.incremental.recognition.written_attention import HeadsView
from jaxsens.incremental.trace import Operation

Shape = tuple[int, ...]
#: A name, or a kind and a number: (HEAD, 1) is the second axis of heads.
AxisLabel = Any
AxisLabels = tuple[AxisLabel, ...]

LEFT, RIGHT, HEAD = "left", "right", "head"
#: Heads of queries that share one of keys and values.
GROUP = "group"
#: Features that q · k sums over, and those of values.
PRODUCT, VALUE = "product", "value"
#: An axis along which nothing changes.
REPEATED = "repeated"

_SAME = {"stop_gradient", "convert_element_type", "copy"}
_RESHAPES = {"reshape", "squeeze", "expand_dims"}


def of_product(shapes: Sequence[Shape], dims: Any) -> tuple[list[AxisLabels], AxisLabels] | None:
    """Labels of both operands of q · k and of its result; None if it cannot be attention's."""
    contract, batch = dims
    sides = []
    for side, free in enumerate((LEFT, RIGHT)):
        shape = shapes[side]
        labels: list[AxisLabel] = [free] * len(shape)
        for kind, axes in ((PRODUCT, contract[side]), (HEAD, batch[side])):
            for number, axis in enumerate(axes):
                labels[axis] = (kind, number)
        sides.append([None if n == 1 else label for label, n in zip(labels, shape, strict=True)])
    grouped = _with_group(shapes, sides)
    return None if grouped is None else (grouped, _result(grouped, dims))


def _with_group(shapes: Sequence[Shape], sides: Sequence[list[AxisLabel]]) -> list | None:
    """One free axis on each side, and on one of them perhaps one more, of a group of heads."""
    free = [
        [axis for axis, label in enumerate(labels) if label == side]
        for labels, side in zip(sides, (LEFT, RIGHT), strict=True)
    ]
    nums = [len(axes) for axes in free]
    if max(nums) > 2 or (max(nums) == 2 and min(nums) != 1):
        return None
    if max(nums) == 2:
        side = nums.index(2)
        (other,) = free[1 - side]
        length = shapes[1 - side][other]
        # Of the two, queries are most often as many as tokens, or else more than heads.
        queries = max(
            free[side], key=lambda axis: (shapes[side][axis] == length, shapes[side][axis])
        )
        (group,) = {*free[side]} - {queries}
        sides[side][group] = (GROUP, 0)
    return [tuple(labels) for labels in sides]


def _result(sides: Sequence[AxisLabels], dims: Any) -> AxisLabels:
    contract, batch = dims
    free = [
        label
        for side, labels in enumerate(sides)
        for axis, label in enumerate(labels)
        if axis not in (*contract[side], *batch[side])
    ]
    return (*(sides[0][axis] for axis in batch[0]), *free)


def of_weighted_sum(
    weights: AxisLabels,
    values: Shape,
    dims: Any,
    side: int,
    tokens: AxisLabel,
    heads: Sequence[AxisLabel],
) -> tuple[AxisLabels, AxisLabels] | None:
    """Labels of the values that weights are multiplied with, and of the product's result.

    Args:
      weights: labels of the softmax.
      values: shape of the other operand.
      dims: the product's dimension numbers.
      side: which operand the weights are.
      tokens: the label of the axis that the softmax is over.
      heads: the labels of heads that queries, keys and values have.

    Returns:
      None if the product is not, head by head, the sum over tokens.
    """
    contract, batch = (dims[0][side], dims[0][1 - side]), (dims[1][side], dims[1][1 - side])
    free = {label for a, label in enumerate(weights) if a not in (*contract[0], *batch[0])}
    free -= {*groups(free)}
    queries = RIGHT if tokens == LEFT else LEFT
    if (
        {weights[axis] for axis in contract[0]} - {None} != {tokens}
        or {weights[axis] for axis in batch[0]} - {None} != set(heads)
        or not free <= {None, queries}
    ):
        return None
    labels: list[AxisLabel] = [
        None if n == 1 else (VALUE, number) for number, n in enumerate(values)
    ]
    for own, other in ((contract[0], contract[1]), (batch[0], batch[1])):
        for a, b in zip(own, other, strict=True):
            labels[b] = weights[a]
    sides = [weights, tuple(labels)]
    return sides[1], _result(sides if side == 0 else sides[::-1], dims)


def moved(operation: Operation, labels: AxisLabels, old: Shape, new: Shape) -> AxisLabels | None:
    """Labels after an operation that only moves entries; None if it does more, or merges axes."""
    name, params = operation.name, operation.params
    if name in _SAME:
        return labels
    if name == "transpose":
        return tuple(labels[axis] for axis in params["permutation"])
    if name == "broadcast_in_dim" and len(operation.inputs) == 1:
        found: list[AxisLabel] = [None if n == 1 else REPEATED for n in new]
        for axis, to in enumerate(params["broadcast_dimensions"]):
            if old[axis] == new[to]:
                found[to] = labels[axis]
        return tuple(found)
    if name not in _RESHAPES or (name == "reshape" and params.get("dimensions") is not None):
        return None
    if [n for n in old if n != 1] != [n for n in new if n != 1]:
        return None
    kept = iter([label for label in labels if label is not None])
    return tuple(None if n == 1 else next(kept) for n in new)


def stand_beside(small: AxisLabels, large: AxisLabels) -> bool:
    """Whether an array can be combined with a larger one entry by entry, along the same axes."""
    return len(small) == len(large) and all(
        a in (None, b) or (a == REPEATED and b is not None)
        for a, b in zip(small, large, strict=True)
    )


def heads(labels: Iterable[AxisLabel]) -> list[AxisLabel]:
    """The heads among some labels, in order."""
    return _of_kind(labels, HEAD)


def groups(labels: Iterable[AxisLabel]) -> list[AxisLabel]:
    """The axes of heads in a group among some labels."""
    return _of_kind(labels, GROUP)


def _of_kind(labels: Iterable[AxisLabel], kind: str) -> list[AxisLabel]:
    return sorted(label for label in labels if isinstance(label, tuple) and label[0] == kind)


def order(labels: AxisLabels, wanted: Sequence[AxisLabel]) -> tuple[int, ...]:
    """The axes of length 1, then those of the wanted labels that are there."""
    ones = [axis for axis, label in enumerate(labels) if label is None]
    return (*ones, *(labels.index(label) for label in wanted if label in labels))


def heads_view(
    shape: Shape,
    labels: AxisLabels,
    tokens: AxisLabel,
    heads: Sequence[AxisLabel],
    kind: str,
    repeats: int = 1,
) -> HeadsView:
    """The view of an array with these labels.

    Args:
      shape: of the array.
      labels: of its axes.
      tokens: the label of the axis of tokens.
      heads: the labels of heads; the array may lack some.
      kind: of its features.
      repeats: how many heads of queries share one of the array's.
    """
    features = _of_kind(labels, kind)
    lengths = dict(zip(labels, shape, strict=True))
    return HeadsView(
        shape,
        order(labels, [tokens, *heads, *features]),
        labels.index(tokens) if tokens in labels else None,
        math.prod(lengths[head] for head in heads if head in lengths),
        math.prod(lengths[feature] for feature in features),
        repeats,
    )
