"""Captum's FeatureAblation asked the same question.

FeatureAblation replaces a feature by a baseline and reports clean output - ablated output. Here a
feature is a window, the baseline of a draw is x + noise, and the output is the predicted class as a
number: the ablated input is then exactly an edit of the measurement, and its attribution is 0
exactly where the prediction stays. The baseline has noise at every pixel, but an ablation takes
only its own window of it, so draws at different positions are independent, as they are elsewhere.

Captum takes one baseline a call: S draws are S calls. How many windows it ablates in one pass,
`perturbations_per_eval`, is tried out on the inputs that will be measured, before the timed runs.
"""

import functools
import time
from collections.abc import Callable

import numpy as np
import torch
from captum.attr import FeatureAblation
from torch import Tensor

from benchmarks.torch_reference import TorchMethod, window_slices
from benchmarks.workload import Workload

#: Values of `perturbations_per_eval` that are tried, and the number of windows itself.
CANDIDATES = (1, 4, 16)


def ablation(workload: Workload, num_threads: int) -> "CaptumMethod":
    """S calls of FeatureAblation for each batch of examples."""
    return CaptumMethod(workload, num_threads, captum_flips)


class CaptumMethod(TorchMethod):
    """FeatureAblation with as many windows in a pass as is fastest."""

    _perturbations = 1

    def tune(self, x: np.ndarray) -> None:
        """Times one draw of every window with each number of windows in a pass."""
        num_positions = self._workload.setting.num_positions
        seconds = {}
        for count in sorted({*(k for k in CANDIDATES if k < num_positions), num_positions}):
            flips = functools.partial(captum_flips, perturbations_per_eval=count)
            self._measure(flips, x[:1], 0, num_samples=1)
            started = time.perf_counter()
            self._measure(flips, x, 0, num_samples=1)
            seconds[count] = time.perf_counter() - started
        self._perturbations = min(seconds, key=seconds.__getitem__)
        self._flips = functools.partial(captum_flips, perturbations_per_eval=self._perturbations)

    def probe(self, x: np.ndarray) -> dict[str, float]:
        """What was chosen."""
        return {"perturbations_per_eval": self._perturbations}


def captum_flips(
    model: Callable[[Tensor], Tensor],
    x: Tensor,
    window: tuple[int, ...],
    sigma: float,
    num_samples: int,
    generator: torch.Generator,
    *,
    perturbations_per_eval: int = 1,
) -> Tensor:
    """Flips (n, T) of a batch of examples, one call of FeatureAblation for each draw."""
    windows = window_slices(tuple(x.shape[1:]), window)
    features = torch.zeros(1, *x.shape[1:], dtype=torch.long, device=x.device)
    for position, where in enumerate(windows):
        features[0][where] = position
    corners = torch.tensor([[axis.start for axis in where] for where in windows])
    ablate = FeatureAblation(lambda inputs: model(inputs).argmax(dim=1).float())
    flips = torch.zeros(len(x), len(windows), dtype=torch.int32, device=x.device)
    for _ in range(num_samples):
        noise = torch.randn(x.shape, generator=generator, device=x.device)
        attribution = ablate.attribute(
            x,
            baselines=x + sigma * noise,
            feature_mask=features,
            perturbations_per_eval=perturbations_per_eval,
        )
        flips += attribution[:, *corners.T] != 0
    return flips
