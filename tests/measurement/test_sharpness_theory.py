"""Sharpness where theory knows it: quadratic losses, and spheres against Gaussians."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens import Gaussian, Sphere, boolean, sharpness
from jaxsens.models import BitTransformer
from jaxsens.models.tokens.bit_transformer import POSITIONS

KEY = jax.random.key(0)


def test_a_quadratic_loss_has_gaussian_sharpness_half_epsilon_squared_trace_h():
    """A loss ½ θᵀHθ rises by ½ε² tr H from its minimum, in the mean; here H = 2 E xxᵀ."""
    rng, epsilon, num = np.random.default_rng(0), 0.3, 4000
    x, theta = jnp.asarray(rng.normal(size=(8, 6)), jnp.float32), jnp.zeros(6)

    def loss(theta):
        return jnp.mean((x @ theta) ** 2)

    trace = float(jnp.trace(jax.hessian(loss)(theta)))
    est = sharpness(lambda w, x: x @ w, theta, x, Gaussian(sigma=epsilon), num_samples=num, key=KEY)
    draws = est.squared.per_draw
    stderr = draws.std(ddof=1) / math.sqrt(num)
    assert abs(draws.mean() - 0.5 * epsilon**2 * trace) < 4 * stderr
    assert stderr < 0.03 * draws.mean()


def test_sphere_and_gaussian_agree_within_5_percent_above_ten_thousand_parameters():
    model = BitTransformer(4, 32)
    bits = ((1 - boolean.cube(4)) / 2).astype(jnp.int32)
    params = jax.jit(model.init)(KEY, bits)
    names = params["params"]
    mask = {"params": {name: name != POSITIONS for name in names}}
    p = sum(
        leaf.size for name in names if name != POSITIONS for leaf in jax.tree.leaves(names[name])
    )
    assert p == 12_993
    found = [
        sharpness(model.apply, params, bits, noise, 16, key=KEY, mask=mask).squared.mean
        for noise in (Gaussian(sigma=0.02), Sphere(0.02 * math.sqrt(p)))
    ]
    assert found[1] == pytest.approx(found[0], rel=0.05)
    assert found[0] > 0
