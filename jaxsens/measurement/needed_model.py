"""A model without what nobody reads of it, for whole passes and reuse alike.

Models compute every token of their last block where one is read (`jaxsens.incremental.needed`).
Such a model is measured without the others, if it gives the same outputs so. One that has nothing
to leave out stays the very function that it was.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from jaxsens.core import runtime
from jaxsens.core.jaxprs import coarsest_rounding
from jaxsens.core.notices import warn_user
from jaxsens.core.runtime import REPLICATED
from jaxsens.core.tracing import as_shapes
from jaxsens.incremental.needed import needed_alone, without_unneeded
from jaxsens.measurement.jobs import ApplyFn
from jaxsens.measurement.whole_passes import disagreement, entries_of

#: How many examples the two are compared on.
_NUM_COMPARED = 2


class _Found(NamedTuple):
    """What is known of a model for parameters and inputs of some shapes.

    Attributes:
      saves: whether it has something to leave out.
      rounding: the relative rounding error of its coarsest numbers, ε.
      agreed: not empty if it gave the same outputs without that.
    """

    saves: bool
    rounding: float
    agreed: list[bool]


def needed_model(apply_fn: ApplyFn, params: Any, inputs: tuple[Any, ...], mesh: Mesh) -> ApplyFn:
    """The model without what nobody reads of it; itself if it has nothing of that.

    The two are compared on the first examples. Should they disagree, which would be a fault of
    jaxsens, a warning says so and the model is measured as it is.

    Args:
      apply_fn: the model.
      params: its parameters, on every device.
      inputs: all that it takes beside them, (n, …) each.
      mesh: the devices.
    """
    some = jax.tree.map(lambda values: values[:_NUM_COMPARED], inputs)
    leaves, treedef = jax.tree.flatten(as_shapes((params, some)))
    try:
        found = _look(apply_fn, tuple(leaves), treedef)
        if found.saves and not found.agreed:
            _compare(apply_fn, params, runtime.place(some, mesh, REPLICATED), found, mesh)
            found.agreed.append(True)
    except Exception as error:
        warn_user(
            "the model is measured with parts that its output does not need, since leaving them "
            "out failed, which is a fault of jaxsens: please report it with the model "
            f"({type(error).__name__}: {error})"
        )
        return apply_fn
    return needed_alone(apply_fn) if found.saves else apply_fn


@functools.lru_cache(maxsize=64)
def _look(apply_fn: Callable, leaves: tuple, treedef: Any) -> _Found:
    params, inputs = jax.tree.unflatten(treedef, leaves)
    closed = jax.make_jaxpr(apply_fn)(params, *inputs)
    return _Found(without_unneeded(closed) is not closed, coarsest_rounding(closed.jaxpr), [])


def _compare(apply_fn: ApplyFn, params: Any, inputs: Any, found: _Found, mesh: Mesh) -> None:
    """Raises ValueError if the outputs for some inputs are others without what nobody reads."""
    needed = needed_alone(apply_fn)

    @jax.jit
    def both(params: Any, inputs: Any) -> Any:
        return [entries_of(model(params, *inputs)) for model in (needed, apply_fn)]

    given, expected = map(np.asarray, both(params, inputs))
    is_finite = np.isfinite(expected).all(axis=1)
    of_products = runtime.product_rounding(runtime.platform(mesh))
    rounding = max(found.rounding, float(np.finfo(np.float32).eps), of_products)
    if not is_finite.any():
        return
    apart = disagreement(given[is_finite], expected[is_finite], rounding).max()
    if apart > 1:
        raise ValueError(f"outputs differ by {apart:.3g} times what rounding explains")
