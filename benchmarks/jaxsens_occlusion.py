"""`jaxsens.occlusion` as the benchmark runs it."""

from typing import Any

import numpy as np

import jaxsens
from benchmarks.jaxsens_methods import PLAIN, JaxsensMethod
from benchmarks.workload import Workload


def default_tiled(workload: Workload, num_threads: int) -> "JaxsensMaps":
    """Windows side by side."""
    return JaxsensMaps(workload, is_sliding=False)


def default_sliding(workload: Workload, num_threads: int) -> "JaxsensMaps":
    """Windows at every offset."""
    return JaxsensMaps(workload, is_sliding=True)


def plain_tiled(workload: Workload, num_threads: int) -> "JaxsensMaps":
    """Windows side by side, each through the whole model."""
    return JaxsensMaps(workload, is_sliding=False, **PLAIN)


def plain_sliding(workload: Workload, num_threads: int) -> "JaxsensMaps":
    """Windows at every offset, each through the whole model."""
    return JaxsensMaps(workload, is_sliding=True, **PLAIN)


class JaxsensMaps(JaxsensMethod):
    """A map for each image, on one device."""

    def __init__(self, workload: Workload, *, is_sliding: bool, **options: Any):
        super().__init__(workload, **options)
        self._is_sliding = is_sliding
        kind = jaxsens.OverlappingPatches if is_sliding else jaxsens.Patches
        self._grid = kind(workload.setting.window[0])

    def flips(self, x: np.ndarray, seed: int) -> np.ndarray:
        """The map: (n, T) of windows or, if they slide, (n, H·W) of pixels."""
        found = jaxsens.occlusion(
            self._apply, self._variables, x, self._grid, devices=[self._device], **self._options
        )
        self._reuse, self._num_windows = found.provenance.incremental, found.num_positions
        maps = found.per_example_position
        if not self._is_sliding:
            return maps
        return jaxsens.spread(maps, self._grid, x.shape[1:])[..., 0].reshape(len(x), -1)

    def probe(self, x: np.ndarray) -> dict[str, float]:
        """Whether work was reused, and T."""
        return {**super().probe(x), "num_positions": self._num_windows}
