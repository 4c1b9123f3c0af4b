"""jaxsens' text models in PyTorch from their embeddings on, with Flax's weights.

Every class is made as `Class(weights, shape, **sizes)`, like those of `benchmarks.torch_vision`,
and called as `model(e, mask)`: (n, T, d) embeddings and the (n, T) mask of real tokens to logits.
Attention is PyTorch's own fused one. Like jaxsens' models, the last block serves only the token
that is read; `all_tokens` computes the others there too, as the paper's models do: the same logits
for more work.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.torch_layers import Heads, layer_norm, linear, with_values
from benchmarks.workload import Weights


class LSTM(nn.Module):
    """jaxsens' LSTM: PyTorch's own, read at the last real token."""

    def __init__(
        self,
        weights: Weights,
        shape: tuple[int, ...],
        *,
        depth: int = 4,
        width: int = 256,
        **_unused: Any,
    ):
        super().__init__()
        values = {}
        for i in range(depth):
            name = f"params/layers_{i}"
            values[f"weight_ih_l{i}"] = weights[f"{name}/input/kernel"].T
            values[f"bias_ih_l{i}"] = weights[f"{name}/input/bias"]
            values[f"weight_hh_l{i}"] = weights[f"{name}/recurrent"].T
            values[f"bias_hh_l{i}"] = weights[f"{name}/recurrent_bias"]
        self.layers = with_values(nn.LSTM(shape[-1], width, depth, batch_first=True), **values)
        self.head = linear(weights, "head")

    def forward(self, e: Tensor, mask: Tensor) -> Tensor:
        """Logits."""
        return self.head(last_real(self.layers(e)[0], mask))


class Attention(Heads):
    """Some tokens' softmax attention to all."""

    def forward(self, queries: Tensor, x: Tensor, visible: Tensor) -> Tensor:
        """(n, Q, d) of what `queries` receive from the tokens that (n, Q, T) `visible` marks."""
        q, k, v = self.split(queries, x)
        out = functional.scaled_dot_product_attention(q, k, v, attn_mask=visible[:, None])
        return self.joined(out)


class Transformer(nn.Module):
    """Blocks, and whether the last one computes every token."""

    def __init__(
        self,
        block: Callable[[Weights, str, int], nn.Module],
        weights: Weights,
        *,
        depth: int = 4,
        heads: int = 8,
        all_tokens: bool = False,
        **_unused: Any,
    ):
        super().__init__()
        self.all_tokens = all_tokens
        self.blocks = nn.ModuleList(block(weights, f"blocks_{i}", heads) for i in range(depth))


class PostNormBlock(nn.Module):
    """RoBERTa's block: attention and feed-forward, each added to its input and layer-normed."""

    def __init__(self, weights: Weights, name: str, heads: int):
        super().__init__()
        self.attention = Attention(weights, f"{name}/MultiHeadAttention_0", heads)
        self.norm = layer_norm(weights, f"{name}/LayerNorm_0")
        self.hidden = linear(weights, f"{name}/Dense_0")
        self.out = linear(weights, f"{name}/Dense_1")
        self.out_norm = layer_norm(weights, f"{name}/LayerNorm_1")

    def forward(self, queries: Tensor, x: Tensor, visible: Tensor) -> Tensor:
        """The queries after the block."""
        y = self.norm(queries + self.attention(queries, x, visible))
        return self.out_norm(y + self.out(functional.gelu(self.hidden(y))))


class RoBERTa(Transformer):
    """jaxsens' RoBERTa with softmax attention, read at the first token."""

    def __init__(self, weights: Weights, shape: tuple[int, ...], **sizes: Any):
        super().__init__(PostNormBlock, weights, **sizes)
        self.pooler, self.head = linear(weights, "pooler"), linear(weights, "head")

    def forward(self, e: Tensor, mask: Tensor) -> Tensor:
        """Logits."""
        x, visible = e, mask[:, None].expand(-1, e.shape[1], -1)
        for block in self.blocks[:-1]:
            x = block(x, x, visible)
        num_queries = x.shape[1] if self.all_tokens else 1
        x = self.blocks[-1](x[:, :num_queries], x, visible[:, :num_queries])
        return self.head(self.pooler(x[:, 0]).tanh())


class PreNormBlock(nn.Module):
    """GPT-2's block: attention and feed-forward, each layer-norming its input and added to it."""

    def __init__(self, weights: Weights, name: str, heads: int):
        super().__init__()
        self.norm = layer_norm(weights, f"{name}/LayerNorm_0")
        self.attention = Attention(weights, f"{name}/MultiHeadAttention_0", heads)
        self.hidden_norm = layer_norm(weights, f"{name}/LayerNorm_1")
        self.hidden = linear(weights, f"{name}/Dense_0")
        self.out = linear(weights, f"{name}/Dense_1")

    def forward(self, queries: Tensor, x: Tensor, visible: Tensor) -> Tensor:
        """The queries, which are tokens of `x`, after the block."""
        normed = self.norm(x)
        asking = normed if queries is x else self.norm(queries)
        y = queries + self.attention(asking, normed, visible)
        hidden = functional.gelu(self.hidden(self.hidden_norm(y)), approximate="tanh")
        return y + self.out(hidden)


class GPT2(Transformer):
    """jaxsens' GPT-2, causal, read at the last real token."""

    def __init__(self, weights: Weights, shape: tuple[int, ...], **sizes: Any):
        super().__init__(PreNormBlock, weights, **sizes)
        self.norm, self.head = layer_norm(weights, "norm"), linear(weights, "head")

    def forward(self, e: Tensor, mask: Tensor) -> Tensor:
        """Logits."""
        num_tokens = e.shape[1]
        causal = torch.ones(num_tokens, num_tokens, dtype=torch.bool, device=e.device).tril()
        x, visible = e, causal & mask[:, None]
        for block in self.blocks[:-1]:
            x = block(x, x, visible)
        if self.all_tokens:
            y = last_real(self.blocks[-1](x, x, visible), mask)
        else:
            y = self.blocks[-1](last_real(x, mask)[:, None], x, mask[:, None])[:, 0]
        return self.head(self.norm(y))


def last_real(x: Tensor, mask: Tensor) -> Tensor:
    """(n, d): the last token of `x` that is not padding."""
    return x[torch.arange(len(x), device=x.device), mask.sum(dim=1) - 1]
