"""Tables of the image experiments."""

from collections.abc import Sequence

from jaxsens import SensitivityEstimate, data
from jaxsens.reporting.results import Table
from jaxsens.reporting.run_folder import RunFolder

from .._common.claims import SeedEstimates
from .._common.seeds import seeds_table
from .config import ImageConfig
from .loading import Images
from .measuring import final_records
from .models import ModelSpec


def training_note(config: ImageConfig, images: Images) -> str:
    """What every table must say of the models it shows: how many images, and which sizes."""
    spec, n = data.spec(config.dataset), len(images.x)
    used = f"all {n:,} training images"
    if n < spec.num_train:
        used = f"a {spec.title} subset of {n:,} images (its training split has {spec.num_train:,})"
    return f"trained on {used}" + ("; models reduced in size" if config.reduced else "")


def sensitivity_table(
    config: ImageConfig,
    images: Images,
    specs: Sequence[ModelSpec],
    estimates: SeedEstimates,
    folder: RunFolder,
) -> Table:
    """The models at the end of training, beside the paper's numbers; of several seeds the mean.

    Args:
      config: how they were trained and measured.
      images: on what.
      specs: the models, as trained with the first seed.
      estimates: of every seed, by the name of the model.
      folder: the run's folder, with their records.
    """
    title = f"Sensitivity after {config.epochs} epochs on {data.spec(config.dataset).title}"
    first = {spec.name: estimates[spec.name][0] for spec in specs}
    note = _note(config, images, specs, first[specs[0].name])
    if len(estimates[specs[0].name]) > 1:
        return seeds_table(title, specs, estimates, folder, note)
    records = final_records(config, folder)
    rows = []
    for spec in specs:
        estimate, record = first[spec.name], records[spec.training]
        low, high = estimate.ci()
        rows.append(
            (
                spec.label,
                spec.paper,
                f"{estimate.mean:.4f}",
                f"{low:.4f} – {high:.4f}",
                f"{record['train_accuracy']:.3f}",
                f"{record['test_accuracy']:.3f}",
            )
        )
    return Table(
        title=title,
        columns=("model", "paper", "measured", "95 % interval", "train acc.", "test acc."),
        rows=tuple(rows),
        note=note,
    )


def _note(
    config: ImageConfig, images: Images, specs: Sequence[ModelSpec], estimate: SensitivityEstimate
) -> str:
    ways = {spec.noise_on for spec in specs}
    one_token = (
        ("own-token", "Own token: the same draws, seen by the token of their patch alone."),
        ("embedding", "Embedding: noise of the same variance on one token, before positions."),
    )
    return " ".join(
        [
            f"{_what_was_edited(config, estimate)}; n={estimate.num_examples} training images"
            + (f"; accuracy on up to {config.num_accuracy} images" if config.num_accuracy else "")
            + f"; {training_note(config, images)}.",
            *(text for way, text in one_token if way in ways),
        ]
    )


def _what_was_edited(config: ImageConfig, estimate: SensitivityEstimate) -> str:
    """What was edited in the final measurement, and how often."""
    if config.estimator == "scattered-pixels":
        return f"{config.perturbation.edit!r}, S={config.num_samples} draws per image"
    drawn = (
        f"S={config.num_samples} random ones of T={estimate.num_positions} patches an image"
        if config.estimator == "random-patches"
        else f"T={estimate.num_positions} patches, S={config.num_samples} draws each"
    )
    return f"{config.perturbation.edit!r} on one {config.patch}×{config.patch} patch; {drawn}"
