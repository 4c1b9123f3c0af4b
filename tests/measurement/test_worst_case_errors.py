"""What `worst_case` refuses, in one line each, and where it goes on by whole passes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsens
from jaxsens import Ball, Gaussian, Metric, OverlappingPatches, Perturbation, Tokens
from jaxsens.measurement import search as search_module

NEAR_TIE = jaxsens.label_flip.jumps_within


def worst(apply_fn, params, x, perturbation, **options):
    options = {"num_starts": 4, "num_steps": 60, "incremental": False} | options
    return jaxsens.worst_case(
        apply_fn, params, x, perturbation, key=jax.random.key(0), devices=jax.devices()[:1],
        **options,
    )  # fmt: skip


def words(n=2, T=6, d=5, seed=0):
    return np.random.default_rng(seed).normal(size=(n, T, d)).astype(np.float32)


def ball(radius=1.0, grid=None):
    return Perturbation(grid or Tokens(), Ball(radius))


def linear(weights, x):
    return (x * weights[None]).sum(axis=(1, 2))


def attention_features(weights, x):
    q = (x @ weights)[:, :, None]
    return jaxsens.attention(q, x[:, :, None], x[:, :, None])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"perturbation": Perturbation(Tokens(), Gaussian(sigma=1.0))}, "worst_case needs a Ball"),
        ({"perturbation": Ball(1.0)}, "perturbation must be a grid with an edit"),
        ({"num_starts": 0}, "num_starts must be a whole number >= 1; got 0"),
        ({"num_steps": 1.5}, "num_steps must be a whole number >= 1; got 1.5"),
        ({"x": np.zeros((2, 6), np.int32)}, "of token ids, give the embeddings as x"),
        ({"x": np.zeros((2, 0, 5), np.float32)}, "have no position to edit"),
        ({"perturbation": ball(grid=OverlappingPatches(9))}, "needs images"),
        ({"positions": [6]}, r"positions must be 'all', or some of 0 … 5; got \[6\]"),
        ({"positions": []}, "positions must be 'all', or some of 0 … 5"),
        ({"positions": "first"}, "positions must be 'all', or some of 0 … 5; got 'first'"),
        ({"positions": [1, 1]}, "positions must be given once each"),
        ({"positions": [0], "mask": np.eye(6, dtype=bool)[[3, 4]]}, "mask leaves none of the"),
        ({"metric": Metric("j", jaxsens.label_flip.change, 0.0, 1.0, NEAR_TIE)},
         "metric 'j' jumps, so it has no gradient to follow"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused_in_one_line(types_unchecked, options, message):
    given = {"x": words(), "perturbation": ball()} | options
    x, perturbation = given.pop("x"), given.pop("perturbation")
    with pytest.raises(ValueError, match=message) as raised:
        worst(linear, words(1)[0], x, perturbation, **given)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("incremental", [False, True])
def test_a_gradient_that_is_nan_is_named(incremental):
    def roots(weights, x):
        return jnp.sqrt(jnp.maximum(x, 0.0) ** 2 * weights[None]).sum(axis=2)

    with pytest.raises(ValueError, match="gradient of the metric in the window is not finite for "
                       "example 0 with a move of position 0") as raised:  # fmt: skip
        worst(roots, words(1)[0] ** 2, words(), ball(3.0), incremental=incremental)
    assert "\n" not in str(raised.value)


def test_outputs_that_are_not_finite_are_named():
    def blow_up(weights, x):
        return jnp.exp(40 * jnp.abs(x)).sum(axis=(1, 2))

    with pytest.raises(ValueError, match="outputs, or the metric of them, are not finite"):
        worst(blow_up, (), 0.1 * words(), ball(9.0), incremental=False)


def test_a_model_without_a_slope_is_refused():
    hard = lambda weights, x: jnp.sign(x * weights[None]).sum(axis=2) + 9  # noqa: E731
    with pytest.raises(ValueError, match="gradient of the model in its input is 0 at every start"):
        worst(hard, words(1)[0], words(), ball(3.0), incremental=False)


def test_a_loop_that_cannot_be_differentiated_is_refused():
    def endless(params, x):
        return jax.lax.while_loop(lambda s: s.sum() < 0, lambda s: s + 1.0, x.sum(axis=(1, 2)))

    with pytest.raises(ValueError, match=r"the gradient of apply_fn in x.* fails: .*Reverse-mode"):
        worst(endless, (), words(), ball())


def test_reuse_that_cannot_be_traced_takes_whole_passes(monkeypatch):
    def broken(*_):
        raise KeyError("rule")

    x, weights = words(1, T=40), words(1, T=5, seed=3)[0]
    options = {"num_steps": 3, "positions": [0]}
    whole = worst(attention_features, weights, x, ball(1.0), incremental=False, **options)
    monkeypatch.setattr(search_module, "_trace", broken)
    with pytest.raises(KeyError, match="rule"):
        worst(attention_features, weights, x, ball(1.0), incremental=True, **options)
    with pytest.warns(UserWarning, match="every edit takes a whole forward pass"):
        est = worst(attention_features, weights, x, ball(1.0), incremental="auto", **options)
    np.testing.assert_array_equal(est.changes, whole.changes)
    assert not est.provenance.incremental
