"""Finds attention that a model writes out among its operations, and makes one operation of it.

    q · k  →  scales, biases, masks  →  softmax over tokens  →  · v

All that is made on the way must be used on the way alone (`matching`). Whatever does not fit stays
as it is, which is right and not fast. The one operation computes what its parts compute, so that a
clean pass gives the same bits; it only has a better rule.
"""

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np

from jaxsens.incremental.attention_masks import AffineMask
from jaxsens.incremental.attention_operation import AttentionKind
from jaxsens.incremental.known_values import KnownValues
from jaxsens.incremental.recognition.known_masks import known_mask
from jaxsens.incremental.recognition.matching import AttentionMatch
from jaxsens.incremental.recognition.written_attention import CAUSAL_NAME, NAME, PARAM
from jaxsens.incremental.trace import Operation, Trace, evaluate

#: At or below `_HIDDEN` a logit has no weight beside one above `_SEEN`.
_HIDDEN, _SEEN = -1e30, -1e20


def recognise(trace: Trace) -> Trace:
    """The same function, with one operation for each attention that it writes out."""
    users, known = _users(trace), KnownValues(trace)
    operations: dict[int, Operation] = dict(enumerate(trace.operations))
    for index, operation in enumerate(trace.operations):
        match = AttentionMatch.start(trace, operation) if operation.name == "dot_general" else None
        if match is None or not match.completes(users):
            continue
        indices = (index, *match.indices)
        if any(operations.get(i) is not trace.operations[i] for i in indices):
            # Logits that are a sum of two products, q · k + q · r: they belong to the first.
            continue
        parts = tuple(operations.pop(i) for i in indices)
        operations[indices[-1]] = _merged(parts, match, known)
    return replace(trace, operations=tuple(operations[index] for index in sorted(operations)))


def _users(trace: Trace) -> dict[int, list[int]]:
    """The indices of the operations that use a value; one beyond the last if it is a result."""
    users: dict[int, list[int]] = defaultdict(list)
    for index, operation in enumerate(trace.operations):
        for number in {operand for operand in operation.inputs if isinstance(operand, int)}:
            users[number].append(index)
    for operand in trace.outputs:
        if isinstance(operand, int):
            users[operand].append(len(trace.operations))
    return users


def _merged(parts: tuple[Operation, ...], match: AttentionMatch, known: KnownValues) -> Operation:
    """One operation for all these."""
    written = match.written_attention()
    own = {number for part in parts for number in part.outputs}
    of_chain = [operand for part in written.logits.chain for operand in part.inputs]
    others = [each for each in dict.fromkeys(n for n in of_chain if isinstance(n, int))
              if each not in own]  # fmt: skip
    mask = known_mask(known, written.logits, others)
    causal = mask is not None and _is_causal(mask, written.logits.shape)
    written = replace(written, mask=mask, kind=AttentionKind(causal=causal))
    inputs, outputs = (*match.operands(), *others), parts[-1].outputs

    def apply(*values: Any) -> list[Any]:
        given = {n: value for n, value in zip(inputs, values, strict=True) if isinstance(n, int)}
        evaluate(parts, given)
        return [given[number] for number in outputs]

    name = CAUSAL_NAME if causal else NAME
    return Operation(name, apply, {PARAM: written}, inputs, outputs, parts[-1].prepared, parts)


def _is_causal(mask: AffineMask, shape: tuple[int, int, int]) -> bool:
    """Whether every query sees something, and nothing that is later than itself."""
    if shape[1] != shape[2]:
        return False
    scale, offset = (np.broadcast_to(np.asarray(a), shape) for a in (mask.scale, mask.offset))
    later = np.triu(np.ones(shape[1:], bool), 1)
    hidden = ((scale == 0) & (offset <= _HIDDEN)) | (offset == -np.inf)
    # A query that sees nothing takes the mean of all tokens, later ones too.
    sees = (~later & (offset > _SEEN)).any(axis=-1)
    return bool(hidden[:, later].all() and sees.all())
