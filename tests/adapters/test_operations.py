"""PyTorch's operations in JAX: each gives what PyTorch gives, for one example and for several."""

import functools

import numpy as np
import pytest

from jaxsens import adapters

torch = pytest.importorskip("torch")
F = torch.nn.functional

# x is (n, 4, 6, 6), positive, negative and 0; v is (n, 5, 8); ids are (n, 5), from 0 to 7.
ELEMENTWISE = {
    "arithmetic": lambda x, v, ids: 2 * x + x / 3 - (1 - x) * x.square(),
    "alpha": lambda x, v, ids: torch.add(x, x, alpha=2) - torch.sub(x, 1, alpha=3),
    "division": lambda x, v, ids: torch.div(x, 0.3, rounding_mode="floor") + (x % 0.7),
    "truncated": lambda x, v, ids: torch.div(x, 0.3, rounding_mode="trunc") + torch.fmod(x, 0.7),
    "powers": lambda x, v, ids: x**2 + x**3.0 + x.abs() ** 0.5 + 2.0**x + (x.abs() + 1) ** -1,
    "roots": lambda x, v, ids: (x.abs() + 1).rsqrt() + (x.abs()).sqrt() + (x.abs() + 1).log(),
    "waves": lambda x, v, ids: x.sin() + x.cos() * x.tanh() + x.exp() + x.erf() + x.atan(),
    "rounding": lambda x, v, ids: x.floor() + x.ceil() + x.round() + x.trunc() + x.sign(),
    "relus": lambda x, v, ids: x.relu() + F.relu6(x) + F.leaky_relu(x, 0.2) + F.elu(x) + F.selu(x),
    "gates": lambda x, v, ids: F.silu(x) + F.gelu(x) + F.gelu(x, approximate="tanh") + F.mish(x),
    "hard": lambda x, v, ids: F.hardswish(x) + F.hardsigmoid(x) + F.hardtanh(x) + x.clamp(-1, 0.5),
    "soft": lambda x, v, ids: F.softplus(x) + F.logsigmoid(x) + F.softsign(x) + x.sigmoid(),
    "prelu": lambda x, v, ids: F.prelu(x, torch.tensor([0.1, 0.2, 0.3, 0.4])),
    "comparisons": lambda x, v, ids: (x > 0) & (x <= 1) | ~(x != 0.5),
    "choices": lambda x, v, ids: torch.where(x > 0, x, -1.0) + x.masked_fill(x < 0, 2.0),
    "extremes": lambda x, v, ids: torch.maximum(x, x.square()) + torch.minimum(x, 0 * x),
    "casts": lambda x, v, ids: x.to(torch.int64) + x.long().float() + (x > 0).to(x.dtype),
    "products": lambda x, v, ids: torch.addcmul(x, x, x, value=2) + torch.lerp(x, 2 * x, 0.3),
    "in place": lambda x, v, ids: x.clone().mul_(2).add_(1).relu_(),
    "ids": lambda x, v, ids: (ids * 2 - ids // 3) % 5,
}
RESHAPING = {
    "views": lambda x, v, ids: x.view(-1, 4, 36).permute(0, 2, 1).reshape(x.shape[0], 6, 24),
    "flattened": lambda x, v, ids: x.flatten(1, 2).unflatten(1, (2, 12)).transpose(1, -1),
    "axes": lambda x, v, ids: x[:, :1].squeeze(1).unsqueeze(-1).expand(-1, -1, -1, 3),
    "cuts": lambda x, v, ids: torch.cat(x.chunk(3, dim=2)[::-1] + x.split(4, dim=3)[:0], dim=2),
    "uneven": lambda x, v, ids: torch.cat(x.split([1, 3], dim=1)[::-1], dim=1),
    "slices": lambda x, v, ids: x[:, 1:, ::2, -3:] + x[:, :-1, 1::2, :3],
    "single": lambda x, v, ids: torch.stack([x[:, 0], x[:, -1], x.select(1, 2)], dim=-1),
    "unbound": lambda x, v, ids: torch.stack(x.unbind(1)[::-1], dim=1),
    "repeated": lambda x, v, ids: x.repeat(1, 2, 1, 1) + x.flip(1).roll(1, 2).repeat(1, 2, 1, 1),
    "padded": lambda x, v, ids: F.pad(x, (1, 2, 0, 1), value=3.0),
    "reflected": lambda x, v, ids: F.pad(x, (1, 2, 2, 1), mode="reflect"),
    "replicated": lambda x, v, ids: F.pad(x, (1, 2, 2, 1), mode="replicate"),
    "triangles": lambda x, v, ids: x.tril() + x.triu(1),
    "shuffled": lambda x, v, ids: F.pixel_shuffle(x, 2),
    "moved": lambda x, v, ids: x.movedim(1, -1).contiguous().swapaxes(1, 2),
    "made": lambda x, v, ids: x + torch.arange(6.0) + torch.eye(6) + x.new_ones(6) + torch.zeros(6),
    "like": lambda x, v, ids: torch.full_like(x, 3) + torch.ones_like(x) + torch.linspace(0, 1, 6),
}
INDEXING = {
    "embedding": lambda x, v, ids: F.embedding(ids, torch.arange(24.0).reshape(8, 3)),
    "gathered": lambda x, v, ids: v.gather(2, ids[:, :, None]),
    "shorter": lambda x, v, ids: v.gather(1, ids[:, :2, None].clamp(max=4)),
    "fixed": lambda x, v, ids: v[:, [0, 2, 1]] + v[:, :, torch.tensor([1, 0, 3])].mean(),
    "rows": lambda x, v, ids: v[torch.arange(v.shape[0]), ids[:, 0].clamp(max=4)],
    "selected": lambda x, v, ids: v.index_select(2, torch.tensor([3, 1])),
    "scattered": lambda x, v, ids: torch.zeros_like(v).scatter(2, ids[:, :, None], 1.0),
    "added": lambda x, v, ids: torch.zeros_like(v).scatter_add(2, ids[:, :, None], v[:, :, :1]),
    "assigned": lambda x, v, ids: _assigned(v),
    "one hot": lambda x, v, ids: F.one_hot(ids, 8),
}
REDUCTIONS = {
    "sums": lambda x, v, ids: x.sum((2, 3)) + x.mean((2, 3)) + x.sum(-1).sum(-1),
    "kept": lambda x, v, ids: x - x.mean(1, keepdim=True) + x.amax((2, 3), keepdim=True),
    "counts": lambda x, v, ids: (x > 0).sum(3) + ids.sum(1)[:, None, None],
    "spread": lambda x, v, ids: x.var(1) + x.std(1, unbiased=False) + torch.var_mean(x, 1)[1],
    "largest": lambda x, v, ids: x.max(2).values + x.min(2)[0] + x.amin(2) + x.argmax(2),
    "softmax": lambda x, v, ids: x.softmax(-1) + F.log_softmax(x, 1) + x.logsumexp(1, keepdim=True),
    "running": lambda x, v, ids: x.cumsum(2) + (x > 0).cumsum(3),
    "norms": lambda x, v, ids: x.norm(dim=1) + F.normalize(x, dim=1).sum(1) + x.abs().prod(1),
    "truth": lambda x, v, ids: (x > 0).any(1) | (x > -3).all(1),
    "ordered": lambda x, v, ids: v.topk(3).values + v.sort(-1, descending=True)[0][..., :3],
    "whole": lambda x, v, ids: x[:, :1, 0, 0] * torch.ones(4).sum() * torch.ones(3).max(),
}
CONTRACTIONS = {
    "linear": lambda x, v, ids: F.linear(v, _W(7, 8), _W(7)),
    "products": lambda x, v, ids: v @ v.transpose(1, 2) @ v + torch.matmul(v, _W(8, 8)),
    "batched": lambda x, v, ids: torch.bmm(v, v.mT) + torch.baddbmm(v[:, :, :5], v, v.mT),
    "einsum": lambda x, v, ids: torch.einsum("ntd,nsd,de->nte", v, v, _W(8, 3)),
    "addmm": lambda x, v, ids: torch.addmm(_W(3), v[:, 0], _W(8, 3), beta=0.5, alpha=2),
    "conv": lambda x, v, ids: F.conv2d(x, _W(6, 4, 3, 3), _W(6), stride=2, padding=1),
    "groups": lambda x, v, ids: F.conv2d(x, _W(4, 1, 3, 3), padding="same", groups=4, dilation=2),
    "in one axis": lambda x, v, ids: F.conv1d(v, _W(3, 5, 3), _W(3), padding=1),
    "transposed": lambda x, v, ids: F.conv_transpose2d(
        x, _W(4, 3, 3, 3), _W(6), stride=2, padding=1, output_padding=1, groups=2
    ),
    "attention": lambda x, v, ids: F.scaled_dot_product_attention(v, v, 2 * v),
    "causal": lambda x, v, ids: F.scaled_dot_product_attention(v, v, v, is_causal=True, scale=0.3),
    "masked": lambda x, v, ids: F.scaled_dot_product_attention(
        x, x, x, attn_mask=torch.ones(6, 6).tril().bool()
    ),
    "shifted": lambda x, v, ids: F.scaled_dot_product_attention(x, x, x, attn_mask=_W(6, 6)),
    "shared": lambda x, v, ids: F.scaled_dot_product_attention(
        x, x[:, :2], x[:, :2], enable_gqa=True
    ),
}
LAYERS = {
    "layer norm": lambda x, v, ids: F.layer_norm(v, (8,), _W(8), _W(8)) + F.layer_norm(v, (5, 8)),
    "rms norm": lambda x, v, ids: F.rms_norm(v, (8,), _W(8)),
    "batch norm": lambda x, v, ids: F.batch_norm(x, _W(4), _W(4).abs() + 1, _W(4), _W(4)),
    "group norm": lambda x, v, ids: F.group_norm(x, 2, _W(4), _W(4)),
    "instance norm": lambda x, v, ids: F.instance_norm(x),
    "max pool": lambda x, v, ids: F.max_pool2d(x, 3, 2, 1) + F.max_pool2d(x, 2, 2, ceil_mode=True),
    "dilated pool": lambda x, v, ids: F.max_pool2d(x, 2, 1, dilation=2),
    "uneven pool": lambda x, v, ids: F.max_pool2d(x[..., :5], 2, 2, ceil_mode=True),
    "mean pool": lambda x, v, ids: F.avg_pool2d(x, 3, 2, 1) + F.avg_pool2d(x, 2),
    "without padding": lambda x, v, ids: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "uneven mean": lambda x, v, ids: F.avg_pool2d(x[..., :5], 2, 2, ceil_mode=True),
    "in one axis": lambda x, v, ids: F.avg_pool1d(v, 2) + F.max_pool1d(v, 2),
    "adaptive": lambda x, v, ids: F.adaptive_avg_pool2d(x, 1) + F.adaptive_avg_pool2d(x, (3, 2)),
    "adaptive, uneven": lambda x, v, ids: F.adaptive_avg_pool2d(x, (4, 5)),
    "nearest": lambda x, v, ids: F.interpolate(x, scale_factor=2),
    "bilinear": lambda x, v, ids: F.interpolate(x, size=(9, 8), mode="bilinear"),
    "dropout": lambda x, v, ids: F.dropout(x, 0.5, training=False),
}  # fmt: skip


@functools.cache
def _W(*shape):
    """Some weights, the same for the same shape: made before the export, which would draw them."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


def _assigned(v):
    v = v.clone()
    v[:, 1] = 0
    v[:, 2:4, 1] = v[:, 2:4, 2]
    v[:, :, 5] += 1
    return v


class All(torch.nn.Module):
    """All functions of a family, one beside the other."""

    def __init__(self, functions):
        super().__init__()
        self.functions = functions

    def each(self, *inputs):
        return [f(*inputs).reshape(inputs[0].shape[0], -1).float() for f in self.functions.values()]

    def forward(self, *inputs):
        return torch.cat(self.each(*inputs), dim=1)


FAMILIES = {
    "elementwise": ELEMENTWISE, "reshaping": RESHAPING, "indexing": INDEXING,
    "reductions": REDUCTIONS, "contractions": CONTRACTIONS, "layers": LAYERS,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_operations_give_what_pytorch_gives(family):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 4, 6, 6, generator=generator)
    x[0, 0, 0, 0] = 0
    inputs = x, torch.randn(3, 5, 8, generator=generator), torch.randint(0, 8, (3, 5))
    module = All(FAMILIES[family]).eval()
    apply_fn, params = adapters.torch(module)
    for n in (3, 1):
        given = [each[:n] for each in inputs]
        with torch.no_grad():
            expected = module.each(*given)
        found = np.asarray(apply_fn(params, *(each.numpy() for each in given)))
        ends = np.cumsum([each.shape[1] for each in expected])
        for name, ours, theirs in zip(
            FAMILIES[family], np.split(found, ends[:-1], axis=1), expected, strict=True
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5, err_msg=name)
