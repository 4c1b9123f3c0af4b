"""Checks of a model that users pass to a measurement: its parameters, and what it returns.

The model is traced by shapes alone, nothing is computed. Every error says in one line what was
expected, what came, and what to do.
"""

import contextlib
import functools
import re
from collections.abc import Callable, Container
from typing import Any

import jax
import jax.numpy as jnp

from jaxsens.core.scalars import one_line
from jaxsens.core.tracing import as_shapes
from jaxsens.core.user_code import user_call
from jaxsens.measurement import metrics
from jaxsens.measurement.arguments import check_grid, check_known, shapes
from jaxsens.perturbations.perturbation import Perturbation

#: Numbers of examples that models are written for, where they are written for one number alone.
_USUAL_BATCHES = (1, 3, 4, 5, 8, 10, 16, 20, 25, 32, 50, 64, 100, 128, 200, 256, 512, 1000)
#: What to do with leaves of other packages, which hold arrays and are none.
_ADVICE = {
    "penzai": "unbind them, `unbound, params = pz.unbind_params(model, freeze=True)`, and call "
    "`pz.bind_variables(unbound, params)` in apply_fn",
    "torch": "give the module itself, sensitivity(module, x, …), see jaxsens.adapters.torch",
    "keras": "give the model itself, sensitivity(model, x, …), see jaxsens.adapters.keras",
}


def check_params(params: Any) -> None:
    """Raises ValueError if a leaf is neither an array nor a number."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        check_known("params", leaf)
        if _shape_of(leaf) is None or isinstance(leaf, jax.ShapeDtypeStruct):
            name = jax.tree_util.keystr(path)
            package = type(leaf).__module__.partition(".")[0]
            advice = _ADVICE.get(package, "let apply_fn hold what is no array")
            raise ValueError(
                f"params must be a pytree of arrays; got {one_line(leaf)} at params{name}: {advice}"
            )


def _shape_of(leaf: Any) -> tuple[int, ...] | None:
    """The shape that JAX sees in a value; None if it is no array to JAX."""
    try:
        return jax.typeof(leaf).shape
    except (OverflowError, TypeError, ValueError):
        return None


def check_outputs(apply_fn: Callable, params: Any, inputs: Any, metric: metrics.Metric) -> None:
    """Traces model and metric by shapes alone; ValueError unless they give what they should.

    The label flip needs logits (n, C) or scores (n,); other metrics take outputs (n, …).
    """
    ranks = (1, 2) if metric == metrics.label_flip else range(1, 9)
    num = inputs[0].shape[0]
    out = checked_logits(apply_fn, params, shapes(inputs, 2), ranks, num_examples=num)
    one = jax.ShapeDtypeStruct(out.shape[1:], out.dtype)
    with user_call(f"metric {metric.name!r}", clean=one, perturbed=one):
        jax.eval_shape(metric, one, one)


def checked_logits(
    apply_fn: Callable, params: Any, batch: Any, ranks: Container[int], *, num_examples: int = 1
) -> Any:
    """The shape of the model's output for a batch; ValueError unless it has an allowed rank.

    Args:
      apply_fn: the model.
      params: its parameters.
      batch: the shapes of x and of what else it takes.
      ranks: how many axes the output may have.
      num_examples: how many there are, for which a model may be written alone.
    """
    advice = "if it takes more than params and x, give that as context="
    if len(batch) > 1:
        advice = "if it takes params and x alone, leave context= out"
    given = dict(zip(("x", "context"), batch, strict=False))
    try:
        with user_call("apply_fn", advice=advice, params=params, **given):
            out = jax.eval_shape(apply_fn, as_shapes(params), *batch)
        one = shapes(batch, 1)
        with user_call("apply_fn", advice=advice, params=params, x=one[0]):
            of_one = jax.eval_shape(_inside_a_loop(apply_fn), params, *one)
    except (TypeError, ValueError) as error:
        _refuse_fixed_batch(apply_fn, params, batch, num_examples, error)
        _refuse_channel_order(apply_fn, params, batch, error)
        raise
    shape = getattr(out, "shape", None)
    n = batch[0].shape[0]
    if shape is None or len(shape) not in ranks or shape[0] != n:
        if shape is not None and shape[:1] != (n,):
            _refuse_fixed_batch(apply_fn, params, batch, num_examples, None)
        got = type(out).__name__ if shape is None else shape
        raise ValueError(
            f"apply_fn must map a batch {batch[0].shape} to logits ({n}, C) or scores ({n},); "
            f"got {got}{_advice(out, n)}"
        )
    if of_one.shape != (1, *shape[1:]):
        raise ValueError(
            f"apply_fn gives {of_one.shape} for a batch of one example and {shape} for {n}; "
            f"expected {(1, *shape[1:])}: squeeze axes by their number, never the batch's"
        )
    return out


@functools.lru_cache(maxsize=256)
def _inside_a_loop(apply_fn: Callable) -> Callable:
    """The same function, called where edits are: in a loop that parameters come into from outside.

    A module that changes its own state cannot be called there. Of the same function it is the same
    one, which JAX traces once.
    """

    def call(params: Any, *batch: Any) -> Any:
        out = jax.lax.map(lambda _: apply_fn(params, *batch), jnp.arange(1))
        return jax.tree.map(lambda array: array[0], out)

    return call


def _advice(out: Any, n: int) -> str:
    """How to measure a model with several outputs, or with labels at several places."""
    picked: dict[type, str] = {dict: "['logits']", tuple: "[0]", list: "[0]"}
    first = picked.get(type(out))
    if first is not None:
        return f": return the logits alone, such as lambda params, x: apply_fn(params, x){first}"
    if len(getattr(out, "shape", ())) > 2 and out.shape[0] == n:
        return (
            ": for a label at each place, say what counts with metric=jaxsens.label_flip_any, "
            "jaxsens.label_flip_mean or jaxsens.label_flip_at(place)"
        )
    return ""


def _refuse_fixed_batch(
    apply_fn: Callable, params: Any, batch: Any, num_examples: int, cause: Exception | None
) -> None:
    """Raises ValueError if the model takes one size of batches alone.

    That may be a usual one, one that its error names, or the number of examples. Where it could
    be traced (no cause), an output that has always the same length, such as a side of the image,
    says nothing of batches.
    """
    fitting: list[int] = []
    named = [int(number) for number in re.findall(r"\b\d{1,5}\b", str(cause))]
    for size in dict.fromkeys((*_USUAL_BATCHES, *filter(None, named), num_examples)):
        with contextlib.suppress(Exception):
            out = jax.eval_shape(apply_fn, params, *shapes(batch, size))
            fitting += [size] * (cause is None or out.shape[:1] == (size,))
        if len(fitting) > 1:
            return
    if fitting:
        raise ValueError(
            f"apply_fn takes batches of {fitting[0]} alone, and must take any number of examples, "
            f"here {batch[0].shape[0]}: write len(x) where a reshape has {fitting[0]}, or export "
            "the model with jax.export.symbolic_shape"
        ) from cause


def _refuse_channel_order(apply_fn: Callable, params: Any, batch: Any, cause: Exception) -> None:
    """Raises ValueError if the model takes images with their channels at the other end."""
    x, *context = batch
    if len(x.shape) != 4 or "x.transpose(" in str(cause):
        return
    n, *sides = x.shape
    first, last = (sides[2], *sides[:2]), (*sides[1:], sides[0])
    fitting = [
        (shape, axes, grid)
        for shape, axes, grid in (
            (last, "0, 2, 3, 1", "Patches(p)"),
            (first, "0, 3, 1, 2", 'Patches(p, channels="first")'),
        )
        if _gives_rows(apply_fn, params, (jax.ShapeDtypeStruct((n, *shape), x.dtype), *context))
    ]
    if len(fitting) == 1:
        ((shape, axes, grid),) = fitting
        raise ValueError(
            f"apply_fn fails for images (n, {', '.join(map(str, sides))}) and takes (n, "
            f"{', '.join(map(str, shape))}): give x.transpose({axes}), and {grid} as the grid"
        ) from cause


def _gives_rows(apply_fn: Callable, params: Any, batch: Any) -> bool:
    """Whether the model can be traced for a batch, and gives something for each example."""
    with contextlib.suppress(Exception):
        out = jax.eval_shape(apply_fn, params, *batch)
        return all(leaf.shape[:1] == batch[0].shape[:1] for leaf in jax.tree.leaves(out))
    return False


def check_shapes(
    apply_fn: Callable, params: Any, x: Any, context: tuple, perturbation: Perturbation
) -> None:
    """Raises ValueError unless grid and model fit the shapes of params, x and context."""
    for name, tree in (("params", params), ("x", x), ("context", context)):
        for leaf in jax.tree.leaves(tree):
            shape = _shape_of(leaf)
            if shape is None:
                raise ValueError(f"{name} must be arrays or their shapes; got {one_line(leaf)}")
            if name != "params" and not shape:
                raise ValueError(f"{name} has no examples: its shape is {shape}")
    if not hasattr(x, "shape"):
        raise ValueError(f"x must be one array or its shape; got {one_line(x)}")
    check_grid(perturbation, tuple(x.shape[1:]))
    checked_logits(apply_fn, params, shapes((x, *context), 1), range(1, 9))
