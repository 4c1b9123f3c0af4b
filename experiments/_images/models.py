"""What the image experiments train: one model, and its way of training."""

from collections.abc import Callable
from dataclasses import dataclass

import flax.linen as nn
from jaxtyping import Array, PRNGKeyArray

from jaxsens.training.objectives import Objective, cross_entropy
from jaxsens.training.trainer import Recipe


@dataclass(frozen=True)
class ModelSpec:
    """One model and its way of training.

    Attributes:
      name: its key in records, checkpoints and results.
      label: its name in tables and figures.
      model: the network.
      recipe: optimiser and learning rate.
      key_index: which of the seed's random keys it uses; models that share one start from the same
        weights (if their shapes agree) and see the images in the same order.
      objective: the loss.
      augment: `augment(key, x, y) -> (x, y)`, applied to the training images once; None for none.
      paper: the paper's sensitivity, if it gives one.
      seed: what is added to the run's seed: a model is trained as often as there are seeds.
    """

    name: str
    label: str
    model: nn.Module
    recipe: Recipe
    key_index: int
    objective: Objective = cross_entropy
    augment: Callable[[PRNGKeyArray, Array, Array], tuple[Array, Array]] | None = None
    paper: float | None = None
    seed: int = 0
