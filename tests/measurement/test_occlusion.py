"""Occlusion maps: exact for models that are known, the same by reuse, the same as captum's."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsens
from jaxsens import OverlappingPatches, Patches, Replace, Tokens

GENERATOR = np.random.default_rng(0)
IMAGES = GENERATOR.normal(size=(5, 8, 8, 2)).astype(np.float32)


def linear(weights, x):
    return jnp.einsum("nhwc,hwck->nk", x, weights)


def score(weights, x):
    return linear(weights, x)[:, 0]


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(8, (3, 3), padding="VALID")(x))
        x = nn.relu(nn.Conv(8, (3, 3), padding="VALID")(x))
        return nn.Dense(4)(x.reshape(len(x), -1))


WEIGHTS = GENERATOR.normal(size=(8, 8, 2, 3)).astype(np.float32)


def window_sums(products):
    """Σ over the patches of side 4, in their order."""
    return products.reshape(len(products), 2, 4, 2, 4, -1).sum(axis=(2, 4, 5)).reshape(-1, 4)


def test_a_linear_model_loses_what_its_window_gave():
    found = jaxsens.occlusion(linear, WEIGHTS, IMAGES, Patches(4), metric=jaxsens.logit_drop)
    predicted = np.asarray(linear(WEIGHTS, IMAGES)).argmax(axis=1)
    of_class = np.moveaxis(WEIGHTS[..., predicted], -1, 0)
    np.testing.assert_allclose(
        found.per_example_position, window_sums(IMAGES * of_class), atol=1e-4
    )
    assert (found.per_example_position < 0).any()
    assert found.provenance.exact
    assert found.provenance.layout == (2, 2)


def test_a_score_is_the_logit_of_two_classes():
    found = jaxsens.occlusion(score, WEIGHTS, IMAGES, Patches(4), metric=jaxsens.logit_drop)
    clean = np.asarray(score(WEIGHTS, IMAGES))
    expected = np.sign(clean)[:, None] * window_sums(IMAGES * WEIGHTS[..., 0])
    np.testing.assert_allclose(found.per_example_position, expected, atol=1e-4)
    by_probability = jaxsens.occlusion(score, WEIGHTS, IMAGES, Patches(4)).per_example_position
    size, sigmoid = np.abs(clean)[:, None], lambda s: 1 / (1 + np.exp(-s))
    np.testing.assert_allclose(by_probability, sigmoid(size) - sigmoid(size - expected), atol=1e-5)


@pytest.mark.parametrize(
    ("grid", "value"),
    [(Patches(4), "blur"), (OverlappingPatches(3), 0.0)],
    ids=["blur", "zero"],
)
def test_reuse_gives_the_map_of_whole_passes(grid, value):
    net = Net()
    params = net.init(jax.random.key(0), IMAGES[:1])
    maps = [
        jaxsens.occlusion(net.apply, params, IMAGES, grid, value, incremental=incremental)
        for incremental in (True, False)
    ]
    assert [each.provenance.incremental for each in maps] == [True, False]
    np.testing.assert_allclose(*(each.per_example_position for each in maps), atol=1e-6)


def test_words_are_covered_one_by_one_and_padding_is_left_out():
    table = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 1.0], [3.0, 0.0]], np.float32)
    ids = np.array([[1, 2, 3, 0], [2, 2, 0, 0]])
    found = jaxsens.occlusion(
        lambda table, ids: table[ids].sum(axis=1), table, ids, Tokens(), 0,
        metric=jaxsens.logit_drop, mask=ids > 0,
    )  # fmt: skip
    expected = [[2.0, 0.0, 3.0, np.nan], [1.0, 1.0, np.nan, np.nan]]
    np.testing.assert_array_equal(found.per_example_position, expected)


def test_drops_are_signed_and_of_the_class_that_was_predicted():
    clean, edited = jnp.array([0.0, 2.0, 1.0]), jnp.array([3.0, 2.5, 1.0])
    assert float(jaxsens.logit_drop(clean, edited)) == -0.5
    before, after = jax.nn.softmax(clean)[1], jax.nn.softmax(edited)[1]
    assert float(jaxsens.probability_drop(clean, edited)) == pytest.approx(float(before - after))
    with pytest.raises(ValueError, match=r"needs logits \(n, C\) or scores"):
        jaxsens.probability_drop(jnp.zeros((2, 3)), jnp.zeros((2, 3)))


def test_a_replacement_that_does_not_fit_is_one_line():
    with pytest.raises(ValueError, match="does not broadcast to examples") as caught:
        jaxsens.occlusion(linear, WEIGHTS, IMAGES, Patches(4), np.zeros((3, 8, 2)))
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def both():
    """The same network in PyTorch (channels first) and in Flax."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("captum")
    net = Net()
    params = net.init(jax.random.key(1), IMAGES[:1])

    def conv(name, channels):
        layer = torch.nn.Conv2d(channels, 8, 3)
        kernel = np.asarray(params["params"][name]["kernel"]).transpose(3, 2, 0, 1)
        layer.weight.data = torch.tensor(kernel)
        return layer

    class Torch(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = conv("Conv_0", 2), conv("Conv_1", 8)
            for layer in (self.first, self.second):
                layer.bias.data.zero_()
            self.head = torch.nn.Linear(128, 4)
            kernel = np.asarray(params["params"]["Dense_0"]["kernel"])
            self.head.weight.data = torch.tensor(kernel.T.copy())
            self.head.bias.data.zero_()

        def forward(self, x):
            x = torch.relu(self.second(torch.relu(self.first(x))))
            return torch.softmax(self.head(x.permute(0, 2, 3, 1).flatten(1)), dim=1)

    return torch, Torch().eval(), net, params


@pytest.mark.parametrize("value", [0.0, 0.5])
def test_the_map_is_that_of_captums_feature_ablation(both, value):
    torch, module, net, params = both
    from captum.attr import FeatureAblation

    x = torch.tensor(IMAGES.transpose(0, 3, 1, 2).copy())
    features = torch.arange(4).reshape(2, 2).repeat_interleave(4, 0).repeat_interleave(4, 1)
    with torch.no_grad():
        target = module(x).argmax(dim=1)
        expected = FeatureAblation(module).attribute(
            x, baselines=value, target=target, feature_mask=features[None, None]
        )
    found = jaxsens.occlusion(net.apply, params, IMAGES, Patches(4), value)
    expected = expected[:, 0, ::4, ::4].reshape(5, 4).numpy()
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(found.per_example_position, expected, atol=1e-5)


def test_overlapping_windows_spread_to_the_map_of_captums_occlusion(both):
    torch, module, net, params = both
    from captum.attr import Occlusion

    x = torch.tensor(IMAGES.transpose(0, 3, 1, 2).copy())
    baseline = IMAGES[:1].transpose(0, 3, 1, 2).copy()
    with torch.no_grad():
        target = module(x).argmax(dim=1)
        expected = Occlusion(module).attribute(
            x, (2, 3, 3), strides=(2, 1, 1), target=target, baselines=torch.tensor(baseline)
        )
    grid = OverlappingPatches(3)
    found = jaxsens.occlusion(net.apply, params, IMAGES, grid, Replace(IMAGES[0]))
    over_pixels = jaxsens.spread(found.per_example_position, grid, IMAGES.shape[1:])
    np.testing.assert_allclose(over_pixels, expected.numpy().transpose(0, 2, 3, 1), atol=1e-5)
