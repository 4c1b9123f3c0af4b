"""The configs of the image experiments: their flags, and the models that a config asks for."""

import abc
import dataclasses
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from jaxsens import Donor, Gaussian, Patches, Perturbation, ScatteredPixels, Whole, data
from jaxsens.cli.bounds import Count, Draws, Epochs, Range, Rate, RunName, Seed, Several, Variance
from jaxsens.cli.config import ExperimentConfig, Preset
from jaxsens.training.trainer import Recipe

from .._common import reuse
from .._common.seeds import Seeds, check_seeds
from .._common.training import require_batch
from .models import ModelSpec
from .paper import LABELS, SETTINGS, ImageSetting, ModelName

#: What of a config, beside its models, decides the weights.
_SAME_IMAGES = ("dataset", "num_train", "epochs", "seed")
#: What of a model decides them.
_SAME_TRAINING = ("model", "recipe", "key_index", "objective", "augment", "seed")
ConfigT = TypeVar("ConfigT", bound="ImageConfig")
ComparisonT = TypeVar("ComparisonT", bound="ComparisonConfig")


@dataclass(frozen=True)
class ImageConfig(ExperimentConfig, abc.ABC):
    """Flags of all image experiments; None means the paper's or the preset's value."""

    dataset: str
    """Images to train on."""
    epochs: Epochs | None = None
    """Passes over the training images."""
    evaluate_every: Epochs | None = None
    """Epochs between two evaluations."""
    num_train: Count | None = None
    """Training images to use, the first ones; default all."""
    batch_size: Count | None = None
    """Images of a step."""
    learning_rate: Rate | None = None
    """One learning rate for all models."""
    optimizer: Literal["sgd", "adam", "adamw"] | None = None
    """One optimiser for all models; the paper uses plain SGD."""
    schedule: Literal["constant", "step", "cosine"] = "constant"
    """Learning rate over time."""
    reduced: bool | None = None
    """Smaller models of the same kinds, for a CPU (colour images; sizes in _images/paper.py)."""
    patch: Count | None = None
    """Side of a patch in pixels."""
    edit: Literal["gaussian", "donor"] | None = None
    """What happens to a patch: noise, or the same patch of another image."""
    variance: Variance | None = None
    """Variance of the noise (not its standard deviation), in units of pixels in [-1, 1]."""
    estimator: Literal["patch-grid", "random-patches", "scattered-pixels"] = "patch-grid"
    """Every patch as the paper defines it, `num_samples` random patches per image (the same
    quantity), or as many scattered pixels, the variance taken for a standard deviation, as the
    released code has it."""
    num_samples: Draws = 5
    """Draws for each patch (of the grid), or for each image, in the final measurement."""
    num_measured: Count | None = None
    """Training images in the final measurement."""
    tolerance: Annotated[float, Range(1e-6, 1)] | None = None
    """Half-width of the 95 % interval of each point along training."""
    num_accuracy: Count | None = None
    """Images, at the most, for each accuracy."""
    seed: Seed = 42
    """Decides weights, order, dropout and noise."""
    reuse: RunName | None = None
    """Folder of another run, also of another experiment: models that both have are taken from
    there. That they are trained in the same way is checked."""

    def check(self) -> None:
        """Raises ValueError for a combination that cannot be trained or measured."""
        if self.patch is not None:
            self._check_patch(self.patch)
        if self.num_train is not None and self.batch_size is not None:
            require_batch(self.batch_size, self.num_train)
        if self.estimator == "scattered-pixels" and self.edit == "donor":
            raise ValueError("estimator scattered-pixels adds noise: edit must be gaussian")
        if self.optimizer in ("adam", "adamw") and self.learning_rate is None:
            raise ValueError(
                f"optimizer {self.optimizer} needs a --learning-rate: the models' own are SGD's "
                "(the paper has 0.002 for Adam)"
            )

    def _check_patch(self, patch: int) -> None:
        shape = data.spec(self.dataset).image_shape
        if patch > min(shape[:2]):
            raise ValueError(
                f"patch={patch} is larger than image side {min(shape[:2])}; choose a divisor of it"
            )
        # Scattered pixels need no grid.
        if self.estimator != "scattered-pixels":
            Patches(patch).layout(shape)

    @property
    def setting(self) -> ImageSetting:
        """The dataset as the paper uses it."""
        return SETTINGS[self.dataset]

    @abc.abstractmethod
    def model_specs(self) -> list[ModelSpec]:
        """What a filled config trains."""

    def model_spec(self, name: ModelName) -> ModelSpec:
        """The dataset's model of that name, trained as in the paper."""
        of_paper = self.setting.available[name]
        build = of_paper.reduced if self.reduced and of_paper.reduced else of_paper.build
        rate = self.learning_rate or of_paper.learning_rate
        optimizer = self.optimizer or of_paper.optimizer
        # The ViT without shifts sees the images in the order in which ViT-small sees them.
        like: ModelName = "vit-small" if name == "vit-plain" else name
        return ModelSpec(
            name=name,
            label=LABELS[name],
            model=build(),
            recipe=Recipe(optimizer, rate, self.batch_size or 1, self.schedule),
            key_index=list(self.setting.models).index(like),
            paper=of_paper.paper,
        )

    def resolved(self: ConfigT, preset: Preset) -> ConfigT:
        """The config with everything that was left open filled in, checked."""
        config = self.filled(preset)
        if config.reuse is not None:
            _check_reuse(config, config.reuse)
        return config

    def filled(self: ConfigT, preset: Preset) -> ConfigT:
        """The config with the dataset's and preset's values where none was given."""
        scale = dataclasses.asdict(self.setting.scale(preset))
        of_setting = {name: getattr(self.setting, name) for name in ("patch", "edit", "variance")}
        values = scale | of_setting | {"batch_size": self.setting.batch_size}
        known = {f.name for f in dataclasses.fields(self)}
        filled = {k: v for k, v in values.items() if k in known and getattr(self, k) is None}
        return dataclasses.replace(self, **filled)

    @property
    def perturbation(self) -> Perturbation:
        """The window edit."""
        if self.estimator == "scattered-pixels":
            return scattered_pixels(self.patch or 1, Gaussian(sigma=self.variance))
        edit = Donor() if self.edit == "donor" else Gaussian(variance=self.variance)
        return Perturbation(Patches(self.patch or 1), edit)

    def check_models(self, models: Sequence[ModelName]) -> None:
        """Raises ValueError for a model that the dataset does not have."""
        for model in models:
            if model not in self.setting.available:
                names = ", ".join(self.setting.available)
                raise ValueError(f"{self.dataset} has no model {model}; choose from {names}")


def scattered_pixels(patch: int, noise: Gaussian) -> Perturbation:
    """Noise on as many single pixels as a patch has, drawn over the whole image."""
    return Perturbation(Whole(), ScatteredPixels(patch**2, noise))


@dataclass(frozen=True)
class ComparisonConfig(ImageConfig):
    """Flags of experiments that compare the models of a dataset."""

    models: Annotated[tuple[ModelName, ...], Several(at_least=0)] = ()
    """Models to compare; default all that the paper has for the dataset."""

    def check(self) -> None:
        """Raises ValueError for a model that the dataset does not have."""
        super().check()
        self.check_models(self.models)

    def filled(self: ComparisonT, preset: Preset) -> ComparisonT:
        """The config with all of the dataset's models where none was named."""
        config = super().filled(preset)
        return dataclasses.replace(config, models=config.models or tuple(config.setting.models))

    def model_specs(self) -> list[ModelSpec]:
        """The models, trained as in the paper."""
        return [self.model_spec(model) for model in self.models]


@dataclass(frozen=True)
class SeveralSeeds(ImageConfig):
    """Flags of experiments that train each model several times."""

    num_seeds: Seeds = 1
    """Trainings of each model, from the seed on; `--seeds` is the same."""
    until_accuracy: Annotated[float, Range(0, 1, "()")] | None = None
    """Training accuracy at which models are compared, beside the end of training; default the
    largest that every training reaches."""

    def check(self) -> None:
        """Raises ValueError if there are not so many seeds."""
        super().check()
        check_seeds(self.seed, self.num_seeds)


def _check_reuse(config: ImageConfig, run: str) -> None:
    """Raises ValueError unless the run has some of the config's models, all trained as here."""

    def check(what: str, one: Any, other: Any, names: Sequence[str]) -> None:
        for name in names:
            mine, theirs = getattr(one, name), getattr(other, name)
            if mine != theirs:
                raise ValueError(f"{what} cannot be reused: {name} is {theirs} there, {mine} here")

    other = _config_of(run)
    check(f"models of {run}", config, other, _SAME_IMAGES)
    # Only the epochs at which it was evaluated are sure to be kept.
    if (config.evaluate_every or 1) % (other.evaluate_every or 1):
        raise ValueError(
            f"models of {run} cannot be reused: evaluate_every must be a multiple of its "
            f"{other.evaluate_every}; got {config.evaluate_every}"
        )
    mine, theirs = ({spec.name: spec for spec in some.model_specs()} for some in (config, other))
    shared = [name for name in mine if name in theirs]
    if not shared:
        raise ValueError(f"{run} has {', '.join(theirs)}, but none of {', '.join(mine)}")
    for name in shared:
        check(f"{name} of {run}", mine[name], theirs[name], _SAME_TRAINING)


def _config_of(run: str) -> ImageConfig:
    """The config of another run of an image experiment."""
    experiment, fields = reuse.config_of(run)
    try:
        config = importlib.import_module(f"..{experiment}", __package__).Config(**fields)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"models of {run} cannot be reused: its config.json: {error}") from error
    if not isinstance(config, ImageConfig):
        raise ValueError(f"models of {run} cannot be reused: {experiment} trains no image models")
    return config
