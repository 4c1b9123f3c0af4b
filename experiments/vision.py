"""Vision (Figs 4 and 11): is a ViT less sensitive than an MLP and a CNN?

Trains each model on images with SGD and measures, along training and at its end, how often noise on
one patch of a training image changes the model's own prediction.

    python -m jaxsens.run --exp vision
        digits, 2 min 40 s on 2 cores: ViT 0.032 < CNN 0.081 < MLPs 0.102 and 0.118
    python -m jaxsens.run --exp vision --preset small --data-dir DATA
        Fashion-MNIST, 10 epochs, an hour on 2 cores: ViT 0.029 < MLPs 0.042, 0.046 < CNN 0.051
    python -m jaxsens.run --exp vision --preset small --dataset mnist --data-dir DATA
        MNIST, digit < 5 against >= 5, minutes on 2 cores

Along training, sensitivity is estimated from random patches until its 95 % interval is as narrow as
`tolerance`; at the end it is measured by the definition, every patch × `num_samples` draws, on the
first `num_measured` training images. A claim holds if the 95 % interval of the difference between
the two models, image by image, excludes zero on the right side. The paper compares models whose
training accuracies match; whether they do is a claim of its own.
"""

import dataclasses
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

import jaxsens
from jaxsens import data, figures
from jaxsens.checkpoint import Checkpoints
from jaxsens.estimate import SensitivityEstimate, confidence_interval
from jaxsens import Donor, Gaussian, Patches, Perturbation
from jaxsens.progress import Bar
from jaxsens.results import Claim, Figure, Results, Table, environment
from jaxsens.runfolder import RunFolder, write_atomic
from jaxsens.training import Recipe, Trainer, TrainState, accuracy, fit

from .vision_tasks import LABELS, TASKS, ModelName

Estimates = dict[ModelName, SensitivityEstimate]

#: Training accuracies closer than this count as matched.
MATCHED = 0.05


@dataclass(frozen=True)
class Config:
    """Flags of the experiment; None means the paper's value for the dataset."""

    dataset: Literal["digits", "mnist", "fashion_mnist"] = "digits"
    """Images to train on."""
    models: tuple[ModelName, ...] = ()
    """Models to compare; default all that the paper has for the dataset."""
    epochs: int = 40
    """Passes over the training images."""
    evaluate_every: int = 5
    """Epochs between two evaluations."""
    num_train: int | None = None
    """Training images to use, the first ones; default all."""
    batch_size: int | None = None
    """Images a step."""
    learning_rate: float | None = None
    """One learning rate for all models."""
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    """The paper uses plain SGD."""
    schedule: Literal["constant", "step", "cosine"] = "constant"
    """Learning rate over time."""
    patch: int | None = None
    """Side of a patch in pixels."""
    edit: Literal["gaussian", "donor"] | None = None
    """What happens to a patch: noise, or the same patch of another image."""
    variance: float | None = None
    """Variance of the noise (not its standard deviation), in units of pixels in [-1, 1]."""
    num_samples: int = 5
    """Draws for each patch in the final measurement."""
    num_measured: int = 1437
    """Training images in the final measurement."""
    tolerance: float = 0.01
    """Half-width of the 95 % interval of each point along training."""
    num_accuracy: int = 10_000
    """Images, at the most, for train and for test accuracy."""
    seed: int = 42
    """Decides weights, order, dropout and noise."""

    def __post_init__(self):
        positive = (
            "epochs evaluate_every num_train batch_size learning_rate patch num_samples "
            "num_measured tolerance num_accuracy"
        )
        for name in positive.split():
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive; got {value}")
        task = TASKS[self.dataset]
        for model in self.models:
            if model not in task.models:
                names = ", ".join(task.models)
                raise ValueError(f"{self.dataset} has no model {model}; choose from {names}")
        if len(set(self.models)) < len(self.models):
            raise ValueError(f"a model is named twice: {', '.join(self.models)}")

    def resolved(self) -> "Config":
        """The config with the dataset's own values where none was given, checked against it."""
        task = TASKS[self.dataset]
        fields = ("patch", "edit", "variance", "batch_size")
        filled = {name: getattr(task, name) for name in fields if getattr(self, name) is None}
        config = dataclasses.replace(self, models=self.models or tuple(task.models), **filled)
        config.perturbation.num_positions(data.spec(self.dataset).image_shape)
        return config

    @property
    def perturbation(self) -> Perturbation:
        """The window edit."""
        edit = Donor() if self.edit == "donor" else Gaussian(variance=self.variance)
        return Perturbation(Patches(self.patch or 1), edit)

    def recipe(self, model: ModelName) -> Recipe:
        """How the model is trained."""
        rate = self.learning_rate or TASKS[self.dataset].models[model].learning_rate
        return Recipe(self.optimizer, rate, self.batch_size or 1, self.schedule)


PRESETS = {
    "quick": Config(),
    "small": Config(
        dataset="fashion_mnist", epochs=20, evaluate_every=5, num_measured=2000, tolerance=0.003
    ),
    "paper": Config(
        dataset="fashion_mnist",
        epochs=50,
        evaluate_every=5,
        num_measured=60_000,
        tolerance=0.001,
        num_accuracy=60_000,
    ),
}

COST = {
    "quick": "handwritten digits (embedded), 3 minutes on 2 cores",
    "small": "Fashion-MNIST, 60,000 images, 10 epochs, about an hour on 2 cores",
    "paper": "Fashion-MNIST, 50 epochs, every patch of every training image: for a GPU or TPU",
}


@dataclass(frozen=True)
class Images:
    """Train and test split."""

    x: Float[np.ndarray, "n H W C"]
    y: Int[np.ndarray, " n"]
    x_test: Float[np.ndarray, "m H W C"]
    y_test: Int[np.ndarray, " m"]


def load(config: Config, data_dir: Path | None) -> Images:
    """The images that the config asks for."""
    x, y = data.load(config.dataset, "train", data_dir)
    x_test, y_test = data.load(config.dataset, "test", data_dir)
    if TASKS[config.dataset].binary:
        y, y_test = (labels.astype(np.int32) for labels in (y >= 5, y_test >= 5))
    return Images(x[: config.num_train], y[: config.num_train], x_test, y_test)


def run(config: Config, images: Images, folder: RunFolder) -> Results:
    """Trains, measures, compares."""
    for model in config.models:
        _train(config, images, model, folder)
    estimates = {model: _estimate(folder, model) for model in config.models}
    records = folder.metrics()
    return Results(
        experiment="vision",
        title=f"Sensitivity to one patch: {data.spec(config.dataset).title}",
        summary=_summary(config, estimates),
        claims=(*_orderings(config, estimates), _matched(config, records)),
        tables=(_table(config, estimates, records),),
        figures=_figures(config, images, estimates, records, folder),
        values={model: estimate.summary() for model, estimate in estimates.items()},
        config=dataclasses.asdict(config),
        environment=environment(),
        seconds=math.fsum(record["seconds"] for record in records),
    )


def _train(config: Config, images: Images, name: ModelName, folder: RunFolder) -> None:
    """Trains one model to its end; every evaluation becomes a record of metrics.jsonl."""
    setting, label = TASKS[config.dataset].models[name], LABELS[name]
    recorded = {r["epoch"] for r in folder.metrics() if r["model"] == name}
    if config.epochs in recorded:
        return
    model = setting.build()
    index = list(TASKS[config.dataset].models).index(name)
    key = jax.random.fold_in(jax.random.key(config.seed), index)
    train_key, measure_key = jax.random.split(key)
    clock = time.monotonic()

    def evaluate(epoch: int, state: TrainState) -> None:
        nonlocal clock
        if epoch in recorded:
            return
        estimate = _measure(config, images, model, state.variables, epoch, measure_key, label)
        if epoch == config.epochs:
            write_atomic(_estimate_file(folder, name), estimate.to_json())
        few = slice(config.num_accuracy)
        scores = {
            "train_accuracy": (images.x[few], images.y[few]),
            "test_accuracy": (images.x_test[few], images.y_test[few]),
        }
        record: dict[str, Any] = {"model": name, "epoch": epoch}
        record |= {k: accuracy(model.apply, state.variables, *xy) for k, xy in scores.items()}
        now = time.monotonic()
        folder.append(record | {"sensitivity": estimate.summary(), "seconds": now - clock})
        clock = now

    checkpoints = Checkpoints(folder.checkpoints / name)
    with Bar(f"{label}: training", "epochs", config.epochs) as bar:
        fit(
            Trainer(model, config.recipe(name), config.epochs),
            jnp.asarray(images.x),
            jnp.asarray(images.y),
            key=train_key,
            checkpoints=checkpoints,
            evaluate=evaluate,
            every=config.evaluate_every,
            on_epoch=lambda epoch, loss: bar.update(epoch, config.epochs, f"loss {loss:.4f}"),
        )
    checkpoints.close()


def _measure(
    config: Config,
    images: Images,
    model: nn.Module,
    variables: Any,
    epoch: int,
    key: Any,
    label: str,
) -> SensitivityEstimate:
    final = epoch == config.epochs
    with Bar(f"{label}: measuring", "examples" if final else "draws") as bar:
        return jaxsens.sensitivity(
            model.apply,
            variables,
            images.x[: config.num_measured] if final else images.x,
            config.perturbation,
            config.num_samples,
            key=jax.random.fold_in(key, epoch),
            tolerance=None if final else config.tolerance,
            progress=bar.measured,
        )


def _estimate_file(folder: RunFolder, model: str) -> Path:
    return folder.path / "estimates" / f"{model}.json"


def _estimate(folder: RunFolder, model: str) -> SensitivityEstimate:
    return SensitivityEstimate.from_json(_estimate_file(folder, model).read_text("utf-8"))


def _orderings(config: Config, estimates: Estimates) -> tuple[Claim, ...]:
    task, claims = TASKS[config.dataset], []
    for lesser, greater in task.orderings:
        if not {lesser, greater} <= set(estimates):
            continue
        # The same images for both: the difference of an image leaves out how hard the image is.
        difference = estimates[greater].per_example - estimates[lesser].per_example
        low, high = confidence_interval(difference, (-math.inf, math.inf), 0.95)
        paper = (task.models[lesser].paper, task.models[greater].paper)
        measured = (estimates[lesser].mean, estimates[greater].mean)
        claims.append(
            Claim(
                statement=f"{LABELS[lesser]} is less sensitive than {LABELS[greater]}",
                paper=f"{paper[0]} < {paper[1]}" if None not in paper else "no numbers given",
                measured=f"{measured[0]:.4f} against {measured[1]:.4f}; difference "
                f"{np.mean(difference):.4f}, 95 % interval {low:.4f} to {high:.4f}",
                holds=low > 0,
            )
        )
    return tuple(claims)


def _matched(config: Config, records: list[dict[str, Any]]) -> Claim:
    final = {r["model"]: r["train_accuracy"] for r in records if r["epoch"] == config.epochs}
    spread = max(final.values()) - min(final.values())
    return Claim(
        statement=f"Training accuracies match within {MATCHED:.0%}",
        paper="matched, by eye in the figures",
        measured=", ".join(f"{LABELS[model]} {final[model]:.3f}" for model in config.models),
        holds=spread <= MATCHED,
    )


def _table(config: Config, estimates: Estimates, records: list[dict[str, Any]]) -> Table:
    last = {r["model"]: r for r in records if r["epoch"] == config.epochs}
    rows = []
    for model, estimate in estimates.items():
        low, high = estimate.ci()
        rows.append(
            (
                LABELS[model],
                TASKS[config.dataset].models[model].paper,
                f"{estimate.mean:.4f}",
                f"{low:.4f} – {high:.4f}",
                f"{last[model]['train_accuracy']:.3f}",
                f"{last[model]['test_accuracy']:.3f}",
            )
        )
    estimate = next(iter(estimates.values()))
    return Table(
        title=f"Sensitivity after {config.epochs} epochs on {data.spec(config.dataset).title}",
        columns=("model", "paper", "measured", "95 % interval", "train acc.", "test acc."),
        rows=tuple(rows),
        note=f"{config.perturbation.edit!r} on one {config.patch}×{config.patch} patch; "
        f"n={estimate.num_examples} training images, T={estimate.num_positions} patches, "
        f"S={config.num_samples} draws each; accuracy on up to {config.num_accuracy} images.",
    )


def _summary(config: Config, estimates: Estimates) -> str:
    least = min(estimates, key=lambda model: estimates[model].mean)
    return (
        f"Of {', '.join(LABELS[m] for m in estimates)}, {LABELS[least]} is the least sensitive: a "
        f"random change of one {config.patch}×{config.patch} patch changes its prediction in "
        f"{estimates[least].mean:.1%} of the draws."
    )


def _figures(
    config: Config,
    images: Images,
    estimates: Estimates,
    records: list[dict[str, Any]],
    folder: RunFolder,
) -> tuple[Figure, ...]:
    task, curves = TASKS[config.dataset], []
    for model in estimates:
        mine = sorted((r for r in records if r["model"] == model), key=lambda r: r["epoch"])
        curves.append(
            figures.Curve(
                label=LABELS[model],
                epochs=tuple(r["epoch"] for r in mine),
                accuracy=tuple(r["train_accuracy"] for r in mine),
                sensitivity=tuple(r["sensitivity"]["mean"] for r in mine),
                low=tuple(r["sensitivity"]["low"] for r in mine),
                high=tuple(r["sensitivity"]["high"] for r in mine),
                paper=task.models[model].paper,
            )
        )
    figures.save(figures.training_curves(curves), folder.figures, "training_curves")

    intervals = [estimate.ci() for estimate in estimates.values()]
    paper = [task.models[model].paper for model in estimates]
    figures.save(
        figures.bars(
            [LABELS[model] for model in estimates],
            [estimate.mean for estimate in estimates.values()],
            [low for low, _ in intervals],
            [high for _, high in intervals],
            paper if any(value is not None for value in paper) else None,
        ),
        folder.figures,
        "final",
    )

    # One row for the average image, then the images on which most predictions change.
    per_image = sum(estimate.per_example for estimate in estimates.values())
    chosen = np.argsort(-per_image, kind="stable")[:3]
    grid = config.perturbation.grid.layout(images.x.shape[1:])
    n = next(iter(estimates.values())).num_examples
    figures.save(
        figures.patch_heatmaps(
            np.concatenate([images.x[:n].mean(axis=0)[None], images.x[chosen]]),
            {
                LABELS[model]: np.concatenate(
                    [estimate.per_position[None], estimate.per_example_position[chosen]]
                ).reshape(-1, *grid)
                for model, estimate in estimates.items()
            },
            row_labels=["average", *(f"image {i}" for i in chosen)],
        ),
        folder.figures,
        "patches",
    )
    return (
        Figure(
            "figures/training_curves.png",
            f"Training accuracy and sensitivity against epochs, with 95 % intervals ({task.figure})"
            + (" and the paper's final values." if curves[0].paper is not None else "."),
        ),
        Figure(
            "figures/final.png",
            f"Sensitivity after {config.epochs} epochs, with 95 % intervals.",
        ),
        Figure(
            "figures/patches.png",
            "Sensitivity of each patch: over all measured images (first row, on the average "
            "image), and for the three images with the largest sensitivity over all models.",
        ),
    )
