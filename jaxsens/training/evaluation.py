"""Accuracy, batch by batch, each batch split over all devices of all processes.

Assumption: a prediction depends on its own example alone, as it does in eval mode. So neither the
batch nor the number of devices decides an answer, but where two logits agree to the last bits.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Int, Shaped

from jaxsens.core import runtime


def correct(
    apply_fn: Callable[[Any, Array], Any],
    variables: Any,
    x: Shaped[Array | np.ndarray, "n ..."],
    y: Int[Array | np.ndarray, " n"],
    *,
    batch_size: int = 500,
) -> Bool[np.ndarray, " n"]:
    """For each example whether its argmax is the label, in eval mode.

    >>> correct(lambda _, x: x, (), jnp.eye(3), jnp.array([0, 1, 1]))
    array([ True,  True, False])
    """
    mesh = runtime.global_mesh()
    variables = runtime.replicated(variables, mesh)
    hits = np.zeros(len(x), bool)
    for start in range(0, len(x), batch_size):
        # The last batch is filled up with its last example: one shape, so one compilation.
        rows = np.minimum(np.arange(start, start + batch_size), len(x) - 1)
        batch = runtime.split_rows((x, y), rows, mesh)
        hits[rows] = np.asarray(_hits(apply_fn, mesh, batch_size, variables, *batch))
    return hits


def accuracy(
    apply_fn: Callable[[Any, Array], Any],
    variables: Any,
    x: Shaped[Array | np.ndarray, "n ..."],
    y: Int[Array | np.ndarray, " n"],
    *,
    batch_size: int = 500,
) -> float:
    """Share of examples whose argmax is the label, in eval mode.

    >>> accuracy(lambda _, x: x, (), jnp.eye(3), jnp.array([0, 1, 1]))
    0.6666666666666666
    """
    return float(correct(apply_fn, variables, x, y, batch_size=batch_size).mean())


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _hits(
    apply_fn: Callable[[Any, Array], Any],
    mesh: Mesh,
    batch_size: int,
    variables: Any,
    x: Shaped[Array, "m ..."],
    y: Int[Array, " m"],
) -> Bool[Array, " b"]:
    x, y = (runtime.constrained(array[:batch_size], mesh, runtime.SPLIT) for array in (x, y))
    right = jnp.argmax(apply_fn(variables, x), axis=-1) == y
    return runtime.constrained(right, mesh, runtime.REPLICATED)
