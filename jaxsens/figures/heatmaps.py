"""Where in an image a model is sensitive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Array, Float
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from jaxsens.figures.plotted_numbers import keep_values
from jaxsens.figures.style import GREY, new_figure, styled


@styled
def patch_heatmaps(
    images: Float[Array | np.ndarray, "m H W C"],
    maps: Mapping[str, Float[Array | np.ndarray, "m _ _"]],
    *,
    row_labels: Sequence[str] | None = None,
    colorbar_label: str = "Sensitivity of the patch",
) -> Figure:
    """Where in an image each model is sensitive.

    Args:
      images: images in [-1, 1] with 1 or 3 channels, shape (m, H, W, C).
      maps: for every model, the sensitivity of each patch, shape (m, Th, Tw).
      row_labels: a name for each image, such as its class.
      colorbar_label: name of the colour bar.

    Returns:
      A row for each image: the image, then the patch map of every model laid over it in grey.
      All maps share one colour scale from 0 to their largest value.

    Raises:
      ValueError: shapes, ranges or the number of labels do not fit together.

    Example:
      >>> images, map_of_vit = np.zeros((1, 4, 4, 1)), np.array([[[0.0, 0.1], [0.2, 0.0]]])
      >>> fig = patch_heatmaps(images, {"ViT": map_of_vit})
      >>> len(fig.axes)  # the image, the map, the colour bar
      3
    """
    pictures = (np.asarray(images, np.float64) + 1.0) / 2.0
    heat = {label: np.asarray(values, np.float64) for label, values in maps.items()}
    _check_heatmaps(pictures, heat, row_labels)
    num_images, height, width, channels = pictures.shape
    num_columns = 1 + len(heat)
    grey = pictures.mean(-1)
    top = max([float(values.max()) for values in heat.values()] + [1e-12])
    scale = ScalarMappable(Normalize(0.0, top), cmap="Reds")

    fig = new_figure(1.55 * num_columns + 1.0, 1.62 * num_images * height / width + 0.35)
    grid = fig.subplots(num_images, num_columns, squeeze=False)
    for i in range(num_images):
        colours = pictures[i] if channels == 3 else np.repeat(pictures[i], 3, axis=-1)
        grid[i, 0].imshow(colours)
        for axes, (label, values) in zip(grid[i, 1:], heat.items(), strict=True):
            rows, columns = values[i].shape
            pixels = np.ix_(np.arange(height) * rows // height, np.arange(width) * columns // width)
            # Multiplied, not blended: the colour keeps its hue and the picture stays a hint.
            shown = axes.imshow(
                scale.to_rgba(values[i][pixels])[..., :3] * (0.72 + 0.28 * grey[i])[..., None]
            )
            row = str(i + 1) if row_labels is None else row_labels[i]
            keep_values(shown, values[i], f"{label}, {row}")
            lines = {"color": "white", "linewidth": 0.5, "alpha": 0.7}
            axes.vlines(np.arange(1, columns) * width / columns - 0.5, -0.5, height - 0.5, **lines)
            axes.hlines(np.arange(1, rows) * height / rows - 0.5, -0.5, width - 0.5, **lines)
            if i == 0:
                axes.set_title(label)
            axes.set_xlabel(f"mean {values[i].mean():.3f}", fontsize=8.5, color=GREY, labelpad=2)
        if row_labels is not None:
            grid[i, 0].set_ylabel(row_labels[i])
    grid[0, 0].set_title("image")
    for axes in grid.flat:
        axes.set(xticks=[], yticks=[])
        axes.grid(False)
        axes.spines[:].set_visible(False)
    fig.colorbar(scale, ax=grid, label=colorbar_label, aspect=30, fraction=0.04, pad=0.02)
    return fig


def _check_heatmaps(
    pictures: np.ndarray, heat: dict[str, np.ndarray], row_labels: Sequence[str] | None
) -> None:
    if pictures.shape[-1] not in (1, 3) or not pictures.size:
        raise ValueError(f"expected images with 1 or 3 channels, got shape {pictures.shape}")
    if not (pictures.min() >= -1e-6 and pictures.max() <= 1 + 1e-6):
        low, high = 2 * pictures.min() - 1, 2 * pictures.max() - 1
        raise ValueError(f"expected images in [-1, 1], got values from {low:.3g} to {high:.3g}")
    if not heat:
        raise ValueError("expected at least one map, got none")
    for label, values in heat.items():
        if values.ndim != 3 or len(values) != len(pictures) or not values.min() >= 0:
            raise ValueError(
                f"map {label!r}: expected shape ({len(pictures)}, Th, Tw) and values >= 0, got "
                f"shape {values.shape} and smallest value {values.min():.3g}"
            )
    if row_labels is not None and len(row_labels) != len(pictures):
        raise ValueError(f"expected {len(pictures)} row labels, got {len(row_labels)}")
