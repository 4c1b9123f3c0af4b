"""Ablations (Figs 12 and 13): does the ViT stay insensitive with Adam, other depths and heads?

One ViT-small is trained as in `vision`, then again with one thing changed at a time: Adam with its
step schedule instead of SGD, fewer or more blocks, fewer or more heads. A convolutional network is
trained as the mark that all of them should stay below.

    python -m jaxsens.run --exp ablations
        digits, 5 min on one core: every ViT, 0.029 to 0.057, stays below the CNN, 0.084; but
        depth and heads do have an effect, and Adam is not above SGD (0.029 against 0.039)
    python -m jaxsens.run --exp ablations --preset small --data-dir DATA --seeds 1
        CIFAR-10, 8 epochs of seven reduced models, 80 CPU minutes: every ViT, 0.054 to 0.072, stays
        below the ResNet, 0.432; no effect of depth, heads or the optimiser shows. --reuse takes two
        models from a run of vision or robustness
    python -m jaxsens.run --exp ablations --preset paper --data-dir DATA
        not run: CIFAR-10, 50 epochs of seven full-size models, for one GPU or TPU

With several seeds (`--seeds`) the differences of each seed decide. That depth or heads have "no
effect" then means that none shows which the seeds agree on: with three of them only large ones can.
"""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Literal

from jaxsens import data
from jaxsens.cli.bounds import Depth, Epochs, Range, Rate, Several
from jaxsens.cli.config import Preset
from jaxsens.reporting.papers import SIMPLICITY_BIAS
from jaxsens.reporting.results import Findings, grouped
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.training.trainer import Recipe

from .._common.claims import less_sensitive_over_seeds
from .._common.equal_accuracy import (
    accuracy_figure,
    at_equal_accuracy,
    equally_accurate_claim,
)
from .._common.figures import final_figure, training_figure
from .._common.seeds import all_trainings, by_seed
from .._images.claims import matched_claim
from .._images.config import SeveralSeeds
from .._images.loading import Images, load
from .._images.models import ModelSpec
from .._images.patch_maps import write_patch_maps
from .._images.tables import sensitivity_table
from .._images.training import train_and_measure
from .claims import effect_claims
from .paper import DEPTHS, HEADS, REDUCED_DEPTHS, REDUCED_HEADS, REFERENCE
from .variants import Variants

__all__ = ["COST", "PAPERS", "PRESETS", "Config", "load", "run"]

#: Each head is 64 wide: a thousand of them are already far beyond any image.
Heads = Annotated[int, Range(1, 1024)]


@dataclass(frozen=True)
class Config(SeveralSeeds):
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

    def variants(self) -> Variants:
        """The reference, the ViT and its variants."""
        vit = self.model_spec("vit-small")
        adam = Recipe(
            *("adam", self.adam_rate, vit.recipe.batch_size, "step"),
            decay=0.5,
            decay_epochs=self.adam_decay_epochs,
        )
        reference = self.model_spec(REFERENCE[self.dataset])
        return Variants.of(vit, reference, adam=adam, depths=self.depths, heads=self.heads)

    def model_specs(self) -> list[ModelSpec]:
        """All that is trained."""
        return self.variants().all()


PRESETS = {
    "quick": Config(epochs=20, num_measured=300),
    # The paper halves Adam's rate every 8 of its epochs: in as many altogether, every 2.
    "small": Config(
        dataset="cifar10",
        epochs=8,
        evaluate_every=4,
        num_measured=200,
        adam_decay_epochs=2,
        num_seeds=3,
    ),
    "paper": Config(dataset="cifar10", num_seeds=5),
}

PAPERS = (SIMPLICITY_BIAS,)

COST = {
    "quick": "handwritten digits (embedded), 6 CPU minutes",
    "small": "CIFAR-10, reduced models, 8 epochs, 3 seeds: about 4 CPU hours (one: 80 CPU minutes)",
    "paper": "CIFAR-10, 50 epochs, seven models: for a GPU or TPU",
}


def run(config: Config, images: Images, folder: RunFolder) -> Findings:
    """Trains, measures, compares: at the end of training, and at equal training accuracy."""
    variants, num_seeds = config.variants(), config.num_seeds
    reference, specs = variants.reference, variants.all()
    trainings = all_trainings(specs, num_seeds)
    estimates = train_and_measure(config, images, trainings, folder)
    of_seeds = by_seed(specs, num_seeds, estimates)
    there = at_equal_accuracy(specs, num_seeds, folder, config.until_accuracy)
    below = [less_sensitive_over_seeds(vit, reference, of_seeds) for vit in variants.vits()]
    write_patch_maps(config, images, specs, estimates, folder)
    shown = {
        "optimisers": ("like Fig. 12", (variants.base, variants.adam, reference)),
        "depths": ("like Fig. 13, depth", (*variants.depths, reference)),
        "heads": ("like Fig. 13, heads", (*variants.heads, reference)),
    }
    return Findings(
        title=f"Optimiser, depth and heads: {data.spec(config.dataset).title}",
        summary=f"{sum(claim.holds for claim in below)} of {len(below)} variants of the ViT are "
        f"less sensitive than {reference.label}.",
        claims=(
            *grouped(f"Below {reference.label}", below),
            *grouped(
                "Optimiser", [less_sensitive_over_seeds(variants.base, variants.adam, of_seeds)]
            ),
            *grouped("Depth", effect_claims("Depth", variants.depths, reference, of_seeds)),
            *grouped(
                "Heads", effect_claims("The number of heads", variants.heads, reference, of_seeds)
            ),
            *grouped(
                "At equal training accuracy",
                (
                    *(equally_accurate_claim(vit, reference, there) for vit in variants.vits()),
                    equally_accurate_claim(variants.base, variants.adam, there),
                ),
            ),
            *grouped(
                "Whether they are comparable", [matched_claim(specs, num_seeds, config, folder)]
            ),
        ),
        tables=(sensitivity_table(config, images, specs, of_seeds, folder),),
        figures=(
            *(
                training_figure(models, folder, figure, name, num_seeds=num_seeds)
                for name, (figure, models) in shown.items()
            ),
            final_figure(config.epochs, specs, of_seeds, folder),
            accuracy_figure(specs, num_seeds, there, folder),
        ),
        values={name: estimate.summary() for name, estimate in estimates.items()},
    )
