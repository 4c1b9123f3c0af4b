"""Operations that jump: where a whole pass may land on the other side than reuse.

Reuse gives every value within rounding of what a whole pass gives, and as long as operations are
continuous, so is the output. A comparison, a sign, rounding to integers or the index of a maximum
jumps: if its operand is within rounding of the jump, the last bit decides. That is no rare accident
where numbers repeat: the mean of some pixels is often the very value of one of them, and then
`x > mean` hangs on how the mean was rounded. Edits that bring an operand so near to a jump are in
doubt (`nearness`), and whole passes decide them.

An operand is looked at only if it may round otherwise than in a whole pass, which is so after a sum
that a rule makes of the change of a window. What is computed entry by entry, or of whole operands,
is computed alike. A comparison that does nothing but choose between two values is no jump where
these two agree. Where both are plainly 0 at the threshold 0, as the two sides of a leaky rectifier
are, nothing is looked at.

Not seen are jumps inside the function of a `reduce` or a `reduce_window`, and, behind a choice
among other values (as in `searchsorted`), a tie that reuse meets exactly and a whole pass nearly.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from jaxsens.incremental.rules.elementwise import ENTRYWISE
from jaxsens.incremental.rules.rule_call import RULES
from jaxsens.incremental.trace import Constant, Operand, Operation, Trace, flatten
from jaxsens.incremental.values import Value, Windowed

COMPARISONS = {"eq", "eq_to", "ge", "gt", "le", "le_to", "lt", "lt_to", "ne"}
#: To whole numbers: without a jump between them, results are the same ones in a whole pass.
_TO_INTEGERS = {"sign", "floor", "ceil", "round"}
#: By the order of entries; their last results are indices, or what else is sorted.
ORDERINGS = {"argmax", "argmin", "top_k", "approx_top_k", "sort"}
LOOPS = {"cond", "scan", "while"}
#: Operations that move entries, or pick some of them, and never add them up.
_MOVING = {
    "broadcast_in_dim", "concatenate", "dynamic_slice", "dynamic_update_slice", "expand_dims",
    "gather", "optimization_barrier", "pad", "reshape", "rev", "scatter", "slice", "split",
    "squeeze", "stack", "tile", "transpose", "unstack",
}  # fmt: skip
_PICKING = {
    "cummax", "cummin", "reduce_max", "reduce_min", "reduce_window_max", "reduce_window_min",
}  # fmt: skip
#: Operations whose rules do in an edit what a whole pass does: results round as operands do. So do
#: those of operations without a rule, which take their operands whole.
_ROUND_ALIKE = {*ENTRYWISE, *_MOVING, *_PICKING, *ORDERINGS, *LOOPS}
_SUMS = {"add", "add_any", "sub", "neg", "convert_element_type"}
#: Operations after which many entries are the same, whatever rounding does.
_CLIPS = {"clamp", "max", "min", "select_n"}
#: Operations that give 0 where their operands are 0; of a product, where one of them is.
_ZERO_AT_ZERO = {
    "abs", "asinh", "atan", "broadcast_in_dim", "convert_element_type", "expm1", "log1p", "neg",
    "reshape", "sin", "sinh", "tan", "tanh",
}  # fmt: skip
#: Operations whose results are not 0, and make no product 0.
_POSITIVE = {"cosh", "erfc", "exp", "exp2", "logistic", "rsqrt"}


@dataclass(frozen=True)
class Body:
    """A function that a loop or a branch calls, and the operations in it that jump."""

    trace: Trace
    jumps: "tuple[Jump, ...]"


@dataclass(frozen=True)
class Jump:
    """An operation that jumps, with an operand that may round otherwise than in a whole pass.

    Attributes:
      operation: the one that jumps.
      summands: its operands, and what they are sums of: an operand is as exact as these are large.
      choices: the operations that choose by its result, if nothing else is done with it.
      is_direct: whether an operand is a sum as it is, so that reuse may meet a tie by rounding. The
        ties of what was clipped are the same in a whole pass.
      bodies: of a loop or a branch, the functions that it calls.
    """

    operation: Operation
    summands: tuple[int, ...]
    choices: tuple[Operation, ...]
    is_direct: bool
    bodies: tuple[Body, ...]


def find_jumps(
    trace: Trace, reachable: set[int], rounded: Iterable[int] = (), direct: Iterable[int] = ()
) -> tuple[Jump, ...]:
    """The operations of a function at which rounding may decide.

    Args:
      trace: the function.
      reachable: the numbers of the values that depend on what is edited.
      rounded: the numbers of inputs that may round otherwise than in a whole pass.
      direct: of these, the ones that are sums as they are.
    """
    operations = [part for each in trace.operations for part in each.parts or (each,)]
    of = _Values(
        trace=trace,
        rounded=_rounded_results(operations, trace, reachable, rounded),
        producers={number: each for each in operations for number in each.outputs},
        users=_users(operations, trace.outputs),
    )
    of.direct.update(_direct_results(operations, of.rounded, direct))
    bodies = {id(each): _bodies(each, of) for each in operations if each.name in LOOPS}
    jumping = [
        each
        for each in operations
        if of.rounded.intersection(_numbers(each.inputs))
        and (_jumps(each, of) or any(body.jumps for body in bodies.get(id(each), ())))
        and not _is_continuous(each, of)
    ]
    decisive = {id(clip) for each in jumping for clip in _clips(each, of)}
    return tuple(
        Jump(
            each,
            _summands(each, of),
            () if id(each) in decisive else _choices(each, of),
            bool(of.direct.intersection(_numbers(each.inputs))),
            bodies.get(id(each), ()),
        )
        for each in operations
        if id(each) in decisive.union(map(id, jumping))
    )


def rounded_values(trace: Trace, reached: Mapping[int, Value]) -> set[int]:
    """Of the values that an edit reaches, those that may round otherwise than in a whole pass.

    A sum rounds otherwise where it is made of a window; of whole operands it is the same sum.
    """
    rounded: set[int] = set()
    for operation in trace.operations:
        for part in (operation, *operation.parts):
            inputs = _numbers(part.inputs)
            is_sum = _adds_up(part) and any(
                isinstance(reached.get(number), Windowed) for number in inputs
            )
            if is_sum or rounded.intersection(inputs):
                rounded.update(_inexact_results(part, trace))
    return rounded


def sized_values(trace: Trace, jumps: Iterable[Jump]) -> set[int]:
    """The numbers of the values whose size must be known to tell what is near to a jump."""
    chosen = {
        number
        for jump in jumps
        for choice in jump.choices
        for number in _numbers(choice.inputs[1:])
        if _is_float(trace, number)
    }
    return chosen.union(*(jump.summands for jump in jumps))


def _numbers(operands: Iterable[Operand]) -> list[int]:
    return [operand for operand in operands if isinstance(operand, int)]


def _is_float(trace: Trace, number: int) -> bool:
    return jnp.issubdtype(trace.avals[number].dtype, jnp.floating)


def _adds_up(operation: Operation) -> bool:
    """Whether a rule may add entries up otherwise than a whole pass does."""
    return operation.name in RULES and operation.name not in _ROUND_ALIKE


@dataclass(frozen=True)
class _Values:
    """What is known of the values of a function, by their numbers.

    Attributes:
      trace: the function.
      rounded: those that may round otherwise than in a whole pass.
      producers: the operations that give them.
      users: the operations that take them; None for the function's result.
      direct: those of `rounded` that are sums as they are.
    """

    trace: Trace
    rounded: set[int]
    producers: Mapping[int, Operation]
    users: Mapping[int, list[Operation | None]]
    direct: set[int] = field(default_factory=set)


def _rounded_results(
    operations: Sequence[Operation], trace: Trace, reachable: set[int], rounded: Iterable[int]
) -> set[int]:
    found = {*rounded}
    for operation in operations:
        inputs = set(_numbers(operation.inputs))
        is_sum = _adds_up(operation) and inputs & reachable
        if is_sum or inputs & found:
            found.update(_inexact_results(operation, trace))
    return found


def _direct_results(
    operations: Sequence[Operation], rounded: set[int], direct: Iterable[int]
) -> set[int]:
    """Sums over entries, and what is made of them without clipping."""
    found = {*direct}
    for operation in operations:
        inputs = operation.inputs[:1] if operation.name == "div" else operation.inputs
        is_kept = operation.name not in _CLIPS | _POSITIVE
        if _adds_up(operation) or (is_kept and found.intersection(_numbers(inputs))):
            found.update(rounded.intersection(operation.outputs))
    return found


def _clips(jump: Operation, of: _Values) -> Iterator[Operation]:
    """What clips sums before they come to a jump: at a tie, a sum is beyond the clip or near it.

    Of a choice, the comparison that it is made by.
    """
    left, seen = _numbers(jump.inputs), set()
    while left:
        number = left.pop()
        clip = of.producers.get(number)
        if number in seen or clip is None or _adds_up(clip):
            continue
        seen.add(number)
        left.extend(of.rounded.intersection(_numbers(clip.inputs)))
        if clip.name == "select_n" and isinstance(clip.inputs[0], int):
            clip = of.producers.get(clip.inputs[0], clip)
        is_comparison = clip.name in COMPARISONS and _jumps(clip, of)
        is_clip = is_comparison or clip.name in _CLIPS - {"select_n"}
        if is_clip and of.rounded.intersection(_numbers(clip.inputs)):
            yield clip


def _inexact_results(operation: Operation, trace: Trace) -> list[int]:
    if operation.name in _TO_INTEGERS:
        return []
    return [number for number in operation.outputs if _is_float(trace, number)]


def _users(
    operations: Sequence[Operation], outputs: Iterable[Operand]
) -> Mapping[int, list[Operation | None]]:
    """The operations that take each value; None for the function's result."""
    users: dict[int, list[Operation | None]] = {number: [None] for number in _numbers(outputs)}
    for operation in operations:
        for number in _numbers(operation.inputs):
            users.setdefault(number, []).append(operation)
    return users


def _jumps(operation: Operation, of: _Values) -> bool:
    name, inputs = operation.name, operation.inputs
    if name in COMPARISONS:
        # What is compared with itself is asked whether it is nan.
        return len({*_numbers(inputs)}) == len(_numbers(inputs))
    if name in _TO_INTEGERS or name == "rem":
        return True
    if name in {"convert_element_type", "bitcast_convert_type"}:
        return of.trace.avals[operation.outputs[0]].dtype.kind in "biu"
    if name == "sort":
        keys = inputs[: operation.params["num_keys"]]
        return len(inputs) > 1 and bool(of.rounded.intersection(_numbers(keys)))
    return name in ORDERINGS and operation.outputs[-1] in of.users


def _choices(operation: Operation, of: _Values) -> tuple[Operation, ...]:
    """What chooses by the result of a comparison, if nothing else is done with it."""
    if operation.name not in COMPARISONS:
        return ()
    (result,) = operation.outputs
    users = of.users.get(result, [])
    found = tuple(
        user
        for user in users
        if user is not None and user.name == "select_n" and user.inputs.index(result) == 0
    )
    return found if len(found) == len(users) else ()


def _is_continuous(operation: Operation, of: _Values) -> bool:
    """Whether it compares a value with 0 to choose between values that are both 0 there."""
    compared = [operand for operand in operation.inputs if not _is_zero(operand, of)]
    choices = _choices(operation, of)
    if len(operation.inputs) != 2 or len(compared) != 1 or not choices:
        return False
    return all(
        _is_zero(case, of, where=compared[0]) for choice in choices for case in choice.inputs[1:]
    )


def _is_zero(operand: Operand, of: _Values, where: Operand | None = None) -> bool:
    """Whether a value is plainly 0, or plainly 0 where another one is 0."""
    if isinstance(operand, Constant):
        return not np.any(operand.value)
    if operand == where:
        return True
    producer = of.producers.get(operand)
    if producer is None:
        return False
    name, inputs = producer.name, producer.inputs
    if name == "mul":
        return any(_is_zero(each, of, where) for each in inputs)
    if name == "select_n":
        return all(_is_zero(each, of, where) for each in inputs[1:])
    return name in _ZERO_AT_ZERO and all(_is_zero(each, of, where) for each in inputs)


def _summands(operation: Operation, of: _Values) -> tuple[int, ...]:
    """The operands and what they are sums of, as far as that is only added up and moved."""
    found: set[int] = set()
    left = _numbers(operation.inputs)
    while left:
        number = left.pop()
        if number in found or not _is_float(of.trace, number):
            continue
        found.add(number)
        producer = of.producers.get(number)
        if producer is not None and producer.name in _SUMS | _MOVING:
            left.extend(_numbers(producer.inputs))
    return tuple(sorted(found))


def _bodies(operation: Operation, of: _Values) -> tuple[Body, ...]:
    """The functions that a loop or branch calls; of a loop with a condition, that one first."""
    params, inputs = operation.params, operation.inputs
    if not of.rounded.intersection(_numbers(inputs)):
        return ()
    if operation.name == "cond":
        return tuple(_body(each, inputs[1:], (), of) for each in params["branches"])
    if operation.name == "scan":
        consts, carry = params["num_consts"], params["num_carry"]
        state = slice(consts, consts + carry)
        return (_body(params["jaxpr"], inputs, range(*state.indices(len(inputs))), of),)
    first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    of_condition, of_body = (*inputs[:first], *inputs[second:]), inputs[first:]
    return (
        _body(params["cond_jaxpr"], of_condition, range(first, len(of_condition)), of),
        _body(params["body_jaxpr"], of_body, range(second - first, len(of_body)), of),
    )


def _body(
    closed: ClosedJaxpr, inputs: Sequence[Operand], states: Iterable[int], of: _Values
) -> Body:
    """A called function; what any state depends on, every state may depend on after a step."""

    def is_mark(*_: Any) -> bool:
        return False

    trace = flatten(closed, platform=of.trace.platform, is_mark=is_mark)
    rounded, direct = (
        {
            number
            for index, number in enumerate(trace.inputs)
            if (index in states or inputs[index] in some) and _is_float(trace, number)
        }
        for some in (
            [each for each in inputs if isinstance(each, int) and each in of.rounded],
            [each for each in inputs if isinstance(each, int) and each in of.direct],
        )
    )
    return Body(trace, find_jumps(trace, trace.dependents(rounded), rounded, direct))
