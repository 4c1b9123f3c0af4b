"""Flax nnx modules as pure functions: the graph is static, the state is the parameters.

Assumption: a call of the module may count, as random streams do, but its output does not depend on
the count. Every call starts from the state that was given.
"""

from dataclasses import dataclass
from typing import Any

import jax

from jaxsens.adapters.outputs import (
    Choice,
    check_weights,
    checked_choice,
    chosen_output,
    named_leaves,
)
from jaxsens.core.adapted import Adapted, framework_of
from jaxsens.core.scalars import one_line


def nnx(model: Any, *, output: Choice = None) -> Adapted:
    """A Flax nnx module as a pure function, with all of its state as parameters.

    Args:
      model: a `flax.nnx.Module` in eval mode, `model.eval()`.
      output: which of several outputs is the logits: the name of a field, or a number in a tuple.
        By default the only one, or the one called "logits".

    Returns:
      `apply_fn(params, x)`, and params, the arrays of the module's state by their paths, running
      statistics and random streams among them. Modules of the same graph have the same `apply_fn`.

    Raises:
      ValueError: this is no nnx module, a part of it is in training mode, or a weight is nan.

    >>> import jax.numpy as jnp
    >>> import flax.nnx
    >>> model = flax.nnx.Linear(2, 3, rngs=flax.nnx.Rngs(0))
    >>> apply_fn, params = nnx(model)
    >>> bool((apply_fn(params, jnp.ones((1, 2))) == model(jnp.ones((1, 2)))).all())
    True
    """
    from flax import nnx as flax_nnx

    output = checked_choice("nnx", output)
    if framework_of(model) != "nnx":
        raise ValueError(f"adapters.nnx needs a flax.nnx.Module; got {one_line(model)}")
    _refuse_training(model)
    graph, state = flax_nnx.split(model)
    names, leaves, tree = named_leaves(state)
    params = dict(zip(names, leaves, strict=True))
    check_weights("nnx", params)
    return Adapted(_NnxApply(graph, tree, names, output), params)


@dataclass(frozen=True)
class _NnxApply:
    """The graph of a module as a function of its state.

    Attributes:
      graph: the module without its arrays.
      tree: the structure of its state.
      names: of the arrays in it.
      output: which of the outputs is the logits.
    """

    graph: Any
    tree: Any
    names: tuple[str, ...]
    output: Choice

    def __call__(self, params: Any, x: Any, *context: Any) -> Any:
        from flax import nnx as flax_nnx

        # Variables of its own for every trace: one that counts changes only where it is made.
        state = jax.tree.unflatten(self.tree, [params[name] for name in self.names])
        return chosen_output(flax_nnx.merge(self.graph, state)(x, *context), self.output)


def _refuse_training(model: Any) -> None:
    from flax import nnx as flax_nnx

    for path, part in flax_nnx.iter_modules(model):
        draws = getattr(part, "deterministic", None) is False and _rate(part) > 0
        mixes = getattr(part, "use_running_average", None) is False
        if draws or mixes:
            name = ".".join(map(str, path)) or "the model"
            raise ValueError(
                f"{type(model).__name__} is in training mode: {name} "
                f"({type(part).__name__}) "
                f"{'draws numbers' if draws else 'mixes the examples of a batch'}; call "
                "model.eval() first"
            )


def _rate(part: Any) -> float:
    """The share that a module drops out."""
    return float(getattr(part, "rate", getattr(part, "dropout_rate", 0.0)))
