"""Values of a traced function that do not depend on its arguments, such as masks and indices.

They are computed when the model is traced, and only if asked for.
"""

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from jaxsens.incremental.trace import Constant, Operand, Operation, Trace, evaluate

#: An index with more entries is taken for unknown.
_MOST_INDICES = 4096


class KnownValues:
    """The values of a trace that are made of constants alone."""

    def __init__(self, trace: Trace):
        self._trace = trace
        self._makers: dict[int, Operation] = {}
        self._values: dict[int, Any] = {}
        for operation in trace.operations:
            if all(self.is_known(operand) for operand in operation.inputs):
                self._makers.update(dict.fromkeys(operation.outputs, operation))

    def is_known(self, operand: Operand) -> bool:
        """Whether it does not depend on the function's arguments."""
        if isinstance(operand, Constant):
            return not isinstance(operand.value, jax.core.Tracer)
        return operand in self._makers

    def values(self, numbers: Iterable[int]) -> dict[int, Any]:
        """These known values, by their numbers."""
        numbers = list(numbers)
        with jax.ensure_compile_time_eval():
            self._compute(numbers)
        return {number: self._values[number] for number in numbers}

    def indices(self, operand: Operand) -> np.ndarray | None:
        """A few whole numbers, if the operand is known to be such."""
        if not self.is_known(operand):
            return None
        aval = self._trace.avals[operand] if isinstance(operand, int) else np.asarray(operand.value)
        if aval.dtype.kind not in "iu" or aval.size > _MOST_INDICES:
            return None
        value = self.values([operand])[operand] if isinstance(operand, int) else operand.value
        return np.asarray(value)

    def _compute(self, numbers: Iterable[int]) -> None:
        """Computes these values and what they are made of, in the order of the trace."""
        wanted: set[int] = set()
        left = [number for number in numbers if number not in self._values]
        while left:
            number = left.pop()
            if number in wanted or number in self._values:
                continue
            operation = self._makers[number]
            wanted.update(operation.outputs)
            left += [operand for operand in operation.inputs if isinstance(operand, int)]
        # An operation with several results is run once; numbers grow in the order of the trace.
        operations = {id(self._makers[number]): self._makers[number] for number in sorted(wanted)}
        evaluate(list(operations.values()), self._values)
