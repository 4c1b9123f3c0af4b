"""How the image experiments tell what they found: claims, tables and figures about arms."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from jaxsens import SensitivityEstimate, data, figures
from jaxsens.estimate import confidence_interval
from jaxsens.results import Claim, Figure, Table
from jaxsens.runfolder import RunFolder

from .vision_study import Arm, ImageConfig, Images, final_records, records_of

Estimates = Mapping[str, SensitivityEstimate]

#: Training accuracies closer than this count as matched.
MATCHED = 0.05


def less_sensitive(lesser: Arm, greater: Arm, estimates: Estimates) -> Claim:
    """Whether one arm is less sensitive than another, image by image."""
    # The same images for both: the difference of an image leaves out how hard the image is.
    difference = estimates[greater.name].per_example - estimates[lesser.name].per_example
    low, high = confidence_interval(difference, (-math.inf, math.inf), 0.95)
    measured = (estimates[lesser.name].mean, estimates[greater.name].mean)
    given = None not in (lesser.paper, greater.paper)
    return Claim(
        statement=f"{lesser.label} is less sensitive than {greater.label}",
        paper=f"{lesser.paper} < {greater.paper}" if given else "no numbers given",
        measured=f"{measured[0]:.4f} against {measured[1]:.4f}; difference "
        f"{np.mean(difference):.4f}, 95 % interval {low:.4f} to {high:.4f}",
        holds=low > 0,
    )


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


def sensitivity_table(
    config: ImageConfig, arms: Sequence[Arm], estimates: Estimates, folder: RunFolder
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
        note=f"{config.perturbation.edit!r} on one {config.patch}×{config.patch} patch; "
        f"n={estimate.num_examples} training images, T={estimate.num_positions} patches, "
        f"S={config.num_samples} draws each"
        + (f"; accuracy on up to {config.num_accuracy} images" if config.num_accuracy else "")
        + ("; models reduced in size" if config.reduced else "")
        + ".",
    )


def training_figure(
    arms: Sequence[Arm], folder: RunFolder, figure: str, name: str = "training_curves"
) -> Figure:
    """Accuracy and sensitivity along training, like the paper's Figs 4 to 6."""
    curves = []
    for arm in arms:
        mine = records_of(folder, arm)
        curves.append(
            figures.Curve(
                label=arm.label,
                epochs=tuple(r["epoch"] for r in mine),
                accuracy=tuple(r["train_accuracy"] for r in mine),
                sensitivity=tuple(r["sensitivity"]["mean"] for r in mine),
                low=tuple(r["sensitivity"]["low"] for r in mine),
                high=tuple(r["sensitivity"]["high"] for r in mine),
                paper=arm.paper,
            )
        )
    figures.save(figures.training_curves(curves), folder.figures, name)
    with_paper = any(arm.paper is not None for arm in arms)
    return Figure(
        f"figures/{name}.png",
        f"Training accuracy and sensitivity against epochs, with 95 % intervals ({figure})"
        + (" and the paper's final values." if with_paper else "."),
    )


def final_figure(
    config: ImageConfig, arms: Sequence[Arm], estimates: Estimates, folder: RunFolder
) -> Figure:
    """The final values as bars, beside the paper's."""
    intervals = [estimates[arm.name].ci() for arm in arms]
    paper = [arm.paper for arm in arms]
    bars = figures.bars(
        [arm.label for arm in arms],
        [estimates[arm.name].mean for arm in arms],
        [low for low, _ in intervals],
        [high for _, high in intervals],
        paper if any(value is not None for value in paper) else None,
    )
    figures.save(bars, folder.figures, "final")
    return Figure(
        "figures/final.png", f"Sensitivity after {config.epochs} epochs, with 95 % intervals."
    )


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
