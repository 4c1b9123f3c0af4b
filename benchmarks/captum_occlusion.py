"""Captum's own occlusion maps of the PyTorch models: `FeatureAblation` and `Occlusion`.

Imported in the cell's own process. How many windows go through the model in one pass,
`perturbations_per_eval`, is tried out on the inputs that will be measured, before the timed runs.
"""

import time

import numpy as np
import torch
from captum.attr import FeatureAblation, Occlusion
from torch import Tensor

from benchmarks.captum_method import CANDIDATES
from benchmarks.torch_reference import TorchMethod, channels_first, loop_flips, window_slices
from benchmarks.workload import Workload


def tiled(workload: Workload, num_threads: int) -> "CaptumMaps":
    """Windows side by side."""
    return CaptumMaps(workload, num_threads, is_sliding=False)


def sliding(workload: Workload, num_threads: int) -> "CaptumMaps":
    """Windows at every offset."""
    return CaptumMaps(workload, num_threads, is_sliding=True)


class CaptumMaps(TorchMethod):
    """A map for each image, with as many windows in a pass as is fastest."""

    def __init__(self, workload: Workload, num_threads: int, *, is_sliding: bool):
        super().__init__(workload, num_threads, loop_flips)
        self._is_sliding, self._perturbations = is_sliding, 1

    def tune(self, x: np.ndarray) -> None:
        """Times one map of every image with each number of windows in a pass."""
        num_positions = self._workload.setting.num_positions
        seconds = {}
        for count in sorted({*(k for k in CANDIDATES if k < num_positions), num_positions}):
            self._perturbations = count
            self.flips(x[:1], 0)
            started = time.perf_counter()
            self.flips(x, 0)
            seconds[count] = time.perf_counter() - started
        self._perturbations = min(seconds, key=seconds.__getitem__)

    def probe(self, x: np.ndarray) -> dict[str, float]:
        """What was chosen, and T."""
        return {"perturbations_per_eval": self._perturbations, "num_positions": self._num_windows}

    @property
    def _num_windows(self) -> int:
        setting = self._workload.setting
        if not self._is_sliding:
            return setting.num_positions
        sides = zip(setting.shape[:2], setting.window[:2], strict=True)
        rows, columns = (side - window + 1 for side, window in sides)
        return rows * columns

    def flips(self, x: np.ndarray, seed: int) -> np.ndarray:
        """The map: (n, T) of windows or, if they slide, (n, H·W) of pixels."""
        maps = [self._map(part) for part in self._place(x).split(self._workload.batch)]
        return torch.cat(maps).cpu().numpy()

    @torch.no_grad()
    def _map(self, x: Tensor) -> Tensor:
        def probabilities(inputs: Tensor) -> Tensor:
            return torch.softmax(self._model(inputs), dim=1)

        window = channels_first(self._workload.setting.window)
        target = probabilities(x).argmax(dim=1)
        options = {"target": target, "perturbations_per_eval": self._perturbations}
        if self._is_sliding:
            strides = (window[0], 1, 1)
            found = Occlusion(probabilities).attribute(x, window, strides=strides, **options)
            return found[:, 0].flatten(1)
        windows = window_slices(tuple(x.shape[1:]), window)
        features = torch.zeros(1, *x.shape[1:], dtype=torch.long, device=x.device)
        for position, where in enumerate(windows):
            features[0][where] = position
        corners = torch.tensor([[axis.start for axis in where] for where in windows])
        found = FeatureAblation(probabilities).attribute(x, feature_mask=features, **options)
        return found[:, *corners.T]
