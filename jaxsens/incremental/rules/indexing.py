"""Look-ups: the rows that a table holds at edited indices.

A row differs at most where its index does, so the window of the indices is that of the rows.
"""

from jaxsens.incremental.rules.rule_call import RuleCall, rule
from jaxsens.incremental.values import Clean, Value, Windowed


@rule("gather")
def gather(call: RuleCall) -> list[Value]:
    """Rows of a clean table at edited indices."""
    operand, indices = call.inputs
    dims = call.params["dimension_numbers"]
    if (
        not isinstance(operand, Clean)
        or not isinstance(indices, Windowed)
        or dims.operand_batching_dims
        or indices.layout.tables[-1] is not None
    ):
        return call.densely()
    shape = call.clean[0].shape
    batch = iter(range(len(indices.layout.shape) - 1))
    axes = [None if axis in dims.offset_dims else next(batch) for axis in range(len(shape))]
    (new,) = call.operation.apply(operand.value, indices.new)
    return [call.result(indices.layout.with_axes(shape, axes), new=new)]
