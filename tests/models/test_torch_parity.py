"""The networks of the vision papers have the logits of the same networks in PyTorch.

Most of them are the benchmark's networks, which take our weights by name. ViT-simple, which is not
benchmarked, is written here as its authors have it; its layers run in the same order as ours, so
weights are copied in the order of the calls.
"""

import copy
import importlib

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

from jaxsens.models import ConvMixer, DenseNet, ResNet, ViTSimple, ViTSmall
from jaxsens.models.layers.multi_head import Projection

torch = pytest.importorskip("torch")
torch_vision = importlib.import_module("benchmarks.torch_vision")

IMAGES = np.random.default_rng(0).normal(size=(2, 32, 32, 3)).astype(np.float32)


def channels_first(x):
    return torch.tensor(np.ascontiguousarray(x.transpose(0, 3, 1, 2)))


# --- ViT-simple in PyTorch ------------------------------------------------------------------------


class Residual(torch.nn.Module):
    """x + branch(x)."""

    def __init__(self, branch):
        super().__init__()
        self.branch = branch

    def forward(self, x):
        return x + self.branch(x)


class Attention(torch.nn.Module):
    def __init__(self, width, heads, head_dim):
        super().__init__()
        self.heads, self.norm = heads, torch.nn.LayerNorm(width)
        self.query, self.key, self.value = (
            torch.nn.Linear(width, heads * head_dim, bias=False) for _ in range(3)
        )
        self.out = torch.nn.Linear(heads * head_dim, width, bias=False)

    def forward(self, x):
        x = self.norm(x)
        q, k, v = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(out.transpose(1, 2).flatten(2))


class TorchViTSimple(torch.nn.Module):
    def __init__(self, patch=4, depth=6, heads=16, hidden=512, width=64, head_dim=64):
        super().__init__()
        self.patch, values = patch, patch * patch * 3
        self.embed = torch.nn.Sequential(
            torch.nn.LayerNorm(values), torch.nn.Linear(values, width), torch.nn.LayerNorm(width)
        )
        blocks = []
        for _ in range(depth):
            feed_forward = torch.nn.Sequential(
                torch.nn.LayerNorm(width),
                torch.nn.Linear(width, hidden),
                torch.nn.GELU(),
                torch.nn.Linear(hidden, width),
            )
            blocks += [Residual(Attention(width, heads, head_dim)), Residual(feed_forward)]
        self.blocks = torch.nn.Sequential(*blocks, torch.nn.LayerNorm(width))
        self.out = torch.nn.Linear(width, 10)

    def forward(self, x):
        x = x.unflatten(3, (-1, self.patch)).unflatten(2, (-1, self.patch))
        rows, columns = x.shape[2], x.shape[4]
        x = self.embed(x.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2))
        y, x_ = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        omega = 1 / 10_000 ** (torch.arange(16) / 15)
        y, x_ = y.flatten()[:, None] * omega, x_.flatten()[:, None] * omega
        x = x + torch.cat([x_.sin(), x_.cos(), y.sin(), y.cos()], dim=1)
        return self.out(self.blocks(x).mean(dim=1))


# --- Copying weights ------------------------------------------------------------------------------

TORCH_LAYERS = (torch.nn.Linear, torch.nn.LayerNorm)
FLAX_LAYERS = (nn.Dense, nn.LayerNorm, Projection)


def random_variables(model):
    """Norms start as the identity, which would hide a forgotten one or a wrong epsilon."""
    rng = np.random.default_rng(1)
    shapes = jax.eval_shape(model.init, jax.random.key(0), IMAGES)

    def draw(path, leaf):
        name = path[-1].key
        if name == "var":
            return np.float32(rng.uniform(0.5, 1.5, leaf.shape))
        spread = 1 / np.sqrt(max(1, np.prod(leaf.shape[:-1]))) if name == "kernel" else 0.1
        return np.float32(rng.normal(1.0 if name == "scale" else 0.0, spread, leaf.shape))

    return jax.tree_util.tree_map_with_path(draw, shapes)


def called_layers(network, x):
    """PyTorch's layers in the order of their calls."""
    called, network = [], copy.deepcopy(network)
    for layer in network.modules():
        if isinstance(layer, TORCH_LAYERS):
            layer.register_forward_hook(lambda layer, *_: called.append(layer))
    with torch.no_grad():
        network.eval()(x)
    return called


def called_paths(model, shape):
    """Paths of Flax's layers in the order of their calls."""
    paths = []

    def record(next_fun, args, kwargs, context):
        if isinstance(context.module, FLAX_LAYERS):
            paths.append(context.module.path)
        return next_fun(*args, **kwargs)

    with nn.intercept_methods(record):
        jax.eval_shape(model.init, jax.random.key(0), jax.ShapeDtypeStruct(shape, jnp.float32))
    return paths


def flax_values(layer):
    """The weights of a PyTorch layer under Flax's names."""
    weight = layer.weight.detach().numpy()
    linear = isinstance(layer, torch.nn.Linear)
    params = {"kernel": weight.T} if linear else {"scale": weight}
    return params if layer.bias is None else {**params, "bias": layer.bias.detach().numpy()}


def flax_variables(model, network, x):
    layers, paths = called_layers(network, channels_first(x)), called_paths(model, x.shape)
    flat = {
        ("params", *path, name): np.ascontiguousarray(value)
        for layer, path in zip(layers, paths, strict=True)
        for name, value in flax_values(layer).items()
    }
    return unflatten_dict(flat)


# --- Tests ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "sizes"),
    [
        pytest.param(ResNet(10), {}, id="ResNet"),
        pytest.param(DenseNet(10, blocks=(1, 2)), {"blocks": (1, 2)}, id="two blocks"),
        # A minute of compilation.
        pytest.param(DenseNet(10), {}, id="DenseNet", marks=pytest.mark.slow),
        pytest.param(ConvMixer(10), {}, id="ConvMixer"),
        pytest.param(
            ViTSmall(10, 4, depth=8, heads=32, hidden=256),
            # Every token in every block.
            {"patch": 4, "depth": 8, "heads": 32, "hidden": 256, "all_tokens": True},
            id="ViTSmall",
        ),
    ],
)
def test_logits(model, sizes):
    """Against the networks of the benchmark."""
    variables = random_variables(model)
    weights, name = flatten_dict(variables, sep="/"), type(model).__name__
    network = getattr(torch_vision, name)(weights, IMAGES.shape[1:], num_classes=10, **sizes)
    with torch.no_grad():
        expected = network.eval()(channels_first(IMAGES)).numpy()
    np.testing.assert_allclose(jax.jit(model.apply)(variables, IMAGES), expected, atol=1e-4)
    assert expected.std() > 0.05


def test_logits_of_vit_simple():
    torch.manual_seed(0)
    model, network = ViTSimple(10), TorchViTSimple()
    for layer in network.modules():
        if isinstance(layer, torch.nn.LayerNorm):
            torch.nn.init.normal_(layer.weight, 1.0, 0.1)
            torch.nn.init.normal_(layer.bias, 0.0, 0.1)
    variables = flax_variables(model, network, IMAGES)
    shapes = jax.eval_shape(model.init, jax.random.key(0), IMAGES)
    assert jax.tree.map(jnp.shape, variables) == jax.tree.map(jnp.shape, shapes)
    with torch.no_grad():
        expected = network(channels_first(IMAGES)).numpy()
    np.testing.assert_allclose(jax.jit(model.apply)(variables, IMAGES), expected, atol=1e-4)
    assert expected.std() > 0.05


def test_a_training_step_moves_the_statistics_as_in_torch():
    """But for PyTorch's N - 1 in the running variance, as `batch_norm` says."""
    model = ConvMixer(10, width=16, depth=2)
    before = random_variables(model)
    network = torch_vision.ConvMixer(
        flatten_dict(before, sep="/"), IMAGES.shape[1:], num_classes=10, width=16, depth=2
    )

    @jax.jit
    def train(variables, x):
        return model.apply(variables, x, train=True, mutable=["batch_stats"])

    logits, moved = train(before, IMAGES)
    with torch.no_grad():
        expected = network.train()(channels_first(IMAGES)).numpy()
    np.testing.assert_allclose(logits, expected, atol=1e-4)

    num_values = len(IMAGES) * 8 * 8
    norms = [layer for layer in network.modules() if isinstance(layer, torch.nn.BatchNorm2d)]
    assert len(norms) == len(moved["batch_stats"]) == 5
    for index, norm in enumerate(norms):
        name = f"BatchNorm_{index}"
        layer = moved["batch_stats"][name]
        np.testing.assert_allclose(layer["mean"], norm.running_mean, atol=1e-5)
        kept = 0.9 * before["batch_stats"][name]["var"]
        unbiased = kept + (layer["var"] - kept) * num_values / (num_values - 1)
        np.testing.assert_allclose(unbiased, norm.running_var, rtol=1e-5)
