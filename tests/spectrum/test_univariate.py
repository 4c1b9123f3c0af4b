"""Eigenvalues by degree: exact values, brute force, and every degree of d = 128."""

import itertools
import math

import numpy as np
import pytest

from jaxsens import boolean, spectrum
from jaxsens.spectrum import MLP, Transformer
from jaxsens.spectrum.univariate import (
    eigenvalues_from_taylor,
    moments,
    taylor_coefficients,
)


def inner_products(d):
    return 1 - 2 * np.arange(d + 1) / d


def brute_force(profile, d):
    """One eigenvalue a degree, from the kernel matrix and a character of each degree."""
    x = np.asarray(boolean.cube(d), np.float64)
    matrix = profile(x @ x.T / d)
    characters = [np.prod(x[:, :k], axis=1) for k in range(d + 1)]
    for c in characters:
        applied = matrix @ c / 2**d
        np.testing.assert_allclose(applied, applied[0] * c, atol=1e-12)
    return np.array([float(c @ matrix @ c) / 4**d for c in characters])


def test_krawtchouk_numbers_are_sums_of_characters():
    d = 6
    x = np.asarray(boolean.cube(d), int)
    r = (x < 0).sum(axis=1)
    for k, row in enumerate(spectrum.krawtchouk(d)):
        character = np.prod(x[:, :k], axis=1)
        assert row == [int(character[r == weight].sum()) for weight in range(d + 1)]


@pytest.mark.parametrize("d", [1, 10])
@pytest.mark.parametrize("activation", ["relu", "erf", "gelu"])
def test_both_ways_agree_with_brute_force(d, activation):
    for kind in ("ck", "ntk"):
        profile = spectrum.mlp_profile(MLP(depth=2, activation=activation), kind)
        expected = brute_force(profile, d)
        found = spectrum.eigenvalues(profile(inner_products(d)))
        np.testing.assert_allclose(found.values, expected, atol=1e-14 * expected.max())
        series = spectrum.eigenvalues_by_series(profile, d)
        assert (np.abs(series - found.values) <= found.error + 1e-11 * series).all()


def test_pure_linear_attention_of_one_token():
    values = spectrum.profile_values(Transformer(tokens=1, embed=False), 6)["ck"]
    found = spectrum.eigenvalues(values).values
    np.testing.assert_allclose(found, [0, 2 / 27, 0, 1 / 36, 0, 0, 0], atol=1e-16)


def test_every_degree_of_d_128_in_closed_form():
    # E[x_1⋯x_k exp(Σx_i/d)] = sinh(1/d)^k cosh(1/d)^(d−k), down to 1e-270.
    d = 128
    exact = [math.sinh(1 / d) ** k * math.cosh(1 / d) ** (d - k) for k in range(d + 1)]
    coefficients = np.array([1 / math.factorial(m) for m in range(170)])
    np.testing.assert_allclose(eigenvalues_from_taylor(coefficients, d), exact, rtol=1e-12)
    found = spectrum.eigenvalues(np.exp(inner_products(d)))
    # The powers above are themselves right to some 128 units in the last place only.
    assert (np.abs(found.values - exact) <= found.error + 1e-13 * np.array(exact)).all()
    assert found.resolved[:8].all()


def test_a_slowly_decaying_series():
    # ReLU's coefficients decay like m^(−5/2): without the tail the high degrees would be wrong.
    profile, d = spectrum.mlp_profile(MLP(depth=1), "ck"), 14
    found = spectrum.eigenvalues(profile(inner_products(d)))
    series = spectrum.eigenvalues_by_series(profile, d)
    even = np.arange(0, d + 1, 2)
    np.testing.assert_allclose(series[even], found.values[even], rtol=1e-9)
    assert (series[3::2] == 0).all()


def test_traces_are_kept():
    for d in (5, 128):
        for kind in ("ck", "ntk"):
            profile = spectrum.mlp_profile(MLP(depth=3, activation="relu"), kind)
            mu = spectrum.eigenvalues_by_series(profile, d)
            trace = sum(math.comb(d, k) * mu[k] for k in range(d + 1))
            assert trace == pytest.approx(float(profile(np.array(1.0))), rel=1e-9)


def test_mlps_are_ordered_at_d_128():
    for activation, kind in itertools.product(("relu", "erf", "gelu"), ("ck", "ntk")):
        mu = spectrum.eigenvalues_by_series(
            spectrum.mlp_profile(MLP(depth=2, activation=activation), kind), 128
        )
        assert (mu[:-2] >= mu[2:]).all()


def test_moments_are_exact_for_powers():
    for d, m in ((4, 3), (7, 5)):
        expected = brute_force(lambda t, m=m: t**m, d)
        np.testing.assert_allclose(moments(d, m + 1)[m], expected, atol=1e-15)


def test_float32_says_how_little_it_knows():
    profile = spectrum.mlp_profile(MLP(depth=2), "ntk")(inner_products(20))
    single = spectrum.eigenvalues(profile.astype(np.float32))
    double = spectrum.eigenvalues(profile)
    assert (np.abs(single.values - double.values) <= single.error).all()
    assert single.resolved.sum() < double.resolved.sum()


def test_taylor_coefficients():
    found = taylor_coefficients(spectrum.mlp_profile(MLP(depth=1), "ck"))
    # (2/π)(1 + (π/2)t + t²/2 + t⁴/24 + …)
    expected = np.array([2 / np.pi, 1, 1 / np.pi, 0, 1 / (12 * np.pi)])
    np.testing.assert_allclose(found[:5], expected, atol=1e-13)
    # Coefficients that decay geometrically keep their relative precision: 0.8^1000 = 1e-97.
    geometric = taylor_coefficients(lambda t: 1 / (1.25 - t), radius=1.25)
    np.testing.assert_allclose(geometric[:1000], 0.8 ** np.arange(1, 1001), rtol=1e-9)


def test_refusals():
    with pytest.raises(ValueError, match="Taylor coefficients >= 0, got -1 of t"):
        spectrum.eigenvalues_by_series(lambda t: 1 - t, 4)
    with pytest.raises(ValueError, match="finite values"):
        spectrum.eigenvalues(np.array([1.0, np.nan]))
