"""Operations along some axes: sums, extremes, running sums, sorting.

Where the axes are none of the window's, the window keeps its place. A sum or an extreme over the
window is that of the entries outside it, once per position, with the new entries: never the clean
sum minus the old entries, which would cancel where the old ones were most of it.
"""

import jax.numpy as jnp
from jax import lax

from jaxsens.incremental.layout import union_of_layouts
from jaxsens.incremental.rules.rule_call import RuleCall, rule
from jaxsens.incremental.values import Dense, Value, Windowed
from jaxsens.incremental.windows import in_bounds_mask, window_mask

#: How a result outside the window and one inside it are combined, and what changes neither.
_COMBINED = {
    "reduce_sum": (lax.add, 0.0),
    "reduce_max": (lax.max, -jnp.inf),
    "reduce_min": (lax.min, jnp.inf),
}


@rule(*_COMBINED, "reduce_prod", "reduce_and", "reduce_or", "argmax", "argmin")
def reduction(call: RuleCall) -> list[Value]:
    """A reduction of the window, or of what is outside and inside it."""
    value = call.inputs[0]
    if not isinstance(value, Windowed) or len(call.inputs) != 1:
        return call.densely()
    axes = tuple(int(axis) for axis in call.params["axes"])
    kept = [axis for axis in range(len(value.layout.shape)) if axis not in axes]
    layout = value.layout.with_axes(call.clean[0].shape, kept)
    if not set(axes) & set(value.layout.axes):
        if call.operation.name == "reduce_sum":
            return [call.result_like(value, layout, call.operation.apply(value.given)[0])]
        return [call.result(layout, new=call.operation.apply(value.new)[0])]
    combined = _COMBINED.get(call.operation.name)
    if combined is None or layout.axes or not jnp.issubdtype(value.clean.dtype, jnp.floating):
        return call.densely()
    combine, neutral = combined
    covered = window_mask(value.layout, call.position)
    outside = jnp.where(covered, jnp.asarray(neutral, value.clean.dtype), value.clean)
    inside, mask = value.new, in_bounds_mask(value.layout, call.position)
    if mask is not None:
        inside = jnp.where(mask, inside, jnp.asarray(neutral, inside.dtype))
    parts = (call.operation.apply(part)[0] for part in (outside, inside))
    return [Dense(combine(*parts))]


@rule("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", "sort")
def along_axis(call: RuleCall) -> list[Value]:
    """Operations along one axis that keep the shape: running sums, sorting."""
    values = [*call.windowed_inputs.values()]
    axis = call.params["axis"] if "axis" in call.params else call.params["dimension"]
    if (
        len(values) < len(call.inputs)
        or any(axis in value.layout.axes for value in values)
        or not all(value.layout.has_windows_of(values[0].layout) for value in values)
    ):
        return call.densely()
    layout = union_of_layouts([value.layout for value in values], values[0].layout.shape)
    results = call.operation.apply(*(value.new for value in values))
    return [call.result(layout, new=new, output=i) for i, new in enumerate(results)]
