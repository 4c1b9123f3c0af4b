"""Traced functions: their equations, the results of these for other inputs, and their bytes."""

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp


def output_bytes(jaxpr: Any) -> Iterator[int]:
    """Bytes of the results of each equation of a function, and of the functions that it calls."""
    for equation in equations(jaxpr):
        yield sum(bytes_of(out.aval) for out in equation.outvars)


def equations(jaxpr: Any) -> Iterator[Any]:
    """The equations of a function, each followed by those of the functions that it calls."""
    for equation in jaxpr.eqns:
        yield equation
        yield from called_equations(equation)


def called_equations(equation: Any) -> Iterator[Any]:
    """The same of all functions that an equation calls."""
    for value in jax.tree.leaves(list(equation.params.values())):
        inner = getattr(value, "jaxpr", value)
        if hasattr(inner, "eqns"):
            yield from equations(inner)


def coarsest_rounding(jaxpr: Any) -> float:
    """The relative rounding error of the coarsest floating-point numbers that a function makes."""
    avals = [out.aval for equation in equations(jaxpr) for out in equation.outvars]
    dtypes = {aval.dtype for aval in avals if hasattr(aval, "dtype")}
    floats = [dtype for dtype in dtypes if jnp.issubdtype(dtype, jnp.inexact)]
    return max((float(jnp.finfo(dtype).eps) for dtype in floats), default=0.0)


def bytes_of(aval: Any) -> int:
    """Bytes of an array with the shape and dtype of `aval`."""
    shape, dtype = getattr(aval, "shape", ()), getattr(aval, "dtype", None)
    return math.prod(shape) * getattr(dtype, "itemsize", 0)


def bind(equation: Any, *inputs: Any, **changed: Any) -> list[Any]:
    """The results of an equation for other inputs, and perhaps other parameters."""
    primitive = equation.primitive
    # What an equation holds of a function is not what a call takes; before 0.10, JAX gives the
    # functions by themselves.
    params = primitive.get_bind_params({**equation.params, **changed})
    functions, params = params if isinstance(params, tuple) else ((), params)
    results = primitive.bind(*functions, *inputs, **params)
    return list(results) if primitive.multiple_results else [results]
