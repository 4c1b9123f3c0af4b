"""What an operation needs of its operands to give some entries of its results.

A rule gets a `NeedCall` and returns a `Step`, or None if it cannot tell: then the operation is
computed whole. It must keep one thing: from the entries that it takes, `apply` makes just those
that it gives, and these cover what is needed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Array

from jaxsens.incremental.needed.parts import Part, Shape, is_whole, whole
from jaxsens.incremental.trace import Operand, Operation


@dataclass(frozen=True)
class NeedCall:
    """An operation some of whose results are needed.

    Attributes:
      operation: what is computed.
      shapes: of its operands.
      results: the shapes of its results.
      needed: the part of each result that is needed; None where nothing is.
      indices: the whole numbers that an operand is known to hold; None if it is not.
    """

    operation: Operation
    shapes: tuple[Shape, ...]
    results: tuple[Shape, ...]
    needed: tuple[Part | None, ...]
    indices: Callable[[Operand], np.ndarray | None]

    @property
    def params(self) -> dict[str, Any]:
        """The operation's parameters, as JAX names them."""
        return self.operation.params

    @property
    def part(self) -> Part:
        """What is needed of the only result."""
        (part,) = self.needed
        assert part is not None
        return part

    @property
    def is_partial(self) -> bool:
        """Whether less than all results are needed."""
        return any(part is None or not is_whole(part) for part in self.needed)

    def wholly(self) -> "Step":
        """All results, of whole operands: right for every operation."""
        return Step(
            tuple(whole(shape) for shape in self.shapes),
            tuple(whole(shape) for shape in self.results),
            self.operation.apply,
        )


@dataclass(frozen=True)
class Step:
    """An operation on some entries.

    Attributes:
      taken: the part of each operand that it takes; None where it takes nothing of it.
      given: the part of each result that it gives; None where it does not give the result.
      apply: from these parts of the operands, with None in place of those that are not taken, to
        these parts of the results.
    """

    taken: Sequence[Part | None]
    given: Sequence[Part | None]
    apply: Callable[..., Sequence[Array | None]]


Need = Callable[[NeedCall], Step | None]

#: The rule of every operation that has one, by the operation's name.
NEEDS: dict[str, Need] = {}
#: Names of operations that take less than their operands to give whole results.
CUTS: set[str] = set()


def need(*names: str, is_cut: bool = False) -> Callable[[Need], Need]:
    """Makes the decorated function the rule of operations.

    Args:
      names: of JAX primitives, or of marked functions.
      is_cut: whether to ask it where all results are needed, too.
    """

    def register(function: Need) -> Need:
        NEEDS.update(dict.fromkeys(names, function))
        CUTS.update(names if is_cut else ())
        return function

    return register


def step_of(call: NeedCall) -> Step:
    """How to give what is needed of an operation."""
    name, params = call.operation.name, call.params
    rule = NEEDS.get(name)
    is_sharded = any(params.get(key) is not None for key in ("sharding", "out_sharding"))
    if rule is None or is_sharded or not (call.is_partial or name in CUTS):
        return call.wholly()
    return rule(call) or call.wholly()
