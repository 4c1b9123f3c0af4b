"""How the image experiments tell what they found: claims, tables and figures about arms."""

from collections.abc import Sequence

import numpy as np

from jaxsens import SensitivityEstimate, data, figures
from jaxsens.reporting.results import Claim, Figure, Table
from jaxsens.reporting.run_folder import RunFolder

from .._common.views import Estimates
from .study import Arm, ImageConfig, Images, final_records

#: Training accuracies closer than this count as matched.
MATCHED = 0.05


def matched(config: ImageConfig, arms: Sequence[Arm], folder: RunFolder) -> Claim:
    """Whether the arms fit their training images equally well, as a fair comparison needs."""
    records = final_records(config, folder)
    final = [records[arm.name]["train_accuracy"] for arm in arms]
    return Claim(
        statement=f"Training accuracies match within {MATCHED:.0%}",
        paper="matched, by eye in the figures",
        measured=", ".join(f"{a.label} {score:.3f}" for a, score in zip(arms, final, strict=True)),
        holds=max(final) - min(final) <= MATCHED,
    )


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
    arms: Sequence[Arm],
    estimates: Estimates,
    folder: RunFolder,
) -> Table:
    """The arms at the end of training, beside the paper's numbers."""
    records = final_records(config, folder)
    rows = []
    for arm in arms:
        estimate, record = estimates[arm.name], records[arm.name]
        low, high = estimate.ci()
        rows.append(
            (
                arm.label,
                arm.paper,
                f"{estimate.mean:.4f}",
                f"{low:.4f} – {high:.4f}",
                f"{record['train_accuracy']:.3f}",
                f"{record['test_accuracy']:.3f}",
            )
        )
    estimate = estimates[arms[0].name]
    return Table(
        title=f"Sensitivity after {config.epochs} epochs on {data.spec(config.dataset).title}",
        columns=("model", "paper", "measured", "95 % interval", "train acc.", "test acc."),
        rows=tuple(rows),
        note=f"{_edited(config, estimate)}; n={estimate.num_examples} training images"
        + (f"; accuracy on up to {config.num_accuracy} images" if config.num_accuracy else "")
        + f"; {training_note(config, images)}.",
    )


def _edited(config: ImageConfig, estimate: SensitivityEstimate) -> str:
    """What was edited in the final measurement, and how often."""
    if config.estimator == "scattered-pixels":
        return f"{config.perturbation.edit!r}, S={config.num_samples} draws per image"
    drawn = (
        f"S={config.num_samples} random ones of T={estimate.num_positions} patches an image"
        if config.estimator == "random-patches"
        else f"T={estimate.num_positions} patches, S={config.num_samples} draws each"
    )
    return f"{config.perturbation.edit!r} on one {config.patch}×{config.patch} patch; {drawn}"


def patch_figure(
    config: ImageConfig,
    images: Images,
    arms: Sequence[Arm],
    estimates: Estimates,
    folder: RunFolder,
) -> Figure:
    """Where the arms are sensitive: on average, and for the images with most changes."""
    per_image = sum(estimates[arm.name].per_example for arm in arms)
    chosen = np.argsort(-per_image, kind="stable")[:3]
    grid = config.perturbation.grid.layout(images.x.shape[1:])
    n = estimates[arms[0].name].num_examples
    maps = {
        arm.label: np.concatenate(
            [
                estimates[arm.name].per_position[None],
                estimates[arm.name].per_example_position[chosen],
            ]
        ).reshape(-1, *grid)
        for arm in arms
    }
    pictures = np.concatenate([images.x[:n].mean(axis=0)[None], images.x[chosen]])
    rows = ["average", *(f"image {i}" for i in chosen)]
    figures.save(figures.patch_heatmaps(pictures, maps, row_labels=rows), folder.figures, "patches")
    return Figure(
        "figures/patches.png",
        "Sensitivity of each patch: over all measured images (first row, on the average image), "
        "and for the three images with the largest sensitivity over all models.",
    )
