"""One operation on edited values, as a rule sees it, and how a rule is made known.

A rule says what an edit makes of an operation's results. It must keep the invariants of
`jaxsens.incremental.values`: what it calls clean does not differ, and all that differs lies in the
window and is marked in `layout.reachable`. Where it cannot tell, `call.densely()` is always right.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Array

from jaxsens.incremental.edited_position import EditedPosition
from jaxsens.incremental.layout import Layout
from jaxsens.incremental.trace import Operation, Prepare, apply_operation
from jaxsens.incremental.values import Dense, Value, Windowed, edited_array

#: A window that covers more than this share of its array is not worth moving.
_LARGEST_SHARE = 0.8


@dataclass(frozen=True)
class RuleCall:
    """An operation with at least one operand that the edit reaches.

    Attributes:
      operation: what is computed.
      inputs: its operands.
      clean: its results without the edit, one for each output.
      prepared: what the rule's `prepare` made of the clean operands, once per example.
      position: whose window is edited.
    """

    operation: Operation
    inputs: Sequence[Value]
    clean: Sequence[Array]
    prepared: Any
    position: EditedPosition

    @property
    def params(self) -> dict[str, Any]:
        """The operation's parameters, as JAX names them."""
        return self.operation.params

    @property
    def has_dense_input(self) -> bool:
        """Whether an operand may differ everywhere."""
        return any(isinstance(value, Dense) for value in self.inputs)

    @property
    def windowed_inputs(self) -> dict[int, Windowed]:
        """The operands that differ in a window, by their indices, in order."""
        return {i: value for i, value in enumerate(self.inputs) if isinstance(value, Windowed)}

    def densely(self) -> list[Value]:
        """The results of whole operands: right for every operation, and nothing is saved."""
        whole = [edited_array(value) for value in self.inputs]
        return [Dense(result) for result in apply_operation(self.operation, whole)]

    def result(
        self, layout: Layout, *, new: Array | None = None, change: Array | None = None,
        output: int = 0,
    ) -> Value:  # fmt: skip
        """One result: windowed, or dense where the window covers too much to be worth it.

        Args:
          layout: where the windows of all positions lie in the result.
          new: the window's new entries, or
          change: the window's new minus its clean entries.
          output: which of the operation's results it is.
        """
        value = Windowed(self.clean[output], layout, self.position, new=new, change=change)
        return _windowed_or_dense(value)

    def result_like(
        self, operand: Windowed, layout: Layout, given: Array, *, output: int = 0
    ) -> Value:
        """One result, given as the change if the operand is, else as new entries."""
        return _windowed_or_dense(operand.like(self.clean[output], layout, given))


def _windowed_or_dense(value: Windowed) -> Value:
    value = value.to(value.layout.without_wide_tables())
    if not value.layout.axes or value.layout.share > _LARGEST_SHARE:
        return Dense(value.dense())
    return value


#: From a call to its results, one for each output; None to take an operation's parts one by one.
Rule = Callable[[RuleCall], list[Value] | None]

#: The rule of every operation that has one, by the operation's name.
RULES: dict[str, Rule] = {}
#: What rules want to know of the clean operands, by the operation's name.
PREPARATIONS: dict[str, Prepare] = {}


def rule(*names: str, prepare: Prepare | None = None) -> Callable[[Rule], Rule]:
    """Makes the decorated function the rule of operations.

    Args:
      names: of JAX primitives, as `jax.make_jaxpr` prints them, or of marked functions.
      prepare: `prepare(operation, clean_inputs)` is called once per example; what it returns is
        `call.prepared` for every edit of that example.

    Raises:
      ValueError: if one of them has a rule already.
    """

    def register(function: Rule) -> Rule:
        for name in names:
            if name in RULES:
                raise ValueError(f"{name} has a rule already: {RULES[name].__module__}")
            RULES[name] = function
            if prepare is not None:
                PREPARATIONS[name] = prepare
        return function

    return register
