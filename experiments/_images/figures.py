"""Figures of the image experiments."""

from collections.abc import Sequence

import numpy as np

from jaxsens import figures
from jaxsens.reporting.results import Figure
from jaxsens.reporting.run_folder import RunFolder

from .._common.claims import Estimates
from .._common.figures import saved_figure
from .config import ImageConfig
from .loading import Images
from .models import ModelSpec


def patch_figure(
    config: ImageConfig,
    images: Images,
    specs: Sequence[ModelSpec],
    estimates: Estimates,
    folder: RunFolder,
) -> Figure:
    """Where the models are sensitive: on average, and for the images with most changes."""
    per_image = sum(estimates[spec.name].per_example for spec in specs)
    chosen = np.argsort(-per_image, kind="stable")[:3]
    grid = config.perturbation.grid.layout(images.x.shape[1:])
    n = estimates[specs[0].name].num_examples
    maps = {
        spec.label: np.concatenate(
            [
                estimates[spec.name].per_position[None],
                estimates[spec.name].per_example_position[chosen],
            ]
        ).reshape(-1, *grid)
        for spec in specs
    }
    pictures = np.concatenate([images.x[:n].mean(axis=0)[None], images.x[chosen]])
    rows = ["average", *(f"image {i}" for i in chosen)]
    return saved_figure(
        figures.patch_heatmaps(pictures, maps, row_labels=rows),
        folder,
        "patches",
        "Sensitivity of each patch: over all measured images (first row, on the average image), "
        "and for the three images with the largest sensitivity over all models.",
    )
