"""Operations on one entry at a time: the window stays as it is."""

import jax.numpy as jnp
from jaxtyping import Array

from jaxsens.incremental.layout import Layout, union
from jaxsens.incremental.rules.rule_call import Call, Rule
from jaxsens.incremental.values import Clean, Value, Windowed, clean_of, clean_window

_NAMES = [
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
]
#: A change goes through these by itself.
_UNARY_LINEAR = {"neg", "copy", "copy_p", "stop_gradient"}
_SUMS = {"add", "add_any", "sub"}


def elementwise(call: Call) -> list[Value]:
    """New entries from the operands' entries, or the change from their changes."""
    if call.is_dense:
        return call.densely()
    shape = call.clean[0].shape
    layout = union([_as_rank(call.windowed(i).layout, len(shape)) for i in call.edited], shape)
    if any(call.windowed(i).layout.shape != shape for i in call.edited):
        # An edited operand is broadcast: every copy changes.
        return _entries(call, layout)
    if jnp.issubdtype(call.clean[0].dtype, jnp.inexact):
        change = _change(call, layout)
        if change is not None:
            return [call.result(layout, change=change)]
    return _entries(call, layout)


def _as_rank(layout: Layout, rank: int) -> Layout:
    """Scalars have no axes of their own."""
    if len(layout.shape) == rank:
        return layout
    touched = layout.touched.reshape(len(layout.touched), *(1,) * rank)
    return Layout((1,) * rank, (None,) * rank, touched)


def _entries(call: Call, layout: Layout) -> list[Value]:
    entries = [_new(value, layout, call) for value in call.inputs]
    return [call.result(layout, new=call.operation.apply(*entries)[0])]


def _new(value: Value, layout: Layout, call: Call) -> Array:
    if isinstance(value, Windowed):
        if value.layout.shape == layout.shape:
            return value.to(layout).new
        own = layout.on(value.layout.shape, range(len(value.layout.shape)))
        tables = tuple(
            t if n == m else None
            for t, n, m in zip(own.tables, own.shape, layout.shape, strict=True)
        )
        return value.to(Layout(own.shape, tables, own.touched)).new
    return clean_window(clean_of(value), layout, call.place)


def _change(call: Call, layout: Layout) -> Array | None:
    """The change of a linear operation; None where it needs new entries."""
    name, edited = call.operation.name, call.edited
    if not all(call.windowed(i).is_change for i in edited):
        return None
    if name in _UNARY_LINEAR:
        return call.operation.apply(call.windowed(0).change)[0]
    if name in _SUMS:
        changes = [call.windowed(i).to(layout).change for i in edited]
        if name == "sub" and edited[-1] == 1:
            changes[-1] = -changes[-1]
        return changes[0] if len(changes) == 1 else changes[0] + changes[1]
    if (name == "mul" and len(edited) == 1) or (name == "div" and edited == [0]):
        operands = [
            clean_window(v.value, layout, call.place)
            if isinstance(v, Clean)
            else v.to(layout).change  # type: ignore[union-attr]
            for v in call.inputs
        ]
        return call.operation.apply(*operands)[0]
    return None


RULES: dict[str, Rule] = dict.fromkeys(_NAMES, elementwise)
