"""The same models and the same measurement in PyTorch, without jaxsens and without JAX.

The models take Flax's weights. PyTorch's own layouts are used throughout (images with channels
first, flattened channel by channel), so weights that meet a flattened image are reordered once.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.workload import Setting, Weights, Workload

LAYER_NORM_EPSILON = 1e-5


# --- Models ---------------------------------------------------------------------------------------


class MLP(nn.Module):
    """jaxsens' MLP: hidden layers with leaky ReLU, logits without bias."""

    def __init__(
        self, weights: Weights, shape: tuple[int, ...], *, num_classes: int, widths=(512, 128)
    ):
        super().__init__()
        first = linear(weights, "Dense_0", flattened=shape)
        rest = (linear(weights, f"Dense_{i}") for i in range(1, len(widths) + 1))
        self.layers = nn.ModuleList([first, *rest])

    def forward(self, x: Tensor) -> Tensor:
        """(n, C, H, W) to logits."""
        *hidden, last = self.layers
        x = x.flatten(1)
        for layer in hidden:
            x = functional.leaky_relu(layer(x))
        return last(x)


class CNN(nn.Module):
    """jaxsens' CNN: two 3×3 convolutions, one pooling, one hidden layer."""

    def __init__(
        self, weights: Weights, shape: tuple[int, ...], *, num_classes: int, features=32, hidden=128
    ):
        super().__init__()
        # Two valid 3×3 convolutions, then windows of two.
        height, width = ((side - 4) // 2 for side in shape[:2])
        self.first = convolution(weights, "Conv_0")
        self.second = convolution(weights, "Conv_1")
        self.hidden = linear(weights, "Dense_0", flattened=(height, width, features))
        self.out = linear(weights, "Dense_1")

    def forward(self, x: Tensor) -> Tensor:
        """(n, C, H, W) to logits."""
        x = self.second(functional.leaky_relu(self.first(x)))
        x = functional.max_pool2d(x, 2)
        return self.out(functional.leaky_relu(self.hidden(x.flatten(1))))


class LocalityAttention(nn.Module):
    """Attention in which no token attends to itself, with a learned temperature."""

    def __init__(self, weights: Weights, name: str, heads: int):
        super().__init__()
        self.heads = heads
        self.norm = layer_norm(weights, f"{name}/LayerNorm_0")
        self.query = linear(weights, f"{name}/query")
        self.key = linear(weights, f"{name}/key")
        self.value = linear(weights, f"{name}/value")
        self.out = linear(weights, f"{name}/out")
        self.log_scale = parameter(weights, f"{name}/log_scale")

    def forward(self, x: Tensor, num_queries: int) -> Tensor:
        """Output for the first `num_queries` tokens."""
        x = self.norm(x)
        q, k, v = (
            layer(tokens).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer, tokens in ((self.query, x[:, :num_queries]), (self.key, x), (self.value, x))
        )
        logits = q @ k.transpose(-1, -2) * self.log_scale.exp()
        itself = torch.eye(num_queries, x.shape[1], dtype=torch.bool, device=x.device)
        logits = logits.masked_fill(itself, -torch.finfo(logits.dtype).max)
        out = logits.softmax(dim=-1) @ v
        return self.out(out.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """Layer norm, a hidden layer with exact GELU, back to the width of the input."""

    def __init__(self, weights: Weights, name: str):
        super().__init__()
        self.norm = layer_norm(weights, f"{name}/LayerNorm_0")
        self.hidden = linear(weights, f"{name}/Dense_0")
        self.out = linear(weights, f"{name}/Dense_1")

    def forward(self, x: Tensor) -> Tensor:
        """The residual branch's output."""
        return self.out(functional.gelu(self.hidden(self.norm(x))))


class ViTSmall(nn.Module):
    """jaxsens' ViT-small.

    Like jaxsens' model, the last block serves the class token alone. `all_tokens` computes the
    other tokens there too, as the paper's model does: the same logits for more work.
    """

    def __init__(
        self,
        weights: Weights,
        shape: tuple[int, ...],
        *,
        num_classes: int,
        patch: int,
        depth: int,
        heads: int,
        hidden: int,
        all_tokens: bool = False,
    ):
        super().__init__()
        self.patch, self.all_tokens = patch, all_tokens
        self.patch_norm = layer_norm(weights, "LayerNorm_0")
        self.embed = linear(weights, "Dense_0")
        self.class_token = parameter(weights, "class_token")
        self.position = parameter(weights, "position")
        self.attention = nn.ModuleList(
            LocalityAttention(weights, f"LocalityAttention_{i}", heads) for i in range(depth)
        )
        self.feed_forward = nn.ModuleList(
            FeedForward(weights, f"FeedForward_{i}") for i in range(depth)
        )
        self.norm = layer_norm(weights, "LayerNorm_1")
        self.out = linear(weights, "Dense_1")

    def forward(self, x: Tensor) -> Tensor:
        """(n, C, H, W) to logits."""
        x = self.embed(self.patch_norm(patches(shifted(x), self.patch)))
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], dim=1) + self.position
        last = len(self.attention) - 1
        for layer, (attention, feed_forward) in enumerate(
            zip(self.attention, self.feed_forward, strict=True)
        ):
            num_queries = 1 if layer == last and not self.all_tokens else x.shape[1]
            x = x[:, :num_queries] + attention(x, num_queries)
            x = x + feed_forward(x)
        return self.out(self.norm(x[:, 0]))


def shifted(x: Tensor) -> Tensor:
    """(n, C, H, W) with its shifts by one pixel right, left, down and up as further channels."""
    height, width = x.shape[2:]
    padded = functional.pad(x, (1, 1, 1, 1))
    offsets = ((1, 1), (1, 0), (1, 2), (0, 1), (2, 1))
    return torch.cat([padded[:, :, i : i + height, j : j + width] for i, j in offsets], dim=1)


def patches(x: Tensor, size: int) -> Tensor:
    """(n, C, H, W) to (n, T, size·size·C): row by row, channels fastest within a patch."""
    x = x.unflatten(3, (-1, size)).unflatten(2, (-1, size))
    return x.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)


def linear(weights: Weights, name: str, flattened: tuple[int, ...] | None = None) -> nn.Linear:
    """A dense layer; `flattened` is the (H, W, C) of the maps whose flattening it reads."""
    kernel = weights[f"params/{name}/kernel"]
    if flattened is not None and len(flattened) == 3:
        by_pixel = kernel.reshape(*flattened, kernel.shape[-1])
        kernel = by_pixel.transpose(2, 0, 1, 3).reshape(kernel.shape)
    bias = weights.get(f"params/{name}/bias")
    fan_in, features = kernel.shape
    layer = nn.Linear(fan_in, features, bias=bias is not None)
    return with_values(layer, weight=kernel.T, bias=bias)


def convolution(weights: Weights, name: str) -> nn.Conv2d:
    """A convolution without padding: Flax's (k, l, C, F) kernel is PyTorch's (F, C, k, l)."""
    kernel, bias = weights[f"params/{name}/kernel"], weights[f"params/{name}/bias"]
    height, width, channels, features = kernel.shape
    layer = nn.Conv2d(channels, features, (height, width))
    return with_values(layer, weight=kernel.transpose(3, 2, 0, 1), bias=bias)


def layer_norm(weights: Weights, name: str) -> nn.LayerNorm:
    """A layer norm over the last axis."""
    scale, bias = weights[f"params/{name}/scale"], weights[f"params/{name}/bias"]
    return with_values(nn.LayerNorm(scale.shape, LAYER_NORM_EPSILON), weight=scale, bias=bias)


def parameter(weights: Weights, name: str) -> nn.Parameter:
    """A single array of weights."""
    return nn.Parameter(tensor(weights[f"params/{name}"]))


def with_values(layer: Any, **values: np.ndarray | None) -> Any:
    """The layer with these weights, which must have its shapes."""
    given = {name: tensor(value) for name, value in values.items() if value is not None}
    layer.load_state_dict(given)
    return layer


def tensor(array: np.ndarray) -> Tensor:
    """A copy in PyTorch's memory."""
    return torch.tensor(np.ascontiguousarray(array))


# --- Measurement ----------------------------------------------------------------------------------


def loop(workload: Workload, num_threads: int) -> "TorchMethod":
    """As the paper's authors do it: one pass over a batch of images for each position and draw."""
    return TorchMethod(workload, num_threads, loop_flips)


def loop_all_tokens(workload: Workload, num_threads: int) -> "TorchMethod":
    """`loop` with a ViT whose last block computes every token, as the paper's model does."""
    return TorchMethod(workload, num_threads, loop_flips, all_tokens=True)


def batched(workload: Workload, num_threads: int) -> "TorchMethod":
    """All T·S edits of an image in one pass."""
    return TorchMethod(workload, num_threads, batched_flips)


class TorchMethod:
    """A measurement of the PyTorch model, in eval mode and full float32."""

    def __init__(
        self, workload: Workload, num_threads: int, flips: Callable[..., Tensor], **sizes: Any
    ):
        torch.set_num_threads(num_threads)
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._workload, self._flips = workload, flips
        self._model = make_model(workload.setting, workload.weights, **sizes).to(self._device)
        gpu = self._device.type == "cuda"
        self.device = f"gpu: {torch.cuda.get_device_name()}" if gpu else "cpu: cpu"

    def logits(self, x: np.ndarray) -> np.ndarray:
        """(n, C) of clean inputs."""
        with torch.inference_mode():
            return self._model(self._place(x)).cpu().numpy()

    def flips(self, x: np.ndarray, seed: int) -> np.ndarray:
        """(n, T): how many of the S draws at each position changed the prediction."""
        setting, work = self._workload.setting, self._workload
        generator = torch.Generator(self._device).manual_seed(seed)
        window = channels_first(setting.window)
        with torch.inference_mode():
            parts = [
                self._flips(self._model, part, window, setting.sigma, work.num_samples, generator)
                for part in self._place(x).split(work.batch)
            ]
            return torch.cat(parts).cpu().numpy()

    def peak_device_bytes(self) -> int | None:
        """Most memory used on an accelerator so far; None on a CPU."""
        return torch.cuda.max_memory_allocated() if self._device.type == "cuda" else None

    def _place(self, x: np.ndarray) -> Tensor:
        order = (0, *(1 + axis for axis in channels_first(tuple(range(x.ndim - 1)))))
        return tensor(x.transpose(order)).to(self._device)


def make_model(setting: Setting, weights: Weights, **sizes: Any) -> nn.Module:
    """The PyTorch model with Flax's weights, in eval mode."""
    architecture = globals()[setting.architecture]
    return architecture(weights, setting.shape, **setting.sizes, **sizes).eval()


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
    model: nn.Module,
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


def batched_flips(
    model: nn.Module,
    x: Tensor,
    window: tuple[int, ...],
    sigma: float,
    num_samples: int,
    generator: torch.Generator,
) -> Tensor:
    """Flips (n, T) of a batch of examples, one pass of all T·S edits for each example."""
    shape = tuple(x.shape[1:])
    entries = torch.arange(math.prod(shape)).reshape(shape)
    places = torch.stack([entries[where].flatten() for where in window_slices(shape, window)])
    num_positions, size = places.shape
    places = places.to(x.device)[:, None].expand(-1, num_samples, -1)
    clean = model(x).argmax(dim=1)
    flips = torch.zeros(len(x), num_positions, dtype=torch.int32, device=x.device)
    for i, example in enumerate(x):
        noise = torch.randn(num_positions, num_samples, size, generator=generator, device=x.device)
        edited = example.flatten().expand(num_positions, num_samples, -1).clone()
        edited.scatter_add_(2, places, sigma * noise)
        predicted = model(edited.reshape(-1, *shape)).argmax(dim=1)
        flips[i] = (predicted != clean[i]).reshape(num_positions, num_samples).sum(dim=1)
    return flips
