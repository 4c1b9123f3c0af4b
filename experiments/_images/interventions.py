"""Two ways to lower a model's sensitivity (Section 7 of the paper), for any model.

* regularise: the loss also prices how much noise on one random patch moves the logits;
* augment: the training set also holds (or only holds) every image with noise all over it.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxsens import Gaussian, OverlappingPatches, Patches, Perturbation, data
from jaxsens.cli.bounds import Range, Several, Variance
from jaxsens.cli.config import Preset
from jaxsens.training.objectives import SensitivityRegularized

from .config import ComparisonConfig
from .models import ModelSpec
from .paper import ModelName

Intervention = Literal["regularise", "augment"]
ConfigT = TypeVar("ConfigT", bound="InterventionConfig")
SUFFIXES: dict[Intervention, str] = {"regularise": "+ reg.", "augment": "+ aug."}

#: The paper's learning rates with an intervention; elsewhere the model's own is kept.
RATES: dict[tuple[str, str, Intervention], float] = {
    ("cifar10", "vit-small", "regularise"): 0.16,
    ("cifar10", "vit-small", "augment"): 0.2,
}


@dataclass(frozen=True)
class Augmented:
    """Noise N(0, variance) on whole images, labels kept, drawn once before training."""

    variance: float
    images: Literal["doubled", "replaced"] = "doubled"

    def __call__(
        self, key: PRNGKeyArray, x: Float[Array, "n H W C"], y: Int[Array, " n"]
    ) -> tuple[Float[Array, "m H W C"], Int[Array, " m"]]:
        """The images to train on: the clean ones first, if they are kept."""
        noisy = Gaussian(variance=self.variance)(key, x)
        if self.images == "replaced":
            return noisy, y
        return jnp.concatenate([x, noisy]), jnp.concatenate([y, y])


@dataclass(frozen=True)
class InterventionConfig(ComparisonConfig):
    """Flags of experiments with interventions."""

    interventions: Annotated[tuple[Intervention, ...], Several(at_least=0)] = (
        "regularise",
        "augment",
    )
    """What is tried to lower the sensitivity."""
    intervene_on: Annotated[tuple[ModelName, ...], Several(at_least=0)] = ()
    """Models on which it is tried; default ViT-small if it is among the models, else all."""
    strength: Annotated[float, Range(0, 1e6)] = 0.25
    """Weight of the regulariser."""
    form: Literal["additive", "convex"] = "additive"
    """CE + strength·MSE as in the paper, or (1 - strength)·CE + strength·MSE as in its code."""
    regularised_patch: Literal["aligned", "free"] = "aligned"
    """Whether the regulariser's patch lies on the grid, or anywhere as in the code."""
    regularised_variance: Variance = 1.0
    """Variance of the noise on the regulariser's patch."""
    augmented_images: Literal["doubled", "replaced"] = "doubled"
    """Whether noisy images join the clean ones or replace them; the paper does not say."""
    augmented_variance: Variance = 0.1
    """Variance of the noise on augmented images."""

    def check(self) -> None:
        """Raises ValueError for interventions that cannot be made."""
        super().check()
        self.check_models(self.intervene_on)
        absent = [model for model in self.intervene_on if self.models and model not in self.models]
        if absent:
            raise ValueError(
                f"intervene_on names {absent[0]}, which is not among the models: "
                + ", ".join(self.models)
            )
        for intervention in self.interventions:
            self._apply(intervention)
        if "regularise" in self.interventions and self.patch is not None:
            self._regularised_grid.layout(data.spec(self.dataset).image_shape)

    def filled(self: ConfigT, preset: Preset) -> ConfigT:
        """The config with the models to intervene on, if none was named."""
        config = super().filled(preset)
        default = tuple(model for model in config.models if model == "vit-small") or config.models
        return dataclasses.replace(config, intervene_on=config.intervene_on or default)

    def model_specs(self) -> list[ModelSpec]:
        """The models as they are, each followed by its interventions."""
        found = []
        for base in super().model_specs():
            found.append(base)
            if base.name in self.intervene_on:
                found += [self.intervened(base, each) for each in self.interventions]
        return found

    def pairs(self, specs: Sequence[ModelSpec]) -> list[tuple[ModelSpec, ModelSpec]]:
        """Every model with an intervention, beside the one without."""
        by_name = {spec.name: spec for spec in specs}
        return [
            (by_name[f"{model}-{each}"], by_name[model])
            for model in self.intervene_on
            for each in self.interventions
        ]

    def intervened(self, base: ModelSpec, intervention: Intervention) -> ModelSpec:
        """The model with one intervention, from the same first weights and in the same order."""
        rate = RATES.get((self.dataset, base.name, intervention), base.recipe.learning_rate)
        recipe = dataclasses.replace(base.recipe, learning_rate=self.learning_rate or rate)
        return dataclasses.replace(
            base,
            name=f"{base.name}-{intervention}",
            label=f"{base.label} {SUFFIXES[intervention]}",
            recipe=recipe,
            paper=None,
            **self._apply(intervention),
        )

    def _apply(self, intervention: Intervention) -> dict:
        if intervention == "augment":
            return {"augment": Augmented(self.augmented_variance, self.augmented_images)}
        noise = Gaussian(variance=self.regularised_variance)
        perturbation = Perturbation(self._regularised_grid, noise)
        return {"objective": SensitivityRegularized(perturbation, self.strength, self.form)}

    @property
    def _regularised_grid(self) -> Patches | OverlappingPatches:
        grid = Patches if self.regularised_patch == "aligned" else OverlappingPatches
        return grid(self.patch or 1)
