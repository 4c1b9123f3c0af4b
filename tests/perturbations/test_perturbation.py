"""Grids tile the input, edits touch their window and nothing else, draws follow their law."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxsens import (
    Bits,
    Donor,
    Flip,
    Gaussian,
    OverlappingPatches,
    Patches,
    Perturbation,
    Resample,
    ScatteredPixels,
    Tokens,
    Whole,
)

KEY = jax.random.key(0)


def keys(num):
    return jax.random.split(KEY, num)


def z_score(draws, mean, std):
    draws = np.asarray(draws, float)
    return (draws.mean() - mean) / (std / math.sqrt(draws.size))


@dataclass(frozen=True)
class Set:
    """Writes one value everywhere in the window, to see where the window is."""

    value: float

    def __call__(self, key, window, /):
        return jnp.full_like(window, self.value)


def touched(grid, shape, position):
    """Where an edit at this position changes an example of zeros."""
    return np.asarray(Perturbation(grid, Set(1.0))(KEY, jnp.zeros(shape), position)) != 0


# Grids.


@pytest.mark.parametrize(
    ("grid", "shape", "layout"),
    [
        (Patches(4), (28, 28, 1), (7, 7)),
        (Patches(2), (4, 6, 3), (2, 3)),
        (Patches(1), (2, 2, 1), (2, 2)),
        (Patches(8), (8, 8, 3), (1, 1)),
        (Tokens(), (5, 7), (5,)),
        (Tokens(), (5,), (5,)),
        (Tokens(), (3, 2, 2), (3,)),
        (Bits(), (6,), (6,)),
        (Whole(), (4, 6, 3), (1,)),
        (Whole(), (5,), (1,)),
    ],
)
def test_windows_tile_the_example_in_row_major_order(grid, shape, layout):
    assert grid.layout(shape) == layout
    num_positions = Perturbation(grid, Set(1.0)).num_positions(shape)
    assert num_positions == math.prod(layout)
    windows = [touched(grid, shape, position) for position in range(num_positions)]
    assert np.array_equal(np.sum(windows, axis=0), np.ones(shape))
    firsts = [tuple(np.argwhere(window)[0]) for window in windows]
    assert firsts == sorted(firsts)
    assert {window.sum() for window in windows} == {math.prod(grid.window_shape(shape))}


def test_a_patch_is_where_an_image_library_would_look_for_it():
    window = touched(Patches(4), (28, 28, 1), 7 * 2 + 3)
    expected = np.zeros((28, 28, 1), bool)
    expected[8:12, 12:16] = True
    assert np.array_equal(window, expected)


def test_overlapping_patches_lie_at_every_offset():
    grid, shape = OverlappingPatches(2), (4, 5, 3)
    assert grid.layout(shape) == (3, 4)
    windows = np.stack([touched(grid, shape, position) for position in range(12)])
    for position, window in enumerate(windows):
        row, column = divmod(position, 4)
        expected = np.zeros(shape, bool)
        expected[row : row + 2, column : column + 2] = True
        assert np.array_equal(window, expected)


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.data())
def test_any_patch_grid_edits_only_its_patch(size, rows, columns, channels, data):
    shape = (size * rows, size * columns, channels)
    position = data.draw(st.integers(0, rows * columns - 1))
    row, column = divmod(position, columns)
    window = touched(Patches(size), shape, position)
    inside = window[row * size : (row + 1) * size, column * size : (column + 1) * size]
    assert inside.all()
    assert window.sum() == inside.size


def test_a_traced_position_is_the_same_position():
    perturb = Perturbation(Patches(2), Gaussian(sigma=1.0))
    x = jax.random.normal(KEY, (4, 4, 1))
    for position in range(4):
        traced = jax.jit(perturb)(KEY, x, jnp.asarray(position))
        np.testing.assert_allclose(traced, perturb(KEY, x, position), rtol=1e-6)


@pytest.mark.parametrize(
    ("grid", "shape", "message"),
    [
        (
            Patches(5),
            (28, 28, 1),
            "patch=5 does not divide image side 28; choose one of 1, 2, 4, 7, 14, 28$",
        ),
        (Patches(7), (28, 20, 1), "patch=7 does not divide image side 20; choose one of 1, 2, 4$"),
        (Patches(0), (4, 4, 1), "patch=0 does not divide image side 4; choose one of 1, 2, 4$"),
        (Patches(2), (4, 4), r"Patches needs images \(H, W, C\); got an example of shape \(4, 4\)"),
        (Bits(), (4, 4), r"Bits needs points of the cube \(d,\); got an example of shape \(4, 4\)"),
        (Tokens(), (), "Tokens needs sequences"),
        (OverlappingPatches(5), (4, 8, 1), r"OverlappingPatches\(5\) needs images"),
        (OverlappingPatches(2), (4, 8), r"OverlappingPatches\(2\) needs images"),
    ],
)
def test_a_grid_that_does_not_fit_says_what_would(grid, shape, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        grid.layout(shape)


# Edits.


def test_gaussian_takes_a_standard_deviation_or_a_variance():
    assert Gaussian(variance=5.0).sigma == math.sqrt(5.0)
    assert Gaussian(sigma=3.0).variance == 9.0
    assert Gaussian(sigma=2.0) == Gaussian(variance=4.0)
    assert repr(Gaussian(variance=5.0)) == "Gaussian(sigma=2.23607, variance=5)"


def test_gaussian_noise_is_jax_s_own_for_that_shape():
    window = jnp.zeros((3, 4, 2))
    noise = Gaussian(sigma=1.0)(KEY, window)
    np.testing.assert_array_equal(noise, jax.random.normal(KEY, window.shape))


def test_scattered_pixels_are_drawn_with_replacement_from_the_whole_image():
    edit, num_draws = ScatteredPixels(16, Gaussian(variance=1.0)), 4000
    window = jnp.ones((8, 8, 3))
    edited = np.asarray(jax.vmap(lambda key: edit(key, window))(keys(num_draws)))
    changed = (edited != 1).any(axis=-1)
    assert np.array_equal(changed, (edited != 1).all(axis=-1))
    assert changed.sum(axis=(1, 2)).max() <= 16
    # A pixel is missed by all 16 draws with probability (63/64)^16, and all pixels are alike.
    chance = 1 - (63 / 64) ** 16
    error = math.sqrt(chance * (1 - chance) / num_draws)
    assert np.abs(changed.mean(axis=0) - chance).max() < 5 * error
    assert abs(z_score((edited - 1)[changed], 0.0, 1.0)) < 4


def test_scattered_pixels_refuse_what_is_not_an_image():
    with pytest.raises(ValueError, match=r"count >= 1; got 0"):
        ScatteredPixels(0, Gaussian(sigma=1.0))
    with pytest.raises(ValueError, match=r"needs \(H, W, C\) windows; got \(3,\)"):
        ScatteredPixels(2, Gaussian(sigma=1.0))(KEY, jnp.ones(3))


def test_gaussian_noise_has_its_mean_and_variance_and_is_independent():
    edit = Gaussian(variance=5.0)
    window = jnp.full((2, 2, 1), 3.0)
    noise = jax.vmap(lambda key: edit(key, window))(keys(20_000)) - 3.0
    assert abs(z_score(noise, 0.0, math.sqrt(5.0))) < 4
    # Var(ξ²) = 2σ⁴; for a product of two entries it is σ⁴.
    assert abs(z_score(noise**2, 5.0, math.sqrt(2.0) * 5.0)) < 4
    assert abs(z_score(noise[:, 0, 0] * noise[:, 1, 1], 0.0, 5.0)) < 4


def test_sigma_zero_changes_nothing():
    x = jax.random.normal(KEY, (5, 3))
    assert np.array_equal(Perturbation(Tokens(), Gaussian(sigma=0.0))(KEY, x, 2), x)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "takes one of sigma= and variance="),
        ({"sigma": 1.0, "variance": 1.0}, "takes one of sigma= and variance="),
        ({"sigma": -1.0}, "finite sigma >= 0; got -1.0"),
        ({"variance": -2.0}, "finite variance >= 0; got -2.0"),
        ({"sigma": math.inf}, "finite sigma >= 0; got inf"),
        ({"variance": math.nan}, "finite variance >= 0; got nan"),
    ],
)
def test_gaussian_refuses_what_is_not_a_spread(given, message):
    with pytest.raises(ValueError, match=message):
        Gaussian(**given)


def test_gaussian_refuses_integers():
    with pytest.raises(ValueError, match="needs floating-point inputs; got int32"):
        Perturbation(Tokens(), Gaussian(sigma=1.0))(KEY, jnp.arange(4), 0)


@pytest.mark.parametrize(
    ("edit", "x"),
    [
        (Flip(), jnp.array([-1.0, 1.0, 1.0])),
        (Flip(), jnp.array([-1, 1, 1])),
        (Flip(0, 1), jnp.array([0, 1, 1])),
        (Flip(0, 1), jnp.array([0, 1, 1], jnp.uint8)),
        (Flip(0, 1), jnp.array([False, True, True])),
    ],
)
def test_flip_exchanges_two_values_of_any_dtype(edit, x):
    for position in range(3):
        flipped = Perturbation(Bits(), edit)(KEY, x, position)
        assert flipped.dtype == x.dtype
        assert np.flatnonzero(flipped != x).tolist() == [position]
        assert set(np.asarray(flipped).tolist()) <= {edit.low, edit.high}
        assert np.array_equal(Perturbation(Bits(), edit)(KEY, flipped, position), x)


def test_flip_refuses_values_that_are_neither():
    with pytest.raises(ValueError, match=r"needs inputs that are -1 or 1; got 0"):
        Perturbation(Bits(), Flip()).check(np.array([[1, 0]]))
    Perturbation(Bits(), Flip(0, 1)).check(np.array([[1, 0]]))


def test_resample_is_uniform_over_the_whole_vocabulary_the_current_token_included():
    draw = Perturbation(Tokens(), Resample(7))
    ids = jax.vmap(lambda key: draw(key, jnp.array([3, 3, 3]), 1))(keys(14_000))
    assert np.all(ids[:, [0, 2]] == 3)
    share = np.bincount(ids[:, 1], minlength=7) / 14_000
    assert np.all(np.abs(share - 1 / 7) < 4 * math.sqrt(1 / 7 * 6 / 7 / 14_000))


def test_resample_draws_the_same_token_as_an_id_and_as_a_one_hot_row():
    ids = jnp.array([0, 4, 2])
    rows = jax.nn.one_hot(ids, 5)
    draw = Perturbation(Tokens(), Resample(5))
    for key in keys(10):
        edited = draw(key, rows, 1)
        assert np.array_equal(edited, jax.nn.one_hot(draw(key, ids, 1), 5))
        assert edited.dtype == rows.dtype


def test_enumeration_visits_every_replacement_once():
    enumerate_ids = Perturbation(Tokens(), Resample(4))
    assert enumerate_ids.num_replacements((3,)) == 4
    assert enumerate_ids.num_replacements((3, 4)) == 4
    x = jnp.array([9, 9, 9])
    replaced = [
        np.asarray(enumerate_ids.put(x, enumerate_ids.replacement(i, x, 2), 2)) for i in range(4)
    ]
    assert [r.tolist() for r in replaced] == [[9, 9, i] for i in range(4)]
    assert Perturbation(Bits(), Flip()).num_replacements((5,)) == 1


@pytest.mark.parametrize(
    ("perturb", "x"),
    [
        (Perturbation(Tokens(), Resample(5)), jnp.zeros((3, 4))),
        (Perturbation(Tokens(), Resample(5)), jnp.zeros(3)),
        (Perturbation(Patches(2), Resample(5)), jnp.zeros((4, 4, 1))),
    ],
)
def test_resample_refuses_windows_that_are_not_one_token(perturb, x):
    with pytest.raises(ValueError, match="Resample"):
        perturb(KEY, x, 0)


def test_an_empty_vocabulary_is_refused():
    with pytest.raises(ValueError, match="vocabulary >= 1; got 0"):
        Resample(0)


@pytest.mark.parametrize("edit", [Gaussian(sigma=1.0), Donor(), Set(1.0)])
def test_only_finite_edits_enumerate(edit):
    with pytest.raises(ValueError, match="infinitely many"):
        Perturbation(Tokens(), edit).num_replacements((3,))


def test_a_donor_is_another_example_uniformly():
    n, draws = 5, 8000
    pool = jnp.arange(n, dtype=jnp.float32)[:, None] + jnp.array([[0.0, 100.0, 200.0]])
    donate = Perturbation(Tokens(), Donor())

    @jax.jit
    def donations(keys, example):
        def draw(key):
            return donate(key, pool[example], 1, pool=pool, example=example)

        return jax.vmap(draw)(keys)

    for example in range(n):
        edited = donations(keys(draws), example)
        assert np.all(edited[:, 0] == example)
        assert np.all(edited[:, 2] == 200 + example)
        donors = np.asarray(edited[:, 1] - 100).astype(int)
        share = np.bincount(donors, minlength=n) / draws
        assert share[example] == 0
        others = np.delete(share, example)
        assert np.all(np.abs(others - 1 / 4) < 4 * math.sqrt(1 / 4 * 3 / 4 / draws))


def test_a_donor_needs_its_pool():
    with pytest.raises(ValueError, match="pool="):
        Perturbation(Tokens(), Donor())(KEY, jnp.zeros(3), 0)


# Perturbations.


def test_a_perturbation_is_a_value():
    one = Perturbation(Patches(4), Gaussian(variance=5.0))
    same = Perturbation(Patches(4), Gaussian(variance=5.0))
    assert one == same
    assert hash(one) == hash(same)
    assert len({one, same, Perturbation(Patches(2), Gaussian(variance=5.0))}) == 2


def test_the_same_key_is_the_same_draw_and_another_key_another():
    perturb = Perturbation(Tokens(), Gaussian(sigma=1.0))
    x = jnp.zeros((3, 2))
    first, second = keys(2)
    assert np.array_equal(perturb(first, x, 1), perturb(first, x, 1))
    assert not np.array_equal(perturb(first, x, 1), perturb(second, x, 1))


@dataclass(frozen=True)
class Shrinking:
    def __call__(self, key, window, /):
        return window[..., :1]


@dataclass(frozen=True)
class Widening:
    def __call__(self, key, window, /):
        return window.astype(jnp.float32)


@pytest.mark.parametrize(
    ("edit", "x"), [(Shrinking(), jnp.zeros((2, 3))), (Widening(), jnp.zeros((2, 3), jnp.int32))]
)
def test_an_edit_must_keep_shape_and_dtype(edit, x):
    with pytest.raises(ValueError, match="must return a window of shape"):
        Perturbation(Tokens(), edit)(KEY, x, 0)
