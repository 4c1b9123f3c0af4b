"""Finds attention that a model writes out among its operations, and makes one operation of it.

    q · k  →  scales, biases, masks  →  softmax over tokens  →  · v

All that is made on the way must be used on the way alone (`matching`). Whatever does not fit stays
as it is, which is right and not fast. The one operation computes what its parts compute, so that a
clean pass gives the same bits; it only has a better rule.
"""

from collections import defaultdict
from dataclasses import replace
from typing import Any

from jaxsens.incremental.attention_operation import AttentionKind
from jaxsens.incremental.recognition.causality import is_causal, looks_causal
from jaxsens.incremental.recognition.known_masks import KnownMasks
from jaxsens.incremental.recognition.matching import AttentionMatch
from jaxsens.incremental.recognition.written_attention import CAUSAL_NAME, NAME, PARAM
from jaxsens.incremental.trace import Operation, Trace, evaluate


def recognise(trace: Trace) -> Trace:
    """The same function, with one operation for each attention that it writes out."""
    users, known = _users(trace), KnownMasks(trace)
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


def _merged(parts: tuple[Operation, ...], match: AttentionMatch, known: KnownMasks) -> Operation:
    """One operation for all these."""
    written = match.written_attention()
    own = {number for part in parts for number in part.outputs}
    of_chain = [operand for part in written.logits.chain for operand in part.inputs]
    others = [each for each in dict.fromkeys(n for n in of_chain if isinstance(n, int))
              if each not in own]  # fmt: skip
    mask, shape = known.mask(written.logits, others), written.logits.shape
    is_sure = mask is not None and is_causal(mask, shape)
    masks = known.tried(written.logits, others) if mask is None else [mask]
    causal = is_sure or any(looks_causal(each, shape) for each in masks)
    kind = AttentionKind(causal=causal)
    written = replace(written, mask=mask, kind=kind, is_sure=is_sure or not causal)
    inputs, outputs = (*match.operands(), *others), parts[-1].outputs

    def apply(*values: Any) -> list[Any]:
        given = {n: value for n, value in zip(inputs, values, strict=True) if isinstance(n, int)}
        evaluate(parts, given)
        return [given[number] for number in outputs]

    name = CAUSAL_NAME if causal else NAME
    return Operation(name, apply, {PARAM: written}, inputs, outputs, parts[-1].prepared, parts)
