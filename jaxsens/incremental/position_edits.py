"""Edits of one position, cut into what all of them share and what each needs for itself.

The new entries of the window reach only some of the operations that an edit takes. The others (the
sums of attention over all tokens outside the window, the weights that the window meets) depend on
the example and the position alone. Whoever makes hundreds of edits at one position one after the
other, as an ascent does, computes those once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxsens.core.tracing import as_shapes
from jaxsens.incremental.program import CleanValues, Program
from jaxsens.incremental.trace import Operand, Operation, evaluate, trace, value_of


@dataclass(frozen=True, eq=False)
class SplitEdit:
    """The edits of a position, whichever of its group it is and whatever the example.

    Attributes:
      once: the operations that do not depend on the new entries.
      each: those that do.
      given: the numbers of the clean values, and of the position's index.
      window: the number of the new entries.
      shared: the numbers of all other values that `each` takes.
      result: what the model's output is.

    Example:
      >>> from jaxsens import Tokens
      >>> from jaxsens.incremental import make_program
      >>> weights, x = jnp.array([1.0, 2.0]), jnp.array([[1.0, 1.0], [3.0, 0.0]])
      >>> model = lambda weights, x: (x * weights[None, None]).sum(axis=(1, 2))[:, None]
      >>> program = make_program(model, weights, x, (), Tokens(), "cpu", 1)
      >>> @jax.jit
      ... def edited(weights, x, position, entries):
      ...     clean = program.clean(weights, x, ())
      ...     split = split_edit(program, 0, clean, entries)
      ...     prepared = split.prepare(clean, position)
      ...     return split.output(prepared, entries)
      >>> float(edited(weights, x, jnp.int32(1), jnp.array([[0.0, 5.0]]))[0])  # 1 + 2 + 2·5
      13.0
    """

    once: tuple[Operation, ...]
    each: tuple[Operation, ...]
    given: tuple[int, ...]
    window: int
    shared: tuple[int, ...]
    result: Operand

    def prepare(self, clean: CleanValues, index: Int[Array, ""]) -> tuple[Any, ...]:
        """What all edits of a position share.

        Args:
          clean: what the model computes of the unedited example.
          index: of the position in its group.
        """
        values = dict(zip(self.given, jax.tree.leaves((clean, index)), strict=True))
        evaluate(self.once, values)
        return tuple(values[number] for number in self.shared)

    def output(self, prepared: tuple[Any, ...], window: Array) -> Array:
        """The model's output with these entries in the window; it can be differentiated in them."""
        values = dict(zip(self.shared, prepared, strict=True)) | {self.window: window}
        evaluate(self.each, values)
        return value_of(values, self.result)


def split_edit(program: Program, group: int, clean: CleanValues, window: Any) -> SplitEdit:
    """Traces the edits of one position.

    Args:
      program: the model.
      group: the number of the position's group.
      clean: what the model computes of an unedited example, or the shapes of that.
      window: the shape of the new entries.

    Example:
      >>> from jaxsens import Tokens
      >>> from jaxsens.incremental import make_program
      >>> weights, x = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((64, 10), (100, 64)))
      >>> model = lambda weights, x: (x @ weights).sum(axis=1)
      >>> program = make_program(model, weights, x, (), Tokens(), "cpu", 1)
      >>> clean = jax.eval_shape(program.clean, weights, x, ())
      >>> split = split_edit(program, 0, clean, jax.ShapeDtypeStruct((1, 64), jnp.float32))
      >>> "dot_general" in [operation.name for operation in split.each]
      True
    """
    index = jax.ShapeDtypeStruct((), jnp.int32)
    leaves, tree = jax.tree.flatten((as_shapes(clean), index))

    def output(*arguments: Any) -> Array:
        clean, index = jax.tree.unflatten(tree, arguments[:-1])
        return program.edit(clean, group, index, arguments[-1])[0]

    traced = trace(output, *leaves, window, platform=program.trace.platform, is_mark=_never)
    *given, new = traced.inputs
    (result,) = traced.outputs
    reached = traced.dependents([new])
    once: list[Operation] = []
    each: list[Operation] = []
    for operation in _leading_to(result, traced.operations):
        (each if reached.intersection(operation.outputs) else once).append(operation)
    taken = {number for operation in each for number in _numbers(operation.inputs)}
    shared = sorted((taken | {*_numbers([result])}) - reached)
    return SplitEdit(tuple(once), tuple(each), tuple(given), new, tuple(shared), result)


def _never(*_: Any) -> bool:
    return False


def _numbers(operands: Sequence[Operand]) -> list[int]:
    return [operand for operand in operands if isinstance(operand, int)]


def _leading_to(result: Operand, operations: Sequence[Operation]) -> list[Operation]:
    """The operations without which there is no result: notes on doubt, say, are left out."""
    needed, found = {*_numbers([result])}, []
    for operation in reversed(operations):
        if needed.intersection(operation.outputs):
            needed.update(_numbers(operation.inputs))
            found.append(operation)
    return found[::-1]
