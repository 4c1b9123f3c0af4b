"""How to train: optimiser, learning rate and its schedule, as optax builds them."""

from dataclasses import dataclass
from typing import Literal

import optax


@dataclass(frozen=True)
class Recipe:
    """How to train: optimiser, learning rate and its schedule.

    Attributes:
      optimizer: plain SGD (no momentum), Adam or AdamW.
      learning_rate: the initial one.
      batch_size: examples per step.
      schedule: "constant"; "step" multiplies by `decay` every `decay_epochs` epochs; "cosine" falls
        to 0 at the last epoch.
      decay: factor of "step".
      decay_epochs: epochs between two steps of "step".
      weight_decay: AdamW's.
      frozen: entries of the parameters' outer dictionary that are not trained.
    """

    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    learning_rate: float = 0.1
    batch_size: int = 100
    schedule: Literal["constant", "step", "cosine"] = "constant"
    decay: float = 0.5
    decay_epochs: int = 8
    weight_decay: float = 1e-4
    frozen: tuple[str, ...] = ()

    def build(self, steps_per_epoch: int, epochs: int) -> optax.GradientTransformation:
        """The optax optimiser."""
        trained = self._build_trained(self.rate(steps_per_epoch, epochs))
        if not self.frozen:
            return trained

        def labels(params):
            return {name: "frozen" if name in self.frozen else "trained" for name in params}

        return optax.multi_transform({"trained": trained, "frozen": optax.set_to_zero()}, labels)

    def _build_trained(self, rate: optax.Schedule) -> optax.GradientTransformation:
        if self.optimizer == "sgd":
            return optax.sgd(rate)
        if self.optimizer == "adam":
            return optax.adam(rate)
        if self.optimizer == "adamw":
            return optax.adamw(rate, weight_decay=self.weight_decay)
        raise ValueError(f"optimizer must be sgd, adam or adamw; got {self.optimizer!r}")

    def rate(self, steps_per_epoch: int, epochs: int) -> optax.Schedule:
        """The learning rate at each step.

        >>> rate = Recipe("adam", 0.002, schedule="step").rate(steps_per_epoch=10, epochs=20)
        >>> [round(float(rate(epoch * 10)), 7) for epoch in (0, 7, 8, 16)]
        [0.002, 0.002, 0.001, 0.0005]
        """
        if self.schedule == "constant":
            return optax.constant_schedule(self.learning_rate)
        if self.schedule == "step":
            every = self.decay_epochs * steps_per_epoch
            return optax.exponential_decay(self.learning_rate, every, self.decay, staircase=True)
        if self.schedule == "cosine":
            return optax.cosine_decay_schedule(self.learning_rate, steps_per_epoch * epochs)
        raise ValueError(f"schedule must be constant, step or cosine; got {self.schedule!r}")
