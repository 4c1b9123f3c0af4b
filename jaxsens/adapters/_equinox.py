"""Equinox modules as functions of a batch: the arrays in them are the parameters.

Assumption: the module takes one example, as Equinox's layers do. It is mapped over the batch.
"""

import inspect
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxsens.adapters.outputs import (
    Choice,
    check_weights,
    checked_choice,
    chosen_output,
    named_leaves,
)
from jaxsens.core.adapted import Adapted
from jaxsens.core.scalars import one_line


def equinox(model: Any, state: Any = None, *, output: Choice = None) -> Adapted:
    """An Equinox module of one example as a function of a batch, its arrays as parameters.

    Args:
      model: an `equinox.Module`, in inference mode (`equinox.nn.inference_mode`). It is called as
        `model(x)`, or `model(x, context)`, for each example; if it needs a `key`, that is None.
      state: the `equinox.nn.State` of a model with running statistics, which is then called as
        `model(x, state)` and returns its output and a state.
      output: which of several outputs is the logits: the name of a field, or a number in a tuple.
        By default the only one, or the one called "logits".

    Returns:
      `apply_fn(params, x)`, and params, the arrays of model and state by their paths. Models that
      differ in their arrays alone have the same `apply_fn`.

    Raises:
      ValueError: this is no Equinox module, a part of it is in training mode, or a weight is nan.

    Example:
      A model of one example, measured on a batch:

          model = equinox.nn.MLP(64, 10, width_size=32, depth=1, key=key)
          apply_fn, params = jaxsens.adapters.equinox(model)
          apply_fn(params, x)                         # jax.vmap(model)(x)
    """
    output = checked_choice("equinox", output)
    if not any(base.__module__.startswith("equinox.") for base in type(model).__mro__):
        raise ValueError(f"adapters.equinox needs an equinox.Module; got {one_line(model)}")
    _refuse_training(model)
    names, leaves, tree = named_leaves(
        {"model": model} | ({} if state is None else {"state": state})
    )
    is_array = [isinstance(leaf, jax.Array | np.ndarray) for leaf in leaves]
    held = dict(zip(names, leaves, strict=True))
    params = {name: held[name] for name, array in zip(names, is_array, strict=True) if array}
    others = tuple(None if array else leaf for array, leaf in zip(is_array, leaves, strict=True))
    check_weights("equinox", params)
    return Adapted(_EquinoxApply(tree, names, others, output), params)


@dataclass(frozen=True)
class _EquinoxApply:
    """All of a module but its arrays, as a function of those.

    Attributes:
      tree: the structure of model and state.
      names: of all leaves, by their paths.
      others: the leaves that are no arrays, such as activation functions; None for arrays.
      output: which of the outputs is the logits.
    """

    tree: Any
    names: tuple[str, ...]
    others: tuple[Any, ...]
    output: Choice

    def __call__(self, params: Any, x: Any, *context: Any) -> Any:
        pairs = zip(self.names, self.others, strict=True)
        parts = jax.tree.unflatten(self.tree, [params.get(name, other) for name, other in pairs])
        model, state = parts["model"], parts.get("state")

        def of_one(*inputs: Any) -> Any:
            if state is None:
                return chosen_output(model(*inputs, **_key_of(model)), self.output)
            outputs, _ = model(*inputs, state, **_key_of(model))
            return chosen_output(outputs, self.output)

        return jax.vmap(of_one)(x, *context)


def _key_of(model: Any) -> dict[str, None]:
    """No key, for a model that insists on one: in inference mode nothing is drawn."""
    key = inspect.signature(type(model).__call__).parameters.get("key")
    return {} if key is None or key.default is not inspect.Parameter.empty else {"key": None}


def _refuse_training(model: Any) -> None:
    found = jax.tree_util.tree_leaves_with_path(model, is_leaf=_is_training)
    for path, part in found:
        if _is_training(part):
            name = jax.tree_util.keystr(path).removeprefix(".") or "the model"
            raise ValueError(
                f"{type(model).__name__} is in training mode: {name} ({type(part).__name__}) has "
                "inference=False; call model = equinox.nn.inference_mode(model) first"
            )


def _is_training(part: Any) -> bool:
    """Whether a layer draws, or mixes examples; dropout of nothing does neither."""
    return getattr(part, "inference", None) is False and getattr(part, "p", 1) != 0
