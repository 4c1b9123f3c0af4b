"""Haiku's transformed functions: with and without a key, and with state."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsens
from jaxsens import Gaussian, Patches, Perturbation, adapters
from jaxsens.adapters.promotion import default_promotion
from tests.adapters.same import KEY, check_same

hk = pytest.importorskip("haiku")

IMAGES = np.random.default_rng(0).normal(size=(5, 8, 8, 3)).astype(np.float32)
NOISE = Perturbation(Patches(4), Gaussian(sigma=3.0))


def mlp(x):
    return hk.nets.MLP([16, 3])(x.reshape(len(x), -1))


def test_an_mlp_of_haiku_is_the_same():
    network = hk.transform(mlp)
    params = network.init(KEY, IMAGES)
    expected = network.apply(params, None, IMAGES)
    check_same(adapters.haiku(network, params), IMAGES, NOISE, expected)
    apply_fn, held = adapters.haiku(hk.without_apply_rng(network), params)
    np.testing.assert_array_equal(apply_fn(held, IMAGES), expected)


@pytest.fixture(autouse=True)
def default_rules():
    """Haiku's own code promotes dtypes, which the tests forbid everywhere else."""
    with default_promotion():
        yield


def with_batch_norm(x, is_training):
    x = hk.Conv2D(4, 3)(x)
    x = hk.BatchNorm(True, True, 0.9)(x, is_training)
    return hk.Linear(3)(jax.nn.relu(x).mean(axis=(1, 2)))


@pytest.mark.slow
def test_a_network_with_state_is_the_same():
    network = hk.transform_with_state(with_batch_norm)
    params, state = network.init(KEY, IMAGES, True)
    expected, _ = network.apply(params, state, None, IMAGES, False)
    adapted = adapters.haiku(network, params, state, is_training=False)
    check_same(adapted, IMAGES, NOISE, expected)
    training = adapters.haiku(network, params, state, is_training=True)
    with pytest.raises(ValueError, match="depends on the others in its batch"):
        jaxsens.sensitivity(training, IMAGES, NOISE, key=KEY)


def test_dropout_has_no_key_and_says_so_in_one_line():
    network = hk.transform(lambda x: mlp(hk.dropout(hk.next_rng_key(), 0.5, x)))
    params = network.init(KEY, IMAGES)
    with pytest.raises(ValueError, match=r"fails: MissingRNGError") as error:
        jaxsens.sensitivity(adapters.haiku(network, params), IMAGES, NOISE, key=KEY)
    assert "\n" not in str(error.value)


def test_state_and_function_must_fit():
    network = hk.transform_with_state(with_batch_norm)
    params, state = network.init(KEY, IMAGES, True)
    with pytest.raises(
        ValueError, match=r"give its state: adapters.haiku\(transformed, params, st"
    ):
        adapters.haiku(network, params)
    plain = hk.transform(mlp)
    with pytest.raises(ValueError, match="leave state out"):
        adapters.haiku(plain, plain.init(KEY, IMAGES), state)
    with pytest.raises(ValueError, match=r"needs what hk.transform .* gave; got 3"):
        adapters.haiku(3, params)


def test_nan_weights_are_named():
    network = hk.transform(mlp)
    params = jax.tree.map(lambda leaf: leaf.at[0].set(jnp.nan), network.init(KEY, IMAGES))
    with pytest.raises(
        ValueError, match=r"adapters.haiku: 1 of 16 weights in params.mlp.*b are nan"
    ):
        adapters.haiku(network, params)
