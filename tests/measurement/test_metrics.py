"""What counts as a change: exact values on small outputs."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsens
from jaxsens import Metric, label_flip, relative_l2, squared_change
from jaxsens.measurement.metrics import as_metric
from jaxsens.measurement.packing import first_out_of_bounds


@pytest.mark.parametrize(
    ("clean", "perturbed", "flips"),
    [
        (2.0, 0.5, False),
        (2.0, -0.5, True),
        (0.0, 0.0, False),
        # Sign 0 is a class of its own: moving onto a tie or off it is a change.
        (1.0, 0.0, True),
        (0.0, 1e-30, True),
        (-1.0, 0.0, True),
        (0.0, -0.0, False),
    ],
)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_score_flips_when_its_sign_does(clean, perturbed, flips, shape):
    change = label_flip(jnp.full(shape, clean), jnp.full(shape, perturbed))
    assert change.shape == ()
    assert float(change) == flips


@pytest.mark.parametrize(
    ("clean", "perturbed", "flips"),
    [
        ([0.1, 0.9], [0.4, 0.6], False),
        ([0.1, 0.9], [0.6, 0.4], True),
        ([-5.0, -6.0, -7.0], [-7.0, -6.0, -5.0], True),
        # A tie of logits goes to the first class, as everywhere in JAX.
        ([1.0, 1.0], [1.0, 0.0], False),
        ([1.0, 1.0], [0.0, 1.0], True),
    ],
)
def test_logits_flip_when_their_argmax_does(clean, perturbed, flips):
    assert float(label_flip(jnp.array(clean), jnp.array(perturbed))) == flips


def test_integer_scores_have_signs_too():
    assert float(label_flip(jnp.array(3), jnp.array(0))) == 1
    assert float(label_flip(jnp.array(3), jnp.array(7))) == 0


def test_relative_l2():
    clean, perturbed = jnp.array([3.0, 4.0]), jnp.array([3.0, 6.0])
    assert float(relative_l2(clean, perturbed)) == pytest.approx(2 / 5)
    assert float(relative_l2(clean, clean)) == 0
    zeros = jnp.zeros(2)
    assert float(relative_l2(zeros, zeros)) == 0
    assert np.isinf(relative_l2(zeros, clean))
    rows = jnp.arange(6.0).reshape(2, 3)
    assert float(relative_l2(rows, 3 * rows)) == pytest.approx(2)


def test_squared_change():
    assert float(squared_change(jnp.array([3.0, 4.0]), jnp.array([1.0, 5.0]))) == 5
    assert float(squared_change(jnp.array(3.0), jnp.array(1.0))) == 4


def test_ranges():
    assert (label_flip.lower, label_flip.upper) == (0, 1)
    assert (relative_l2.lower, relative_l2.upper) == (0, np.inf)
    assert (squared_change.lower, squared_change.upper) == (0, np.inf)


def largest_drop(clean, perturbed):
    return jnp.max(clean - perturbed)


def test_a_function_becomes_a_metric_with_its_name_and_no_bounds():
    metric = as_metric(largest_drop)
    assert metric == as_metric(largest_drop)
    assert (metric.name, metric.lower, metric.upper) == ("largest_drop", -np.inf, np.inf)
    assert float(metric(jnp.array([1.0, 2.0]), jnp.array([1.0, 5.0]))) == 0
    assert as_metric(label_flip) is label_flip


def test_a_metric_gives_one_float32_whatever_the_function_gives():
    for value in (True, 3, 2.5, jnp.array(1, jnp.int32)):
        change = Metric("constant", lambda clean, perturbed, value=value: value)(
            jnp.zeros(2), jnp.zeros(2)
        )
        assert change.dtype == jnp.float32
        assert float(change) == float(value)


def test_a_metric_that_gives_many_numbers_is_refused():
    with pytest.raises(
        ValueError, match=r"metric 'difference' must give one number .* shape \(2,\)"
    ):
        Metric("difference", lambda clean, perturbed: clean - perturbed)(jnp.ones(2), jnp.ones(2))


@pytest.mark.parametrize("positions", ["all", "random"])
@pytest.mark.parametrize(
    ("lower", "upper"), [(0.0, 1.0), (2.5, 9.0), (-math.inf, 1.0), (3.0, math.inf)]
)
def test_a_metric_outside_its_own_bounds_is_named(lower, upper, positions):
    two = Metric("two", lambda clean, perturbed: clean[0] * 0 + 2, lower, upper)
    flip, x = jaxsens.Perturbation(jaxsens.Bits(), jaxsens.Flip()), np.ones((3, 4), np.float32)
    with pytest.raises(
        ValueError, match=r"metric 'two' has bounds .* but its mean is 2 at"
    ) as error:
        jaxsens.sensitivity(
            lambda params, x: x,
            (),
            x,
            flip,
            2,
            key=jax.random.key(0),
            metric=two,
            positions=positions,
            incremental=False,
        )
    assert "\n" not in str(error.value)


def test_rounding_is_not_outside_the_bounds():
    counts, bounds = np.full((2, 3), 5), (0.0, 1.0)
    assert first_out_of_bounds(np.full((2, 3), 5 + 1e-5), counts, bounds) is None
    assert first_out_of_bounds(np.full((2, 3), 5.1), counts, bounds) == (0, 0)
    assert first_out_of_bounds(np.full((2, 3), -1e-5), counts, (0.0, math.inf)) == (0, 0)
    assert first_out_of_bounds(np.array([[9.0, -1e-5, 0.0]]), counts[:1], (0.0, math.inf)) is None
