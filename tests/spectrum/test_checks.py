"""Proposition 3.1 by enumeration: where it holds, where it does not, and the counterexample."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from jaxsens import boolean, spectrum
from jaxsens.spectrum import MLP, Transformer, exact
from jaxsens.spectrum.checks import column_parities, extremes


def checked(architecture, d, kind="ck", precision="float64"):
    kernel = spectrum.cube_kernels(architecture, d, precision=precision)[kind]
    return spectrum.check(kernel, tokens=getattr(architecture, "tokens", 1))


def dense_fourier(kernel):
    d = 3
    x = np.asarray(boolean.cube(d))
    chi = np.stack([np.prod(x[:, list(boolean.coordinates_of(u))], axis=1) for u in range(2**d)])
    return chi @ kernel @ chi.T / 4**d


def test_the_fourier_matrix_is_the_dense_one():
    kernel = np.random.default_rng(0).normal(size=(8, 8))
    kernel = kernel + kernel.T
    np.testing.assert_allclose(spectrum.fourier_matrix(kernel), dense_fourier(kernel), atol=1e-15)
    single = spectrum.fourier_matrix(kernel.astype(np.float32))
    assert single.dtype == np.float32


def test_extremes_by_plain_enumeration():
    kernel = spectrum.cube_kernels(Transformer(tokens=2, embed=False), 4)["ck"]
    x = np.asarray(boolean.cube(4))
    r = np.rint((4 - x @ x.T) / 2).astype(int)
    low, high = extremes(kernel)
    assert low.tolist() == [kernel[r == k].min() for k in range(5)]
    assert high.tolist() == [kernel[r == k].max() for k in range(5)]


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["ck", "ntk"])
def test_mlps_fulfil_the_proposition(kind, precision):
    for activation in ("relu", "erf", "gelu"):
        found = checked(MLP(depth=2, activation=activation), 6, kind, precision)
        assert found.precision == precision
        assert found.proposition
        assert found.column_parities
        assert found.trace_fraction.sum() == pytest.approx(1)
        values = spectrum.profile_values(MLP(depth=2, activation=activation), 6)[kind]
        scale = 1e-12 if precision == "float64" else 1e-5
        np.testing.assert_allclose(
            found.mu_mean, spectrum.eigenvalues(values).values, atol=scale * found.largest
        )


@pytest.mark.parametrize("scaling", ["sqrt", "linear"])
@pytest.mark.parametrize("readout", ["flatten", "mean"])
def test_the_proposition_holds_for_one_token_and_for_tokens_of_one_bit(scaling, readout):
    one = checked(Transformer(tokens=1, scaling=scaling, readout=readout, embed=False), 4)
    assert one.proposition
    bits = checked(Transformer(tokens=4, scaling=scaling, readout=readout, embed=False), 4)
    # Tokens of one bit need the flatten readout; the mean forgets which token is which.
    assert bits.proposition == (readout == "flatten")
    assert bits.univariate == bits.eigenfunctions == (readout == "flatten")


@pytest.mark.parametrize("kind", ["ck", "ntk"])
@pytest.mark.parametrize(("d", "tokens"), [(4, 2), (6, 2), (6, 3)])
def test_it_fails_for_wide_tokens(d, tokens, kind):
    found = checked(Transformer(tokens=tokens, embed=False), d, kind)
    assert not found.univariate
    assert not found.eigenfunctions
    assert found.ordered_on_average
    # Flipping a coordinate of every token in both points leaves all products of tokens alone.
    assert found.column_parities


def test_the_numbers_of_the_specification():
    six = checked(Transformer(tokens=2, embed=False), 6)
    assert six.spread == pytest.approx(4 / 9)
    eight = checked(Transformer(tokens=2, embed=False), 8)
    assert eight.off_diagonal_mass == pytest.approx(np.sqrt(3 / 37))
    assert round(eight.off_diagonal_mass, 2) == 0.28


def test_exact_arithmetic_agrees():
    for d, tokens in ((4, 1), (4, 2), (4, 4), (6, 3)):
        for scaling, readout in itertools.product(("sqrt", "linear"), ("flatten", "mean")):
            architecture = Transformer(tokens=tokens, scaling=scaling, readout=readout, embed=False)
            numerators, denominator = exact.attention_kernel(architecture, d)
            kernel = spectrum.cube_kernels(architecture, d)["ck"]
            np.testing.assert_allclose(kernel, numerators / denominator, atol=1e-14)
            found = spectrum.check(kernel, tokens=tokens)
            counter = spectrum.counterexample(architecture, d)
            assert (counter is None) == found.univariate
            diagonal = exact.eigenvalues_if_diagonal(architecture, d)
            assert (diagonal is not None) == found.eigenfunctions


def test_exact_eigenvalues_of_one_token():
    mu = exact.eigenvalues_if_diagonal(Transformer(tokens=1, embed=False), 6)
    by_degree = {1: Fraction(2, 27), 3: Fraction(1, 36)}
    assert mu == [by_degree.get(u.bit_count(), 0) for u in range(64)]


def test_the_smallest_counterexample_is_one():
    found = spectrum.counterexample(Transformer(tokens=2, embed=False), 4)
    assert found is not None
    kernels = []
    for x, y in found.pairs:
        assert int(np.dot(x, y)) == found.inner_product
        x, y = np.array(x).reshape(2, 2), np.array(y).reshape(2, 2)
        kappa = [[Fraction(int(np.dot(a, b)), 2) for b in y] for a in x]
        total = sum(k * k for row in kappa for k in row)
        kernels.append((kappa[0][0] + kappa[1][1]) / 2 * total)
    assert tuple(kernels) == found.values
    assert kernels[0] != kernels[1]
    hat = spectrum.fourier_matrix(spectrum.cube_kernels(found.architecture, 4)["ck"])
    u, v = (boolean.mask_of(members) for members in found.coupled)
    assert hat[u, v] == pytest.approx(float(found.coupling))
    # Below d = 4 there is no T > 1 with tokens of more than one bit.
    for d in (2, 3):
        assert spectrum.counterexample(Transformer(tokens=d, embed=False), d) is None


def test_a_mean_that_grows_is_reported():
    mu = np.array([1.0, 0.5, 0.5, 2.0, 0.5, 2.0, 2.0, 0.1])
    x = np.asarray(boolean.cube(3))
    chi = np.stack([np.prod(x[:, list(boolean.coordinates_of(u))], axis=1) for u in range(8)])
    found = spectrum.check((chi.T * mu) @ chi.astype(np.float64))
    assert found.eigenfunctions
    assert not found.ordered
    assert found.violations == (0,)
    assert not found.ordered_on_average
    assert found.summary()["violations"] == [0]


def test_column_parities():
    parities = column_parities(4, 2)
    assert parities[boolean.mask_of([0, 2])] == 0
    assert parities[boolean.mask_of([0, 3])] == 0b11
    assert column_parities(4, 1).tolist() == list(range(16))


def test_what_is_no_kernel_is_refused():
    with pytest.raises(ValueError, match="finite symmetric kernel"):
        spectrum.check(np.array([[1.0, 2.0], [0.0, 1.0]]))
    with pytest.raises(ValueError, match="one attention layer on raw tokens"):
        exact.attention_kernel(Transformer(tokens=2), 4)
