"""E(f − g)² ≥ (√as(f) − √as(g))²/n for any two real functions of n bits."""

import numpy as np
import pytest

from jaxsens import boolean


def sides(f, g):
    """Left and right for tables (k, 2ⁿ)."""
    n = f.shape[1].bit_length() - 1
    roots = [np.sqrt(np.asarray(boolean.average_sensitivity_from_fourier(h))) for h in (f, g)]
    return (roots[0] - roots[1]) ** 2 / n, np.mean((f - g) ** 2, axis=1)


@pytest.mark.parametrize("n", [2, 4, 7, 9])
def test_it_holds_for_two_thousand_random_pairs(n):
    rng = np.random.default_rng(n)
    signs = rng.choice([-1.0, 1.0], (250, 2**n))
    near = signs * rng.uniform(0.2, 1, (250, 1)) + rng.normal(0, 0.3, signs.shape)
    real = rng.normal(size=(250, 2**n))
    pairs = (
        np.concatenate([signs, real]),
        np.concatenate([near, rng.choice([-1.0, 1.0], real.shape)]),
    )
    left, right = sides(*(each.astype(np.float32) for each in pairs))
    assert len(left) == 500
    assert (left <= right * (1 + 1e-4) + 1e-6).all()


def test_it_is_an_equality_for_parity_against_its_multiples_and_fails_without_the_root():
    parity = np.asarray(boolean.table_of(boolean.parity, 6))
    scales = np.array([0.0, 0.3, 0.9])
    f, g = np.tile(parity, (3, 1)), scales[:, None].astype(np.float32) * parity
    left, right = sides(f, g)
    np.testing.assert_allclose(left, right, atol=1e-6)
    np.testing.assert_allclose(left, (1 - scales) ** 2, atol=1e-6)
    # What must not be written by mistake: as in place of its root.
    assert ((6 - 6 * scales**2) ** 2 / 6 > right + 1e-3).all()
