"""Infinite-width kernels: exact truths, neural-tangents against the recursion, quadrature."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens import boolean, spectrum
from jaxsens.core import memory
from jaxsens.spectrum import MLP, Transformer, limits, recursion
from jaxsens.spectrum.duals import dual

ACTIVATIONS = ("relu", "erf", "gelu")


@pytest.fixture
def neural_tangents():
    try:
        return limits.stax()
    except spectrum.NeuralTangentsMissingError as error:
        pytest.skip(str(error))


def agree(architecture, d, precision="float64", tolerance=1e-5):
    own, theirs = (
        spectrum.cube_kernels(architecture, d, precision=precision, backend=backend)
        for backend in ("recursion", "neural-tangents")
    )
    for kind in ("ck", "ntk"):
        assert own[kind].dtype == theirs[kind].dtype == precision
        gap = np.abs(own[kind] - theirs[kind]).max()
        assert gap <= tolerance * np.abs(theirs[kind]).max()


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_dual_activations_against_quadrature(activation):
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()
    a, b, c = 1.3, 0.7, 0.4
    u = np.sqrt(a) * nodes[:, None]
    v = c / np.sqrt(a) * nodes[:, None] + np.sqrt(b - c**2 / a) * nodes[None]
    expected = [float(weights @ (f(u) * f(v)) @ weights) for f in _functions(activation)]
    # ReLU has a kink, which quadrature does not resolve well.
    tolerance = 2e-2 if activation == "relu" else 1e-6
    found = dual(activation)(a, b, np.array(c))
    np.testing.assert_allclose([float(f) for f in found], expected, rtol=tolerance)


def _functions(name):
    """φ and φ' in float64 NumPy."""
    from scipy.special import erf
    from scipy.stats import norm

    return {
        "relu": (lambda z: np.maximum(z, 0), lambda z: (z > 0).astype(float)),
        "erf": (erf, lambda z: 2 / np.sqrt(np.pi) * np.exp(-(z**2))),
        "gelu": (lambda z: z * norm.cdf(z), lambda z: norm.cdf(z) + z * norm.pdf(z)),
    }[name]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_second_dual_is_the_derivative_of_the_first(activation):
    phi, c, step = dual(activation), np.array(0.3), 1e-6
    slope = (phi(1.2, 0.8, c + step)[0] - phi(1.2, 0.8, c - step)[0]) / (2 * step)
    assert float(phi(1.2, 0.8, c)[1]) == pytest.approx(float(slope), rel=1e-7)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_mlps_agree_with_neural_tangents(activation, neural_tangents):
    agree(MLP(depth=2, activation=activation, weight_variance=1.7, bias_variance=0.1), 3)


@pytest.mark.parametrize(("scaling", "readout"), [("sqrt", "mean"), ("linear", "flatten")])
def test_one_attention_layer_agrees_with_neural_tangents(scaling, readout, neural_tangents):
    agree(Transformer(tokens=2, scaling=scaling, readout=readout, embed=False), 4)


@pytest.mark.parametrize("scaling", ["sqrt", pytest.param("linear", marks=pytest.mark.slow)])
def test_whole_transformers_agree_with_neural_tangents(scaling, neural_tangents):
    architecture = Transformer(
        tokens=2,
        depth=2,
        scaling=scaling,
        activation="relu",
        residual=True,
        layer_norm=True,
        position_variance=0.5,
    )
    agree(architecture, 4)


def test_float32_agrees_too(neural_tangents):
    agree(MLP(depth=1, activation="erf"), 3, precision="float32")


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_both_precisions_give_the_same_kernel(precision):
    architecture = Transformer(tokens=2, activation="gelu", residual=True)
    exact = spectrum.cube_kernels(architecture, 4)
    found = spectrum.cube_kernels(architecture, 4, precision=precision)
    for kind in ("ck", "ntk"):
        assert found[kind].dtype == precision
        np.testing.assert_allclose(found[kind], exact[kind], rtol=1e-5, atol=1e-6)
    assert jnp.ones(1).dtype == jnp.float32  # the program's own setting is as before


def test_the_kernel_of_the_proposition():
    architecture = Transformer(tokens=2, embed=False)
    x = np.asarray(boolean.cube(4), np.float64)
    tokens = x.reshape(16, 2, 2)
    kappa = np.einsum("nai,mbi->nmab", tokens, tokens) / 2
    expected = np.einsum("nmaa->nm", kappa) / 2 * (kappa**2).sum(axis=(2, 3))
    found = spectrum.cube_kernels(architecture, 4)
    np.testing.assert_allclose(found["ck"], expected, atol=1e-15)
    # Q, K, V, O and the readout: five layers, in each of which the network is linear.
    np.testing.assert_allclose(found["ntk"], 5 * expected, atol=1e-14)


def test_one_token_is_a_function_of_the_inner_product():
    architecture = Transformer(tokens=1, depth=2, activation="relu", residual=True, layer_norm=True)
    matrix = spectrum.cube_kernels(architecture, 4)
    t = np.asarray(boolean.cube(4), np.float64) @ np.asarray(boolean.cube(4), np.float64).T / 4
    for kind in ("ck", "ntk"):
        profile = spectrum.transformer_profile(architecture, kind)
        np.testing.assert_allclose(profile(t), matrix[kind], atol=1e-6)
        values = spectrum.profile_values(architecture, 4)[kind]
        np.testing.assert_allclose(values, profile(1 - np.arange(5) / 2), atol=1e-6)
    with pytest.raises(ValueError, match="expected one token, got tokens=2"):
        spectrum.transformer_profile(Transformer(tokens=2), "ck")


def test_profiles_are_analytic():
    for activation, kind in itertools.product(ACTIVATIONS, ("ck", "ntk")):
        profile = spectrum.mlp_profile(MLP(depth=2, activation=activation), kind)
        t = np.linspace(-0.9, 0.9, 7)
        np.testing.assert_allclose(profile(t.astype(complex)), profile(t), atol=1e-14)


def test_blocks_of_rows_change_nothing(monkeypatch):
    architecture = Transformer(tokens=2, activation="relu")
    whole = spectrum.cube_kernels(architecture, 4)
    monkeypatch.setattr(limits, "BLOCK_BYTES", 3 * 16 * 4 * 8)
    for kind, matrix in spectrum.cube_kernels(architecture, 4).items():
        np.testing.assert_allclose(matrix, whole[kind], atol=1e-15)


def test_the_recursion_runs_under_jit_too():
    x = boolean.cube(4)
    architecture = Transformer(tokens=2, activation="relu")
    jitted = jax.jit(lambda x: recursion._run(architecture, _state(architecture, x)))(x)
    plain = recursion.kernels(architecture, np.asarray(x), np.asarray(x))
    for kind in ("ck", "ntk"):
        np.testing.assert_allclose(jitted[kind], plain[kind], atol=1e-5)


def _state(architecture, x):
    across = recursion._token_products(x, x, architecture.tokens) / 2
    own = recursion._own_products(x, architecture.tokens) / 2
    return recursion._State(own, own, across, recursion._start(architecture, across))


def test_too_large_a_cube_is_refused_with_its_bytes(monkeypatch):
    monkeypatch.setattr(memory, "physical_bytes", lambda: 2**20)
    with pytest.raises(ValueError, match=r"d=12, tokens=1 needs \d+ bytes"):
        spectrum.cube_kernels(MLP(), 12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MLP(depth=0), "depth must be at least 1"),
        (lambda: MLP(weight_variance=-1.0), "weight_variance > 0"),
        (lambda: Transformer(tokens=0), "at least 1"),
        (lambda: Transformer(embed=False, residual=True), "residual need embed=True"),
        (lambda: Transformer(position_variance=-1.0), "position_variance must be >= 0"),
        (lambda: spectrum.cube_kernels(Transformer(tokens=3), 4), "choose one of 1, 2, 4"),
        (lambda: spectrum.kernels(MLP(), np.ones((1, 2)) * 2, np.ones((1, 2))), "as on the cube"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
