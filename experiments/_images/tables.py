"""Tables of the image experiments."""

from collections.abc import Sequence

from jaxsens import SensitivityEstimate, data
from jaxsens.reporting.results import Table
from jaxsens.reporting.run_folder import RunFolder

from .._common.claims import Estimates, SeedEstimates
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
    estimates: Estimates,
    folder: RunFolder,
) -> Table:
    """The models at the end of training, beside the paper's numbers."""
    records = final_records(config, folder)
    rows = []
    for spec in specs:
        estimate, record = estimates[spec.name], records[spec.name]
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
        title=_title(config),
        columns=("model", "paper", "measured", "95 % interval", "train acc.", "test acc."),
        rows=tuple(rows),
        note=_note(config, images, estimates[specs[0].name]),
    )


def image_seeds_table(
    config: ImageConfig,
    images: Images,
    specs: Sequence[ModelSpec],
    estimates: SeedEstimates,
    folder: RunFolder,
) -> Table:
    """The same over several seeds."""
    note = _note(config, images, estimates[specs[0].name][0])
    return seeds_table(_title(config), specs, estimates, folder, note)


def _title(config: ImageConfig) -> str:
    return f"Sensitivity after {config.epochs} epochs on {data.spec(config.dataset).title}"


def _note(config: ImageConfig, images: Images, estimate: SensitivityEstimate) -> str:
    return (
        f"{_what_was_edited(config, estimate)}; n={estimate.num_examples} training images"
        + (f"; accuracy on up to {config.num_accuracy} images" if config.num_accuracy else "")
        + f"; {training_note(config, images)}."
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
