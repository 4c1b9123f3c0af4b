"""Sensitivity: known values, the Fourier side, `jaxsens.sensitivity`, Huang's theorem."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsens
from jaxsens import boolean

D = 5
NAMED = {
    "parity": boolean.parity,
    "majority": boolean.majority,
    "first": boolean.first,
    "and": boolean.and_,
    "or": boolean.or_,
    "sparse": lambda x: boolean.parity(x, [1, 3]),
    "tribes": lambda x: boolean.tribes(x, 1),
}


def every_function(d):
    """All 2^(2^d) tables of signs."""
    return 1 - 2 * ((np.arange(2 ** (2**d))[:, None] >> np.arange(2**d)) & 1).astype(np.int32)


@pytest.mark.parametrize(
    ("name", "average", "maximum"),
    [
        ("parity", 5, 5),
        ("first", 1, 1),
        ("sparse", 2, 2),
        ("and", 2 * 5 / 32, 5),
        ("or", 2 * 5 / 32, 5),
        ("majority", 5 * 6 / 16, 3),
    ],
)
def test_known_values(name, average, maximum):
    values = boolean.table_of(NAMED[name], D)
    assert float(boolean.average_sensitivity(values)) == average
    assert int(boolean.maximum_sensitivity(values)) == maximum
    assert float(boolean.influences(values).sum()) == average


@pytest.mark.parametrize("name", NAMED)
def test_the_fourier_side_counts_the_same(name):
    values = boolean.table_of(NAMED[name], D)
    fourier = float(boolean.average_sensitivity_from_fourier(values))
    assert fourier == float(boolean.average_sensitivity(values))


@pytest.mark.parametrize("name", ["majority", "mean", "random"])
def test_the_library_s_sensitivity_is_the_same_number(name):
    function = NAMED.get(name, boolean.mean)
    if name == "random":
        function = boolean.from_table(boolean.random_function(D, key=jax.random.key(3)))
    estimate = jaxsens.sensitivity(
        lambda params, x: function(x).astype(jnp.float32),
        (),
        boolean.cube(D),
        jaxsens.Perturbation(jaxsens.Bits(), jaxsens.Flip()),
        "all",
        key=jax.random.key(0),
    )
    values = jnp.sign(boolean.table_of(function, D))
    pointwise = np.asarray(boolean.pointwise_sensitivity(values))
    changes = np.stack([values != values[np.arange(2**D) ^ (1 << i)] for i in range(D)], axis=1)
    np.testing.assert_array_equal(estimate.totals, changes)
    assert int(estimate.totals.sum()) == int(pointwise.sum())
    np.testing.assert_array_equal(estimate.per_position, boolean.influences(values))
    assert estimate.mean == pytest.approx(float(boolean.average_sensitivity(values)) / D, abs=1e-15)


def test_a_tie_is_a_change():
    values = boolean.table_of(boolean.majority, 2)
    assert values.tolist() == [1.0, 0.0, 0.0, -1.0]
    assert boolean.pointwise_sensitivity(values).tolist() == [2, 2, 2, 2]


def test_huang_s_inequality_for_every_function_of_four_coordinates():
    values = every_function(4)
    degree, sensitivity = boolean.degree(values), boolean.maximum_sensitivity(values)
    assert (degree <= sensitivity**2).all()
    # AND of ORs: the smallest function where the inequality is an equality beyond s = 1.
    tight = np.asarray(degree == sensitivity**2) & np.asarray(sensitivity == 2)
    assert tight.any()


def test_the_fourier_side_counts_the_same_for_every_function_of_three_coordinates():
    values = every_function(3)
    average = boolean.average_sensitivity(values)
    np.testing.assert_array_equal(average, boolean.average_sensitivity_from_fourier(values))


def test_huang_s_inequality_for_thousands_of_random_functions():
    key = jax.random.key(0)
    for d in (6, 8):
        values = jax.random.rademacher(jax.random.fold_in(key, d), (2000, 2**d), jnp.int32)
        assert (boolean.degree(values) <= boolean.maximum_sensitivity(values) ** 2).all()
    low = jnp.stack(
        [
            boolean.random_of_degree(7, k, key=jax.random.fold_in(key, 100 * k + seed))
            for k in range(1, 5)
            for seed in range(10)
        ]
    )
    assert (boolean.degree(low) <= boolean.maximum_sensitivity(low) ** 2).all()


@pytest.mark.parametrize(
    ("name", "size", "depth"),
    [("parity", 32, 5), ("first", 2, 1), ("sparse", 4, 2), ("and", 6, 5), ("or", 6, 5)],
)
def test_decision_trees(name, size, depth):
    tree = boolean.decision_tree(boolean.table_of(NAMED[name], D))
    assert (tree.size, tree.depth) == (size, depth)


def test_decision_trees_of_majority_and_of_constants():
    # Majority of 3: ask two; if they differ, ask the third.
    assert boolean.decision_tree(boolean.table_of(boolean.majority, 3)).size == 6
    assert boolean.decision_tree(np.ones(8, int)) == boolean.DecisionTree(1, 0)
    with pytest.raises(ValueError, match=f"3\\^d = {3**14} subcubes"):
        boolean.decision_tree(np.ones(2**14, int))


def brute_force_tree(values):
    """Size and depth by plain recursion over arrays of shape (2,)*d."""
    if (values == values.flat[0]).all():
        return 1, 0
    pairs = [
        [brute_force_tree(values.take(side, axis=i)) for side in (0, 1)] for i in range(values.ndim)
    ]
    sizes = [one[0] + other[0] for one, other in pairs]
    return min(sizes), min(1 + max(one[1], other[1]) for one, other in pairs)


def test_decision_trees_against_plain_recursion():
    for seed in range(5):
        values = np.asarray(boolean.random_function(4, key=jax.random.key(seed)))
        tree = boolean.decision_tree(values)
        assert (tree.size, tree.depth) == brute_force_tree(values.reshape((2,) * 4))
        # A tree of depth D writes f as a polynomial of degree D.
        assert int(boolean.degree(values)) <= tree.depth
