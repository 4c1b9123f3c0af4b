"""Haiku's transformed functions without a random key, and without the state they return.

Assumption: what a function does in training is an argument of its own, such as `is_training`. It
cannot be looked up; a function that draws numbers fails, since it gets no key.
"""

import inspect
from dataclasses import dataclass
from typing import Any

from jaxsens.adapters.outputs import Choice, check_weights, checked_choice, chosen_output
from jaxsens.adapters.promotion import default_promotion
from jaxsens.core.adapted import Adapted
from jaxsens.core.scalars import check_hashable, one_line


def haiku(
    transformed: Any, params: Any, state: Any = None, *, output: Choice = None, **options: Any
) -> Adapted:
    """A function that Haiku transformed, with its parameters and its state as parameters.

    Args:
      transformed: what `hk.transform`, `hk.transform_with_state` or `hk.without_apply_rng` gave.
      params: the parameters that its `init` gave, or trained ones.
      state: the state, for `hk.transform_with_state`: running statistics, for instance.
      output: which of several outputs is the logits: the name of a field, or a number in a tuple.
        By default the only one, or the one called "logits".
      **options: what else the function takes by name, such as `is_training=False`.

    Returns:
      `apply_fn(params, x)`, and params: {"params": …, "state": …}, state only where there is one.

    Raises:
      ValueError: this is no transformed function, the state is missing or not asked for, or a
        weight is nan.

    Example:
      A network with BatchNorm:

          network = hk.transform_with_state(lambda x, is_training: net(x, is_training))
          adapted = jaxsens.adapters.haiku(network, params, state, is_training=False)
    """
    output = checked_choice("haiku", output)
    apply = getattr(transformed, "apply", None)
    if not callable(apply) or not hasattr(transformed, "init"):
        raise ValueError(
            "adapters.haiku needs what hk.transform or hk.transform_with_state gave; got "
            f"{one_line(transformed)}"
        )
    takes = inspect.signature(apply).parameters
    if ("state" in takes) != (state is not None):
        advice = (
            "give its state: adapters.haiku(transformed, params, state)"
            if state is None
            else "leave state out, since hk.transform has none"
        )
        raise ValueError(f"adapters.haiku: the function takes ({', '.join(takes)}); {advice}")
    check_hashable("adapters.haiku(**options)", tuple(options.items()))
    held = {"params": params} if state is None else {"params": params, "state": state}
    check_weights("haiku", held)
    names = tuple(name for name in ("state", "rng") if name in takes)
    return Adapted(_HaikuApply(apply, names, output, tuple(sorted(options.items()))), held)


@dataclass(frozen=True)
class _HaikuApply:
    """A function of Haiku that gets neither key nor new state.

    Attributes:
      apply: the function.
      names: which of "state" and "rng" it takes after params.
      output: which of its outputs is the logits.
      options: what it takes by name.
    """

    apply: Any
    names: tuple[str, ...]
    output: Choice
    options: tuple[tuple[str, Any], ...]

    def __call__(self, params: Any, x: Any, *context: Any) -> Any:
        between = [params["state"] if name == "state" else None for name in self.names]
        with default_promotion():
            outputs = self.apply(params["params"], *between, x, *context, **dict(self.options))
        if "state" in self.names:
            outputs, _ = outputs
        return chosen_output(outputs, self.output)
