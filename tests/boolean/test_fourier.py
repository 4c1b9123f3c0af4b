"""The transform against the dense matrix, Parseval, stability by its definition."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens import boolean
from jaxsens.core import memory


def dense(d):
    """χ_U(x) for all U and x, from the definition."""
    x = np.array([[1 - 2 * (b >> i & 1) for i in range(d)] for b in range(2**d)])
    sets = [[i for i in range(d) if u >> i & 1] for u in range(2**d)]
    return np.array([[np.prod(point[members]) for point in x] for members in sets])


@pytest.mark.parametrize("d", [1, 2, 5, 8])
def test_the_transform_is_the_dense_matrix(d):
    values = jax.random.randint(jax.random.key(d), (3, 2**d), -50, 50)
    expected = np.asarray(values) @ dense(d).T
    assert (np.asarray(boolean.walsh_hadamard(values)) == expected).all()


@pytest.mark.parametrize("x64", [False, True])
def test_both_precisions(x64):
    with jax.enable_x64(x64):
        values = jax.random.normal(jax.random.key(0), (2**8,))
        assert values.dtype == (jnp.float64 if x64 else jnp.float32)
        again = boolean.values_from_fourier(boolean.fourier_coefficients(values))
        assert again.dtype == values.dtype
        np.testing.assert_allclose(again, values, atol=1e-14 if x64 else 1e-5)


def test_a_character_has_one_coefficient():
    x = boolean.cube(10)
    coefficients = boolean.fourier_coefficients(boolean.parity(x, [1, 4, 7]))
    assert np.flatnonzero(coefficients).tolist() == [boolean.mask_of([1, 4, 7])]
    assert float(coefficients.max()) == 1.0


def test_weights_add_up_to_the_mean_square():
    values = jax.random.normal(jax.random.key(1), (4, 2**7))
    weights = boolean.weight_by_degree(values)
    assert weights.shape == (4, 8)
    np.testing.assert_allclose(weights.sum(axis=1), (values**2).mean(axis=1), rtol=1e-5)


def test_stability_is_the_correlation_of_noisy_copies():
    values, rho, d = boolean.table_of(boolean.majority, 5), 0.3, 5
    x = np.asarray(boolean.cube(d))
    same = (x[:, None] == x[None]).sum(axis=-1)
    probability = ((1 + rho) / 2) ** same * ((1 - rho) / 2) ** (d - same)
    expected = float(np.mean(np.asarray(values) * (probability @ np.asarray(values))))
    assert float(boolean.noise_stability(values, rho)) == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match="rho"):
        boolean.noise_stability(values, 1.5)


def test_one_compilation_for_one_size():
    from jaxsens.boolean import fourier

    fourier._walsh_hadamard.clear_cache()
    for seed in range(3):
        boolean.fourier_coefficients(jax.random.normal(jax.random.key(seed), (2**6,)))
    assert fourier._walsh_hadamard._cache_size() == 1


def test_degree_is_exact():
    for k, members in enumerate(([], [3], [0, 5], [1, 2, 4])):
        assert int(boolean.degree(boolean.parity(boolean.cube(6), members))) == k
    constant_plus_character = 1.0 + 1e-4 * boolean.parity(boolean.cube(4), [0, 1])
    assert int(boolean.degree(constant_plus_character)) == 2
    assert int(boolean.degree(constant_plus_character, tolerance=1e-3)) == 0


def test_sizes_that_are_no_powers_of_two_or_too_large(monkeypatch):
    with pytest.raises(ValueError, match="expected 2\\^d values with d >= 1, got 12"):
        boolean.walsh_hadamard(np.zeros(12, np.float32))
    monkeypatch.setattr(memory, "physical_bytes", lambda: 1000)
    with pytest.raises(ValueError, match=f"needs {3 * 4 * 256} bytes"):
        boolean.walsh_hadamard(np.zeros(256, np.float32))


@pytest.mark.slow
def test_d_24_fits_into_memory():
    values = boolean.table_of(lambda x: boolean.parity(x, [0, 23]), 24)
    coefficients = boolean.walsh_hadamard(values)
    assert np.flatnonzero(coefficients).tolist() == [1 + 2**23]
    assert float(coefficients[1 + 2**23]) == 2.0**24


def test_krawtchouk_sums_of_symmetric_functions():
    # A symmetric function's coefficients depend on the degree alone.
    coefficients = np.asarray(boolean.fourier_coefficients(boolean.table_of(boolean.majority, 7)))
    for k in range(8):
        sets = [boolean.mask_of(members) for members in itertools.combinations(range(7), k)]
        assert len(set(coefficients[sets].tolist())) == 1
