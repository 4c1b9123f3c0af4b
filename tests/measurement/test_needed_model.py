"""Models of which one token is read are measured without the others, and give the same flips."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens import Ball, Gaussian, Patches, Perturbation, Tokens, explain, sensitivity, worst_case
from jaxsens.core import runtime
from jaxsens.incremental import flops
from jaxsens.incremental.needed import axes, needed_alone, steps
from jaxsens.measurement import needed_model, preparation
from jaxsens.models import MLP
from tests.incremental.as_written import BERT, IMAGES, MASK, ROWS, ViT, made

KEY = jax.random.key(0)
PATCHES = Perturbation(Patches(4), Gaussian(sigma=3.0))


def prepared(apply_fn, params, x, noise=PATCHES, **options):
    options = {"incremental": False, "check": False} | options
    return preparation.prepare_job(apply_fn, params, x, noise, 2, key=KEY, **options)


def test_the_same_flips(monkeypatch):
    apply_fn, options = ViT(depth=1).apply, {"key": KEY, "incremental": False, "check": False}
    params = made(ViT(depth=1), IMAGES)
    without = sensitivity(apply_fn, params, IMAGES, PATCHES, 3, **options)
    monkeypatch.setattr(preparation, "needed_model", lambda apply_fn, *_: apply_fn)
    whole = sensitivity(apply_fn, params, IMAGES, PATCHES, 3, **options)
    assert whole.totals.sum() > 0
    np.testing.assert_array_equal(without.totals, whole.totals)


@pytest.mark.slow
def test_the_same_worst_case(monkeypatch):
    model, ball = BERT(), Perturbation(Tokens(), Ball(2.0))
    params = made(model, ROWS, MASK)
    options = {"num_starts": 2, "num_steps": 3, "key": KEY, "context": MASK, "incremental": False}
    without = worst_case(model.apply, params, ROWS, ball, **options)
    monkeypatch.setattr(preparation, "needed_model", lambda apply_fn, *_: apply_fn)
    whole = worst_case(model.apply, params, ROWS, ball, **options)
    np.testing.assert_allclose(without.mean, whole.mean, rtol=1e-3)


def test_what_is_left_out_is_left_out_of_whole_passes_too():
    model = ViT()
    params = made(model, IMAGES)
    job = prepared(model.apply, params, IMAGES)
    assert job.spec.apply_fn is needed_alone(model.apply)
    assert prepared(model.apply, params, IMAGES).spec.apply_fn is job.spec.apply_fn


def test_a_model_that_has_nothing_to_leave_out_is_the_same_function():
    model = MLP(4)
    apply_fn = model.apply
    assert prepared(apply_fn, made(model, IMAGES), IMAGES).spec.apply_fn is apply_fn


def test_a_wrong_rule_is_noticed(monkeypatch):
    def product(call):
        found = axes.dot_general(call)
        return steps.Step(found.taken, found.given, lambda *a: [1.1 * found.apply(*a)[0]])

    def model(w, x):
        return jnp.tanh(x @ w[0])[:, 0] @ w[1]

    rng = np.random.default_rng(0)
    w = [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((16, 9), (9, 4))]
    noise = Perturbation(Tokens(), Gaussian(sigma=1.0))
    expected = prepared(model, w, ROWS, noise).spec.apply_fn(w, ROWS)
    np.testing.assert_allclose(expected, model(w, ROWS), rtol=1e-5)
    needed_model._look.cache_clear()
    monkeypatch.setitem(steps.NEEDS, "dot_general", product)
    with pytest.warns(UserWarning, match=r"fault of jaxsens.*outputs differ by"):
        job = prepared(model, w, ROWS, noise)
    assert job.spec.apply_fn is model
    needed_model._look.cache_clear()


def test_a_model_that_gives_nothing_finite_is_measured_without_complaint():
    def model(w, x):
        return (jnp.log(-jnp.abs(x)) @ w)[:, 0]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = needed_model.needed_model(model, jnp.ones((16, 4)), (ROWS,), runtime.local_mesh())
    assert found is needed_alone(model)


def test_explain_counts_without_it():
    model = ViT()
    params = jax.eval_shape(model.init, KEY, IMAGES)
    found = explain(model.apply, params, IMAGES, PATCHES)
    # But for the few operations on parameters alone.
    assert found.plain == pytest.approx(sum(step.plain for step in found.steps), rel=5e-5)
    one = jax.ShapeDtypeStruct((1, *IMAGES.shape[1:]), jnp.float32)
    assert found.plain < 0.65 * flops.count(jax.make_jaxpr(model.apply)(params, one).jaxpr)
