"""Equinox modules: mapped over the batch, arrays as parameters, inference mode."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsens
from jaxsens import Bits, Gaussian, Patches, Perturbation, adapters
from tests.adapters.same import KEY, check_same

eqx = pytest.importorskip("equinox")

GENERATOR = np.random.default_rng(0)
IMAGES = GENERATOR.normal(size=(5, 3, 8, 8)).astype(np.float32)
NOISE = Perturbation(Patches(4, channels="first"), Gaussian(sigma=3.0))


class Net(eqx.Module):
    conv: eqx.nn.Conv2d
    norm: eqx.nn.BatchNorm
    dropout: eqx.nn.Dropout
    out: eqx.nn.Linear

    def __init__(self, key):
        first, second = jax.random.split(key)
        self.conv = eqx.nn.Conv2d(3, 4, 3, padding=1, key=first)
        self.norm = eqx.nn.BatchNorm(4, "batch", mode="batch")
        self.dropout = eqx.nn.Dropout(0.5)
        self.out = eqx.nn.Linear(256, 3, key=second)

    def __call__(self, x, state, *, key):
        x, state = self.norm(self.conv(x), state)
        return self.out(self.dropout(jax.nn.relu(x), key=key).ravel()), state


def test_an_mlp_of_equinox_is_the_same():
    model = eqx.nn.MLP(6, 3, 16, depth=2, key=KEY)
    x = GENERATOR.normal(size=(6, 6)).astype(np.float32)
    noise = Perturbation(Bits(), Gaussian(sigma=1.0))
    check_same(adapters.equinox(model), x, noise, jax.vmap(model)(x))


@pytest.mark.slow
def test_a_network_with_state_and_channels_first_is_the_same():
    model, state = eqx.nn.make_with_state(Net)(KEY)
    model = eqx.nn.inference_mode(model)
    expected = jax.vmap(lambda x: model(x, state, key=None)[0])(IMAGES)
    check_same(adapters.equinox(model, state), IMAGES, NOISE, expected)


def test_training_mode_is_refused_and_says_what_to_switch_off():
    model, state = eqx.nn.make_with_state(Net)(KEY)
    with pytest.raises(ValueError, match=r"Net is in training mode: norm \(BatchNorm\)") as error:
        adapters.equinox(model, state)
    assert "equinox.nn.inference_mode(model)" in str(error.value)
    # Attention has dropout of nothing, which is not training.
    attention = eqx.nn.MultiheadAttention(2, 4, key=KEY)
    assert adapters.equinox(attention).params


def test_a_module_is_taken_directly_and_models_of_one_shape_share_their_function():
    first, second = (eqx.nn.MLP(6, 3, 16, depth=2, key=key) for key in jax.random.split(KEY))
    x, noise = jnp.ones((4, 6)), Perturbation(Bits(), Gaussian(sigma=1.0))
    direct = jaxsens.sensitivity(first, x, noise, key=KEY)
    unpacked = jaxsens.sensitivity(*adapters.equinox(first), x, noise, key=KEY)
    np.testing.assert_array_equal(direct.totals, unpacked.totals)
    assert adapters.equinox(first).apply_fn == adapters.equinox(second).apply_fn


def test_a_module_without_arrays_is_a_function_like_any_other():
    class Scaled(eqx.Module):
        factor: float

        def __call__(self, params, x):
            return self.factor * x @ params

    x, noise = np.ones((4, 6), np.float32), Perturbation(Bits(), Gaussian(sigma=1.0))
    est = jaxsens.sensitivity(Scaled(2.0), jnp.ones((6, 3)), x, noise, key=KEY)
    assert est.num_examples == 4


def test_what_is_no_module_is_refused():
    with pytest.raises(ValueError, match=r"adapters.equinox needs an equinox.Module; got 3"):
        adapters.equinox(3)
