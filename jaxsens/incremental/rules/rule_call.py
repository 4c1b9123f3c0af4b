"""One operation on edited values, as a rule sees it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Array

from jaxsens.incremental.layout import Layout
from jaxsens.incremental.trace import Operation, apply
from jaxsens.incremental.values import Dense, Place, Value, Windowed, full

#: A window that covers more than this share of its array is not worth the moves.
LARGEST_SHARE = 0.8


@dataclass(frozen=True)
class Call:
    """An operation with at least one input that the edit reaches.

    Attributes:
      operation: what is computed.
      inputs: its operands.
      clean: what it gives without the edit.
      extra: what `prepare` made of the clean values, once per example.
      place: where the edit is.
    """

    operation: Operation
    inputs: Sequence[Value]
    clean: Sequence[Array]
    extra: Any
    place: Place

    @property
    def params(self) -> dict[str, Any]:
        """The operation's parameters."""
        return self.operation.params

    @property
    def is_dense(self) -> bool:
        """Whether an operand may differ everywhere."""
        return any(isinstance(value, Dense) for value in self.inputs)

    @property
    def edited(self) -> list[int]:
        """The windowed operands."""
        return [i for i, value in enumerate(self.inputs) if isinstance(value, Windowed)]

    def windowed(self, index: int) -> Windowed:
        """The operand of that index, which must be windowed."""
        value = self.inputs[index]
        assert isinstance(value, Windowed)
        return value

    def densely(self) -> list[Value]:
        """The results from whole operands: right for every operation."""
        return [Dense(result) for result in apply(self.operation, [*map(full, self.inputs)])]

    def result(
        self, layout: Layout, *, new: Array | None = None, change: Array | None = None,
        output: int = 0,
    ) -> Value:  # fmt: skip
        """One result: windowed, or dense where the window covers too much."""
        value = Windowed(self.clean[output], layout, self.place, new=new, change=change)
        wide = layout.without_wide()
        if wide is not layout:
            value, layout = value.to(wide), wide
        if not layout.axes or layout.share > LARGEST_SHARE:
            return Dense(value.dense())
        return value


#: From a call to its results, one for each output; None to take an operation's parts one by one.
Rule = Callable[[Call], list[Value] | None]
