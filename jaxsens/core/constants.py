"""Large constants of a model, kept out of reach of XLA's constant folding.

An array that a function closes over stands in the compiled program as a literal, and XLA computes
what is made of literals alone while it compiles: entry by entry, in an interpreter. A running sum
over a mask of 1,024 × 1,024 takes it a minute, a sort of one more than seven. Behind a barrier the
same operations run with the rest of the program, in milliseconds, and give the same numbers.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

from jaxsens.core.jaxprs import bind

#: Entries from which on an array counts as large: below, folding takes a second or two at most.
LARGE = 1 << 16
_REMATERIALISED = {"checkpoint", "remat", "remat2"}


def unfoldable(value: Any) -> Any:
    """The same array; if it is a large constant, behind a barrier."""
    return lax.optimization_barrier(value) if _is_large(value) else value


def _is_large(value: Any) -> bool:
    return not isinstance(value, jax.core.Tracer) and getattr(value, "size", 0) >= LARGE


def with_unfoldable_constants(traced: ClosedJaxpr) -> ClosedJaxpr:
    """The same traced function, in which every large constant is `unfoldable`.

    Those of functions that it calls, and of loops and branches, are too. Without any, it is what
    was given.
    """
    return _with_barriers(traced) if holds_large(traced) else traced


@functools.lru_cache(maxsize=64)
def unfolded(function: Callable) -> Callable:
    """The same function, in which large arrays that it closes over are `unfoldable`.

    To be used inside of what JAX compiles: every call traces the function by itself. Asked twice,
    it gives the same function, so that nothing is compiled twice.

    >>> import jax.numpy as jnp, numpy as np
    >>> table = np.ones((300, 300), np.float32)
    >>> model = unfolded(lambda x: x + jnp.cumsum(table))
    >>> "optimization_barrier" in str(jax.make_jaxpr(model)(1.0))
    True
    """

    def call(*arguments: Any) -> Any:
        leaves, tree = jax.tree.flatten(arguments)

        def flat(*leaves: Any) -> Any:
            return function(*jax.tree.unflatten(tree, leaves))

        traced, shapes = jax.make_jaxpr(flat, return_shape=True)(*leaves)
        if not holds_large(traced):
            return function(*arguments)
        results = jaxpr_as_fun(with_unfoldable_constants(traced))(*leaves)
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    return call


def holds_large(closed: ClosedJaxpr) -> bool:
    """Whether a traced function, or one that it calls, closes over a large array."""
    called = (each for equation in closed.jaxpr.eqns for each in _called(equation).values())
    return any(map(_is_large, closed.consts)) or any(
        holds_large(function) for functions in called for function in functions
    )


def _called(equation: Any) -> dict[str, tuple[ClosedJaxpr, ...]]:
    """The functions that an equation calls, by the parameters that hold them."""
    if equation.primitive.name in _REMATERIALISED:
        return {"jaxpr": (ClosedJaxpr(equation.params["jaxpr"], ()),)}
    params = {
        name: value if isinstance(value, tuple) else (value,)
        for name, value in equation.params.items()
    }
    return {
        name: functions
        for name, functions in params.items()
        if functions and all(isinstance(each, ClosedJaxpr) for each in functions)
    }


def _with_barriers(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same function, with barriers after its large constants."""

    def run(*arguments: Any) -> list[Any]:
        values = dict(zip(closed.jaxpr.constvars, map(unfoldable, closed.consts), strict=True))
        values.update(zip(closed.jaxpr.invars, arguments, strict=True))

        def value(atom: Any) -> Any:
            return atom.val if isinstance(atom, Literal) else values[atom]

        for equation in closed.jaxpr.eqns:
            results = _results(equation, [value(atom) for atom in equation.invars])
            values.update(zip(equation.outvars, results, strict=True))
        return [value(atom) for atom in closed.jaxpr.outvars]

    return jax.make_jaxpr(run)(*closed.in_avals)


def _results(equation: Any, inputs: Sequence[Any]) -> list[Any]:
    called = _called(equation)
    if not any(holds_large(function) for functions in called.values() for function in functions):
        return bind(equation, *inputs)
    changed = {name: tuple(map(_with_barriers, functions)) for name, functions in called.items()}
    if equation.primitive.name in _REMATERIALISED:
        # What is computed again for a derivative has no place for constants of its own.
        return jaxpr_as_fun(changed["jaxpr"][0])(*inputs)
    is_tuple = {name: isinstance(equation.params[name], tuple) for name in changed}
    return bind(equation, *inputs, **{n: f if is_tuple[n] else f[0] for n, f in changed.items()})
