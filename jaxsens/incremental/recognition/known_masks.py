"""What is known of the masks of attention when a model is traced.

Of a mask that is made of constants all is: its scale and offset need no pass. Of one that each
example has of its own, such as padding, it is asked what it would be if all tokens were seen: it
may be causal then, and is looked at again with every example (`causality`).
"""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxsens.incremental.attention_masks import AffineMask
from jaxsens.incremental.known_values import KnownValues
from jaxsens.incremental.recognition.written_attention import LogitChain
from jaxsens.incremental.trace import Constant, Operand, Operation, Trace, evaluate

#: Masks that more operations, or wider ones, lead to are not tried out.
_MOST_OPERATIONS, _MOST_ENTRIES = 300, 1 << 22
#: Operations that no mask is made of, or that do more than compute entries.
_UNTRIED = {"dot_general", "conv_general_dilated", "scan", "while", "cond", "custom_vjp_call",
            "pure_callback", "io_callback"}  # fmt: skip


class KnownMasks:
    """The masks of a traced function, as far as they are known."""

    def __init__(self, trace: Trace):
        self._trace = trace
        self._known = KnownValues(trace)
        self._makers = {number: each for each in trace.operations for number in each.outputs}
        self._tried: dict[int, dict[int, Any]] = {0: {}, 1: {}}

    def mask(self, logits: LogitChain, others: Sequence[int]) -> AffineMask | None:
        """The scale and the offset of logits, as small as they can be; None if they are not known.

        Args:
          logits: from q · k to the softmax.
          others: the numbers of the chain's other operands.
        """
        of_chain = [operand for operation in logits.chain for operand in operation.inputs]
        needed: list[Operand] = [each for each in of_chain if isinstance(each, Constant)]
        needed += others
        if not all(self._known.is_known(operand) for operand in needed):
            return None
        values = self._known.values(others)
        with jax.ensure_compile_time_eval():
            return AffineMask(*map(_smallest, logits.scale_and_offset(values)))

    def tried(self, logits: LogitChain, others: Sequence[int]) -> Iterator[AffineMask]:
        """What the mask is if all that is not known is 1, then 0: one of them sees all tokens.

        The arguments are those of `mask`. Nothing is given where that would take long.
        """
        operations = self._leading_to(others)
        of_chain = [operand for operation in logits.chain for operand in operation.inputs]
        if operations is None or not all(map(_is_concrete, of_chain)):
            return
        taken = {n for each in operations for n in each.inputs if isinstance(n, int)}.union(others)
        given = [number for number in self._trace.inputs if number in taken]
        for fill, values in self._tried.items():
            with jax.ensure_compile_time_eval():
                for number in given:
                    aval = self._trace.avals[number]
                    values.setdefault(number, jnp.full(aval.shape, fill, aval.dtype))
                evaluate([each for each in operations if each.outputs[0] not in values], values)
                scale, offset = logits.scale_and_offset({each: values[each] for each in others})
            yield AffineMask(scale, offset)

    def _leading_to(self, numbers: Sequence[int]) -> list[Operation] | None:
        """The operations that make values, in order; None if these are too many."""
        found: dict[int, Operation] = {}
        left = list(numbers)
        while left:
            number = left.pop()
            aval = self._trace.avals[number]
            if jnp.issubdtype(aval.dtype, jax.dtypes.extended) or aval.size > _MOST_ENTRIES:
                return None
            operation = self._makers.get(number)
            if operation is None or min(operation.outputs) in found:
                continue
            is_untried = operation.name in _UNTRIED or len(found) > _MOST_OPERATIONS
            if is_untried or not all(map(_is_concrete, operation.inputs)):
                return None
            found[min(operation.outputs)] = operation
            left += [operand for operand in operation.inputs if isinstance(operand, int)]
        return [found[number] for number in sorted(found)]


def _is_concrete(operand: Operand) -> bool:
    """Whether it is no number of a function that is being traced around the model."""
    return not (isinstance(operand, Constant) and isinstance(operand.value, jax.core.Tracer))


def _smallest(array: Array) -> Array:
    """With length 1 for axes along which nothing changes."""
    small = np.asarray(array)
    for axis in range(small.ndim):
        first = small.take([0], axis)
        small = first if (small == first).all() else small
    return jnp.asarray(small)
