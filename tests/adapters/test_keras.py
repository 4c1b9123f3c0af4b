"""Keras models, on Keras's JAX backend."""

import importlib.util
import os
import warnings

import numpy as np
import pytest

import jaxsens
from jaxsens import Gaussian, Patches, Perturbation, Tokens, adapters
from jaxsens.adapters.promotion import default_promotion
from tests.adapters.same import KEY, check_same

if importlib.util.find_spec("keras") is None:
    pytest.skip("needs keras", allow_module_level=True)

GENERATOR = np.random.default_rng(0)
IMAGES = GENERATOR.normal(size=(4, 8, 8, 3)).astype(np.float32)
NOISE = Perturbation(Patches(4), Gaussian(sigma=3.0))


@pytest.fixture(scope="module")
def keras():
    """Imported by the worker that runs these tests alone: it takes two seconds."""
    os.environ.setdefault("KERAS_BACKEND", "jax")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("keras")


@pytest.fixture(autouse=True)
def default_rules():
    """Keras's own code promotes ranks, which the tests forbid everywhere else."""
    with default_promotion():
        yield


def network(keras):
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((8, 8, 3)), layers.Conv2D(4, 3, padding="same"),
            layers.BatchNormalization(), layers.ReLU(), layers.Dropout(0.5), layers.Flatten(),
            layers.Dense(3),
        ]
    )  # fmt: skip


def test_a_network_with_batch_norm_and_dropout_is_the_same(keras):
    keras.utils.set_random_seed(0)
    model = network(keras)
    statistics = model.layers[1]
    statistics.moving_mean.assign(np.full(4, 0.3))
    adapted = adapters.keras(model)
    check_same(adapted, IMAGES, NOISE, np.asarray(model(IMAGES, training=False)))
    assert adapters.keras(model).apply_fn == adapted.apply_fn
    direct = jaxsens.sensitivity(model, IMAGES, NOISE, 2, key=KEY)
    assert direct.num_examples == 4


@pytest.mark.slow
def test_a_recurrent_network_and_an_application_are_the_same(keras):
    keras.utils.set_random_seed(0)
    layers = keras.layers
    texts = GENERATOR.normal(size=(4, 5, 6)).astype(np.float32)
    lstm = keras.Sequential([layers.Input((5, 6)), layers.LSTM(8), layers.Dense(3)])
    noise = Perturbation(Tokens(), Gaussian(sigma=3.0))
    check_same(adapters.keras(lstm), texts, noise, np.asarray(lstm(texts, training=False)))
    large = keras.applications.MobileNetV2(
        weights=None, input_shape=(32, 32, 3), alpha=0.35, classes=5, classifier_activation=None
    )
    images = GENERATOR.normal(size=(2, 32, 32, 3)).astype(np.float32)
    grid = Perturbation(Patches(16), Gaussian(sigma=3.0))
    check_same(adapters.keras(large), images, grid, np.asarray(large(images, training=False)))


def test_models_that_cannot_be_taken_say_why(keras):
    with pytest.raises(ValueError, match="has no weights yet"):
        adapters.keras(keras.Sequential([keras.layers.Dense(3)]))
    with pytest.raises(ValueError, match=r"adapters.keras needs a keras.Model; got 3"):
        adapters.keras(3)
