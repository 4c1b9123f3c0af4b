"""jaxsens' vision models in PyTorch, with Flax's weights.

PyTorch's own layouts are used throughout (images with channels first, flattened channel by
channel), so weights that meet a flattened image are reordered once. Every class is made as
`Class(weights, shape, **sizes)`: Flax's weights by path, the shape of one example with channels
last, and the arguments of the class of the same name in `jaxsens.models`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.torch_layers import (
    Heads,
    batch_norm,
    convolution,
    layer_norm,
    linear,
    parameter,
)
from benchmarks.workload import Weights


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


class BasicBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut, which is projected where the shape changes."""

    def __init__(self, weights: Weights, name: str, stride: int):
        super().__init__()
        self.branch = nn.Sequential(
            convolution(weights, f"{name}/Conv_0", stride=stride, padding=1),
            batch_norm(weights, f"{name}/BatchNorm_0"),
            nn.ReLU(),
            convolution(weights, f"{name}/Conv_1", padding=1),
            batch_norm(weights, f"{name}/BatchNorm_1"),
        )
        self.shortcut = nn.Sequential()
        if f"params/{name}/shortcut/kernel" in weights:
            self.shortcut.append(convolution(weights, f"{name}/shortcut", stride=stride))
            self.shortcut.append(batch_norm(weights, f"{name}/shortcut_norm"))

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, after the activation."""
        return functional.relu(self.branch(x) + self.shortcut(x))


class ResNet(nn.Sequential):
    """jaxsens' ResNet-18 for small images."""

    def __init__(
        self,
        weights: Weights,
        shape: tuple[int, ...],
        *,
        num_classes: int,
        width: int = 64,
        blocks: tuple[int, ...] = (2, 2, 2, 2),
    ):
        strides = [
            2 if stage > 0 and block == 0 else 1
            for stage, num_blocks in enumerate(blocks)
            for block in range(num_blocks)
        ]
        super().__init__(
            convolution(weights, "Conv_0", padding=1),
            batch_norm(weights, "BatchNorm_0"),
            nn.ReLU(),
            *(BasicBlock(weights, f"BasicBlock_{i}", stride) for i, stride in enumerate(strides)),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            linear(weights, "Dense_0"),
        )


class DenseLayer(nn.Module):
    """New features behind the old ones: norm, ReLU, 1×1 convolution; norm, ReLU, 3×3."""

    def __init__(self, weights: Weights, name: str):
        super().__init__()
        self.new_features = nn.Sequential(
            batch_norm(weights, f"{name}/BatchNorm_0"),
            nn.ReLU(),
            convolution(weights, f"{name}/Conv_0"),
            batch_norm(weights, f"{name}/BatchNorm_1"),
            nn.ReLU(),
            convolution(weights, f"{name}/Conv_1", padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """(n, C, H, W) to (n, C + growth, H, W)."""
        return torch.cat([x, self.new_features(x)], dim=1)


class DenseNet(nn.Sequential):
    """jaxsens' DenseNet-121 for small images."""

    def __init__(
        self,
        weights: Weights,
        shape: tuple[int, ...],
        *,
        num_classes: int,
        growth: int = 32,
        blocks: tuple[int, ...] = (6, 12, 24, 16),
    ):
        body: list[nn.Module] = []
        num_before = 0
        for block, num_layers in enumerate(blocks):
            if block > 0:
                name = f"Transition_{block - 1}"
                body += [
                    batch_norm(weights, f"{name}/BatchNorm_0"),
                    nn.ReLU(),
                    convolution(weights, f"{name}/Conv_0"),
                    nn.AvgPool2d(2),
                ]
            body += [DenseLayer(weights, f"DenseLayer_{num_before + i}") for i in range(num_layers)]
            num_before += num_layers
        super().__init__(
            convolution(weights, "Conv_0", padding=1),
            batch_norm(weights, "BatchNorm_0"),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
            *body,
            batch_norm(weights, "BatchNorm_1"),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            linear(weights, "Dense_0"),
        )


class MixerBlock(nn.Module):
    """A depthwise convolution beside a shortcut, then a 1×1 convolution."""

    def __init__(self, weights: Weights, layer: int, width: int, kernel: int):
        super().__init__()
        depthwise = convolution(weights, f"Conv_{layer}", padding=kernel // 2, groups=width)
        self.space = nn.Sequential(depthwise, nn.GELU(), batch_norm(weights, f"BatchNorm_{layer}"))
        self.channels = nn.Sequential(
            convolution(weights, f"Conv_{layer + 1}"),
            nn.GELU(),
            batch_norm(weights, f"BatchNorm_{layer + 1}"),
        )

    def forward(self, x: Tensor) -> Tensor:
        """The next block's input."""
        return self.channels(x + self.space(x))


class ConvMixer(nn.Sequential):
    """jaxsens' ConvMixer, with kernels of odd size."""

    def __init__(
        self,
        weights: Weights,
        shape: tuple[int, ...],
        *,
        num_classes: int,
        width: int = 256,
        depth: int = 8,
        kernel: int = 3,
        patch: int = 4,
    ):
        super().__init__(
            convolution(weights, "Conv_0", stride=patch),
            nn.GELU(),
            batch_norm(weights, "BatchNorm_0"),
            *(MixerBlock(weights, 2 * i + 1, width, kernel) for i in range(depth)),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            linear(weights, "Dense_0"),
        )


class LocalityAttention(Heads):
    """Attention in which no token attends to itself, with a learned temperature."""

    def __init__(self, weights: Weights, name: str, heads: int):
        super().__init__(weights, name, heads)
        self.norm = layer_norm(weights, f"{name}/LayerNorm_0")
        self.log_scale = parameter(weights, f"{name}/log_scale")

    def forward(self, x: Tensor, num_queries: int) -> Tensor:
        """Output for the first `num_queries` tokens."""
        x = self.norm(x)
        q, k, v = self.split(x[:, :num_queries], x)
        logits = q @ k.transpose(-1, -2) * self.log_scale.exp()
        itself = torch.eye(num_queries, x.shape[1], dtype=torch.bool, device=x.device)
        logits = logits.masked_fill(itself, -torch.finfo(logits.dtype).max)
        return self.joined(logits.softmax(dim=-1) @ v)


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
