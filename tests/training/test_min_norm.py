"""Least-norm fits: against the pseudo-inverse, and the identity that follows from them."""

import numpy as np
import pytest

from jaxsens.training.min_norm import fine_tuned, min_norm_fit, retrained


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    features, targets = rng.normal(size=(12, 40)), rng.choice([-1.0, 1.0], 12)
    phi, y, there = rng.normal(size=40), 1.0, rng.normal(size=40)
    return features, targets, phi, y, there


def test_the_fit_is_the_pseudo_inverse(problem):
    features, targets, *_ = problem
    fit = min_norm_fit(features, targets)
    np.testing.assert_allclose(fit.theta, np.linalg.pinv(features) @ targets, atol=1e-10)
    np.testing.assert_allclose(features @ fit.theta, targets, atol=1e-10)


def test_retraining_is_the_pseudo_inverse_of_the_stacked_system(problem):
    features, targets, phi, y, _ = problem
    model = retrained(min_norm_fit(features, targets), phi, y)
    stacked = np.linalg.pinv(np.vstack([features, phi])) @ np.append(targets, y)
    np.testing.assert_allclose(model.theta, stacked, atol=1e-6)


def test_fine_tuning_is_the_end_of_gradient_descent_on_one_sample(problem):
    features, targets, phi, y, _ = problem
    fit = min_norm_fit(features, targets)
    theta = fit.theta.copy()
    for _ in range(200):
        theta += 0.5 * phi * (y - phi @ theta) / (phi @ phi)
    np.testing.assert_allclose(fine_tuned(fit, phi, y).theta, theta, atol=1e-10)


@pytest.mark.parametrize("update", [fine_tuned, retrained])
def test_both_models_fit_the_new_sample_and_the_identity_is_exact(problem, update):
    features, targets, phi, y, there = problem
    fit = min_norm_fit(features, targets)
    model = update(fit, phi, y)
    assert phi @ model.theta == pytest.approx(y, abs=1e-10)
    assert phi @ model.aligned == pytest.approx(1.0, abs=1e-10)
    expected = there @ fit.theta + (there @ model.aligned) * (y - phi @ fit.theta)
    assert there @ model.theta == pytest.approx(expected, abs=1e-10)


def test_what_is_outside_has_nothing_to_do_with_the_samples(problem):
    features, targets, phi, *_ = problem
    outside = min_norm_fit(features, targets).outside(phi)
    np.testing.assert_allclose(features @ outside, 0, atol=1e-10)


def test_dependent_rows_are_refused():
    with pytest.raises(ValueError, match=r"shape \(2, 3\) do not interpolate"):
        min_norm_fit(np.ones((2, 3)), np.array([1.0, -1.0]))
