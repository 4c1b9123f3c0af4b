"""Ablations (Figs 12 and 13): does the ViT stay insensitive with Adam, other depths and heads?

One ViT-small is trained as in `vision`, then again with one thing changed at a time: Adam with its
step schedule instead of SGD, fewer or more blocks, fewer or more heads. A convolutional network is
trained as the mark that all of them should stay below.

    python -m jaxsens.run --exp ablations
        digits, 5 min on one core: every ViT, 0.029 to 0.057, stays below the CNN, 0.084; but
        depth and heads do have an effect, and Adam is not above SGD (0.029 against 0.039)
    python -m jaxsens.run --exp ablations --preset small --data-dir DATA
        CIFAR-10, 8 epochs of seven reduced models, 80 CPU minutes: every ViT, 0.054 to 0.072, stays
        below the ResNet, 0.432; no effect of depth, heads or the optimiser shows. --reuse takes two
        models from a run of vision or robustness
    python -m jaxsens.run --exp ablations --preset paper --data-dir DATA
        not run: CIFAR-10, 50 epochs of seven full-size models, for one GPU or TPU
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from jaxsens import data
from jaxsens.cli.bounds import Depth, Epochs, Range, Rate, Several
from jaxsens.core.intervals import bonferroni, mean_interval, paired_difference
from jaxsens.reporting.environment import environment
from jaxsens.reporting.results import Claim, Results
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.training.trainer import Recipe

from .._common import views
from .._common.study import seconds
from .._images import views as image_views
from .._images.paper import ModelName, Preset
from .._images.study import Arm, ImageConfig, Images, arm, estimate_of, load, train

__all__ = ["COST", "PRESETS", "Config", "load", "run"]

#: The convolutional network that the ViTs are held against.
REFERENCE: dict[str, ModelName] = {"digits": "cnn", "fashion_mnist": "cnn", "cifar10": "resnet"}
#: Depths and heads tried; on CIFAR-10 the paper's, elsewhere around the dataset's own model.
DEPTHS = {"digits": (1, 2, 3), "fashion_mnist": (1, 2, 3), "cifar10": (4, 8, 10)}
HEADS = {"digits": (4, 8, 12), "fashion_mnist": (4, 8, 12), "cifar10": (16, 24, 32)}
REDUCED_DEPTHS, REDUCED_HEADS = (2, 3, 4), (2, 3, 4)


#: Each head is 64 wide: a thousand of them are already far beyond any image.
Heads = Annotated[int, Range(1, 1024)]


@dataclass(frozen=True)
class Config(ImageConfig):
    """Flags of the experiment; None means the paper's or the preset's value for the dataset."""

    dataset: Literal["digits", "fashion_mnist", "cifar10"] = "digits"
    """Images to train on."""
    depths: Annotated[tuple[Depth, ...], Several(at_least=0)] = ()
    """Numbers of blocks of the ViT."""
    heads: Annotated[tuple[Heads, ...], Several(at_least=0)] = ()
    """Numbers of heads of the ViT."""
    adam_rate: Rate = 0.002
    """First learning rate of Adam, halved every `adam_decay_epochs` epochs."""
    adam_decay_epochs: Epochs = 8
    """Epochs between two halvings of Adam's learning rate."""

    def check(self) -> None:
        """Raises ValueError for what would leave nothing to compare."""
        super().check()
        if self.optimizer not in (None, "sgd"):
            raise ValueError("ablations compares SGD with Adam: optimizer must be sgd")

    def filled(self, preset: Preset) -> "Config":
        """The config with everything that was left open filled in."""
        config = super().filled(preset)
        reduced = config.reduced and config.dataset == "cifar10"
        return dataclasses.replace(
            config,
            depths=config.depths or (REDUCED_DEPTHS if reduced else DEPTHS[config.dataset]),
            heads=config.heads or (REDUCED_HEADS if reduced else HEADS[config.dataset]),
        )

    def arms(self) -> list[Arm]:
        """The reference, the ViT and its variants."""
        return arms_of(self).all()


PRESETS = {
    "quick": Config(epochs=20, num_measured=300),
    # The paper halves Adam's rate every 8 of its epochs: in as many altogether, every 2.
    "small": Config(
        dataset="cifar10", epochs=8, evaluate_every=4, num_measured=200, adam_decay_epochs=2
    ),
    "paper": Config(dataset="cifar10"),
}

COST = {
    "quick": "handwritten digits (embedded), 6 CPU minutes",
    "small": "CIFAR-10, reduced models, 8 epochs, 80 CPU minutes",
    "paper": "CIFAR-10, 50 epochs, seven models: for a GPU or TPU",
}


@dataclass(frozen=True)
class Arms:
    """The reference, the ViT as it is, and its variants by what was changed."""

    reference: Arm
    base: Arm
    adam: Arm
    depths: tuple[Arm, ...]
    heads: tuple[Arm, ...]

    def all(self) -> list[Arm]:
        """Every arm once; the ViT as it is stands among its depths and heads too."""
        arms = (self.reference, self.base, self.adam, *self.depths, *self.heads)
        return list({each.name: each for each in arms}.values())


def arms_of(config: Config) -> Arms:
    """What is trained."""
    base = arm(config, "vit-small")
    base = dataclasses.replace(base, label=f"{base.label}, SGD")

    def variant(field: Literal["depth", "heads"], value: int) -> Arm:
        if getattr(base.model, field) == value:
            return base
        changed: dict[str, Any] = {field: value}
        return dataclasses.replace(
            base,
            name=f"vit-small-{field}-{value}",
            label=f"{field} {value}",
            model=base.model.clone(**changed),
            paper=None,
        )

    adam = Recipe(
        *("adam", config.adam_rate, base.recipe.batch_size, "step"),
        decay=0.5,
        decay_epochs=config.adam_decay_epochs,
    )
    return Arms(
        reference=arm(config, REFERENCE[config.dataset]),
        base=base,
        adam=dataclasses.replace(
            base, name="vit-small-adam", label="ViT-small, Adam", recipe=adam, paper=None
        ),
        depths=tuple(variant("depth", value) for value in config.depths),
        heads=tuple(variant("heads", value) for value in config.heads),
    )


def run(config: Config, images: Images, folder: RunFolder) -> Results:
    """Trains, measures, compares."""
    arms = arms_of(config)
    for each in arms.all():
        train(config, images, each, folder)
    estimates = {each.name: estimate_of(folder, each) for each in arms.all()}
    below = [
        views.less_sensitive(each, arms.reference, estimates)
        for each in arms.all()
        if each is not arms.reference
    ]
    title = data.spec(config.dataset).title
    return Results(
        experiment="ablations",
        title=f"Optimiser, depth and heads: {title}",
        summary=f"{sum(claim.holds for claim in below)} of {len(below)} variants of the ViT are "
        f"less sensitive than {arms.reference.label}.",
        claims=(
            *below,
            views.less_sensitive(arms.base, arms.adam, estimates),
            *_hardly_matters("Depth", arms.depths, arms.reference, estimates),
            *_hardly_matters("The number of heads", arms.heads, arms.reference, estimates),
        ),
        tables=(image_views.sensitivity_table(config, images, arms.all(), estimates, folder),),
        figures=(
            views.training_figure(
                (arms.base, arms.adam, arms.reference), folder, "like Fig. 12", "optimisers"
            ),
            views.training_figure(
                (*arms.depths, arms.reference), folder, "like Fig. 13, depth", "depths"
            ),
            views.training_figure(
                (*arms.heads, arms.reference), folder, "like Fig. 13, heads", "heads"
            ),
            views.final_figure(config.epochs, arms.all(), estimates, folder),
        ),
        values={name: estimate.summary() for name, estimate in estimates.items()},
        config=dataclasses.asdict(config),
        environment=environment(),
        seconds=seconds(folder),
    )


def _hardly_matters(
    what: str, variants: tuple[Arm, ...], reference: Arm, estimates: views.Estimates
) -> list[Claim]:
    """The paper's claim, no effect, and the weaker one that the effect is small."""
    least, most = (pick(variants, key=lambda e: estimates[e.name].mean) for pick in (min, max))
    low_v, high_v, reference_v = (
        estimates[each.name].per_example for each in (least, most, reference)
    )
    # The largest of all differences is rarely 0: its interval allows for the choice (Bonferroni).
    num_pairs = max(1, math.comb(len(variants), 2))
    effect = paired_difference(high_v, low_v, (0.0, 1.0), bonferroni(0.95, num_pairs))
    gap = paired_difference(reference_v, high_v, (0.0, 1.0))
    less = mean_interval(reference_v - 2 * high_v + low_v, (-2.0, 2.0))
    means = ", ".join(f"{each.label} {estimates[each.name].mean:.4f}" for each in variants)
    return [
        Claim(
            statement=f"{what} has no effect on the ViT's sensitivity that shows",
            paper="no effect, by eye in the figures",
            measured=f"{means}; largest difference {effect.mean:.4f}, 95 % interval, corrected "
            f"for {num_pairs} pairs, {effect.low:.4f} to {effect.high:.4f}",
            holds=effect.low <= 0,
        ),
        Claim(
            statement=f"{what} moves the ViT's sensitivity by less than the gap to "
            f"{reference.label}",
            paper="not stated",
            measured=f"largest difference {effect.mean:.4f}, gap {gap.mean:.4f}; gap minus "
            f"difference, 95 % interval {less.low:.4f} to {less.high:.4f}",
            holds=less.low > 0,
        ),
    ]
