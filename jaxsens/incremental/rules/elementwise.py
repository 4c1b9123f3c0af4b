"""Operations on one entry at a time: the window stays as it is.

A result differs at most where an operand does, so its window is the union of the operands' windows.
Linear operations pass a change on as a change; all others take new entries. A primitive may stand
in the list below only if no entry of its result depends on any other entry of its operands.
"""

import jax.numpy as jnp
from jaxtyping import Array

from jaxsens.incremental.edited_position import EditedPosition
from jaxsens.incremental.layout import Layout, union_of_layouts
from jaxsens.incremental.rules.rule_call import RuleCall, rule
from jaxsens.incremental.values import Value, Windowed, clean_array
from jaxsens.incremental.windows import clean_window

#: Primitives that map every entry by itself.
ENTRYWISE = (
    "abs",
    "acos",
    "acosh",
    "add",
    "add_any",
    "and",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cbrt",
    "ceil",
    "clamp",
    "complex",
    "conj",
    "convert_element_type",
    "copy",
    "copy_p",
    "cos",
    "cosh",
    "digamma",
    "div",
    "eq",
    "erf",
    "erf_inv",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "ge",
    "gt",
    "igamma",
    "igammac",
    "imag",
    "integer_pow",
    "is_finite",
    "le",
    "lgamma",
    "log",
    "log1p",
    "logistic",
    "lt",
    "max",
    "min",
    "mul",
    "ne",
    "neg",
    "nextafter",
    "not",
    "or",
    "population_count",
    "pow",
    "real",
    "reduce_precision",
    "regularized_incomplete_beta",
    "rem",
    "round",
    "rsqrt",
    "select_n",
    "shift_left",
    "shift_right_arithmetic",
    "shift_right_logical",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "stop_gradient",
    "sub",
    "tan",
    "tanh",
    "xor",
)
#: A change goes through these by itself.
_UNARY_LINEAR = {"neg", "copy", "copy_p", "stop_gradient"}
_SUMS = {"add", "add_any", "sub"}


@rule(*ENTRYWISE)
def elementwise(call: RuleCall) -> list[Value]:
    """New entries from the operands' entries, or the change from their changes."""
    if call.has_dense_input:
        return call.densely()
    shape = call.clean[0].shape
    operands = call.windowed_inputs.values()
    layout = union_of_layouts([_with_rank(v.layout, len(shape)) for v in operands], shape)
    if any(value.layout.shape != shape for value in operands):
        # An edited operand is broadcast: every copy changes.
        return _from_entries(call, layout)
    if jnp.issubdtype(call.clean[0].dtype, jnp.inexact):
        change = _linear_change(call, layout)
        if change is not None:
            return [call.result(layout, change=change)]
    return _from_entries(call, layout)


def _with_rank(layout: Layout, rank: int) -> Layout:
    """Scalars have no axes of their own."""
    if len(layout.shape) == rank:
        return layout
    reachable = layout.reachable.reshape(layout.num_positions, *(1,) * rank)
    return Layout((1,) * rank, (None,) * rank, reachable)


def _from_entries(call: RuleCall, layout: Layout) -> list[Value]:
    entries = [entries_in(value, layout, call.position) for value in call.inputs]
    return [call.result(layout, new=call.operation.apply(*entries)[0])]


def entries_in(value: Value, layout: Layout, position: EditedPosition) -> Array:
    """The entries, as the edit leaves them, of an operand in the window of a result."""
    if not isinstance(value, Windowed):
        return clean_window(value.value, layout, position)
    if value.layout.shape == layout.shape:
        return value.to(layout).new
    own = layout.with_axes(value.layout.shape, range(len(value.layout.shape)))
    tables = tuple(
        t if n == m else None for t, n, m in zip(own.tables, own.shape, layout.shape, strict=True)
    )
    return value.to(Layout(own.shape, tables, own.reachable)).new


def _linear_change(call: RuleCall, layout: Layout) -> Array | None:
    """The change of a linear operation; None where it needs new entries."""
    name, operands = call.operation.name, call.windowed_inputs
    if not all(value.is_change for value in operands.values()):
        return None
    if name in _UNARY_LINEAR:
        return call.operation.apply(operands[0].change)[0]
    if name in _SUMS:
        changes = [value.to(layout).change for value in operands.values()]
        if name == "sub" and 1 in operands:
            changes[-1] = -changes[-1]
        return changes[0] if len(changes) == 1 else changes[0] + changes[1]
    if (name == "mul" and len(operands) == 1) or (name == "div" and [*operands] == [0]):
        factors = [
            value.to(layout).change
            if isinstance(value, Windowed)
            else clean_window(clean_array(value), layout, call.position)
            for value in call.inputs
        ]
        return call.operation.apply(*factors)[0]
    return None
