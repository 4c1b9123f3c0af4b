"""What the image experiments train: one model, and its way of training."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import flax.linen as nn
from jaxtyping import Array, PRNGKeyArray

from jaxsens.training.objectives import Objective, cross_entropy
from jaxsens.training.trainer import Recipe

#: Where the noise goes that sensitivity is measured with: on the pixels of a patch, which every
#: token sees that looks at them; on the same pixels, seen by the patch's own token alone; or on
#: that token after the patch embedding. The last two are for vision transformers.
NoiseOn = Literal["patch", "own-token", "embedding"]


@dataclass(frozen=True)
class ModelSpec:
    """One model, its way of training, and where noise goes when it is measured.

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
      noise_on: where the noise goes. What is not noise on a patch is measured in the course of the
        training of the model whose name stands behind an @ in `name`.
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
    noise_on: NoiseOn = "patch"

    @property
    def training(self) -> str:
        """The key of its training in records and checkpoints."""
        return self.name.rpartition("@")[2]

    @property
    def field(self) -> str:
        """The field of these records with its sensitivity."""
        return "sensitivity" if self.noise_on == "patch" else self.noise_on
