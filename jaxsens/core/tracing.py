"""A function that is traced once for all that JAX makes of it.

A measurement looks at a model again and again before it runs: what it returns, how wide it is, what
nobody reads of it, what reuse would save, whether examples are independent of each other, and then
the programs themselves. Each time JAX would call the function anew, which for a deep network of
Flax takes half a second. JAX keeps traces by the function and the types of its arguments, of which
the placement on devices is a part; by shapes alone (`as_shapes`) it finds the same one again.

Assumption: the function is pure. Whether it draws numbers while it is traced can be told only by
tracing another function that calls it (`jaxsens.measurement.independence` does).
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import jaxpr_as_fun


def as_shapes(tree: Any) -> Any:
    """The shapes of arrays, or of what are shapes already."""
    avals = jax.tree.map(jax.typeof, tree)
    return jax.tree.map(
        lambda aval: jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type), avals
    )


@functools.lru_cache(maxsize=256)
def traced_once(function: Callable) -> Callable:
    """The same function, which JAX calls once for arguments of the same shapes.

    To be used inside of what JAX compiles. Asked twice, it gives the same function, so that nothing
    is compiled twice.

    >>> import jax.numpy as jnp
    >>> calls = []
    >>> def model(x):
    ...     calls.append(x.shape)
    ...     return jnp.tanh(x)
    >>> once = traced_once(model)
    >>> programs = [jax.jit(lambda x: once(x) + 1), jax.jit(lambda x: 2 * once(x))]
    >>> [float(program(jnp.zeros(()))) for program in programs], calls
    ([1.0, 0.0], [()])
    """
    return by_trace(function, lambda traced, arguments: jaxpr_as_fun(traced)(*arguments))


def by_trace(function: Callable, evaluate: Callable[[Any, list[Any]], list[Any]]) -> Callable:
    """What `function` gives, by its trace.

    Args:
      function: traced for the shapes of its arguments.
      evaluate: (trace, arguments as a list of arrays) -> results as a list.
    """

    def call(*arguments: Any) -> Any:
        traced, shapes = jax.make_jaxpr(function, return_shape=True)(*as_shapes(arguments))
        results = evaluate(traced, jax.tree.leaves(arguments))
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    return call
