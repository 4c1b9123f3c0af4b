"""Values of a traced function that do not depend on its arguments, such as masks.

They are computed when the model is traced, and only if asked for: a mask that is known then may
turn out to be causal, and its scale and offset need no pass.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxsens.incremental.attention_masks import AffineMask
from jaxsens.incremental.recognition.written_attention import LogitChain
from jaxsens.incremental.trace import Constant, Operand, Operation, Trace, evaluate


class KnownValues:
    """The values of a trace that are made of constants alone."""

    def __init__(self, trace: Trace):
        self._makers: dict[int, Operation] = {}
        self._values: dict[int, Any] = {}
        for operation in trace.operations:
            if all(self._is_known(operand) for operand in operation.inputs):
                self._makers.update(dict.fromkeys(operation.outputs, operation))

    def _is_known(self, operand: Operand) -> bool:
        if isinstance(operand, Constant):
            return not isinstance(operand.value, jax.core.Tracer)
        return operand in self._makers

    def mask(self, logits: LogitChain, others: Sequence[int]) -> AffineMask | None:
        """The scale and the offset of logits, as small as they can be; None if they are not known.

        Args:
          logits: from q · k to the softmax.
          others: the numbers of the chain's other operands.
        """
        of_chain = [operand for operation in logits.chain for operand in operation.inputs]
        needed: list[Operand] = [each for each in of_chain if isinstance(each, Constant)]
        needed += others
        if not all(self._is_known(operand) for operand in needed):
            return None
        with jax.ensure_compile_time_eval():
            self._compute(others)
            scale, offset = logits.scale_and_offset({each: self._values[each] for each in others})
            return AffineMask(_smallest(scale), _smallest(offset))

    def _compute(self, numbers: Sequence[int]) -> None:
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


def _smallest(array: Array) -> Array:
    """With length 1 for axes along which nothing changes."""
    small = np.asarray(array)
    for axis in range(small.ndim):
        first = small.take([0], axis)
        small = first if (small == first).all() else small
    return jnp.asarray(small)
