"""What the image experiments share: some models are trained, and measured on the way.

An *arm* is one model with its way of training. `train` takes it to its end; at every evaluation a
record with both accuracies and the sensitivity goes into metrics.jsonl, and whatever else the
experiment asks for. Along training, sensitivity is estimated from random patches until its 95 %
interval is as narrow as `tolerance`; at the end it is measured by the definition, every patch ×
`num_samples` draws, on the first `num_measured` training images, or as `estimator` says.
"""

import abc
import dataclasses
import functools
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

import jaxsens
from jaxsens import (
    Donor,
    Gaussian,
    Patches,
    Perturbation,
    ScatteredPixels,
    SensitivityEstimate,
    Whole,
    data,
)
from jaxsens.cli.bounds import Count, Draws, Epochs, Folder, Range, Rate, Seed, Several, Variance
from jaxsens.cli.config import ExperimentConfig
from jaxsens.core.fingerprint import fingerprint
from jaxsens.reporting.progress import Bar
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.training.objectives import Objective, cross_entropy
from jaxsens.training.trainer import Recipe, Trainer, TrainState, accuracy

from .._common import study
from .._common.study import Record, require_batch
from .paper import LABELS, TASKS, ModelName, Preset, Task

#: What of a config, beside its arms, decides the weights.
_SAME_IMAGES = ("dataset", "num_train", "epochs", "seed")
#: What of an arm decides them.
_SAME_TRAINING = ("model", "recipe", "stream", "objective", "augment")
#: Anything else to measure: `extra(epoch, variables) -> fields of the record`.
Extra = Callable[[int, Any], Record]
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
    """Images a step."""
    learning_rate: Rate | None = None
    """One learning rate for all models."""
    optimizer: Literal["sgd", "adam", "adamw"] | None = None
    """One optimiser for all models; the paper uses plain SGD."""
    schedule: Literal["constant", "step", "cosine"] = "constant"
    """Learning rate over time."""
    reduced: bool | None = None
    """Smaller models of the same kinds, for a CPU (colour images; sizes in vision_tasks.py)."""
    patch: Count | None = None
    """Side of a patch in pixels."""
    edit: Literal["gaussian", "donor"] | None = None
    """What happens to a patch: noise, or the same patch of another image."""
    variance: Variance | None = None
    """Variance of the noise (not its standard deviation), in units of pixels in [-1, 1]."""
    estimator: Literal["patch-grid", "random-patches", "scattered-pixels"] = "patch-grid"
    """Every patch as the paper defines it, `num_samples` random patches an image (the same
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
    reuse: Folder | None = None
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
    def task(self) -> Task:
        """The dataset as the paper uses it."""
        return TASKS[self.dataset]

    @abc.abstractmethod
    def arms(self) -> "list[Arm]":
        """What a filled config trains."""

    def resolved(self: ConfigT, preset: Preset) -> ConfigT:
        """The config with everything that was left open filled in, checked."""
        config = self.filled(preset)
        if config.reuse is not None:
            _check_reuse(config, config.reuse)
        return config

    def filled(self: ConfigT, preset: Preset) -> ConfigT:
        """The config with the dataset's and preset's values where none was given."""
        scale = dataclasses.asdict(self.task.scale(preset))
        of_task = {name: getattr(self.task, name) for name in ("patch", "edit", "variance")}
        values = scale | of_task | {"batch_size": self.task.batch_size}
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
            if model not in self.task.models:
                names = ", ".join(self.task.models)
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
        return dataclasses.replace(config, models=config.models or tuple(config.task.models))

    def arms(self) -> "list[Arm]":
        """The models, trained as in the paper."""
        return [arm(self, model) for model in self.models]


@dataclass(frozen=True)
class Images:
    """Train and test split."""

    x: Float[np.ndarray, "n H W C"]
    y: Int[np.ndarray, " n"]
    x_test: Float[np.ndarray, "m H W C"]
    y_test: Int[np.ndarray, " m"]


def load(config: ImageConfig, data_dir: Path | None) -> Images:
    """The images that the config asks for.

    Raises:
      ValueError: there are fewer than a batch, or more steps than can be counted.
    """
    x, y = data.load(config.dataset, "train", data_dir)
    x_test, y_test = data.load(config.dataset, "test", data_dir)
    if config.task.binary:
        y, y_test = (labels.astype(np.int32) for labels in (y >= 5, y_test >= 5))
    images = Images(x[: config.num_train], y[: config.num_train], x_test, y_test)
    require_batch(config.batch_size or 1, len(images.x), config.epochs or 1)
    if config.reuse is not None:
        study.check_trained_on(config.reuse, fingerprint({"x": images.x, "y": images.y}))
    return images


@dataclass(frozen=True)
class Arm:
    """One model and its way of training.

    Attributes:
      name: its key in records, checkpoints and results.
      label: its name in tables and figures.
      model: the network.
      recipe: optimiser and learning rate.
      stream: which of the seed's random streams it uses; arms that share one start from the same
        weights (if their shapes agree) and see the images in the same order.
      objective: the loss.
      augment: `augment(key, x, y) -> (x, y)`, applied to the training images once; None for none.
      paper: the paper's sensitivity, if it gives one.
    """

    name: str
    label: str
    model: nn.Module
    recipe: Recipe
    stream: int
    objective: Objective = cross_entropy
    augment: Callable[[PRNGKeyArray, Array, Array], tuple[Array, Array]] | None = None
    paper: float | None = None


def arm(config: ImageConfig, name: ModelName) -> Arm:
    """The dataset's model of that name, trained as in the paper."""
    setting = config.task.models[name]
    build = setting.reduced if config.reduced and setting.reduced else setting.build
    rate = config.learning_rate or setting.learning_rate
    optimizer = config.optimizer or setting.optimizer
    return Arm(
        name=name,
        label=LABELS[name],
        model=build(),
        recipe=Recipe(optimizer, rate, config.batch_size or 1, config.schedule),
        stream=list(config.task.models).index(name),
        paper=setting.paper,
    )


def _check_reuse(config: ImageConfig, run: str) -> None:
    """Raises ValueError unless the run has some of the config's arms, all trained as here."""

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
    mine, theirs = ({each.name: each for each in some.arms()} for some in (config, other))
    shared = [name for name in mine if name in theirs]
    if not shared:
        raise ValueError(f"{run} has {', '.join(theirs)}, but none of {', '.join(mine)}")
    for name in shared:
        check(f"{name} of {run}", mine[name], theirs[name], _SAME_TRAINING)


def _config_of(run: str) -> ImageConfig:
    """The config of another run of an image experiment."""
    experiment, fields = study.identity(run)
    try:
        config = importlib.import_module(f".{experiment}", __package__).Config(**fields)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"models of {run} cannot be reused: its config.json: {error}") from error
    if not isinstance(config, ImageConfig):
        raise ValueError(f"models of {run} cannot be reused: {experiment} trains no image models")
    return config


def train(
    config: ImageConfig, images: Images, arm: Arm, folder: RunFolder, extra: Extra | None = None
) -> TrainState:
    """Trains one arm to its end, recording every evaluation; the state after the last epoch."""
    key = jax.random.fold_in(jax.random.key(config.seed), arm.stream)
    train_key, measure_key = jax.random.split(key)

    def final(measure: Callable[[], SensitivityEstimate]) -> SensitivityEstimate:
        return study.cached_estimate(folder, _estimate_file(arm), measure)

    def evaluate(epoch: int, variables: Any) -> Record:
        measure = functools.partial(_measure, config, images, arm, variables, epoch, measure_key)
        estimate = final(measure) if epoch == config.epochs else measure()
        few = slice(config.num_accuracy)
        scores = {
            "train_accuracy": (images.x[few], images.y[few]),
            "test_accuracy": (images.x_test[few], images.y_test[few]),
        }
        record = {name: accuracy(arm.model.apply, variables, *xy) for name, xy in scores.items()}
        more = extra(epoch, variables) if extra is not None else {}
        return record | more | {"sensitivity": estimate.summary()}

    x, y = jnp.asarray(images.x), jnp.asarray(images.y)
    if arm.augment is not None:
        x, y = arm.augment(jax.random.fold_in(train_key, 0), x, y)
    if config.reuse is not None:
        study.reuse(config.reuse, folder, arm.name)
    trainer = Trainer(arm.model, arm.recipe, config.epochs or 1, arm.objective)
    state = study.follow(
        folder,
        arm.name,
        arm.label,
        trainer,
        x,
        y,
        key=train_key,
        every=config.evaluate_every or 1,
        evaluate=evaluate,
    )
    # A run that goes on has not evaluated this epoch, and its file may be damaged.
    last = trainer.epochs
    final(functools.partial(_measure, config, images, arm, state.variables, last, measure_key))
    return state


def _measure(
    config: ImageConfig, images: Images, arm: Arm, variables: Any, epoch: int, key: PRNGKeyArray
) -> SensitivityEstimate:
    final = epoch == config.epochs
    with Bar(f"{arm.label}: measuring", "examples" if final else "draws") as bar:
        return jaxsens.sensitivity(
            arm.model.apply,
            variables,
            images.x[: config.num_measured] if final else images.x,
            config.perturbation,
            config.num_samples,
            key=jax.random.fold_in(key, epoch),
            positions="random" if config.estimator == "random-patches" else None,
            tolerance=None if final else config.tolerance,
            progress=bar.measured,
        )


def _estimate_file(arm: Arm) -> str:
    return f"estimates/{arm.name}.json"


def estimate_of(folder: RunFolder, arm: Arm) -> SensitivityEstimate:
    """The final measurement of a trained arm."""
    return SensitivityEstimate.from_json((folder.path / _estimate_file(arm)).read_text("utf-8"))


def final_records(config: ImageConfig, folder: RunFolder) -> dict[str, Record]:
    """The last record of every arm."""
    return {r["model"]: r for r in study.records(folder) if r.get("epoch") == config.epochs}
