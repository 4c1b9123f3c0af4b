"""Models of other frameworks where a function takes `apply_fn` and `params`.

A measurement takes `f(apply_fn, params, x, …)`. What `jaxsens.adapters` makes of a model is both in
one value, and may stand in their place, `f(adapted, x, …)`; so may the model itself.

Assumption: a framework's models are told by the name of their class and of its package, so that
no framework is imported to ask whether a model is one of its own.
"""

import functools
import importlib
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

Function = TypeVar("Function", bound=Callable)

#: (where a base class is defined, its name): the adapter of its models. Keras comes before PyTorch,
#: since with that backend its models are modules of PyTorch too.
_MODELS = (
    ("keras", "Model", "keras"),
    ("torch.nn", "Module", "torch"),
    ("flax.nnx", "Module", "nnx"),
    ("equinox", "Module", "equinox"),
)


class Adapted(NamedTuple):
    """A model as jaxsens takes it: a function of parameters and inputs, and the parameters.

    It unpacks into the two, and may be given to a measurement in their place.

    Attributes:
      apply_fn: `apply_fn(params, x) -> logits`, or with context `apply_fn(params, x, context)`. It
        can be hashed: of the same model it is the same, so that nothing is compiled again.
      params: a pytree of arrays, copies of the model's own.

    >>> apply_fn, params = Adapted(lambda params, x: params * x, 2.0)
    >>> apply_fn(params, 3.0)
    6.0
    """

    apply_fn: Callable[..., Any]
    params: Any


def framework_of(model: Any) -> str | None:
    """The name of the adapter for a model, or None for what is no model of a known framework.

    An Equinox module that can be hashed holds no array, and is a function like any other.
    """
    for base in type(model).__mro__:
        for package, name, adapter in _MODELS:
            if base.__name__ != name or not f"{base.__module__}.".startswith(f"{package}."):
                continue
            return None if adapter == "equinox" and _is_hashable(model) else adapter
    return None


def takes_models(function: Function) -> Function:
    """Lets `f(apply_fn, params, x, …)` be called as `f(model, x, …)`, and with PyTorch's tensors.

    Args:
      function: takes a function and its parameters as its first two arguments.

    >>> @takes_models
    ... def output(apply_fn, params, x): return apply_fn(params, x)
    >>> double = Adapted(lambda params, x: params * x, 2.0)
    >>> output(double, 3.0), output(*double, 3.0)
    (6.0, 6.0)
    """

    @functools.wraps(function)
    def unpacked(*args: Any, **kwargs: Any) -> Any:
        kwargs = {name: _without_tensors(value) for name, value in kwargs.items()}
        if not args:
            return function(**kwargs)
        model, *others = args[0], *map(_as_array, args[1:])
        if not isinstance(model, Adapted):
            adapter = framework_of(model)
            if adapter is None:
                return function(model, *others, **kwargs)
            # By name: rooms import only from rooms before them, and this one is needed by few.
            model = getattr(importlib.import_module("jaxsens.adapters"), adapter)(model)
        return function(*model, *others, **kwargs)

    return unpacked  # type: ignore[return-value]


def _as_array(value: Any) -> Any:
    """A tensor of PyTorch as an array of NumPy; anything else as it is."""
    if not any(
        kind.__module__ == "torch" and kind.__name__ == "Tensor" for kind in type(value).__mro__
    ):
        return value
    tensor = value.detach().cpu()
    return np.asarray(tensor.float() if "bfloat16" in str(tensor.dtype) else tensor)


def _without_tensors(value: Any) -> Any:
    """The same, also inside a dict, as a context may be."""
    if isinstance(value, dict):
        return {name: _as_array(each) for name, each in value.items()}
    return _as_array(value)


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
