"""Masks of attention that are known when a model is traced.

Such a mask may turn out to be causal, and its scale and offset need no pass.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxsens.incremental.attention_masks import AffineMask
from jaxsens.incremental.known_values import KnownValues
from jaxsens.incremental.recognition.written_attention import LogitChain
from jaxsens.incremental.trace import Constant, Operand


def known_mask(known: KnownValues, logits: LogitChain, others: Sequence[int]) -> AffineMask | None:
    """The scale and the offset of logits, as small as they can be; None if they are not known.

    Args:
      known: the values of the trace that are known.
      logits: from q · k to the softmax.
      others: the numbers of the chain's other operands.
    """
    of_chain = [operand for operation in logits.chain for operand in operation.inputs]
    needed: list[Operand] = [each for each in of_chain if isinstance(each, Constant)]
    needed += others
    if not all(known.is_known(operand) for operand in needed):
        return None
    values = known.values(others)
    with jax.ensure_compile_time_eval():
        scale, offset = logits.scale_and_offset(values)
        return AffineMask(_smallest(scale), _smallest(offset))


def _smallest(array: Array) -> Array:
    """With length 1 for axes along which nothing changes."""
    small = np.asarray(array)
    for axis in range(small.ndim):
        first = small.take([0], axis)
        small = first if (small == first).all() else small
    return jnp.asarray(small)
