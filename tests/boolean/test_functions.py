"""Named and random functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens import boolean


def test_values_on_the_cube():
    x = np.asarray(boolean.cube(4))
    true = x < 0
    for function, expected in [
        (boolean.and_, true.all(axis=1)),
        (boolean.or_, true.any(axis=1)),
        (boolean.first, true[:, 0]),
        (boolean.parity, true.sum(axis=1) % 2 == 1),
        (lambda x: boolean.tribes(x, 2), true[:, :2].all(axis=1) | true[:, 2:].all(axis=1)),
    ]:
        np.testing.assert_array_equal(function(jnp.asarray(x)), 1 - 2 * expected)


def test_mean_and_majority_have_one_sign():
    x = boolean.cube(5)
    np.testing.assert_array_equal(jnp.sign(boolean.mean(x)), boolean.majority(x))


@pytest.mark.parametrize("k", range(7))
def test_random_functions_of_a_degree_have_it(k):
    values = boolean.random_of_degree(6, k, key=jax.random.key(k))
    assert int(boolean.degree(values)) == k
    assert set(np.unique(values)) <= {-1, 1}
    assert boolean.decision_tree(values).depth >= k


def test_keys_decide():
    one, same, other = (boolean.random_of_degree(6, 3, key=jax.random.key(s)) for s in (0, 0, 1))
    assert (one == same).all()
    assert (one != other).any()
    signs = boolean.random_function(12, key=jax.random.key(0))
    assert abs(float(signs.mean())) < 4 / np.sqrt(2**12)


def test_bad_arguments():
    with pytest.raises(ValueError, match="degree from 0 to 3; got 4"):
        boolean.random_of_degree(3, 4, key=jax.random.key(0))
    with pytest.raises(ValueError, match="choose one of 1, 2, 3, 6"):
        boolean.tribes(boolean.cube(6), 4)
    with pytest.raises(ValueError, match="points of 3 coordinates, got 2"):
        boolean.from_table(np.arange(8))(boolean.cube(2))
