"""The same measurement in PyTorch, without jaxsens and without JAX."""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks import torch_text, torch_vision
from benchmarks.cell import best_seconds
from benchmarks.torch_layers import tensor
from benchmarks.workload import Setting, Weights, Workload

Model = Callable[[Tensor], Tensor]


def loop(workload: Workload, num_threads: int) -> "TorchMethod":
    """As the paper's authors do it: one pass over a batch of images for each position and draw."""
    return LoopMethod(workload, num_threads, loop_flips)


def loop_all_tokens(workload: Workload, num_threads: int) -> "TorchMethod":
    """`loop` with a transformer whose last block computes every token, as the paper's do."""
    return LoopMethod(workload, num_threads, loop_flips, all_tokens=True)


def batched(workload: Workload, num_threads: int) -> "TorchMethod":
    """All T·S edits of an image in one pass."""
    return TorchMethod(workload, num_threads, batched_flips)


def compiled_loop(workload: Workload, num_threads: int) -> "TorchMethod":
    """`loop` with the model under `torch.compile`."""
    return TorchMethod(workload, num_threads, loop_flips, prepared=compiled)


def compiled_batched(workload: Workload, num_threads: int) -> "TorchMethod":
    """`batched` with the model under `torch.compile`."""
    return TorchMethod(workload, num_threads, batched_flips, prepared=compiled)


def vmapped(workload: Workload, num_threads: int) -> "TorchMethod":
    """The model of one example under `torch.func.vmap` over all T·S edits of an image."""
    return TorchMethod(workload, num_threads, vmapped_flips)


class TorchMethod:
    """A measurement of the PyTorch model, in eval mode and full float32."""

    def __init__(
        self,
        workload: Workload,
        num_threads: int,
        flips: Callable[..., Tensor],
        prepared: Callable[[Model], Model] = lambda model: model,
        **sizes: Any,
    ):
        torch.set_num_threads(num_threads)
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._workload, self._flips = workload, flips
        network = make_model(workload.setting, workload.weights, **sizes).to(self._device)
        self._model = prepared(with_true_mask(network) if workload.setting.takes_mask else network)
        gpu = self._device.type == "cuda"
        self.device = f"gpu: {torch.cuda.get_device_name()}" if gpu else "cpu: cpu"

    def tune(self, x: np.ndarray) -> None:
        """Nothing to choose."""

    def logits(self, x: np.ndarray) -> np.ndarray:
        """(n, C) of clean inputs."""
        with torch.inference_mode():
            return self._model(self._place(x)).cpu().numpy()

    def flips(self, x: np.ndarray, seed: int) -> np.ndarray:
        """(n, T): how many of the S draws at each position changed the prediction."""
        return self._measure(self._flips, x, seed, self._workload.num_samples)

    def _measure(
        self, flips: Callable[..., Tensor], x: np.ndarray, seed: int, num_samples: int
    ) -> np.ndarray:
        setting = self._workload.setting
        generator = torch.Generator(self._device).manual_seed(seed)
        window = channels_first(setting.window)
        with torch.inference_mode():
            parts = [
                flips(self._model, part, window, setting.sigma, num_samples, generator)
                for part in self._place(x).split(self._workload.batch)
            ]
            return torch.cat(parts).cpu().numpy()

    def peak_device_bytes(self) -> int | None:
        """Most memory used on an accelerator so far; None on a CPU."""
        return torch.cuda.max_memory_allocated() if self._device.type == "cuda" else None

    def matmul(self, size: int) -> Callable[[], Any]:
        """A call that multiplies two size×size matrices and returns when it is done."""
        square = torch.ones(size, size, device=self._device)
        return self._finished(lambda: square @ square)

    def probe(self, x: np.ndarray) -> dict[str, float]:
        """Nothing more to say."""
        return {}

    def _finished(self, call: Callable[[], Any]) -> Callable[[], Any]:
        def call_and_wait() -> None:
            with torch.inference_mode():
                call()
                if self._device.type == "cuda":
                    torch.cuda.synchronize()

        return call_and_wait

    def _place(self, x: np.ndarray) -> Tensor:
        order = (0, *(1 + axis for axis in channels_first(tuple(range(x.ndim - 1)))))
        return tensor(x.transpose(order)).to(self._device)


class LoopMethod(TorchMethod):
    """The loop, which also says what the paper's batch would gain."""

    def probe(self, x: np.ndarray) -> dict[str, float]:
        """How much faster an example passes in a full batch than in one as small as `x`."""
        full = self._workload.batch
        if len(x) >= full:
            return {}
        few = self._place(x)
        many = few[torch.arange(full, device=self._device) % len(x)]
        seconds = [
            best_seconds(self._finished(functools.partial(self._model, part)), repeats=3)
            for part in (few, many)
        ]
        return {"batch_gain": seconds[0] / len(x) / (seconds[1] / full)}


def make_model(setting: Setting, weights: Weights, **sizes: Any) -> nn.Module:
    """The PyTorch model with Flax's weights, in eval mode."""
    room = torch_text if setting.takes_mask else torch_vision
    architecture = getattr(room, setting.architecture)
    return architecture(weights, setting.shape, **setting.sizes, **sizes).eval()


def with_true_mask(network: nn.Module) -> Model:
    """A text model that is told that every token is real."""
    return lambda e: network(e, torch.ones(e.shape[:2], dtype=torch.bool, device=e.device))


def compiled(model: Model) -> Model:
    """The model under `torch.compile`: a program for each size of batch, none kept from before."""
    torch.compiler.config.force_disable_caches = True
    return torch.compile(model, dynamic=False)


def channels_first(axes: tuple[int, ...]) -> tuple[int, ...]:
    """(H, W, C) as (C, H, W); other ranks stay."""
    return (axes[2], axes[0], axes[1]) if len(axes) == 3 else axes


def window_slices(shape: tuple[int, ...], window: tuple[int, ...]) -> list[tuple[slice, ...]]:
    """Where each window lies, in row-major order."""
    counts = [side // size for side, size in zip(shape, window, strict=True)]
    return [
        tuple(slice(i * size, (i + 1) * size) for i, size in zip(index, window, strict=True))
        for index in np.ndindex(*counts)
    ]


def loop_flips(
    model: Model,
    x: Tensor,
    window: tuple[int, ...],
    sigma: float,
    num_samples: int,
    generator: torch.Generator,
) -> Tensor:
    """Flips (n, T) of a batch of examples, one pass of the batch for each position and draw."""
    windows = window_slices(tuple(x.shape[1:]), window)
    clean = model(x).argmax(dim=1)
    flips = torch.zeros(len(x), len(windows), dtype=torch.int32, device=x.device)
    for position, where in enumerate(windows):
        for _ in range(num_samples):
            noise = torch.randn(len(x), *window, generator=generator, device=x.device)
            edited = x.clone()
            edited[(slice(None), *where)] += sigma * noise
            flips[:, position] += model(edited).argmax(dim=1) != clean
    return flips


def _batched(model: Model, example: Tensor, places: Tensor, noise: Tensor) -> Tensor:
    edited = example.flatten().expand(len(noise), -1).scatter_add(1, places, noise)
    return model(edited.reshape(-1, *example.shape)).argmax(dim=1)


def _vmapped(model: Model, example: Tensor, places: Tensor, noise: Tensor) -> Tensor:
    def one(places: Tensor, noise: Tensor) -> Tensor:
        edited = example.flatten().scatter_add(0, places, noise)
        return model(edited.reshape(1, *example.shape))[0].argmax()

    # The fused attention of a CPU has no rule for vmap, which would take one edit at a time.
    with sdpa_kernel(SDPBackend.MATH):
        return torch.func.vmap(one)(places, noise)


def _flips_of_each(
    predicted: Callable[[Model, Tensor, Tensor, Tensor], Tensor],
    model: Model,
    x: Tensor,
    window: tuple[int, ...],
    sigma: float,
    num_samples: int,
    generator: torch.Generator,
) -> Tensor:
    """Flips (n, T), where `predicted` classes all T·S edits of an example."""
    shape = tuple(x.shape[1:])
    entries = torch.arange(math.prod(shape)).reshape(shape)
    windows = [entries[where].flatten() for where in window_slices(shape, window)]
    places = torch.stack(windows).to(x.device).repeat_interleave(num_samples, dim=0)
    clean = model(x).argmax(dim=1)
    flips = torch.zeros(len(x), len(windows), dtype=torch.int32, device=x.device)
    for i, example in enumerate(x):
        noise = sigma * torch.randn(places.shape, generator=generator, device=x.device)
        changed = predicted(model, example, places, noise) != clean[i]
        flips[i] = changed.reshape(-1, num_samples).sum(dim=1)
    return flips


#: Flips (n, T) of a batch of examples, one pass of all T·S edits for each example.
batched_flips = functools.partial(_flips_of_each, _batched)
#: The same, one edit written down and vmapped over T·S of them.
vmapped_flips = functools.partial(_flips_of_each, _vmapped)
