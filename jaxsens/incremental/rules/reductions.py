"""Operations along some axes: sums, extremes, running sums, sorting.

Where the axes are none of the window's, the window keeps its place. A sum or an extreme over the
window is that of the entries outside it, once per position, with the new entries: never the clean
sum minus the old entries, which would cancel where the old ones were most of it.
"""

import jax.numpy as jnp
from jax import lax

from jaxsens.incremental.layout import union
from jaxsens.incremental.rules.rule_call import Call, Rule
from jaxsens.incremental.values import Dense, Value, Windowed, inside_mask, there_mask

#: How the entries outside a window and those inside it come together, and what changes nothing.
_TOGETHER = {
    "reduce_sum": (lax.add, 0.0),
    "reduce_max": (lax.max, -jnp.inf),
    "reduce_min": (lax.min, jnp.inf),
}


def reduction(call: Call) -> list[Value]:
    """A reduction of the window, or of what is outside and inside it."""
    value = call.inputs[0]
    if not isinstance(value, Windowed) or len(call.inputs) != 1:
        return call.densely()
    axes = tuple(int(axis) for axis in call.params["axes"])
    kept = [axis for axis in range(len(value.layout.shape)) if axis not in axes]
    layout = value.layout.on(call.clean[0].shape, kept)
    if not set(axes) & set(value.layout.axes):
        linear = call.operation.name == "reduce_sum" and value.is_change
        form = "change" if linear else "new"
        (reduced,) = call.operation.apply(value.change if linear else value.new)
        return [call.result(layout, **{form: reduced})]
    together = _TOGETHER.get(call.operation.name)
    if together is None or layout.axes or not jnp.issubdtype(value.clean.dtype, jnp.floating):
        return call.densely()
    combine, nothing = together
    inside = inside_mask(value.layout, call.place)
    outside = jnp.where(inside, jnp.asarray(nothing, value.clean.dtype), value.clean)
    entries, mask = value.new, there_mask(value.layout, call.place)
    if mask is not None:
        entries = jnp.where(mask, entries, jnp.asarray(nothing, entries.dtype))
    parts = (call.operation.apply(part)[0] for part in (outside, entries))
    return [Dense(combine(*parts))]


def along_axis(call: Call) -> list[Value]:
    """Operations along one axis that keep the shape: running sums, sorting."""
    values = [value for value in call.inputs if isinstance(value, Windowed)]
    axis = call.params["axis"] if "axis" in call.params else call.params["dimension"]
    if (
        len(values) < len(call.inputs)
        or any(axis in value.layout.axes for value in values)
        or not all(value.layout.same_as(values[0].layout) for value in values)
    ):
        return call.densely()
    layout = union([value.layout for value in values], values[0].layout.shape)
    results = call.operation.apply(*(value.new for value in values))
    return [call.result(layout, new=new, output=i) for i, new in enumerate(results)]


RULES: dict[str, Rule] = {
    **dict.fromkeys(
        ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or",
         "argmax", "argmin"),
        reduction,
    ),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", "sort"), along_axis),
}  # fmt: skip
