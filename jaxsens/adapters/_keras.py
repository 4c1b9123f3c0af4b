"""Keras models by their stateless call, with `training=False`.

Assumption: Keras runs with its JAX backend, which is chosen before Keras is first imported.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from jaxsens.adapters.outputs import Choice, check_weights, checked_choice, chosen_output
from jaxsens.adapters.promotion import default_promotion
from jaxsens.core.adapted import Adapted, framework_of
from jaxsens.core.scalars import one_line


def keras(model: Any, *, output: Choice = None) -> Adapted:
    """A Keras model as a pure function, with all of its variables as parameters.

    It is called with `training=False`: dropout is off, and BatchNorm takes its moving averages.

    Args:
      model: a built `keras.Model`, with Keras on its JAX backend.
      output: which of several outputs is the logits: the name of a field, or a number in a tuple.
        By default the only one, or the one called "logits".

    Returns:
      `apply_fn(params, x)`, and params: {"trainable": […], "non_trainable": […]}, arrays in the
      order of the model's variables. Context is the model's second input.

    Raises:
      ValueError: this is no Keras model, it is not built, Keras has another backend, or a weight is
        nan.

    Example:
      An application of Keras, without downloading weights:

          model = keras.applications.MobileNetV2(weights=None, input_shape=(32, 32, 3))
          apply_fn, params = jaxsens.adapters.keras(model)
          apply_fn(params, x)                         # model(x, training=False)
    """
    output = checked_choice("keras", output)
    if framework_of(model) != "keras":
        raise ValueError(f"adapters.keras needs a keras.Model; got {one_line(model)}")
    import keras as keras_package

    if keras_package.backend.backend() != "jax":
        raise ValueError(
            "adapters.keras needs Keras on its JAX backend: set KERAS_BACKEND=jax before keras is "
            f"imported; got {keras_package.backend.backend()!r}"
        )
    if not model.built:
        raise ValueError(
            f"{type(model).__name__} has no weights yet: call it on a batch, or model.build(shape)"
        )
    params = {
        "trainable": [jnp.array(v.value) for v in model.trainable_variables],
        "non_trainable": [jnp.array(v.value) for v in model.non_trainable_variables],
    }
    check_weights("keras", params)
    return Adapted(_KerasApply(model, output), params)


@dataclass(frozen=True)
class _KerasApply:
    """The model as a function; equal for the same model and the same output."""

    model: Any
    output: Choice

    def __call__(self, params: Any, x: Any, *context: Any) -> Any:
        inputs = [x, *context] if context else x
        with default_promotion():
            outputs, _ = self.model.stateless_call(
                params["trainable"], params["non_trainable"], inputs, training=False
            )
        return chosen_output(outputs, self.output)
