"""From a value for each window to a value for each entry of the input."""

from typing import Any

import numpy as np
from jaxtyping import Float

from jaxsens.perturbations.grids import Grid, Shape


def spread(values: Any, grid: Grid, shape: Shape) -> Float[np.ndarray, "n ..."]:
    """Gives every entry of an input the mean of the values of the windows that cover it.

        entry e of example i:    mean of values[i, τ] over all τ whose window holds e

    For windows that overlap this is the map that captum's `Occlusion` gives.

    Args:
      values: (n, T) of each window of each example.
      grid: where the windows are.
      shape: of one example.

    Returns:
      (n, *shape); nan where no window is.

    Raises:
      ValueError: there are not T values for an example of this shape.

    >>> from jaxsens import OverlappingPatches
    >>> spread([[1.0, 3.0]], OverlappingPatches(2), (2, 3, 1))[0, 0, :, 0].tolist()
    [1.0, 2.0, 3.0]
    """
    table = np.asarray(values, np.float64)
    num_positions = int(np.prod(grid.layout(shape)))
    if table.ndim != 2 or table.shape[1] != num_positions:
        raise ValueError(
            f"values must have shape (n, T) with T={num_positions} for examples of shape {shape}; "
            f"got {table.shape}"
        )
    window = grid.window_shape(shape)
    total, count = np.zeros((len(table), *shape)), np.zeros(shape)
    for position in range(num_positions):
        start = grid.start(position, shape)
        where = tuple(slice(int(a), int(a) + b) for a, b in zip(start, window, strict=True))
        total[:, *where] += table[:, position].reshape(-1, *(1 for _ in shape))
        count[where] += 1
    return np.divide(total, count[None], out=np.full(total.shape, np.nan), where=count[None] > 0)
