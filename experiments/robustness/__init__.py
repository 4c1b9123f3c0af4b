"""Robustness (Figs 9, 14 and 15): are less sensitive models more robust to corrupted images?

Models are trained as in `vision`, the ViT also with two interventions that lower its sensitivity,
and all are tested on corrupted images: the official CIFAR-10-C files if they are in the data
folder, otherwise the same corruptions made anew from the clean test images with its constants.

    python -m jaxsens.run --exp robustness
        generated shapes, 7 min on one core: reg. and aug. lower the ViT's sensitivity (0.178 →
        0.136, 0.123), but not clearly its corruption error (0.531 → 0.551, 0.511); the least
        sensitive model, ResNet, is the most robust
    python -m jaxsens.run --exp robustness --preset small --data-dir DATA
        CIFAR-10, 8 epochs of reduced models, 104 min on 2 cores beside other work: mean corruption
        error 0.49 (ViT + aug.) to 0.68 (ResNet); rank correlation with sensitivity 0.43, p = 0.18
    python -m jaxsens.run --exp robustness --preset paper --data-dir DATA
        not run: CIFAR-10, 50 epochs of full-size models, for one GPU or TPU

The mean corruption error is the plain mean over corruptions, as is usual for CIFAR-10-C (ImageNet-C
divides by the errors of AlexNet first). Its interval is clustered by image: every corruption is
applied to the same images. Rank correlation is Spearman's over the models; its interval resamples
images, so it tells how well the models were measured, not how other models would behave. Its
p-value is exact over all orders of up to seven models, beyond that from random orders. Models with
an intervention count among the models, though they are not independent of those without.
"""

import dataclasses
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import numpy as np
from jaxtyping import Bool, Int, UInt8

from jaxsens import corruptions, data
from jaxsens.cli.bounds import Count, OneOf, Range, Several
from jaxsens.core.intervals import rank_correlation
from jaxsens.reporting.environment import environment
from jaxsens.reporting.results import Results
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.training.trainer import correct

from .._common.study import Record, cached, seconds
from .._common.views import training_figure
from .._images import study
from .._images.interventions import InterventionConfig
from .._images.study import Arm, Images
from .._images.views import sensitivity_table, training_note
from . import claims as views

__all__ = ["COST", "PRESETS", "Config", "load", "run"]

#: Fig. 9's fourteen corruptions and JPEG, which Fig. 14 adds.
CORRUPTIONS = (
    *("gaussian_noise", "shot_noise", "impulse_noise"),
    *("gaussian_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness", "contrast"),
    *("elastic_transform", "pixelate", "jpeg_compression"),
)
#: All of them: a corruption draws from the stream of its place here, whichever are asked for.
STREAMS = (*CORRUPTIONS, *(name for name in corruptions.NAMES if name not in CORRUPTIONS))

Corruption = Annotated[str, OneOf(STREAMS)]


@dataclass(frozen=True)
class Config(InterventionConfig):
    """Flags of the experiment; None means the paper's or the preset's value for the dataset."""

    dataset: Literal["shapes", "cifar10"] = "shapes"
    """Images to train on."""
    corruptions: Annotated[tuple[Corruption, ...], Several()] = CORRUPTIONS
    """Corruptions to test on."""
    severity: Annotated[int, Range(1, 5)] = 2
    """1 to 5; the paper's main figure has 2, Fig. 14 has 1."""
    num_corrupted: Count | None = None
    """Test images of each corruption; default all."""


PRESETS = {
    "quick": Config(),
    "small": Config(dataset="cifar10", num_corrupted=1000),
    "paper": Config(dataset="cifar10"),
}

COST = {
    "quick": "generated shapes, 7 minutes on one core",
    "small": "CIFAR-10, reduced models, 8 epochs, an hour and three quarters on 2 busy cores",
    "paper": "CIFAR-10, 50 epochs, every corruption in full: for a GPU or TPU",
}


@dataclass(frozen=True)
class Corrupted:
    """What to train on, and the same test images clean (as bytes, with labels) and corrupted."""

    images: Images
    clean: tuple[UInt8[np.ndarray, "n H W 3"], Int[np.ndarray, " n"]]
    tests: dict[str, corruptions.CorruptedSet]

    def sources(self) -> dict[str, Any]:
        """What was read, not computed (see `jaxsens.core.fingerprint.fingerprint`)."""
        tests = self.tests.items()
        official = {n: test for n, test in tests if test.source != corruptions.REGENERATED}
        return {"images": self.images, "tests": official}


def load(config: Config, data_dir: Path | None) -> Corrupted:
    """The clean images, and the corrupted test sets: read or made."""
    images = study.load(config, data_dir)
    some = slice(config.num_corrupted)
    clean = (corruptions.to_uint8(images.x_test[some]), images.y_test[some])
    tests = {}
    for name in config.corruptions:
        key = jax.random.fold_in(jax.random.key(config.seed), STREAMS.index(name))
        tests[name] = _corrupted(config, clean, name, key, data_dir)
    return Corrupted(images, clean, tests)


def _corrupted(
    config: Config, clean: tuple[Any, Any], name: str, key: Any, data_dir: Path | None
) -> corruptions.CorruptedSet:
    if config.dataset != "cifar10":
        # Official files hold CIFAR-10: they say nothing about another dataset.
        images = corruptions.corrupt(clean[0], name, config.severity, key=key)
        detail = "procedural frost textures" if name == "frost" else ""
        return corruptions.CorruptedSet(
            images, clean[1], name, config.severity, corruptions.REGENERATED, detail
        )
    found = corruptions.load(name, config.severity, clean=clean, key=key, data_dir=data_dir)
    some = slice(len(clean[1]))
    return dataclasses.replace(found, images=found.images[some], labels=found.labels[some])


def run(config: Config, loaded: Corrupted, folder: RunFolder) -> Results:
    """Trains, measures, corrupts, compares."""
    arms = config.arms()
    outcomes = {}
    for each in arms:
        state = study.train(
            config, loaded.images, each, folder, _tester(config, loaded, each, folder)
        )
        outcomes[each.name] = _final_outcomes(loaded, each, folder, state.variables)
    estimates = {each.name: study.estimate_of(folder, each) for each in arms}
    errors = {name: ~found[1:] for name, found in outcomes.items()}
    source = next(iter(loaded.tests.values())).source
    rank = rank_correlation(
        [estimates[each.name].per_example for each in arms],
        [errors[each.name].mean(axis=0) for each in arms],
    )
    note = _note(config, loaded)
    return Results(
        experiment="robustness",
        title=f"Robustness: {data.spec(config.dataset).title}, {source}, severity "
        f"{config.severity}",
        summary="Spearman's rank correlation between sensitivity and mean corruption error is "
        f"{rank}.",
        claims=(
            *views.intervention_claims(config.pairs(arms), estimates, errors, config.corruptions),
            *views.transformer_claims(arms, errors),
            views.rank_claim(rank),
        ),
        tables=(
            views.error_table(arms, estimates, outcomes, f"Rank correlation {rank}; {note}"),
            views.accuracy_table(config.corruptions, arms, outcomes, note),
            sensitivity_table(config, loaded.images, arms, estimates, folder),
        ),
        figures=(
            views.panels(config.corruptions, arms, folder),
            views.scatter(arms, estimates, errors, folder),
            training_figure(arms, folder, "sensitivity along training"),
        ),
        values={
            each.name: estimates[each.name].summary()
            | {"mean_corruption_error": float(errors[each.name].mean())}
            | {"clean_error": float(1 - outcomes[each.name][0].mean())}
            for each in arms
        }
        | {"rank_correlation": dataclasses.asdict(rank)},
        config=dataclasses.asdict(config),
        environment=environment(),
        seconds=seconds(folder),
    )


def _note(config: Config, loaded: Corrupted) -> str:
    """What the tables show: which corrupted images, and which models."""
    made = [test for test in loaded.tests.values() if test.source == corruptions.REGENERATED]
    parts = (
        f"{next(iter(loaded.tests.values())).source}, severity {config.severity}",
        f"the same n = {len(loaded.clean[1])} test images clean and for each corruption",
        *(test.detail for test in made if test.detail),
        training_note(config, loaded.images),
    )
    return "; ".join(parts)


def _tester(config: Config, loaded: Corrupted, each: Arm, folder: RunFolder) -> study.Extra:
    """Accuracy, clean and on every corruption, at every evaluation; by image at the last."""

    def test(epoch: int, variables: Any) -> Record:
        final = epoch == config.epochs
        outcomes = (
            _final_outcomes(loaded, each, folder, variables)
            if final
            else _outcomes(loaded, each, variables)
        )
        clean, *accuracies = outcomes.mean(axis=1).tolist()
        return {"clean": clean, "corrupted": dict(zip(loaded.tests, accuracies, strict=True))}

    return test


def _outcomes(loaded: Corrupted, each: Arm, variables: Any) -> Bool[np.ndarray, "rows n"]:
    """Which images are recognised: clean in the first row, then each corruption."""
    tests = [(test.images, test.labels) for test in loaded.tests.values()]
    return np.stack(
        [
            correct(
                each.model.apply,
                variables,
                images.astype(np.float32) / np.float32(127.5) - 1,
                labels.astype(np.int32),
            )
            for images, labels in (loaded.clean, *tests)
        ]
    )


def _final_outcomes(
    loaded: Corrupted, each: Arm, folder: RunFolder, variables: Any
) -> Bool[np.ndarray, "rows n"]:
    """The same at the end of training, kept in the run folder."""

    def make() -> bytes:
        buffer = io.BytesIO()
        np.save(buffer, _outcomes(loaded, each, variables), allow_pickle=False)
        return buffer.getvalue()

    def parse(content: bytes) -> Bool[np.ndarray, "rows n"]:
        return np.load(io.BytesIO(content), allow_pickle=False)

    return cached(folder, f"corrupted/{each.name}.npy", make, parse)
