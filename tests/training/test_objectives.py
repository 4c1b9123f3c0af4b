"""Objectives: the regulariser costs nothing where nothing changes, and its formula elsewhere."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxsens import Bits, Donor, Flip, Gaussian, OverlappingPatches, Patches, Perturbation
from jaxsens.training.objectives import SensitivityRegularized, cross_entropy

KEY = jax.random.key(3)
_random = np.random.default_rng(0)
W = jnp.asarray(_random.normal(size=(4, 3)), jnp.float32)
X = jnp.asarray(_random.choice([-1.0, 1.0], size=(5, 4)), jnp.float32)
Y = jnp.array([0, 2, 1, 1, 0])
FLIP = Perturbation(Bits(), Flip())


def linear(x, key):
    return x @ W


def loss_of(objective, logits_fn=linear, x=X):
    return float(objective(logits_fn, x, Y[: len(x)], KEY))


def test_cross_entropy_is_the_mean_over_the_batch():
    expected = optax.softmax_cross_entropy_with_integer_labels(X @ W, Y).mean()
    assert loss_of(cross_entropy) == pytest.approx(float(expected))


@pytest.mark.parametrize("form", ["additive", "convex"])
def test_strength_zero_is_cross_entropy(form):
    assert loss_of(SensitivityRegularized(FLIP, 0.0, form)) == loss_of(cross_entropy)


@pytest.mark.parametrize("form", ["additive", "convex"])
def test_an_edit_that_changes_nothing_costs_nothing(form):
    still = Perturbation(Bits(), Gaussian(sigma=0.0))
    kept = 1.0 if form == "additive" else 0.75
    loss = loss_of(SensitivityRegularized(still, 0.25, form))
    assert loss == pytest.approx(kept * loss_of(cross_entropy))


def test_the_price_is_the_mean_square_change_of_the_logits():
    # Flipping bit j of x moves the logits by -2·x_j·W_j, whose square does not depend on x.
    weights = jnp.array([[1.0, 2.0, 3.0]] * 4)

    def logits_fn(x, key):
        return x @ weights

    price = 4 * (1 + 4 + 9) / 3
    base = loss_of(cross_entropy, logits_fn)
    additive = loss_of(SensitivityRegularized(FLIP, 0.25), logits_fn)
    convex = loss_of(SensitivityRegularized(FLIP, 0.25, "convex"), logits_fn)
    assert additive == pytest.approx(base + 0.25 * price)
    assert convex == pytest.approx(0.75 * base + 0.25 * price)


def test_the_gradient_flows_through_both_passes():
    # With f(x) = w·x the price is w²·mean((x - x')²): its gradient needs both passes.
    x, y = jnp.ones((2, 1)), jnp.zeros(2, jnp.int32)

    def price(w):
        def logits_fn(x, key):
            return w * x @ jnp.ones((1, 1))

        return SensitivityRegularized(FLIP, 1.0, "convex")(logits_fn, x, y, KEY)

    assert float(jax.grad(price)(3.0)) == pytest.approx(2 * 3.0 * 4.0)


def test_every_example_has_its_own_window_and_all_windows_come_up():
    grid, shape = Patches(2), (400, 4, 4, 1)
    seen = {}

    def logits_fn(x, key):
        seen[len(seen)] = np.asarray(x)
        return x.reshape(len(x), -1)

    objective = SensitivityRegularized(Perturbation(grid, Gaussian(sigma=1.0)))
    objective(logits_fn, jnp.zeros(shape), jnp.zeros(400, jnp.int32), KEY)
    clean, edited = seen[0], seen[1]
    assert not clean.any()
    patches = (edited != 0).reshape(400, 2, 2, 2, 2).all(axis=(2, 4)).reshape(400, 4)
    assert (patches.sum(axis=1) == 1).all()
    counts = patches.sum(axis=0)
    assert np.abs(counts - 100).max() < 4 * np.sqrt(400 * 0.25 * 0.75)


def test_the_two_passes_have_their_own_keys():
    keys = []

    def logits_fn(x, key):
        keys.append(np.asarray(jax.random.key_data(key)))
        return x @ W

    loss_of(SensitivityRegularized(FLIP), logits_fn)
    assert len(keys) == 2
    assert not np.array_equal(*keys)


@pytest.mark.parametrize("grid", [Patches(2), OverlappingPatches(2)])
@pytest.mark.parametrize("edit", [Gaussian(sigma=1.0), Donor()])
def test_any_grid_and_edit_will_do_inside_jit(grid, edit):
    objective = SensitivityRegularized(Perturbation(grid, edit))
    x = jax.random.normal(KEY, (3, 4, 4, 1))

    def logits_fn(x, key):
        return x.reshape(len(x), -1)

    loss = jax.jit(lambda x: objective(logits_fn, x, jnp.zeros(3, jnp.int32), KEY))(x)
    assert np.isfinite(loss)
    assert loss > cross_entropy(logits_fn, x, jnp.zeros(3, jnp.int32), KEY)


@pytest.mark.parametrize(
    ("strength", "form", "message"),
    [
        (-0.1, "additive", "strength must be at least 0; got -0.1"),
        (1.5, "convex", "strength must be between 0 and 1; got 1.5"),
    ],
)
def test_bad_values_are_refused(strength, form, message):
    with pytest.raises(ValueError, match=message):
        SensitivityRegularized(FLIP, strength, form)
