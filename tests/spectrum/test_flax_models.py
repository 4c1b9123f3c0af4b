"""Kernels of Flax models: known limits, running statistics, before and after training."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens import boolean, spectrum
from jaxsens.spectrum import MLP

KEY = jax.random.key(0)
X = boolean.cube(3)


def finite_mlp():
    return spectrum.finite_network(MLP(depth=1, activation="erf"), 16)


class Normed(nn.Module):
    """A small model with batch norm."""

    @nn.compact
    def __call__(self, x):
        x = nn.BatchNorm(use_running_average=True)(nn.Dense(4)(x))
        return nn.Dense(2)(nn.tanh(x))


class Bare(nn.Module):
    """A model without a Dense layer."""

    @nn.compact
    def __call__(self, x):
        return x @ self.param("w", nn.initializers.normal(1.0), (x.shape[1],))


def test_the_average_over_seeds_is_the_limit():
    model = finite_mlp()
    found = spectrum.flax_kernels(
        model,
        X,
        key=KEY,
        num_seeds=40,
        feature_fn=lambda v, x: model.apply(v, x, method="features"),
        kinds=("ck",),
    )
    assert list(found) == ["ck"]
    average = found["ck"]
    limit = spectrum.cube_kernels(model.architecture, 3)["ck"]
    z = (average.mean - limit) / np.maximum(average.stderr, 1e-5 * limit.max())
    assert np.sqrt(np.mean(z**2)) < 2
    low, high = average.ci(0.9999)
    assert ((low <= limit + 1e-5) & (limit - 1e-5 <= high)).mean() > 0.95


def test_each_seed_is_one_network():
    model = finite_mlp()
    found = spectrum.flax_kernels(model, X, key=KEY, num_seeds=2, kinds=("ntk",))["ntk"]
    keys = [jax.random.split(jax.random.fold_in(KEY, seed))[0] for seed in range(2)]
    kernels = [spectrum.empirical_ntk(model.apply, model.init(key, X), X) for key in keys]
    np.testing.assert_allclose(found.mean, np.mean(kernels, axis=0), rtol=1e-5)
    half = np.abs(kernels[0] - kernels[1]) / 2
    np.testing.assert_allclose(found.stderr, half, rtol=1e-3, atol=1e-6)


def test_running_statistics_are_no_weights_but_are_used():
    model = Normed()
    variables = model.init(KEY, X)
    mask = {"params": True, "batch_stats": False}
    kernel = spectrum.empirical_ntk(model.apply, variables, X, mask=mask)

    def of_params(params):
        return model.apply({**variables, "params": params}, X)

    leaves = jax.tree.leaves(jax.jacrev(of_params)(variables["params"]))
    stacked = np.concatenate([np.asarray(leaf).reshape(len(X), 2, -1) for leaf in leaves], axis=2)
    expected = np.einsum("ncp,mcp->nm", stacked, stacked) / 2
    np.testing.assert_allclose(kernel, expected, rtol=1e-4)
    with pytest.raises(ValueError, match="Flax collections that are not weights"):
        spectrum.empirical_ntk(model.apply, variables, X)

    def wider(variables, key):
        wide = jax.tree.map(lambda s: 4 * s + 1, variables["batch_stats"])
        return {**variables, "batch_stats": wide}

    before = spectrum.flax_kernels(model, X, key=KEY, num_seeds=2)
    after = spectrum.flax_kernels(model, X, key=KEY, num_seeds=2, train=wider)
    assert np.abs(before["ntk"].mean - after["ntk"].mean).max() > 0.01
    assert np.abs(before["ck"].mean - after["ck"].mean).max() > 0.01


def test_after_training_the_kernel_is_that_of_the_trained_weights():
    model = nn.Sequential([nn.Dense(8), nn.tanh, nn.Dense(1)])

    def train(variables, key):
        del key
        return jax.tree.map(lambda w: 2 * w, variables)

    found = spectrum.flax_kernels(model, X, key=KEY, num_seeds=2, train=train)
    kernels = {"ck": [], "ntk": []}
    for seed in range(2):
        key = jax.random.split(jax.random.fold_in(KEY, seed))[0]
        variables = jax.tree.map(lambda w: 2 * w, model.init(key, X))
        dense = variables["params"]["layers_0"]
        hidden = jnp.tanh(X @ dense["kernel"] + dense["bias"][None])
        kernels["ck"].append(hidden @ hidden.T / 8)
        kernels["ntk"].append(spectrum.empirical_ntk(model.apply, variables, X))
    for kind, expected in kernels.items():
        np.testing.assert_allclose(found[kind].mean, np.mean(expected, axis=0), rtol=1e-4)


def test_what_cannot_be_averaged_or_read_out_is_refused():
    with pytest.raises(ValueError, match="at least 2 for an interval; got 1"):
        spectrum.flax_kernels(Normed(), X, key=KEY, num_seeds=1)
    with pytest.raises(ValueError, match=r"Bare calls no nn\.Dense"):
        spectrum.flax_kernels(Bare(), X, key=KEY, num_seeds=2)
