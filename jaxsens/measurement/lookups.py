"""Ids that a model looks up must have a row in its table.

For an id beyond the table JAX takes the last row, and it counts a negative id from the end, both
without a word. So a model of whole numbers is traced once more, without compiling or running it, to
find the tables in which it looks up its input as it is: `table[x]`, `jnp.take` and `nn.Embed` do.
All ids of `x`, and those that an edit may draw, are then compared with the sizes of these tables.

Not found are lookups inside loops or callbacks, lookups of ids that were computed with first, and
one-hot products. If the model itself says what an index beyond the table gives (`mode="clip"`),
such ids are accepted.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import GatherScatterMode

from jaxsens.core.scalars import as_whole
from jaxsens.incremental.trace import Constant, Operation, Trace, UnmappableError, trace

#: Operations that give the same numbers in another form.
_COPIES = {"broadcast_in_dim", "convert_element_type", "copy", "expand_dims", "reshape", "squeeze",
           "transpose"}  # fmt: skip


def check_ids(
    apply_fn: Callable,
    params: Any,
    inputs: tuple[Any, ...],
    ids: np.ndarray,
    *,
    vocabulary: Any = None,
) -> None:
    """Raises ValueError for ids without a row in a table that the model looks its input up in.

    Args:
      apply_fn: `apply_fn(params, *inputs)`.
      params: its parameters.
      inputs: (n, …) arrays, the first of them looked up.
      ids: those of the first input that are real.
      vocabulary: of how many ids an edit draws one, if it draws ids.
    """
    if not ids.size or not jnp.issubdtype(ids.dtype, jnp.integer):
        return
    two = jax.tree.map(lambda a: jax.ShapeDtypeStruct((2, *a.shape[1:]), a.dtype), inputs)
    leaves, tree = jax.tree.flatten((jax.tree.map(jax.typeof, params), two))
    num_rows = _fewest_rows(apply_fn, tuple(leaves), tree)
    low, high = int(ids.min()), int(ids.max())
    if low < 0 and num_rows < math.inf:
        raise ValueError(
            f"x holds the id {low}, but the model looks ids up in a table, where JAX counts it "
            "from the end; use ids >= 0, or mask what is no token"
        )
    if high >= num_rows:
        raise ValueError(
            f"x holds the id {high}, but the model looks ids up in a table of {num_rows} rows, "
            f"where JAX takes the last one; use ids below {num_rows}, or mask what is no token"
        )
    size = as_whole(vocabulary)
    if size is not None and size > num_rows:
        raise ValueError(
            f"perturbation draws ids up to {size - 1}, but the model looks ids up in a table of "
            f"{num_rows} rows, where JAX takes the last one; use vocabulary={num_rows}"
        )


@functools.lru_cache(maxsize=64)
def _fewest_rows(apply_fn: Callable, leaves: tuple, tree: Any) -> int | float:
    """Rows of the smallest table in which the model looks up its input; inf without any."""
    num_params = len(jax.tree.leaves(jax.tree.unflatten(tree, leaves)[0]))

    def flat(*arguments: Any) -> Any:
        params, inputs = jax.tree.unflatten(tree, arguments)
        return apply_fn(params, *inputs)

    try:
        traced = trace(flat, *leaves, platform=jax.default_backend(), is_mark=lambda *_: False)
    except UnmappableError:
        # Of a callback that must see the whole batch nothing is known, and nothing is refused.
        return math.inf
    looked_up = traced.inputs[num_params]
    made_by = {number: each for each in traced.operations for number in each.outputs}
    return min(
        (
            _num_rows(traced, operation)
            for operation in traced.operations
            if operation.name == "gather"
            and not _is_meant(operation)
            and _origin(made_by, operation.inputs[1]) == looked_up
        ),
        default=math.inf,
    )


def _is_meant(gather: Operation) -> bool:
    """Whether the model itself says what an index beyond the table is to give."""
    fill = gather.params["fill_value"]
    if gather.params["mode"] == GatherScatterMode.FILL_OR_DROP:
        return fill is not None and not np.isnan(fill)
    return gather.params["mode"] == GatherScatterMode.CLIP


def _num_rows(traced: Trace, gather: Operation) -> int:
    table = gather.inputs[0]
    shape = np.shape(table.value) if isinstance(table, Constant) else traced.avals[table].shape
    (axis,) = gather.params["dimension_numbers"].start_index_map
    return shape[axis] - gather.params["slice_sizes"][axis] + 1


def _origin(made_by: dict[int, Operation], operand: Any) -> Any:
    """What an index is a copy of: through other forms, and through counting from the end."""
    while isinstance(operand, int) and operand in made_by:
        operation = made_by[operand]
        if operation.name in _COPIES:
            operand = operation.inputs[0]
        elif operation.name == "select_n" and _counts_from_the_end(made_by, operation):
            operand = operation.inputs[1]
        else:
            return None
    return operand


def _counts_from_the_end(made_by: dict[int, Operation], select: Operation) -> bool:
    """Whether this is where(i < 0, i + rows, i), which JAX makes of every index i."""
    negative, index = select.inputs[:2]
    compared = made_by.get(negative) if isinstance(negative, int) else None
    return compared is not None and compared.name == "lt" and compared.inputs[0] == index
