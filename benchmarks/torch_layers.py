"""PyTorch's layers with Flax's weights, by their path in Flax."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.workload import Weights

#: Of layer norms and batch norms alike.
EPSILON = 1e-5


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


def convolution(
    weights: Weights, name: str, *, stride: int = 1, padding: int = 0, groups: int = 1
) -> nn.Conv2d:
    """A convolution: Flax's (k, l, C/groups, F) kernel is PyTorch's (F, C/groups, k, l)."""
    kernel, bias = weights[f"params/{name}/kernel"], weights.get(f"params/{name}/bias")
    height, width, channels, features = kernel.shape
    layer = nn.Conv2d(
        channels * groups,
        features,
        (height, width),
        stride,
        padding,
        groups=groups,
        bias=bias is not None,
    )
    return with_values(layer, weight=kernel.transpose(3, 2, 0, 1), bias=bias)


def batch_norm(weights: Weights, name: str) -> nn.BatchNorm2d:
    """A batch norm with its running statistics."""
    scale, bias = weights[f"params/{name}/scale"], weights[f"params/{name}/bias"]
    return with_values(
        nn.BatchNorm2d(len(scale), EPSILON),
        weight=scale,
        bias=bias,
        running_mean=weights[f"batch_stats/{name}/mean"],
        running_var=weights[f"batch_stats/{name}/var"],
        num_batches_tracked=np.zeros((), np.int64),
    )


def layer_norm(weights: Weights, name: str) -> nn.LayerNorm:
    """A layer norm over the last axis."""
    scale, bias = weights[f"params/{name}/scale"], weights[f"params/{name}/bias"]
    return with_values(nn.LayerNorm(scale.shape, EPSILON), weight=scale, bias=bias)


class Heads(nn.Module):
    """The projections of an attention: into its heads, and back."""

    def __init__(self, weights: Weights, name: str, heads: int):
        super().__init__()
        self.heads = heads
        self.query = linear(weights, f"{name}/query")
        self.key = linear(weights, f"{name}/key")
        self.value = linear(weights, f"{name}/value")
        self.out = linear(weights, f"{name}/out")

    def split(self, queries: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        """Queries of some tokens, keys and values of all, each (n, heads, tokens, e)."""
        return tuple(
            layer(tokens).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer, tokens in ((self.query, queries), (self.key, x), (self.value, x))
        )

    def joined(self, received: Tensor) -> Tensor:
        """(n, Q, d) of what the heads of each token have received, (n, heads, Q, e)."""
        return self.out(received.transpose(1, 2).flatten(2))


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
