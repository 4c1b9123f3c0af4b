"""Losses to train on, as functions of the model rather than of its logits.

An objective is `objective(logits_fn, x, y, key) -> scalar`, where `logits_fn(x, key)` is the model
in training mode. It may call the model more than once, as a regulariser that compares two inputs
does; each call has its own key, so its own dropout masks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from jaxsens.perturbations.perturbation import Perturbation

#: Logits of the model in training mode: `logits_fn(x, key)`.
LogitsFn = Callable[[Array, PRNGKeyArray], Array]
#: The loss of a batch: `objective(logits_fn, x, y, key) -> scalar`.
Objective = Callable[[LogitsFn, Array, Array, PRNGKeyArray], Float[Array, ""]]


def cross_entropy(logits_fn: LogitsFn, x: Array, y: Array, key: PRNGKeyArray) -> Float[Array, ""]:
    """Mean cross-entropy with integer labels.

    Example:
      >>> logits_fn = lambda x, key: x
      >>> x, y = jnp.array([[2.0, 0.0], [0.0, 0.0]]), jnp.array([0, 1])
      >>> round(float(cross_entropy(logits_fn, x, y, jax.random.key(0))), 4)
      0.41
    """
    return _mean_cross_entropy(logits_fn(x, key), y)


@dataclass(frozen=True)
class SensitivityRegularized:
    """Cross-entropy plus a price on how far an edit of one random window moves the logits.

        additive:  CE(f(x), y) + strength · MSE(f(x), f(x'))           (the paper's text)
        convex:    (1 - strength) · CE(f(x), y) + strength · MSE(f(x), f(x'))   (its code)

    x' is x with one window, drawn for every example and step, edited; the mean square is over
    examples and logits, and the gradient flows through both passes.

    Attributes:
      perturbation: the window edit.
      strength: weight of the price, in [0, 1] for "convex".
      form: how the two terms are put together.

    Example:
      >>> from jaxsens import Bits, Flip
      >>> objective = SensitivityRegularized(Perturbation(Bits(), Flip()), strength=0.25)
      >>> logits_fn = lambda x, key: 0.5 * x  # a flip moves one of two by 1: MSE 0.5
      >>> @jax.jit
      ... def price(*batch):
      ...     return objective(logits_fn, *batch) - cross_entropy(logits_fn, *batch)
      >>> x, y = jnp.array([[1.0, -1.0]]), jnp.array([0])
      >>> round(float(price(x, y, jax.random.key(0))), 4)
      0.125
    """

    perturbation: Perturbation
    strength: float = 0.25
    form: Literal["additive", "convex"] = "additive"

    def __post_init__(self):
        if not self.strength >= 0 or (self.form == "convex" and self.strength > 1):
            limit = "between 0 and 1" if self.form == "convex" else "at least 0"
            raise ValueError(f"strength must be {limit}; got {self.strength}")

    def __call__(
        self, logits_fn: LogitsFn, x: Array, y: Array, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """The loss of a batch."""
        clean_key, edited_key, edit_key = jax.random.split(key, 3)
        logits = logits_fn(x, clean_key)
        price = jnp.mean((logits - logits_fn(self._edited(x, edit_key), edited_key)) ** 2)
        cross_entropy_weight = {"additive": 1.0, "convex": 1 - self.strength}[self.form]
        return cross_entropy_weight * _mean_cross_entropy(logits, y) + self.strength * price

    def _edited(self, x: Array, key: PRNGKeyArray) -> Array:
        num_positions = self.perturbation.num_positions(x.shape[1:])

        def edit(key, x_i, i):
            place_key, noise_key = jax.random.split(key)
            position = jax.random.randint(place_key, (), 0, num_positions)
            return self.perturbation(noise_key, x_i, position, pool=x, example=i)

        return jax.vmap(edit)(jax.random.split(key, len(x)), x, jnp.arange(len(x)))


def _mean_cross_entropy(logits: Float[Array, "n C"], y: Array) -> Float[Array, ""]:
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
