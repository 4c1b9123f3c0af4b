"""A replaced window is that of its reference, and nothing else changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens import Bits, OverlappingPatches, Patches, Perturbation, Replace, Tokens, Whole, spread

KEY = jax.random.key(0)
IMAGE = np.random.default_rng(0).normal(size=(6, 4, 3)).astype(np.float32)


def replaced(grid, value, position, x=IMAGE, **options):
    return np.array(Perturbation(grid, Replace(value, **options))(KEY, jnp.asarray(x), position))


@pytest.mark.parametrize("value", [0.0, -1.5, np.float32(2.0)])
def test_a_number_fills_the_window_and_nothing_else(value):
    found = replaced(Patches(2), value, 3)
    assert (found[2:4, 2:4] == value).all()
    found[2:4, 2:4] = IMAGE[2:4, 2:4]
    np.testing.assert_array_equal(found, IMAGE)


def test_an_array_gives_the_same_window_of_itself():
    other = np.arange(72.0).reshape(6, 4, 3)
    found = replaced(Patches(2), other, 5)
    np.testing.assert_array_equal(found[4:, 2:], other[4:, 2:])
    per_channel = replaced(Patches(2), np.array([1.0, 2.0, 3.0]), 0)
    assert per_channel[:2, :2].reshape(-1, 3).tolist() == [[1.0, 2.0, 3.0]] * 4


def test_the_mean_is_over_positions_and_of_each_channel():
    found = replaced(Patches(2), "mean", 0)
    expected = np.broadcast_to(IMAGE.mean(axis=(0, 1)), (2, 2, 3))
    np.testing.assert_allclose(found[:2, :2], expected, rtol=1e-6)
    words = IMAGE.reshape(24, 3)
    of_words = replaced(Tokens(), "mean", 7, words)
    np.testing.assert_allclose(of_words[7], words.mean(axis=0), rtol=1e-6)
    bits = replaced(Bits(), "mean", 1, np.array([1.0, 2.0, 6.0], np.float32))
    assert bits.tolist() == [1.0, 3.0, 6.0]


@pytest.mark.parametrize("sigma", [None, 0.7])
def test_the_blur_is_a_gaussian_mean_over_all_places(sigma):
    width = sigma or 2.0
    rows, columns = (
        np.exp(-0.5 * (np.subtract.outer(np.arange(n), np.arange(n)) / width) ** 2) for n in (6, 4)
    )
    expected = np.zeros_like(IMAGE, np.float64)
    for i in range(6):
        for j in range(4):
            weights = np.outer(rows[i], columns[j])
            expected[i, j] = (weights[..., None] * IMAGE).sum(axis=(0, 1)) / weights.sum()
    found = replaced(Patches(2), "blur", 4, sigma=sigma)
    np.testing.assert_allclose(found[4:, :2], expected[4:, :2], atol=1e-6)
    flat = np.full((6, 4, 3), 0.25, np.float32)
    np.testing.assert_allclose(replaced(Patches(2), "blur", 4, flat), flat, rtol=1e-6)


def test_ids_are_replaced_by_an_id():
    ids = np.array([5, 6, 7])
    assert replaced(Tokens(), 103, 1, ids).tolist() == [5, 103, 7]


def test_there_is_one_replacement_and_no_randomness():
    perturbation = Perturbation(Patches(2), Replace("mean"))
    assert perturbation.num_replacements((6, 4, 3)) == 1
    x = jnp.asarray(IMAGE)
    windows = [perturbation.window(jax.random.key(seed), x, 2) for seed in (0, 1)]
    np.testing.assert_array_equal(*windows)
    np.testing.assert_array_equal(windows[0], perturbation.replacement(0, x, 2))


def test_equal_values_are_equal_edits():
    array = np.arange(3.0)
    assert Replace(array) == Replace(array.copy())
    assert hash(Replace(array)) == hash(Replace(array.copy()))
    assert Replace(array) != Replace(array + 1)
    assert repr(Replace(array)) != repr(Replace(array + 1))
    assert Replace(0) == Replace(0.0) != Replace("mean")
    assert repr(Replace("blur", sigma=2.0)) == "Replace('blur', sigma=2)"
    array[0] = 9.0  # the user's own; the edit has a copy
    assert Replace(np.arange(3.0)) == Replace([0.0, 1.0, 2.0]) != Replace(array)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("median",), '"mean" or "blur"; got \'median\''),
        ((np.nan,), "is a finite number"),
        ((None,), "is a finite number"),
        (([["a"]],), "is a finite number"),
        ((0.0, 1.0), "of the blur, with"),
        (("blur", -1.0), "finite sigma >= 0"),
        (("blur", 0.0), "sigma > 0"),
    ],
)
def test_what_is_no_reference_is_refused(arguments, said, types_unchecked):
    with pytest.raises(ValueError, match=said):
        Replace(*arguments)


@pytest.mark.parametrize(
    ("grid", "value", "x", "said"),
    [
        (Patches(2), np.zeros((5, 4, 3)), IMAGE, r"does not broadcast to examples of shape \(6, 4"),
        (Whole(), "mean", IMAGE, "smaller than an example"),
        (Tokens(), "mean", np.array([1, 2]), "needs floating-point inputs"),
        (Tokens(), 0.5, np.array([1, 2]), "give whole numbers"),
    ],
)
def test_a_reference_that_does_not_fit_is_refused(grid, value, x, said):
    with pytest.raises(ValueError, match=said):
        replaced(grid, value, 0, x)


def test_a_window_alone_has_no_mean_of_its_example():
    with pytest.raises(ValueError, match="needs the whole example"):
        Replace("mean")(KEY, jnp.zeros(3))
    assert Replace(2.0)(KEY, jnp.zeros(2)).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("grid", [Patches(2), OverlappingPatches(3)])
def test_spread_is_the_mean_over_the_windows_of_an_entry(grid):
    shape = (6, 4, 3)
    num = int(np.prod(grid.layout(shape)))
    values = np.random.default_rng(1).normal(size=(2, num))
    covers = np.stack(
        [
            np.asarray(Perturbation(grid, Replace(1.0))(KEY, jnp.zeros(shape), position))
            for position in range(num)
        ]
    )
    expected = np.einsum("nt,thwc->nhwc", values, covers) / covers.sum(axis=0)
    np.testing.assert_allclose(spread(values, grid, shape), expected, rtol=1e-12)


def test_spread_needs_a_value_for_every_window():
    with pytest.raises(ValueError, match=r"T=6 for examples of shape \(6, 4, 3\); got \(2, 5\)"):
        spread(np.zeros((2, 5)), Patches(2), (6, 4, 3))
