"""A model whose whole passes take the convolutions of oneDNN.

XLA's convolutions of a CPU take longer (`jaxsens.core.onednn`). Only whole passes have those of
oneDNN: reuse wants to see a convolution as XLA knows it, to update a part of its output.

Assumption: no derivative is taken of the model, and it is not mapped by `vmap`: what it was given
for these is left out.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from jax import lax
from jax.extend.core import Literal
from jaxtyping import Array

from jaxsens.core import onednn
from jaxsens.core.jaxprs import bind, called_equations
from jaxsens.core.tracing import by_trace
from jaxsens.incremental.trace import called_function

_CONVOLUTION = "conv_general_dilated"
#: The order of axes that oneDNN is called with.
_IMAGES, _KERNEL = (0, 3, 1, 2), (3, 2, 0, 1)


@functools.lru_cache(maxsize=64)
def with_fast_convolutions(function: Callable) -> Callable:
    """The same function with the convolutions of oneDNN, within rounding; itself without that.

    To be used inside of what JAX compiles for one CPU device. Asked twice, it gives the same
    function, so that nothing is compiled twice.
    """
    if not onednn.is_available():
        return function
    return by_trace(
        function, lambda traced, arguments: _evaluated(traced.jaxpr, traced.consts, arguments)
    )


def _evaluated(jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    """What a traced function gives."""
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *arguments], strict=True))

    def value(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for equation in jaxpr.eqns:
        results = _results(equation, [value(atom) for atom in equation.invars])
        values.update(zip(equation.outvars, results, strict=True))
    return [value(atom) for atom in jaxpr.outvars]


def _results(equation: Any, inputs: list[Any]) -> list[Any]:
    if equation.primitive.name == _CONVOLUTION:
        found = _convolution(equation.params, *inputs)
        return bind(equation, *inputs) if found is None else [found]
    if not any(each.primitive.name == _CONVOLUTION for each in called_equations(equation)):
        return bind(equation, *inputs)
    if equation.primitive.name == "cond" and equation.params.get("branches_platforms"):
        branch = _branch(equation.params)
        return _evaluated(branch.jaxpr, branch.consts, inputs[1:])
    called = called_function(equation, lambda *_: False)
    return bind(equation, *inputs) if called is None else _evaluated(*called, inputs)


def _branch(params: dict[str, Any]) -> Any:
    """Of a choice by platform that of a CPU, but one that is a convolution by itself if there is.

    Layers write the convolution of a CPU in another way (`models.layers.convolution`), since XLA's
    own takes longer.
    """
    branches = params["branches"]
    for branch in branches:
        if [each.primitive.name for each in branch.jaxpr.eqns] == [_CONVOLUTION]:
            return branch
    platforms = params["branches_platforms"]
    return next(
        branch
        for branch, names in zip(branches, platforms, strict=True)
        if names is None or "cpu" in names
    )


def _convolution(params: dict[str, Any], images: Any, kernel: Any) -> Array | None:
    """By oneDNN; None if it does not have such a convolution here."""
    numbers, padding = params["dimension_numbers"], params["padding"]
    is_plain = (
        images.ndim == 4
        and onednn.is_available(images, kernel)
        and params["batch_group_count"] == 1
        and {*params["lhs_dilation"], *params["rhs_dilation"]} == {1}
        and min(min(ends) for ends in padding) >= 0
        and params["preferred_element_type"] in (None, images.dtype)
    )
    if not is_plain:
        return None
    images = _ordered(images, numbers.lhs_spec, _IMAGES)
    kernel = _ordered(kernel, numbers.rhs_spec, _KERNEL)
    (top, bottom), (left, right) = padding
    strides, ends = tuple(params["window_strides"]), (top, bottom, left, right)
    shape = onednn.ConvolutionShape(images.shape, kernel.shape, strides, ends)
    if 0 in shape.output:
        return None
    output = onednn.forward(images, kernel, shape)
    return _given(output, numbers.out_spec, _IMAGES)


def _ordered(array: Array, spec: Sequence[int], wanted: Sequence[int]) -> Any:
    """Axes brought to where `wanted` has them; `spec` says where each is, as XLA writes it."""
    order = [spec[wanted.index(axis)] for axis in range(len(spec))]
    return lax.transpose(array, order)


def _given(array: Array, spec: Sequence[int], have: Sequence[int]) -> Array:
    """The other way round."""
    order = [have[spec.index(axis)] for axis in range(len(spec))]
    return lax.transpose(array, order)
