"""PyTorch's operations (ATen) in JAX, one family a file: a table from their names to functions.

A function takes what the operation of that name takes, with arrays in place of tensors. What is not
in the table is decomposed by PyTorch into what is, where it can be. To add an operation, add a
function to the family it belongs to.

Assumption: no operation changes its operands; PyTorch takes such out when it exports a module.
"""

from collections.abc import Callable
from typing import Any

from jaxsens.adapters.operations import (
    contractions,
    creation,
    elementwise,
    indexing,
    layers,
    recurrent,
    reductions,
    reshaping,
)  # fmt: skip

#: "aten.add": the function, for all overloads of an operation.
OPERATIONS: dict[str, Callable[..., Any]] = {
    f"aten.{name}": function
    for family in (
        contractions, creation, elementwise, indexing, layers, recurrent, reductions, reshaping,
    )
    for name, function in family.OPERATIONS.items()
}  # fmt: skip
