"""Noise on weights: exact norms, exact zeros, masks, and independence of leaf and draw."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from jaxsens import Bits, Flip, Gaussian, Perturbation, Relative, Sphere
from jaxsens.perturbations.weight_noise import (
    check_noise,
    directions,
    num_weights,
    perturb,
    select,
    with_weights,
)

KEY = jax.random.key(0)


def tree(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "bias": jnp.zeros(30),
        "deep": [jnp.asarray(rng.normal(size=(20, 30)), jnp.float32), jnp.full((7,), 3.0)],
        "steps": jnp.int32(4),
    }


def perturbed(noise, sample=0, params=None, mask=None, key=KEY):
    params = tree() if params is None else params
    selected = select(params, mask)
    xi = directions(key, sample, params)
    return with_weights(params, selected, perturb(noise, xi, params, selected))


def moved(noise, **options):
    params = options.setdefault("params", tree())
    return jax.tree.map(lambda new, old: np.asarray(new - old), perturbed(noise, **options), params)


def norm(leaves):
    return math.sqrt(sum(float(np.sum(np.square(leaf, dtype=float))) for leaf in leaves))


# Exact truths.


@pytest.mark.parametrize("noise", [Gaussian(sigma=0.0), Sphere(0.0), Relative(0.0)])
def test_no_noise_is_no_change(noise):
    for new, old in zip(jax.tree.leaves(perturbed(noise)), jax.tree.leaves(tree()), strict=True):
        assert np.array_equal(new, old)


@pytest.mark.parametrize("mask", [None, {"bias": False, "deep": [True, False], "steps": True}])
@pytest.mark.parametrize("sample", [0, 1])
def test_a_sphere_moves_all_selected_weights_by_its_radius(mask, sample):
    change = moved(Sphere(2.5), sample=sample, mask=mask)
    assert norm(jax.tree.leaves(change)) == pytest.approx(2.5, rel=1e-5)


def test_a_sphere_is_uniform():
    """Each coordinate of a direction in p dimensions has mean 0 and variance 1/p."""
    params = {"a": jnp.zeros(2), "b": jnp.zeros((1, 3))}

    def moved(sample):
        leaves = perturb(Sphere(1.0), directions(KEY, sample, params), params, (True, True))
        return jnp.concatenate([leaf.ravel() for leaf in leaves])

    draws = jax.vmap(moved)(jnp.arange(4000))
    covariance = np.cov(draws.T)
    # Var(u_j²) = 2(p - 1)/(p²(p + 2)).
    assert np.all(np.abs(draws.mean(axis=0)) < 4 * math.sqrt(1 / 5 / 4000))
    assert np.all(np.abs(covariance - np.eye(5) / 5) < 4 * math.sqrt(8 / 25 / 7 / 4000))


def test_relative_noise_is_in_proportion_to_each_leaf():
    params = {"small": jnp.full(10_000, 1e-3), "large": jnp.full((50, 200), 40.0)}
    change = moved(Relative(0.1), params=params)
    for name, leaf in params.items():
        # ‖Δ‖² is χ² with `size` degrees of freedom: relative error 1/√(2·size).
        assert norm([change[name]]) == pytest.approx(0.1 * norm([leaf]), rel=4 / math.sqrt(20_000))


def test_relative_noise_leaves_zeros_alone():
    assert not moved(Relative(0.5))["bias"].any()


def test_gaussian_noise_has_its_sigma():
    change = np.concatenate(
        [moved(Gaussian(sigma=0.2), sample=s)["deep"][0].ravel() for s in range(5)]
    )
    assert abs(change.mean()) < 4 * 0.2 / math.sqrt(change.size)
    assert change.std() == pytest.approx(0.2, rel=4 / math.sqrt(2 * change.size))


def test_every_leaf_and_draw_has_noise_of_its_own():
    params = [jnp.zeros(5)] * 3
    changes = [
        leaf for s in range(3) for leaf in moved(Gaussian(sigma=1.0), params=params, sample=s)
    ]
    assert len({leaf.tobytes() for leaf in changes}) == 9


@pytest.mark.parametrize("noise", [Gaussian(sigma=0.1), Sphere(0.1), Relative(0.1)])
def test_low_precision_keeps_its_dtype(noise):
    params = {"w": jnp.ones(400, jnp.bfloat16), "v": jnp.ones(400, jnp.float16)}
    new = perturbed(noise, params=params)
    assert (new["w"].dtype, new["v"].dtype) == (jnp.bfloat16, jnp.float16)
    assert not np.array_equal(new["v"], params["v"])


def test_noise_is_a_value():
    assert {Sphere(3.0), Relative(0.1)} == {Sphere(3.0), Relative(0.1), Relative(0.1)}


def test_all_noises_share_their_directions():
    params = {"w": jnp.ones((4, 5))}
    changes = [moved(noise, params=params)["w"] for noise in (Gaussian(sigma=0.1), Relative(0.1))]
    np.testing.assert_allclose(*changes, rtol=1e-5, atol=1e-6)
    on_sphere = moved(Sphere(norm(changes[:1])), params=params)["w"]
    np.testing.assert_allclose(on_sphere, changes[0], rtol=1e-5, atol=1e-6)


# Masks.


def test_a_mask_keeps_the_other_leaves_and_the_noise_of_those_it_selects():
    noise, mask = Gaussian(sigma=1.0), {"bias": True, "deep": [False, True], "steps": False}
    part, whole = perturbed(noise, mask=mask), perturbed(noise)
    assert np.array_equal(part["deep"][0], tree()["deep"][0])
    assert np.array_equal(part["bias"], whole["bias"])
    assert np.array_equal(part["deep"][1], whole["deep"][1])


def test_one_bool_speaks_for_a_subtree():
    assert select(tree(), {"bias": False, "deep": True, "steps": True}) == (
        False, True, True, False,
    )  # fmt: skip
    assert select(tree(), True) == select(tree(), None) == (True, True, True, False)
    assert num_weights(tree(), select(tree(), None)) == 30 + 600 + 7


def test_integers_bools_and_keys_are_never_perturbed():
    params = {"w": 1.5, "i": 3, "b": np.ones(2, bool), "key": KEY}
    assert select(params, True) == (False, False, False, True)


class Normed(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.BatchNorm(use_running_average=True)(nn.Dense(2)(x))


def test_running_statistics_need_a_word():
    variables = Normed().init(KEY, jnp.ones((1, 3)))
    with pytest.raises(ValueError, match=r"mask=.*'batch_stats': False") as error:
        select(variables, None)
    assert "\n" not in str(error.value)
    new = perturbed(
        Gaussian(sigma=1.0), params=variables, mask={"params": True, "batch_stats": False}
    )
    for part, changed in (("params", True), ("batch_stats", False)):
        pairs = zip(jax.tree.leaves(new[part]), jax.tree.leaves(variables[part]), strict=True)
        assert all(np.array_equal(a, b) is not changed for a, b in pairs)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ({"bias": True}, r"such as \{'bias': True, 'deep': True, 'steps': True\}; got"),
        ([True, True], "mask must have the structure of params or a prefix"),
        ({"bias": True, "deep": [True], "steps": True}, "mask must have the structure of params"),
        ({"bias": None, "deep": True, "steps": True}, "mask must have the structure of params"),
        ({"bias": 1, "deep": True, "steps": True}, "mask must hold bools.*got 1"),
        ({"bias": np.ones(30, bool), "deep": True, "steps": True}, "mask must hold bools"),
        (False, "no weight to perturb: of 4 leaves, 0 are selected"),
        ({"bias": False, "deep": False, "steps": True}, "of 4 leaves, 1 are selected"),
    ],
)
def test_a_bad_mask_is_one_clear_line(mask, message):
    with pytest.raises(ValueError, match=message) as error:
        select(tree(), mask)
    assert "\n" not in str(error.value)


# Bad noise.


@pytest.mark.parametrize("size", [-1.0, math.nan, math.inf])
def test_sizes_are_finite_and_not_negative(size):
    with pytest.raises(ValueError, match="Sphere needs a finite radius >= 0; got"):
        Sphere(size)
    with pytest.raises(ValueError, match="Relative needs a finite scale >= 0; got"):
        Relative(size)


def test_a_perturbation_of_inputs_is_refused():
    with pytest.raises(ValueError, match="weights, which have no grid"):
        check_noise(Perturbation(Bits(), Flip()))
    with pytest.raises(ValueError, match="perturbation must be Gaussian, Relative or Sphere"):
        check_noise(0.005)
