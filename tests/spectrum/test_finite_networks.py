"""Kernels of finite networks: by hand, in blocks, and on average what the limit says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens import boolean, spectrum
from jaxsens.spectrum import MLP, Transformer

D = 4
ARCHITECTURES = {
    "mlp": MLP(depth=1, activation="erf", bias_variance=0.2),
    "attention": Transformer(tokens=2, embed=False),
    "linear": Transformer(tokens=2, scaling="linear", embed=False),
    "everything": Transformer(
        tokens=2, activation="relu", residual=True, layer_norm=True, position_variance=0.3
    ),
}


def features(model):
    return lambda params, x: model.apply(params, x, method="features")


def initialised(model, seed):
    return jax.jit(model.init)(jax.random.key(seed), boolean.cube(D))


def test_the_tangent_kernel_is_the_products_of_gradients():
    model = spectrum.finite_network(ARCHITECTURES["mlp"], 8)
    params, x = initialised(model, 0), boolean.cube(D)[:5]
    kernel = spectrum.empirical_ntk(model.apply, params, x)
    jacobian = jax.jit(jax.jacrev(lambda p: model.apply(p, x)))(params)
    leaves = [np.asarray(leaf, np.float64).reshape(5, -1) for leaf in jax.tree.leaves(jacobian)]
    stacked = np.concatenate(leaves, axis=1)
    np.testing.assert_allclose(kernel, stacked @ stacked.T, rtol=1e-4)
    size = 4 * stacked.shape[1]
    blocks = spectrum.empirical_ntk(model.apply, params, x, jacobian_bytes=2 * 2 * size)
    np.testing.assert_allclose(blocks, kernel, rtol=1e-5)
    with pytest.raises(ValueError, match=f"one input need {2 * size} bytes"):
        spectrum.empirical_ntk(model.apply, params, x, jacobian_bytes=size)


def test_several_outputs_are_averaged():
    def apply_fn(w, x):
        return x @ w

    x = jax.random.normal(jax.random.key(0), (3, 2))
    found = spectrum.empirical_ntk(apply_fn, jnp.ones((2, 7)), x)
    # One entry nearly cancels: 7e-5, of terms near 1.
    np.testing.assert_allclose(found, x @ x.T, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("name", ["mlp", "attention"])
def test_the_readout_sees_the_features(name):
    model = spectrum.finite_network(ARCHITECTURES[name], 8)
    params, x = initialised(model, 1), boolean.cube(D)
    h = features(model)(params, x)
    np.testing.assert_allclose(model.apply(params, x), h @ params["params"]["readout"], rtol=1e-5)


def over_keys(model, kernel, num):
    """The kernel of `num` differently initialised networks, in one compiled call."""
    x = boolean.cube(D)

    def of_seed(key):
        return kernel(model.init(key, x), x)

    keys = jax.random.split(jax.random.key(0), num)
    return np.asarray(jax.jit(lambda keys: jax.lax.map(of_seed, keys))(keys))


@pytest.mark.parametrize("name", ["mlp", "attention"])
def test_the_average_over_seeds_is_the_limit(name):
    # Of one hidden layer the mean of the conjugate kernel is the limit at any width.
    model = spectrum.finite_network(ARCHITECTURES[name], 16)
    found = over_keys(model, lambda p, x: spectrum.empirical_ck(features(model), p, x), 60)
    average = spectrum.average_over_seeds(found)
    limit = spectrum.cube_kernels(ARCHITECTURES[name], D)["ck"]
    z = (average.mean - limit) / np.maximum(average.stderr, 1e-5 * limit.max())
    assert np.sqrt(np.mean(z**2)) < 2
    assert np.abs(z).max() < 6


@pytest.mark.parametrize("name", ["linear", pytest.param("everything", marks=pytest.mark.slow)])
def test_wider_is_closer(name):
    limit = spectrum.cube_kernels(ARCHITECTURES[name], D)["ntk"]
    errors = []
    for width in (8, 160):
        model = spectrum.finite_network(ARCHITECTURES[name], width)
        kernels = over_keys(model, lambda p, x, m=model: spectrum.empirical_ntk(m.apply, p, x), 4)
        gaps = [np.linalg.norm(kernel - limit) for kernel in kernels]
        errors.append(np.mean(gaps) / np.linalg.norm(limit))
    assert errors[1] < errors[0] / 2
    assert errors[1] < 0.3


def test_intervals():
    rng = np.random.default_rng(0)
    average = spectrum.average_over_seeds(rng.normal(size=(20, 20)) for _ in range(10))
    low, high = average.ci(0.95)
    covered = float(np.mean((low <= 0) & (high >= 0)))
    assert abs(covered - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 400)
    with pytest.raises(ValueError, match="at least 2 seeds, got 1"):
        spectrum.average_over_seeds([np.ones((1, 1))])
