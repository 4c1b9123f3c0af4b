"""The papers' models: their sizes, their arithmetic against NumPy, their starting points."""

import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from scipy.special import erf, softmax

from jaxsens import Gaussian, Patches, Perturbation, sensitivity
from jaxsens.models import CNN, MLP, ConvMixer, DenseNet, ResNet, ViTSimple, ViTSmall
from jaxsens.models.layers.basics import gelu
from jaxsens.models.vision.vit import LocalityAttention, shifted
from jaxsens.models.vision.vit_simple import sincos_positions

TINY = ViTSmall(num_classes=3, patch=2, depth=2, heads=2, hidden=12, width=8, head_dim=4)
IMAGES = np.random.default_rng(0).normal(size=(3, 6, 4, 2)).astype(np.float32)


def random_variables(model, x, **options):
    """Every parameter N(0, 0.5²): unlike at the start, layer norms and biases matter too."""
    generator = np.random.default_rng(1)
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), jnp.asarray(x), **options))
    return jax.tree.map(lambda leaf: np.float32(generator.normal(0, 0.5, leaf.shape)), shapes)


def start(model, x):
    key = jax.random.key(0, impl="unsafe_rbg")  # compiles faster than the default
    return jax.jit(model.init)(key, x)


@functools.partial(jax.jit, static_argnums=0)
def logits(model, variables, x):
    return model.apply(variables, x)


@pytest.fixture(scope="module")
def tiny_variables():
    return random_variables(TINY, IMAGES)


# --- Sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "shape", "expected"),
    [
        (MLP(10), (28, 28, 1), 468_864),
        (CNN(10), (28, 28, 1), 600_810),
        (ViTSmall(2, patch=7, depth=2, heads=1, hidden=128), (28, 28, 1), 84_206),
        (ViTSmall(10, patch=4, depth=2, heads=8, hidden=256), (28, 28, 1), 338_348),
        (ViTSmall(10, patch=4, depth=8, heads=32, hidden=256), (32, 32, 3), 4_482_482),
        (ViTSmall(10, patch=4, depth=4, heads=32, hidden=256), (32, 32, 3), 2_251_694),
        (ViTSmall(10, patch=4, depth=10, heads=32, hidden=256), (32, 32, 3), 5_597_876),
        (ViTSmall(10, patch=4, depth=8, heads=16, hidden=256), (32, 32, 3), 2_385_330),
        (ViTSmall(10, patch=4, depth=8, heads=24, hidden=256), (32, 32, 3), 3_433_906),
        (ViTSmall(10, patch=4, depth=8, heads=32, hidden=512), (32, 32, 3), 4_746_674),
        (ViTSimple(10), (32, 32, 3), 1_975_210),
        (ResNet(10), (32, 32, 3), 11_173_962),
        (DenseNet(10), (32, 32, 3), 6_956_426),
        (ConvMixer(10), (32, 32, 3), 570_634),
        (ConvMixer(10, width=64), (32, 32, 3), 44_362),
    ],
)
def test_number_of_parameters(model, shape, expected):
    image = jax.ShapeDtypeStruct((1, *shape), jnp.float32)
    logits, variables = jax.eval_shape(model.init_with_output, jax.random.key(0), image)
    assert sum(leaf.size for leaf in jax.tree.leaves(variables["params"])) == expected
    assert logits.shape == (1, model.num_classes)


# --- MLP and CNN ----------------------------------------------------------------------------------


def leaky(x):
    return np.where(x > 0, x, 0.01 * x)


def test_mlp_is_its_equation():
    model = MLP(3, widths=(5, 4))
    variables = random_variables(model, IMAGES)
    one, two, last = variables["params"].values()
    assert set(last) == {"kernel"}
    h = leaky(IMAGES.reshape(3, -1) @ one["kernel"] + one["bias"])
    h = leaky(h @ two["kernel"] + two["bias"])
    np.testing.assert_allclose(logits(model, variables, IMAGES), h @ last["kernel"], atol=1e-4)


def test_mlp_activation():
    model = MLP(3, widths=(5,), activation=nn.sigmoid)
    variables = random_variables(model, IMAGES)
    one, last = variables["params"].values()
    h = 1 / (1 + np.exp(-(IMAGES.reshape(3, -1) @ one["kernel"] + one["bias"])))
    np.testing.assert_allclose(logits(model, variables, IMAGES), h @ last["kernel"], atol=1e-4)


def test_cnn_is_its_equation():
    model = CNN(3, features=4, hidden=5)
    images = np.random.default_rng(1).normal(size=(2, 9, 8, 2)).astype(np.float32)
    variables = random_variables(model, images)
    params = variables["params"]

    def conv(x, layer):
        layout = ("NHWC", "HWIO", "NHWC")
        y = lax.conv_general_dilated(x, layer["kernel"], (1, 1), "VALID", dimension_numbers=layout)
        return np.asarray(y) + layer["bias"]

    h = leaky(conv(images, params["Conv_0"])).astype(np.float32)
    h = conv(h, params["Conv_1"])  # no activation before the pooling
    h = h[:, :4].reshape(2, 2, 2, 2, 2, 4).max(axis=(2, 4)).reshape(2, -1)
    h = leaky(h @ params["Dense_0"]["kernel"] + params["Dense_0"]["bias"])
    expected = h @ params["Dense_1"]["kernel"] + params["Dense_1"]["bias"]
    np.testing.assert_allclose(logits(model, variables, images), expected, rtol=1e-4, atol=1e-4)


# --- ViT: tokens ----------------------------------------------------------------------------------


def shifted_by_hand(x):
    """[x, right, left, down, up], one pixel each, zeros where nothing comes from."""
    right, left, down, up = (np.zeros_like(x) for _ in range(4))
    right[:, :, 1:] = x[:, :, :-1]
    left[:, :, :-1] = x[:, :, 1:]
    down[:, 1:] = x[:, :-1]
    up[:, :-1] = x[:, 1:]
    return np.concatenate([x, right, left, down, up], axis=-1)


def patches_by_hand(x, p):
    """Patches row by row, each flattened as (row, column, channel), the channel fastest."""
    n, height, width, channels = x.shape
    tokens = np.empty((n, height // p * (width // p), p * p * channels), x.dtype)
    for r in range(height // p):
        for c in range(width // p):
            patch = x[:, r * p : (r + 1) * p, c * p : (c + 1) * p]
            for i in range(p):
                for j in range(p):
                    start = (i * p + j) * channels
                    tokens[:, r * (width // p) + c, start : start + channels] = patch[:, i, j]
    return tokens


def test_shifts():
    np.testing.assert_array_equal(shifted(jnp.asarray(IMAGES)), shifted_by_hand(IMAGES))


def test_order_inside_a_patch(tiny_variables):
    @jax.jit
    def tokens(x):
        seen = []

        def record(next_fun, args, kwargs, context):
            if isinstance(context.module, nn.LayerNorm):
                seen.append(args[0])
            return next_fun(*args, **kwargs)

        with nn.intercept_methods(record):
            TINY.apply(tiny_variables, x)
        return seen[0]

    expected = patches_by_hand(shifted_by_hand(IMAGES), TINY.patch)
    np.testing.assert_array_equal(tokens(IMAGES), expected)


# --- ViT: attention -------------------------------------------------------------------------------

ATTENTION = LocalityAttention(heads=2, head_dim=4)
TOKENS = np.random.default_rng(2).normal(size=(2, 5, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def attention_variables():
    return random_variables(ATTENTION, TOKENS, num_queries=5, train=False)


def attend(variables, x, num_queries=5):
    return ATTENTION.apply(variables, x, num_queries=num_queries, train=False)


def test_without_queries_a_token_does_not_depend_on_itself(attention_variables):
    params = attention_variables["params"] | {"query": {"kernel": jnp.zeros((8, 8))}}
    jacobian = jax.jit(jax.jacobian(lambda x: attend({"params": params}, x[None])[0]))(TOKENS[0])
    reach = np.abs(jacobian).max(axis=(1, 3)) > 0
    np.testing.assert_array_equal(reach, ~np.eye(5, dtype=bool))


@pytest.mark.parametrize("num_queries", [1, 2])
def test_fewer_queries_are_the_first_rows_of_all(attention_variables, num_queries):
    attend_jit = jax.jit(attend, static_argnums=2)
    full = attend_jit(attention_variables, TOKENS, 5)
    first = attend_jit(attention_variables, TOKENS, num_queries)
    assert first.shape == (2, num_queries, 8)
    np.testing.assert_allclose(first, full[:, :num_queries], rtol=1e-5, atol=1e-5)


def vit_by_hand(params, x, model):
    """The paper's ViT-small in NumPy; every block computes every token."""

    def linear(x, layer):
        return x @ layer["kernel"] + layer.get("bias", 0.0)

    def norm(x, layer):
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) / np.sqrt(variance + 1e-5) * layer["scale"] + layer["bias"]

    def attention(x, layer):
        x = norm(x, layer["LayerNorm_0"])
        out = []
        for head in np.split(np.arange(model.heads * model.head_dim), model.heads):
            q, k, v = (x @ layer[name]["kernel"][:, head] for name in ("query", "key", "value"))
            logits = q @ k.swapaxes(1, 2) * np.exp(layer["log_scale"])
            logits[:, np.eye(x.shape[1], dtype=bool)] = -np.inf
            out.append(softmax(logits, axis=-1) @ v)
        return linear(np.concatenate(out, axis=-1), layer["out"])

    def feed_forward(x, layer):
        h = linear(norm(x, layer["LayerNorm_0"]), layer["Dense_0"])
        return linear(0.5 * h * (1 + erf(h / math.sqrt(2))), layer["Dense_1"])

    x = patches_by_hand(shifted_by_hand(x), model.patch).astype(np.float64)
    x = linear(norm(x, params["LayerNorm_0"]), params["Dense_0"])
    token = np.broadcast_to(params["class_token"], (len(x), 1, model.width))
    x = np.concatenate([token, x], axis=1) + params["position"]
    for i in range(model.depth):
        x = x + attention(x, params[f"LocalityAttention_{i}"])
        x = x + feed_forward(x, params[f"FeedForward_{i}"])
    return linear(norm(x[:, 0], params["LayerNorm_1"]), params["Dense_1"])


def test_vit_is_its_equation(tiny_variables):
    params = jax.tree.map(np.float64, tiny_variables["params"])
    expected = vit_by_hand(params, IMAGES, TINY)
    np.testing.assert_allclose(logits(TINY, tiny_variables, IMAGES), expected, rtol=1e-4, atol=1e-4)


# --- ViT-simple -----------------------------------------------------------------------------------


def test_positions_are_sines_and_cosines_of_column_and_row():
    positions = sincos_positions(2, 3, 16)
    assert positions.shape == (6, 16)
    frequencies = 10_000.0 ** (-np.arange(4) / 3)
    for token, (y, x) in enumerate((y, x) for y in range(2) for x in range(3)):
        parts = [f(axis * frequencies) for axis in (x, y) for f in (np.sin, np.cos)]
        np.testing.assert_allclose(positions[token], np.concatenate(parts), atol=1e-12)


@pytest.mark.parametrize("width", [4, 10])
def test_positions_need_four_parts_of_two_frequencies(width):
    with pytest.raises(ValueError, match=f"multiple of 4 and at least 8; got {width}"):
        sincos_positions(2, 2, width)


# --- Networks with batch norm ---------------------------------------------------------------------

SMALL = [
    ResNet(3, width=4, blocks=(1, 1)),
    DenseNet(3, growth=4, blocks=(1, 2)),
    ConvMixer(3, width=8, depth=1, patch=2),
]


@pytest.mark.parametrize("model", SMALL, ids=lambda model: type(model).__name__)
def test_training_uses_the_batch_and_moves_the_running_statistics(model):
    x = np.random.default_rng(0).normal(size=(4, 8, 8, 1)).astype(np.float32)
    variables = start(model, x)

    @functools.partial(jax.jit, static_argnames="train")
    def apply(variables, x, train):
        return model.apply(variables, x, train=train, mutable=["batch_stats"])

    in_eval, kept = apply(variables, x, train=False)
    with_others, _ = apply(variables, np.concatenate([x[:2], 2 * x[2:]]), train=False)
    np.testing.assert_array_equal(with_others[:2], in_eval[:2])
    jax.tree.map(np.testing.assert_array_equal, kept["batch_stats"], variables["batch_stats"])
    in_train, moved = apply(variables, x, train=True)
    assert not np.allclose(in_train, in_eval, atol=1e-3)
    for before, after in zip(*map(jax.tree.leaves, (kept, moved)), strict=True):
        assert (before != after).all()


def test_densenet_names_the_smallest_image():
    with pytest.raises(ValueError, match=r"4 blocks .* side of at least 16; got 8×8"):
        jax.eval_shape(DenseNet(3).init, jax.random.key(0), jnp.zeros((1, 8, 8, 1)))


@pytest.mark.parametrize("model", [SMALL[0], SMALL[2]], ids=lambda model: type(model).__name__)
def test_sensitivity_takes_strided_and_depthwise_convolutions(model):
    x = np.random.default_rng(0).normal(size=(3, 8, 8, 1)).astype(np.float32)
    variables = start(model, x)
    perturbation = Perturbation(Patches(4), Gaussian(2.0))
    estimate = sensitivity(model.apply, variables, x, perturbation, 2, key=jax.random.key(1))
    assert estimate.counts.sum() == 3 * 4 * 2


# --- Dropout --------------------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnums=0, static_argnames="train")
def with_key(model, variables, seed, *, train):
    key = jax.random.key(seed, impl="unsafe_rbg")  # compiles faster than the default
    return model.apply(variables, jnp.asarray(IMAGES), train=train, rngs={"dropout": key})


def test_eval_mode_is_deterministic_and_is_the_default(tiny_variables):
    one, other = (with_key(TINY, tiny_variables, seed, train=False) for seed in (0, 1))
    np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(one, logits(TINY, tiny_variables, IMAGES), rtol=1e-5)


def test_train_mode_drops_by_its_key(tiny_variables):
    def dropped(seed):
        return np.asarray(with_key(TINY, tiny_variables, seed, train=True))

    np.testing.assert_array_equal(dropped(0), dropped(0))
    assert (dropped(0) != dropped(1)).all()


# --- Starting points ------------------------------------------------------------------------------


FASHION_VIT = ViTSmall(10, patch=4, depth=2, heads=8, hidden=256)


@functools.cache
def initial(model):
    return start(model, jnp.zeros((1, 28, 28, 1)))["params"]


def layers(params, prefix=()):
    """Every dense layer or convolution below, as (name, layer)."""
    for name, value in params.items():
        if not isinstance(value, dict):
            continue
        if "kernel" in value:
            yield "/".join((*prefix, name)), value
        else:
            yield from layers(value, (*prefix, name))


@pytest.mark.parametrize(
    ("model", "num_layers"),
    [
        (MLP(10), 3),
        (CNN(10), 4),
        (FASHION_VIT, 1 + 2 * (4 + 2) + 1),
        (ViTSimple(10, depth=1, heads=2), 1 + (4 + 2) + 1),
        (ResNet(10, width=8, blocks=(1, 1)), 1 + 2 + 3 + 1),
        (ConvMixer(10, width=32, depth=2), 1 + 2 * 2 + 1),
    ],
)
def test_weights_and_biases_start_uniform_by_fan_in(model, num_layers):
    params = initial(model)
    found = dict(layers(params))
    assert len(found) == num_layers
    for name, layer in found.items():
        bound = 1 / math.sqrt(math.prod(layer["kernel"].shape[:-1]))
        for weights in map(np.asarray, layer.values()):
            assert np.abs(weights).max() <= bound, name
            # (w/bound)² has mean 1/3 and variance 4/45.
            z = ((weights / bound) ** 2 - 1 / 3).mean() / math.sqrt(4 / 45 / weights.size)
            assert abs(z) < 4, name
            assert abs(weights.mean()) < 4 * bound / math.sqrt(3 * weights.size), name


def test_vit_tokens_norms_and_temperature_start_as_in_the_paper():
    params = initial(FASHION_VIT)
    for i in range(FASHION_VIT.depth):
        assert params[f"LocalityAttention_{i}"]["log_scale"].shape == ()
        scale = np.exp(params[f"LocalityAttention_{i}"]["log_scale"])
        np.testing.assert_allclose(scale, 64**-0.5, rtol=1e-6)
    assert params["position"].shape == (1, 50, 64)
    assert abs(np.std(params["position"]) - 1) < 4 / math.sqrt(2 * 50 * 64)
    assert abs(np.std(params["class_token"]) - 1) < 4 / math.sqrt(2 * 64)
    norm = params["FeedForward_0"]["LayerNorm_0"]
    assert (norm["scale"] == 1).all()
    assert (norm["bias"] == 0).all()


def test_densenet_starts_from_normal_kernels_and_no_bias():
    params = initial(DenseNet(10, growth=8, blocks=(1, 1)))
    convolutions = dict(layers(params))
    last = convolutions.pop("Dense_0")
    assert len(convolutions) == 1 + 2 + 1 + 2
    largest = 0.0
    for name, layer in convolutions.items():
        assert set(layer) == {"kernel"}, name
        kernel = np.asarray(layer["kernel"])
        scaled = kernel * math.sqrt(math.prod(kernel.shape[:-1]) / 2)
        # The squares have mean 1 and variance 2.
        assert abs((scaled**2).mean() - 1) < 4 * math.sqrt(2 / scaled.size), name
        largest = max(largest, np.abs(scaled).max())
    assert largest > 2.5  # Flax's he_normal is cut off at 2.27
    assert (last["bias"] == 0).all()
    assert np.abs(last["kernel"]).max() <= 1 / math.sqrt(len(last["kernel"]))


def test_gelu_equals_that_of_flax():
    x = jnp.linspace(-30.0, 30.0, 4001)
    of_flax = jax.vmap(jax.value_and_grad(functools.partial(nn.gelu, approximate=False)))
    for ours, theirs in zip(jax.vmap(jax.value_and_grad(gelu))(x), of_flax(x), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
