"""The networks of the vision papers have the logits of the same networks in PyTorch.

The networks are written here once more, as their authors have them in PyTorch. Their layers run in
the same order as ours, so weights are copied in the order of the calls.
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

torch = pytest.importorskip("torch")

IMAGES = np.random.default_rng(0).normal(size=(2, 32, 32, 3)).astype(np.float32)


def channels_first(x):
    return torch.tensor(np.ascontiguousarray(x.transpose(0, 3, 1, 2)))


# --- The networks in PyTorch ----------------------------------------------------------------------


class Residual(torch.nn.Module):
    """branch(x) + shortcut(x), the branch first."""

    def __init__(self, branch, shortcut=None):
        super().__init__()
        self.branch, self.shortcut = branch, shortcut or torch.nn.Identity()

    def forward(self, x):
        return self.branch(x) + self.shortcut(x)


def torch_conv(channels, features, kernel, stride=1):
    return torch.nn.Conv2d(channels, features, kernel, stride, kernel // 2, bias=False)


def basic_block(channels, features, stride):
    branch = torch.nn.Sequential(
        torch_conv(channels, features, 3, stride),
        torch.nn.BatchNorm2d(features),
        torch.nn.ReLU(),
        torch_conv(features, features, 3),
        torch.nn.BatchNorm2d(features),
    )
    shortcut = None
    if stride != 1 or channels != features:
        shortcut = torch.nn.Sequential(
            torch_conv(channels, features, 1, stride), torch.nn.BatchNorm2d(features)
        )
    return [Residual(branch, shortcut), torch.nn.ReLU()]


def torch_resnet18():
    blocks, channels = [], 64
    for features, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        blocks += basic_block(channels, features, stride) + basic_block(features, features, 1)
        channels = features
    return torch.nn.Sequential(
        torch_conv(3, 64, 3),
        torch.nn.BatchNorm2d(64),
        torch.nn.ReLU(),
        *blocks,
        torch.nn.AvgPool2d(4),
        torch.nn.Flatten(),
        torch.nn.Linear(512, 10),
    )


class DenseLayer(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.new_features = torch.nn.Sequential(
            torch.nn.BatchNorm2d(channels),
            torch.nn.ReLU(),
            torch_conv(channels, 128, 1),
            torch.nn.BatchNorm2d(128),
            torch.nn.ReLU(),
            torch_conv(128, 32, 3),
        )

    def forward(self, x):
        return torch.cat([x, self.new_features(x)], 1)


def torch_densenet(blocks=(6, 12, 24, 16)):
    modules, channels = [torch_conv(3, 64, 3)], 64
    modules += [torch.nn.BatchNorm2d(64), torch.nn.ReLU(), torch.nn.MaxPool2d(3, 2, 1)]
    for num_layers in blocks:
        if channels > 64:
            modules += [
                torch.nn.BatchNorm2d(channels),
                torch.nn.ReLU(),
                torch_conv(channels, channels // 2, 1),
                torch.nn.AvgPool2d(2),
            ]
            channels //= 2
        for _ in range(num_layers):
            modules.append(DenseLayer(channels))
            channels += 32
    modules += [torch.nn.BatchNorm2d(channels), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1)]
    return torch.nn.Sequential(*modules, torch.nn.Flatten(), torch.nn.Linear(channels, 10))


def torch_convmixer(width=256, depth=8):
    def activate(*layers):
        return torch.nn.Sequential(*layers, torch.nn.GELU(), torch.nn.BatchNorm2d(width))

    blocks = []
    for _ in range(depth):
        depthwise = torch.nn.Conv2d(width, width, 3, groups=width, padding="same")
        blocks += [Residual(activate(depthwise)), activate(torch.nn.Conv2d(width, width, 1))]
    return torch.nn.Sequential(
        activate(torch.nn.Conv2d(3, width, 4, 4)),
        *blocks,
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(width, 10),
    )


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

TORCH_LAYERS = (
    torch.nn.Conv2d,
    torch.nn.Linear,
    torch.nn.BatchNorm2d,
    torch.nn.LayerNorm,
)
FLAX_LAYERS = (nn.Conv, nn.Dense, nn.BatchNorm, nn.LayerNorm)


def with_random_norms(network):
    """Norms start as the identity, which would hide a forgotten one or a wrong epsilon."""
    generator = torch.Generator().manual_seed(0)
    for layer in network.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.running_mean.normal_(0, 0.1, generator=generator)
            layer.running_var.uniform_(0.5, 1.5, generator=generator)
        if isinstance(layer, (torch.nn.BatchNorm2d, torch.nn.LayerNorm)):
            torch.nn.init.normal_(layer.weight, 1.0, 0.1, generator=generator)
            torch.nn.init.normal_(layer.bias, 0.0, 0.1, generator=generator)
    return network


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
    """The weights of a PyTorch layer under Flax's names, by collection."""
    weight, bias = layer.weight.detach().numpy(), layer.bias
    if isinstance(layer, torch.nn.Conv2d):
        params = {"kernel": weight.transpose(2, 3, 1, 0)}
    elif isinstance(layer, torch.nn.Linear):
        params = {"kernel": weight.T}
    else:
        params = {"scale": weight}
    if bias is not None:
        params["bias"] = bias.detach().numpy()
    if not isinstance(layer, torch.nn.BatchNorm2d):
        return {"params": params}
    statistics = {"mean": layer.running_mean.numpy(), "var": layer.running_var.numpy()}
    return {"params": params, "batch_stats": statistics}


def flax_variables(model, network, x):
    layers, paths = called_layers(network, channels_first(x)), called_paths(model, x.shape)
    flat = {
        (collection, *path, name): np.ascontiguousarray(value)
        for layer, path in zip(layers, paths, strict=True)
        for collection, values in flax_values(layer).items()
        for name, value in values.items()
    }
    return unflatten_dict(flat)


# --- Tests ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "make_network"),
    [
        pytest.param(ResNet(10), torch_resnet18, id="ResNet"),
        pytest.param(DenseNet(10, blocks=(1, 2)), lambda: torch_densenet((1, 2)), id="two blocks"),
        # A minute of compilation.
        pytest.param(DenseNet(10), torch_densenet, id="DenseNet", marks=pytest.mark.slow),
        pytest.param(ConvMixer(10), torch_convmixer, id="ConvMixer"),
        pytest.param(ViTSimple(10), TorchViTSimple, id="ViTSimple"),
    ],
)
def test_logits(model, make_network):
    torch.manual_seed(0)
    network = with_random_norms(make_network()).eval()
    variables = flax_variables(model, network, IMAGES)
    shapes = jax.eval_shape(model.init, jax.random.key(0), IMAGES)
    assert jax.tree.map(jnp.shape, variables) == jax.tree.map(jnp.shape, shapes)
    with torch.no_grad():
        expected = network(channels_first(IMAGES)).numpy()
    np.testing.assert_allclose(jax.jit(model.apply)(variables, IMAGES), expected, atol=1e-4)
    assert expected.std() > 0.05


def test_logits_of_vit_small():
    """Against the network of the benchmark, with every token in every block."""
    reference = importlib.import_module("benchmarks.torch_reference")
    sizes = {"num_classes": 10, "patch": 4, "depth": 8, "heads": 32, "hidden": 256}
    model = ViTSmall(**sizes)
    generator = np.random.default_rng(1)
    shapes = jax.eval_shape(model.init, jax.random.key(0), IMAGES)
    variables = jax.tree.map(lambda leaf: np.float32(generator.normal(0, 0.1, leaf.shape)), shapes)
    weights = flatten_dict(variables, sep="/")
    network = reference.ViTSmall(weights, IMAGES.shape[1:], **sizes, all_tokens=True)
    with torch.no_grad():
        expected = network(channels_first(IMAGES)).numpy()
    np.testing.assert_allclose(jax.jit(model.apply)(variables, IMAGES), expected, atol=1e-4)


def test_a_training_step_moves_the_statistics_as_in_torch():
    """But for PyTorch's N - 1 in the running variance, as `batch_norm` says."""
    torch.manual_seed(0)
    model, network = ConvMixer(10, width=16, depth=2), torch_convmixer(16, 2)
    before = flax_variables(model, with_random_norms(network), IMAGES)

    @jax.jit
    def train(variables, x):
        return model.apply(variables, x, train=True, mutable=["batch_stats"])

    logits, moved = train(before, IMAGES)
    with torch.no_grad():
        expected = network.train()(channels_first(IMAGES)).numpy()
    np.testing.assert_allclose(logits, expected, atol=1e-4)

    after = flax_variables(model, network, IMAGES)["batch_stats"]
    num_values = len(IMAGES) * 8 * 8
    for name, layer in moved["batch_stats"].items():
        np.testing.assert_allclose(layer["mean"], after[name]["mean"], atol=1e-5)
        kept = 0.9 * before["batch_stats"][name]["var"]
        unbiased = kept + (layer["var"] - kept) * num_values / (num_values - 1)
        np.testing.assert_allclose(unbiased, after[name]["var"], rtol=1e-5)
