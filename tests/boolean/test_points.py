"""Points, orders, characters."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens import boolean
from jaxsens.core import memory


@pytest.mark.parametrize("order", ["binary", "gray", "weight"])
def test_every_order_has_every_point_once(order):
    x = boolean.cube(5, order=order)
    assert sorted(boolean.index_of(x).tolist()) == list(range(32))
    assert set(np.unique(x)) == {-1.0, 1.0}


def test_binary_order_is_the_index():
    assert boolean.index_of(boolean.cube(6)).tolist() == list(range(64))


def test_neighbours_in_gray_order_differ_in_one_coordinate():
    x = boolean.cube(6, order="gray")
    assert (np.asarray(x[1:] != x[:-1]).sum(axis=1) == 1).all()


def test_weight_order_counts_up():
    weights = np.asarray(boolean.cube(6, order="weight") < 0).sum(axis=1)
    assert (np.diff(weights) >= 0).all()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.int8])
def test_characters_are_orthonormal(dtype):
    x = boolean.cube(4, dtype=dtype)
    table = np.stack([boolean.character(x, boolean.coordinates_of(u)) for u in range(16)])
    assert table.dtype == dtype
    assert (table.astype(int) @ table.astype(int).T == 16 * np.eye(16)).all()


def test_sets_and_numbers():
    assert all(boolean.mask_of(boolean.coordinates_of(u)) == u for u in range(64))
    with pytest.raises(ValueError, match="different coordinates"):
        boolean.mask_of([1, 1])
    with pytest.raises(ValueError, match="coordinate 4 is not one of the 3"):
        boolean.character(boolean.cube(3), [4])


def test_flip_flips_one_bit_of_the_index():
    x = boolean.cube(4)
    for i in range(4):
        assert boolean.index_of(boolean.flip(x, i)).tolist() == [b ^ (1 << i) for b in range(16)]


def test_a_table_in_blocks_is_the_same_table():
    whole = boolean.table_of(boolean.majority, 7)
    assert (whole == boolean.table_of(boolean.majority, 7, rows=10)).all()
    with pytest.raises(ValueError, match="one value for each of 8 points"):
        boolean.table_of(lambda x: x, 3)


def test_what_does_not_fit_is_refused_with_its_bytes():
    with pytest.raises(ValueError, match=str(2 * 4 * 50 * 2**50)):
        boolean.cube(50)
    with pytest.raises(ValueError, match=r"needs 137438953472 bytes \(128.0 GiB\)"):
        memory.require(2**37, "this", limit=2**36)


@pytest.mark.parametrize("d", [0, -1, True])
def test_a_bad_dimension_is_refused(d):
    with pytest.raises(ValueError, match="d must be a whole number >= 1"):
        boolean.cube(d)
