"""Which of a model's outputs is the logits, and whether its weights are numbers.

Models return arrays, tuples, dicts, and records with named fields (Hugging Face's `ModelOutput`).
A field called "logits" is taken; where nothing is called so, the user is asked.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsens.core.scalars import one_line

#: What an output is chosen by: a field's name, a number in a tuple, or nothing.
Choice = str | int | None


def checked_choice(adapter: str, output: Any) -> Choice:
    """The choice itself; ValueError unless it is a name, a number or None."""
    if output is None or isinstance(output, str):
        return output
    if isinstance(output, int) and not isinstance(output, bool):
        return output
    raise ValueError(
        f"adapters.{adapter}(output=) must be the name of a field or a number in a tuple; "
        f"got {one_line(output)}"
    )


def chosen_output(outputs: Any, output: Choice) -> Any:
    """The one array among a model's outputs that is the logits.

    Args:
      outputs: what the model returned.
      output: a field's name or a number in a tuple; None for the only one, or the one called
        "logits".

    Raises:
      ValueError: there is no such output, or there are several and none is called "logits".

    >>> chosen_output({"loss": 1.0, "logits": 2.0}, None), chosen_output((1.0, 2.0), 1)
    (2.0, 2.0)
    """
    if hasattr(outputs, "shape"):
        if output is not None:
            raise ValueError(
                f"the model returns one array, so that there is no output={output!r}: leave "
                "output= out"
            )
        return outputs
    named = _named(outputs)
    if output is None and "logits" in named:
        return named["logits"]
    if output is None and len(named) == 1:
        return next(iter(named.values()))
    if isinstance(output, int) and not isinstance(outputs, Mapping) and named:
        numbers = list(named)
        if -len(numbers) <= output < len(numbers):
            return named[numbers[output]]
    if output in named:
        return named[output]
    shown = ", ".join(f"{name!r}: {_described(value)}" for name, value in named.items())
    first = next(iter(named), "logits")
    got = "" if output is None else f"; got output={output!r}"
    raise ValueError(
        f"the model returns {type(outputs).__name__}({shown}): say which is the logits, such as "
        f"output={first!r}{got}"
    )


def named_leaves(tree: Any) -> tuple[tuple[str, ...], list[Any], Any]:
    """The leaves of a pytree, the name of each by its path, and the structure.

    >>> named_leaves({"a": [1, 2]})[:2]
    (('a.0', 'a.1'), [1, 2])
    """
    found, structure = jax.tree_util.tree_flatten_with_path(tree)
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in found]
    return tuple(names), [leaf for _, leaf in found], structure


def check_weights(adapter: str, params: Any) -> None:
    """Raises ValueError if a weight is nan; infinities are left alone, since masks have them."""
    for name, leaf in zip(*named_leaves(params)[:2], strict=True):
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            continue
        num = int(np.isnan(np.asarray(leaf)).sum())
        if num:
            raise ValueError(
                f"adapters.{adapter}: {num} of {leaf.size} weights in {name} are nan; load a model "
                "whose training did not diverge"
            )


def _named(outputs: Any) -> dict[Any, Any]:
    """The outputs by name or, in a tuple, by number; those that are None do not count."""
    if isinstance(outputs, Mapping):
        named = dict(outputs)
    elif hasattr(outputs, "_fields"):
        named = {name: getattr(outputs, name) for name in outputs._fields}
    elif isinstance(outputs, Sequence) and not isinstance(outputs, str):
        named = dict(enumerate(outputs))
    elif dataclasses.is_dataclass(outputs):
        named = {field.name: getattr(outputs, field.name) for field in dataclasses.fields(outputs)}
    else:
        named = {}
    return {name: value for name, value in named.items() if value is not None}


def _described(value: Any) -> str:
    """Its shape, in which PyTorch has a symbol for the number of examples."""
    if not hasattr(value, "shape"):
        return type(value).__name__
    sizes = [str(size) if isinstance(size, int) else "n" for size in value.shape]
    return f"({', '.join(sizes)})"
