"""What a traced function costs: floating-point operations, and entries moved.

XLA's own count takes the body of a loop once, whatever its length, and so cannot tell an LSTM of a
hundred steps from one of ten; this count multiplies by the number of steps. How often a `while`
loop runs is not known: its body counts once.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jax.extend.core import Literal

#: Picking entries by traced indices costs about as much as this many operations per entry.
_PER_MOVE = 8
_MOVES = {"gather", "scatter", "scatter-add", "dynamic_slice", "dynamic_update_slice", "sort"}
_CALLED = ("jaxpr", "call_jaxpr", "fun_jaxpr")
_LOOPS = {"scan", "while", "cond"}
_FREE = {"reshape", "squeeze", "expand_dims", "broadcast_in_dim", "iota", "stop_gradient", "copy",
         "optimization_barrier"}  # fmt: skip


def count(jaxpr: Any) -> float:
    """All operations of a function."""
    return math.fsum(cost for _, cost in costs(jaxpr))


def count_from(jaxpr: Any, inputs: Sequence[Any]) -> float:
    """The operations that depend on some of a function's inputs; the others are done once.

    Functions that it calls with their own operands (jit, remat, custom derivatives) are counted in
    the same way, by those of their operands that depend on these inputs. A loop counts whole.
    """
    reached, total = set(inputs), 0.0
    for equation in jaxpr.eqns:
        hits = [not isinstance(atom, Literal) and atom in reached for atom in equation.invars]
        if not any(hits):
            continue
        reached.update(equation.outvars)
        called = _called(equation)
        operands = [] if called is None else called.invars
        if equation.primitive.name not in _LOOPS and len(operands) == len(hits):
            total += count_from(
                called, [each for each, hit in zip(operands, hits, strict=True) if hit]
            )
        else:
            total += _cost(equation)
    return total


def costs(jaxpr: Any) -> Iterator[tuple[Any, float]]:
    """Every equation of a function with what it costs, those it calls included."""
    for equation in jaxpr.eqns:
        yield equation, _cost(equation)


def _cost(equation: Any) -> float:
    name, params = equation.primitive.name, equation.params
    if name == "scan":
        return params["length"] * count(params["jaxpr"].jaxpr)
    if name == "while":
        return count(params["body_jaxpr"].jaxpr) + count(params["cond_jaxpr"].jaxpr)
    if name == "cond":
        return max(count(branch.jaxpr) for branch in params["branches"])
    called = _called(equation)
    if called is not None:
        return count(called)
    return float(_OWN.get(name, _entrywise)(equation))


def _called(equation: Any) -> Any:
    """The function that an equation calls, or None."""
    inner = next((equation.params[key] for key in _CALLED if key in equation.params), None)
    return getattr(inner, "jaxpr", inner)


def _size(atom: Any) -> int:
    return math.prod(getattr(atom.aval, "shape", ()))


def _entrywise(equation: Any) -> int:
    name = equation.primitive.name
    if name in _FREE:
        return 0
    entries = max((_size(atom) for atom in (*equation.outvars, *equation.invars)), default=0)
    if name in _MOVES:
        update = equation.invars[1] if name == "dynamic_update_slice" else equation.outvars[0]
        return _PER_MOVE * _size(update)
    return entries


def _dot(equation: Any) -> int:
    (contract, _), _ = equation.params["dimension_numbers"]
    shape = equation.invars[0].aval.shape
    return 2 * _size(equation.outvars[0]) * math.prod(shape[axis] for axis in contract)


def _convolution(equation: Any) -> int:
    kernel = equation.invars[1].aval.shape
    features = kernel[equation.params["dimension_numbers"].rhs_spec[0]]
    return 2 * _size(equation.outvars[0]) * math.prod(kernel) // features


_OWN: dict[str, Callable[[Any], int]] = {"dot_general": _dot, "conv_general_dilated": _convolution}
