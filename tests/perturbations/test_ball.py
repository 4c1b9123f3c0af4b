"""Balls: draws lie on the surface and follow their law, steps of an ascent stay inside."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsens
from jaxsens import Ball, Perturbation, Tokens

KEY = jax.random.key(0)


def draws(ball, window, num):
    return np.asarray(jax.vmap(lambda key: ball(key, window))(jax.random.split(KEY, num)))


def test_draws_lie_on_the_sphere_around_the_window_in_all_directions():
    window = jnp.array([[3.0, -1.0, 0.5]])
    moves = (draws(Ball(2.0), window, 4000) - np.asarray(window)).reshape(-1, 3)
    np.testing.assert_allclose(np.linalg.norm(moves, axis=1), 2, rtol=1e-5)
    # A coordinate of a uniform point of the sphere in 3 dimensions is uniform on [-2, 2].
    z = moves.mean(axis=0) / (2 / math.sqrt(3) / math.sqrt(4000))
    assert np.abs(z).max() < 4
    below = (moves < 1).mean(axis=0)
    assert np.abs(below - 0.75).max() < 4 * math.sqrt(0.75 * 0.25 / 4000)


def test_draws_of_the_cube_are_its_vertices():
    moves = draws(Ball(0.25, "linf"), jnp.zeros((2, 2, 1)), 400).reshape(400, 4)
    assert set(np.abs(moves).ravel().tolist()) == {0.25}
    assert len({tuple(move) for move in moves.tolist()}) == 16


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_half_precision_stays_and_does_not_overflow(norm):
    window = jnp.zeros(2000, jnp.float16)
    moved = Ball(50.0, norm)(KEY, window)
    assert moved.dtype == jnp.float16
    assert jnp.isfinite(moved).all()
    assert jnp.abs(moved).max() > 0


def test_a_ball_is_an_ordinary_edit():
    x = np.zeros((3, 5, 4), np.float32)
    far = jaxsens.Metric("far", lambda clean, perturbed: jnp.linalg.norm(perturbed - clean))
    est = jaxsens.sensitivity(
        lambda params, x: x.sum(axis=1), (), x, Perturbation(Tokens(), Ball(1.5)), 4, key=KEY,
        metric=far, devices=jax.devices()[:1],
    )  # fmt: skip
    np.testing.assert_allclose(est.per_example_position, 1.5, rtol=1e-5)


def test_a_step_goes_along_the_gradient_and_back_into_the_ball():
    gradient = jnp.array([3e-25, 4e-25])
    inside = Ball(2.0).climb(jnp.zeros(2), gradient, 0.5)
    np.testing.assert_allclose(inside, [0.6, 0.8], rtol=1e-5)
    outside = Ball(2.0).climb(jnp.array([1.2, 1.6]), gradient, 0.5)
    np.testing.assert_allclose(outside, [1.2, 1.6], rtol=1e-5)
    signs = Ball(2.0, "linf").climb(jnp.array([1.5, 0.0, -1.0]), jnp.array([5.0, -1e-9, 0.0]), 0.5)
    np.testing.assert_allclose(signs, [2, -1, -1])


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_without_a_gradient_nothing_moves(norm):
    move = jnp.array([0.3, -0.4])
    np.testing.assert_array_equal(Ball(1.0, norm).climb(move, jnp.zeros(2), 0.3), move)


@pytest.mark.parametrize("radius", [0, -1.0, math.nan, math.inf, "1", None, True])
def test_a_radius_is_positive_and_finite(types_unchecked, radius):
    with pytest.raises(ValueError, match="Ball needs a finite radius > 0; got"):
        Ball(radius)


@pytest.mark.parametrize("norm", ["l1", 2, None])
def test_other_norms_are_refused(types_unchecked, norm):
    with pytest.raises(ValueError, match="Ball needs norm='l2' or 'linf'; got"):
        Ball(1.0, norm)


def test_ids_cannot_be_moved():
    with pytest.raises(ValueError, match="Ball needs floating-point inputs; got int32"):
        Ball(1.0)(KEY, jnp.zeros(3, jnp.int32))


def test_radii_of_numpy_are_the_same_ball(types_unchecked):
    assert Ball(np.float32(0.5)) == Ball(0.5)
    assert hash(Ball(np.float64(2))) == hash(Ball(2))
