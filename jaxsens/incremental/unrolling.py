"""Loops over layers, written out: each layer then has operations of its own.

`nn.scan` and `lax.scan` put the parameters of all layers into one stack and run one layer again and
again, with activations as the state. An edit may reach more in a layer than in the one before, so
no single rule serves all steps: such a loop is written out, step by step. A loop over time, in
which the edited input is what is scanned, has a rule of its own (`rules/loops.py`) and stays as it
is.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Literal

from jaxsens.core.jaxprs import bind, equations
from jaxsens.incremental.trace import IsMark, called_function

#: With more steps, writing a loop out would take long to compile.
_MOST_LAYERS = 48
_PRODUCTS = {"dot_general", "conv_general_dilated"}


def unroll_layers(closed: ClosedJaxpr, edited_input: int, is_mark: IsMark) -> ClosedJaxpr:
    """The same function with its loops over layers written out; itself if it has none.

    Args:
      closed: the function.
      edited_input: the index of the argument that edits change.
      is_mark: whether a call is an operation by itself.
    """
    if not any(_has_layers(each) for each in equations(closed.jaxpr)):
        return closed
    unroller = _Unroller(is_mark)

    def run(*arguments: Any) -> list[Any]:
        reached = [index == edited_input for index in range(len(arguments))]
        return unroller.run(closed.jaxpr, closed.consts, arguments, reached)[0]

    written_out = jax.make_jaxpr(run)(*closed.in_avals)
    return written_out if unroller.num_loops else closed


def _has_layers(equation: Any) -> bool:
    """Whether it is a short loop over stacked arrays with products in it."""
    if equation.primitive.name != "scan" or not 0 < equation.params["length"] <= _MOST_LAYERS:
        return False
    stacked = equation.invars[equation.params["num_consts"] + equation.params["num_carry"] :]
    return any(
        jnp.issubdtype(each.aval.dtype, jnp.inexact) and each.aval.ndim > 1 for each in stacked
    ) and any(
        each.primitive.name in _PRODUCTS for each in equations(equation.params["jaxpr"].jaxpr)
    )


class _Unroller:
    """Runs a function with its loops over layers written out.

    Attributes:
      num_loops: how many there were.
    """

    def __init__(self, is_mark: IsMark):
        self.is_mark = is_mark
        self.num_loops = 0

    def run(
        self, jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Any], reached: Sequence[bool]
    ) -> tuple[list[Any], list[bool]]:
        """The results of a function, and which of them the edited argument reaches.

        Args:
          jaxpr: the function.
          consts: what it closes over.
          arguments: what it is given.
          reached: which of that the edited argument reaches.
        """
        values = dict(zip(jaxpr.constvars, consts, strict=True))
        values.update(zip(jaxpr.invars, arguments, strict=True))
        reaches = dict(zip(jaxpr.invars, reached, strict=True))
        used = {a for each in jaxpr.eqns for a in each.invars if not isinstance(a, Literal)}
        used.update(atom for atom in jaxpr.outvars if not isinstance(atom, Literal))

        def value(atom: Any) -> Any:
            return atom.val if isinstance(atom, Literal) else values[atom]

        def is_reached(atom: Any) -> bool:
            return not isinstance(atom, Literal) and reaches.get(atom, False)

        for equation in jaxpr.eqns:
            inputs = [value(atom) for atom in equation.invars]
            flags = [is_reached(atom) for atom in equation.invars]
            is_used = [atom in used for atom in equation.outvars]
            results, found = self._equation(equation, inputs, flags, is_used)
            values.update(zip(equation.outvars, results, strict=True))
            reaches.update(zip(equation.outvars, found, strict=True))
        return [value(atom) for atom in jaxpr.outvars], [is_reached(a) for a in jaxpr.outvars]

    def _equation(
        self, equation: Any, inputs: list[Any], reached: list[bool], is_used: list[bool]
    ) -> tuple[list[Any], list[bool]]:
        if _has_layers(equation) and self._is_over_layers(equation, reached):
            return self._loop(equation, inputs, reached, is_used)
        called = called_function(equation, self.is_mark)
        if called is not None and any(_has_layers(each) for each in equations(called[0])):
            return self.run(*called, inputs, reached)
        return bind(equation, *inputs), [any(reached)] * len(equation.outvars)

    def _is_over_layers(self, equation: Any, reached: list[bool]) -> bool:
        num_before = equation.params["num_consts"] + equation.params["num_carry"]
        return any(reached[:num_before]) and not any(reached[num_before:])

    def _loop(
        self, equation: Any, inputs: list[Any], reached: list[bool], is_used: list[bool]
    ) -> tuple[list[Any], list[bool]]:
        self.num_loops += 1
        params = equation.params
        num_consts, num_carry, length = (
            params[name] for name in ("num_consts", "num_carry", "length")
        )
        first = num_consts + num_carry
        carry, is_carry_reached = inputs[num_consts:first], reached[num_consts:first]
        body = params["jaxpr"]
        rows: list[list[Any]] = []
        layers = [lax.split(each, [1] * length) for each in inputs[first:]]
        for step in range(length)[:: -1 if params["reverse"] else 1]:
            stacked = [lax.squeeze(of_layer[step], (0,)) for of_layer in layers]
            results, flags = self.run(
                body.jaxpr,
                body.consts,
                [*inputs[:num_consts], *carry, *stacked],
                [*reached[:num_consts], *is_carry_reached, *reached[first:]],
            )
            carry, is_carry_reached = results[:num_carry], flags[:num_carry]
            rows.append(results[num_carry:])
        rows = rows[::-1] if params["reverse"] else rows
        # What nobody reads of all steps is not put together.
        stacks = [
            jnp.stack(of_output) if used else None
            for of_output, used in zip(zip(*rows, strict=True), is_used[num_carry:], strict=True)
        ]
        return [*carry, *stacks], [*is_carry_reached, *[True] * len(stacks)]
