"""Parts of arrays: products of index sets."""

import itertools

import numpy as np
import pytest

from jaxsens.incremental.needed.parts import crop, merged, narrowed, split, union, whole

ARRAY = np.arange(4 * 30 * 3).reshape(4, 30, 3)
SETS = [
    None, np.array([2]), np.array([0, 1, 2]), np.array([1, 4, 7, 10]), np.array([0, 1, 5, 6, 29]),
    np.array([0, 1, 3, 5, 8, 9, 12, 14, 17, 20, 21, 24, 26]),
]  # fmt: skip


@pytest.mark.parametrize("indices", SETS[1:], ids=str)
def test_a_part_is_cut_out_of_what_is_there(indices):
    want = (None, indices, np.array([0, 2]))
    expected = ARRAY[:, indices][:, :, [0, 2]]
    np.testing.assert_array_equal(crop(ARRAY, whole(ARRAY.shape), want), expected)
    have = union([want, (None, np.array([3, 11, 20]), None)], ARRAY.shape)
    np.testing.assert_array_equal(crop(ARRAY[:, have[1]], have, want), expected)


def test_what_is_needed_twice_is_needed_together():
    (found,) = union([(np.array([1, 3]),), (np.array([0, 3]),)], (5,))
    np.testing.assert_array_equal(found, [0, 1, 3])
    assert union([(np.array([1, 3]),), (None,)], (5,)) == (None,)
    assert union([(np.array([0, 1]),), (np.array([2]),)], (3,)) == (None,)


def test_axes_are_merged_and_split_again():
    sizes = (4, 30, 3)
    numbers = np.arange(ARRAY.size).reshape(sizes)
    for some in itertools.product([None, np.array([1]), np.array([0, 2])], repeat=3):
        flat = merged(some, sizes)
        if all(each is None for each in some):
            assert flat is None
            continue
        picked = numbers
        for axis, each in enumerate(some):
            picked = picked if each is None else picked.take(each, axis)
        np.testing.assert_array_equal(flat, picked.reshape(-1))
        for found, each, n in zip(split(flat, sizes), some, sizes, strict=True):
            np.testing.assert_array_equal(
                np.arange(n) if found is None else found, np.arange(n) if each is None else each
            )


def test_what_is_no_product_of_sets_is_not_split():
    assert split(np.array([0, 3]), (2, 2)) is None
    assert narrowed(np.array([1, 0, 1]), 2) is None
