"""What can be read off a traced function: its equations, and the bytes of their results."""

import math
from collections.abc import Iterator
from typing import Any

import jax


def output_bytes(jaxpr: Any) -> Iterator[int]:
    """Bytes of the results of each equation of a function, and of the functions that it calls."""
    for equation in equations(jaxpr):
        yield sum(bytes_of(out.aval) for out in equation.outvars)


def equations(jaxpr: Any) -> Iterator[Any]:
    """The equations of a function, each followed by those of the functions that it calls."""
    for equation in jaxpr.eqns:
        yield equation
        for value in jax.tree.leaves(list(equation.params.values())):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def bytes_of(aval: Any) -> int:
    """Bytes of an array with the shape and dtype of `aval`."""
    shape, dtype = getattr(aval, "shape", ()), getattr(aval, "dtype", None)
    return math.prod(shape) * getattr(dtype, "itemsize", 0)
