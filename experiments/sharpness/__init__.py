"""Sharpness (Table 2): does training for low sensitivity also find flatter minima?

A ViT is trained as it is and with the interventions of `robustness`. Then Gaussian noise goes on
every weight, and what changes is counted: the L1 change of the logits (the paper's ShOp) and of the
prediction (ShPred), and beyond the paper the squared change and the loss.

    python -m jaxsens.run --exp sharpness
        digits, 3 min 7 s on one core: ShOp 1.32, with the regulariser 0.69, with augmentation
        1.35; ShPred at most 0.001 for all three
    python -m jaxsens.run --exp sharpness --preset small --data-dir DATA
        CIFAR-10, 8 epochs of reduced models, 66 min on 2 cores beside other work: ShOp 0.72, with
        the regulariser 0.53; ShPred 0.037 and 0.034, no clear difference
    python -m jaxsens.run --exp sharpness --preset paper --data-dir DATA
        not run: CIFAR-10, 50 epochs of full-size models, for one GPU or TPU

All models get the same noise, so differences are paired by draw and by image. The code released
with the paper compares the clean model in eval mode with a noisy copy in training mode (dropout on,
BatchNorm with the statistics of the batch): `--released` measures that too, in batches as large as
those of training.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import flax.linen as nn
import jax
from jaxtyping import Array, PRNGKeyArray

import jaxsens
from jaxsens import Gaussian, SharpnessEstimate, data, figures
from jaxsens.cli.bounds import LARGEST, Range, Runs, Several, Sigma
from jaxsens.reporting.environment import environment
from jaxsens.reporting.results import Claim, Figure, Results, Table
from jaxsens.reporting.run_folder import RunFolder

from .._common.study import cached_estimate, kept, records_of, seconds
from .._common.views import less_sensitive, training_figure
from .._images import study
from .._images.interventions import InterventionConfig
from .._images.paper import ModelName, Preset
from .._images.study import Arm, Images, load
from .._images.views import sensitivity_table, training_note

__all__ = ["COST", "PRESETS", "Config", "load", "run"]

#: Table 2, for ViT-small on CIFAR-10: (ShOp, ShPred).
PAPER = {"vit-small": (39.166, 0.5346), "vit-small-regularise": (9.025, 0.3982)}
NAMES = {"l1": "ShOp", "flips": "ShPred", "squared": "squared change", "loss": "loss increase"}

Estimates = Mapping[str, SharpnessEstimate]


@dataclass(frozen=True)
class Config(InterventionConfig):
    """Flags of the experiment; None means the paper's or the preset's value for the dataset."""

    dataset: Literal["digits", "shapes", "fashion_mnist", "cifar10", "svhn"] = "digits"
    """Images to train on."""
    models: Annotated[tuple[ModelName, ...], Several(at_least=0)] = ("vit-small",)
    """Models to measure."""
    sigma: Sigma = 0.005
    """Standard deviation of the noise on the weights (the released code has 0.05)."""
    num_draws: Runs = 5
    """Draws of the weights."""
    num_sharpness: Annotated[int, Range(2, LARGEST)] | None = None
    """Training images for sharpness; default as for sensitivity."""
    released: bool = True
    """Also measure with the noisy copy in training mode, as the released code does."""

    def filled(self, preset: Preset) -> "Config":
        """The config with everything that was left open filled in."""
        config = super().filled(preset)
        return dataclasses.replace(
            config, num_sharpness=config.num_sharpness or config.num_measured
        )


PRESETS = {
    "quick": Config(epochs=20, num_measured=500),
    "small": Config(dataset="cifar10"),
    "paper": Config(dataset="cifar10"),
}

COST = {
    "quick": "handwritten digits (embedded), 3 CPU minutes",
    "small": "CIFAR-10, reduced models, 8 epochs, an hour and a quarter on 2 busy cores",
    "paper": "CIFAR-10, 50 epochs, all training images: for a GPU or TPU",
}


def run(config: Config, images: Images, folder: RunFolder) -> Results:
    """Trains, measures, compares."""
    arms = config.arms()
    sharp, released = {}, {}
    for each in arms:
        along = functools.partial(_along, config, images, each, folder)
        variables = study.train(config, images, each, folder, along).variables
        sharp[each.name] = _final_sharpness(config, images, each, folder, variables)
        if config.released:
            measure = functools.partial(_sharpness, config, images, each, variables, training=True)
            released[each.name] = kept(
                folder, f"{each.name}-released", measure, SharpnessEstimate, "sharpness"
            )
    sensitive = {each.name: study.estimate_of(folder, each) for each in arms}
    pairs = config.pairs(arms)
    tables = [_table(config, images, arms, sharp, "noise on the weights, eval mode")]
    if released:
        how = "as released: noisy copy in training mode"
        tables.append(_table(config, images, arms, released, how))
    return Results(
        experiment="sharpness",
        title=f"Sharpness: {data.spec(config.dataset).title}",
        summary="; ".join(
            f"{each.label}: ShOp {sharp[each.name].l1.mean:.3f}, "
            f"ShPred {sharp[each.name].flips.mean:.4f}"
            for each in arms
        )
        + ".",
        claims=(
            *(less_sensitive(changed, base, sensitive) for changed, base in pairs),
            *(
                _flatter(changed, base, sharp, kind)
                for changed, base in pairs
                for kind in ("l1", "flips")
            ),
        ),
        tables=(*tables, sensitivity_table(config, images, arms, sensitive, folder)),
        figures=(
            *(_figure(arms, sharp, kind, folder) for kind in ("l1", "flips")),
            _along_figure(arms, folder),
            training_figure(arms, folder, "sensitivity along training"),
        ),
        values={name: estimate.summary() for name, estimate in sharp.items()},
        config=dataclasses.asdict(config),
        environment=environment(),
        seconds=seconds(folder),
    )


def _sharpness(
    config: Config, images: Images, each: Arm, variables: Any, training: bool = False
) -> SharpnessEstimate:
    some = slice(config.num_sharpness)
    return jaxsens.sharpness(
        each.model.apply,
        variables,
        images.x[some],
        Gaussian(sigma=config.sigma),
        config.num_draws,
        # The same key for every model: the same noise.
        key=jax.random.key(config.seed + 1),
        y=images.y[some],
        mask={name: name == "params" for name in variables},
        perturbed_apply_fn=_in_training_mode(each.model) if training else None,
        perturbed_batch=each.recipe.batch_size,
    )


@functools.lru_cache(maxsize=64)
def _in_training_mode(model: nn.Module) -> Any:
    """The model with dropout on and the batch's own statistics."""

    def training_mode(variables: Any, x: Array, key: PRNGKeyArray) -> Array:
        statistics = [name for name in variables if name != "params"]
        logits, _ = model.apply(variables, x, train=True, rngs={"dropout": key}, mutable=statistics)
        return logits

    return training_mode


def _along(
    config: Config, images: Images, each: Arm, folder: RunFolder, epoch: int, variables: Any
) -> dict[str, Any]:
    final = epoch == config.epochs
    estimate = (
        _final_sharpness(config, images, each, folder, variables)
        if final
        else _sharpness(config, images, each, variables)
    )
    return {"sharpness": estimate.summary()}


def _final_sharpness(
    config: Config, images: Images, each: Arm, folder: RunFolder, variables: Any
) -> SharpnessEstimate:
    measure = functools.partial(_sharpness, config, images, each, variables)
    return cached_estimate(folder, f"sharpness/{each.name}.json", measure, SharpnessEstimate)


def _flatter(changed: Arm, base: Arm, sharp: Estimates, kind: str) -> Claim:
    one, other = (getattr(sharp[each.name], kind) for each in (base, changed))
    difference = jaxsens.compare(one, other).interval()
    column = 0 if kind == "l1" else 1
    given = base.name in PAPER and changed.name in PAPER
    return Claim(
        statement=f"{changed.label} has a lower {NAMES[kind]} than {base.label}",
        paper=f"{PAPER[base.name][column]} → {PAPER[changed.name][column]} (CIFAR-10)"
        if given
        else "no numbers given",
        measured=f"{one.mean:.4f} → {other.mean:.4f}; difference {difference.mean:.4f}, 95 % "
        f"interval {difference.low:.4f} to {difference.high:.4f}",
        holds=difference.low > 0,
    )


def _table(
    config: Config, images: Images, arms: Sequence[Arm], sharp: Estimates, how: str
) -> Table:
    rows = []
    for each in arms:
        estimate = sharp[each.name]
        paper = PAPER.get(each.name, (None, None)) if config.dataset == "cifar10" else (None, None)
        cells = [paper[0], str(estimate.l1), paper[1], str(estimate.flips), str(estimate.squared)]
        rows.append((each.label, *cells, str(estimate.loss)))
    estimate = sharp[arms[0].name]
    return Table(
        title=f"Sharpness after {config.epochs} epochs: {how}",
        columns=(
            "model",
            "ShOp, paper",
            "ShOp",
            "ShPred, paper",
            "ShPred",
            "squared change",
            "loss increase",
        ),
        rows=tuple(rows),
        note=f"σ = {config.sigma}, {config.num_draws} draws, n = {estimate.num_examples} training "
        "images; ± is the longer side of the 95 % interval, clustered by draw and by image; "
        f"{training_note(config, images)}.",
    )


def _figure(arms: Sequence[Arm], sharp: Estimates, kind: str, folder: RunFolder) -> Figure:
    changes = [getattr(sharp[each.name], kind) for each in arms]
    intervals = [change.ci() for change in changes]
    fig = figures.bars(
        [each.label for each in arms],
        [change.mean for change in changes],
        [low for low, _ in intervals],
        [high for _, high in intervals],
        ylabel=NAMES[kind],
    )
    figures.save(fig, folder.figures, f"sharpness_{kind}")
    return Figure(
        f"figures/sharpness_{kind}.png", f"{NAMES[kind]} at the end, with 95 % intervals (Table 2)."
    )


def _along_figure(arms: Sequence[Arm], folder: RunFolder) -> Figure:
    curves, bands = {}, {}
    for each in arms:
        mine = records_of(folder, each.name)
        mean, low, high = (
            [[r["sharpness"][kind][field] for r in mine] for kind in NAMES]
            for field in ("mean", "low", "high")
        )
        curves[each.label] = ([r["epoch"] for r in mine], mean)
        bands[each.label] = list(zip(low, high, strict=True))
    titles = list(NAMES.values())
    fig = figures.panels(titles, curves, bands=bands, ylabel="Change", num_columns=4)
    figures.save(fig, folder.figures, "sharpness_along_training")
    return Figure(
        "figures/sharpness_along_training.png",
        "What noise on the weights changes, against epochs, with 95 % intervals.",
    )
