"""Whole passes with the convolutions of oneDNN give what the model gives."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxsens
from jaxsens.core.onednn import handler, library
from jaxsens.measurement.fast_convolutions import with_fast_convolutions
from jaxsens.models import CNN, ConvMixer

if library._load() is None:
    pytest.skip("the extra cpu is not installed", allow_module_level=True)


@pytest.fixture
def one_device(monkeypatch):
    with_fast_convolutions.cache_clear()
    monkeypatch.setattr(library, "_is_alone", lambda: True)
    yield
    with_fast_convolutions.cache_clear()


def random(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def num_calls(function, *arguments):
    return jax.jit(function).lower(*arguments).as_text().count(f"@{handler.NAME}")


def assert_same(function, *arguments, calls):
    fast = with_fast_convolutions(function)
    assert num_calls(fast, *arguments) == calls
    expected = jax.jit(function)(*arguments)
    np.testing.assert_allclose(
        jax.jit(fast)(*arguments), expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max()
    )


@pytest.mark.parametrize(
    ("model", "calls"),
    [
        (CNN(3, features=4), 2),
        (ConvMixer(3, width=8, depth=2, kernel=3, patch=2), 5),
        (nn.Sequential([nn.Conv(4, (3, 3)), jax.checkpoint(nn.relu), nn.Conv(2, (1, 1))]), 2),
    ],
    ids=["cnn", "convmixer", "flax"],
)
def test_models(one_device, model, calls):
    x = random(2, 8, 8, 3)
    variables = model.init(jax.random.key(0), x)
    assert_same(model.apply, variables, x, calls=calls)


@pytest.mark.parametrize(
    ("options", "calls"),
    [
        ({"dimension_numbers": ("NCHW", "OIHW", "NCHW")}, 1),
        ({"dimension_numbers": ("NHWC", "OIHW", "NCHW"), "window_strides": (2, 1)}, 1),
        ({"dimension_numbers": ("NCHW", "HWIO", "NHWC"), "padding": ((1, 0), (0, 2))}, 1),
        ({"dimension_numbers": ("NCHW", "OIHW", "NCHW"), "rhs_dilation": (2, 1)}, 0),
        ({"dimension_numbers": ("NCHW", "OIHW", "NCHW"), "lhs_dilation": (1, 2)}, 0),
        ({"dimension_numbers": ("NCHW", "OIHW", "NCHW"), "padding": ((-1, 0), (0, 0))}, 0),
    ],
    ids=str,
)
def test_every_order_of_axes_and_what_stays_with_xla(one_device, options, calls):
    sizes = {"N": 2, "C": 4, "H": 7, "W": 6, "I": 4, "O": 5}
    images, kernel, _ = options["dimension_numbers"]
    x = random(*(sizes[axis] for axis in images))
    k = random(*({"H": 3, "W": 2}.get(axis, sizes[axis]) for axis in kernel), seed=1)
    options = {"window_strides": (1, 1), "padding": ((0, 0), (0, 0))} | options
    assert_same(lambda x: lax.conv_general_dilated(x, k, **options), x, calls=calls)


def test_a_branch_for_another_platform_is_not_taken(one_device):
    k = random(3, 3, 2, 2)

    def convolved(x, factor):
        numbers = ("NHWC", "HWIO", "NHWC")
        return factor * lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=numbers)

    def model(x):
        return lax.platform_dependent(
            x, cuda=lambda x: convolved(x, 3), cpu=lambda x: convolved(x, 2),
            default=lambda x: convolved(x, 5),
        )  # fmt: skip

    assert_same(model, random(1, 4, 4, 2), calls=1)


def test_loops_stay_as_they_are(one_device):
    k = random(3, 3, 2, 2)

    def step(_, x):
        numbers = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=numbers)

    def model(x):
        return lax.fori_loop(0, 3, step, x)

    assert_same(model, random(1, 4, 4, 2), calls=0)


def test_several_devices_keep_the_model():
    model = CNN(3).apply
    assert with_fast_convolutions(model) is model


@pytest.mark.parametrize("incremental", [False, True])
def test_sensitivity_is_the_same(one_device, monkeypatch, incremental):
    model, x = CNN(3, features=4), random(5, 8, 8, 1)
    variables = model.init(jax.random.key(0), x)
    perturbation = jaxsens.Perturbation(jaxsens.Patches(4), jaxsens.Gaussian(sigma=2.0))

    def measured():
        return jaxsens.sensitivity(
            model.apply, variables, x, perturbation, num_samples=20, key=jax.random.key(1),
            incremental=incremental,
        )  # fmt: skip

    fast = measured()
    with_fast_convolutions.cache_clear()
    monkeypatch.setattr(library, "_is_alone", lambda: False)
    slow = measured()
    assert 0 < slow.mean < 1
    np.testing.assert_array_equal(fast.per_position, slow.per_position)
    np.testing.assert_array_equal(fast.per_example, slow.per_example)
