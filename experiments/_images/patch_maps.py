"""Maps of single images for the report: where each model is sensitive."""

from collections.abc import Sequence

from jaxsens.reporting.example_maps import image_maps, write_maps
from jaxsens.reporting.run_folder import RunFolder

from .._common.claims import Estimates
from .config import ImageConfig
from .loading import Images
from .models import ModelSpec


def write_patch_maps(
    config: ImageConfig,
    images: Images,
    specs: Sequence[ModelSpec],
    estimates: Estimates,
    folder: RunFolder,
) -> None:
    """Keeps heat maps of some measured images in the folder; none without a grid of patches."""
    if config.estimator != "patch-grid":
        return
    edit = "The same patch of another image in place of"
    if config.edit != "donor":
        edit = f"Noise of variance {config.variance:g} on"
    num = len(estimates[specs[0].name].totals)
    maps = image_maps(
        "Where the models are sensitive",
        images.x[:num],
        {spec.label: estimates[spec.name] for spec in specs},
        config.perturbation.grid.layout(images.x.shape[1:]),
        labels=[f"image {i}, class {label}" for i, label in enumerate(images.y[:num])],
        note=f"{edit} one {config.patch}×{config.patch} patch at a time, {config.num_samples} "
        "draws each: in which share of them the prediction changes.",
    )
    write_maps(folder, maps)
