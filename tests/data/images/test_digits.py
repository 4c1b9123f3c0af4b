"""The embedded digits: nothing but a package, and a split that stays."""

import numpy as np
from sklearn.datasets import load_digits

import jaxsens.data as data
from jaxsens.data.images import digits


def test_shapes_and_range():
    x, y = data.load("digits", "test")
    assert (x.shape, x.dtype, y.shape, y.dtype) == ((360, 8, 8, 1), "f4", (360,), "i4")
    assert (x.min(), x.max()) == (-1, 1)
    np.testing.assert_array_equal(np.unique(y), np.arange(10))


def test_train_and_test_are_the_whole_set_once():
    splits = [data.load("digits", split) for split in ("train", "test")]
    x, y = (np.concatenate(parts) for parts in zip(*splits, strict=True))
    bunch, order = load_digits(), digits.split_order(1797)
    np.testing.assert_array_equal(np.sort(order), np.arange(1797))
    np.testing.assert_array_equal(x[..., 0], bunch.images[order] / 8 - 1)
    np.testing.assert_array_equal(y, bunch.target[order])


def test_the_split_does_not_change():
    # The first numbers of PCG64(0), which NumPy promises to keep: see the module's docstring.
    assert np.random.PCG64(0).random_raw(2).tolist() == [
        11749869230777074271,
        4976686463289251617,
    ]
    assert digits.split_order(8).tolist() == [3, 2, 1, 6, 0, 7, 4, 5]


def test_no_class_is_rare_in_either_split():
    for split, num in (("train", 1437), ("test", 360)):
        counts = np.bincount(data.load("digits", split)[1], minlength=10)
        # Five standard deviations of a fair draw.
        assert np.abs(counts - num / 10).max() < 5 * np.sqrt(num * 0.1 * 0.9)
