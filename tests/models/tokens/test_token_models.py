"""Models on token ids: against their definition on one-hot rows, and all edits at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens import Perturbation, Resample, Tokens, sensitivity
from jaxsens.models import TokenAttention, TokenMLP

VOCABULARY, LENGTH = 11, 7
MODELS = {
    "attention": TokenAttention(VOCABULARY, LENGTH, sigma=0.6),
    "narrow attention": TokenAttention(VOCABULARY, LENGTH, width=3, sigma=1.0),
    "flatten": TokenMLP(VOCABULARY, LENGTH, "flatten", width=5, sigma=1.0),
    "sum": TokenMLP(VOCABULARY, LENGTH, "sum", width=5, sigma=1.0),
}


@pytest.fixture(scope="module")
def tokens():
    return jax.random.randint(jax.random.key(0), (6, LENGTH), 0, VOCABULARY)


def attention_by_definition(params, tokens):
    """⟨U, softmax(X W_Q W_Kᵀ Xᵀ) X W_V⟩ in float64."""
    p = {name: np.asarray(value, np.float64) for name, value in params["params"].items()}
    scores, attentions = [], []
    for row in np.asarray(tokens):
        x = np.eye(VOCABULARY)[row]
        logits = np.exp(x @ p["query"] @ p["key"].T @ x.T)
        attention = logits / logits.sum(1, keepdims=True)
        scores.append(np.sum(p["head"] * (attention @ x @ p["value"])))
        attentions.append(attention)
    return np.array(scores), np.array(attentions)


@pytest.mark.parametrize("name", ["attention", "narrow attention"])
def test_attention_is_its_definition(name, tokens):
    model = MODELS[name]
    params = model.init(jax.random.key(1), tokens)
    scores, attentions = attention_by_definition(params, tokens)
    np.testing.assert_allclose(model.apply(params, tokens), scores, rtol=1e-4, atol=1e-4)
    measured = model.apply(params, tokens, method="attention")
    np.testing.assert_allclose(measured, attentions, rtol=1e-4, atol=1e-6)
    readout = model.apply(params, method="readout")
    p = params["params"]
    np.testing.assert_allclose(readout, p["head"] @ p["value"].T, rtol=1e-5, atol=1e-6)


def test_attention_has_the_gradient_of_its_definition(tokens):
    model = MODELS["attention"]
    params = model.init(jax.random.key(1), tokens)

    def literal(params, tokens):
        p, x = params["params"], jax.nn.one_hot(tokens, VOCABULARY)
        logits = jnp.einsum("nta,ad,bd,nsb->nts", x, p["query"], p["key"], x)
        mixed = jnp.einsum("nts,nsb,bd->ntd", jax.nn.softmax(logits), x, p["value"])
        return jnp.einsum("ntd,td->n", mixed, p["head"])

    mine, theirs = (
        jax.grad(lambda p, f=f: jnp.sum(jnp.tanh(f(p, tokens))))(params)
        for f in (model.apply, literal)
    )
    for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


def test_the_flat_perceptron_is_one_on_flattened_rows(tokens):
    model = MODELS["flatten"]
    params = model.init(jax.random.key(1), tokens)
    p = params["params"]
    x = np.eye(VOCABULARY, dtype=np.float32)[np.asarray(tokens)].reshape(len(tokens), -1)
    hidden = np.maximum(x @ np.asarray(p["embedding"]).reshape(x.shape[1], -1), 0)
    scores = hidden @ np.asarray(p["head"])
    np.testing.assert_allclose(model.apply(params, tokens), scores, rtol=1e-4, atol=1e-5)


def test_the_summing_perceptron_does_not_see_the_order(tokens):
    model = MODELS["sum"]
    params = model.init(jax.random.key(1), tokens)
    np.testing.assert_allclose(
        model.apply(params, tokens), model.apply(params, tokens[:, ::-1]), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("name", MODELS)
def test_all_edits_at_once_are_the_edits_one_by_one(name, tokens):
    model = MODELS[name]
    params = model.init(jax.random.key(2), tokens)
    everything = jax.vmap(lambda row: model.apply(params, row, method="edited"))(tokens)
    assert everything.shape == (len(tokens), LENGTH, VOCABULARY)
    position, new = np.divmod(np.arange(LENGTH * VOCABULARY), VOCABULARY)
    for i, row in enumerate(np.asarray(tokens)):
        edited = np.repeat(row[None], len(new), axis=0)
        edited[np.arange(len(new)), position] = new
        plain = model.apply(params, jnp.asarray(edited)).reshape(LENGTH, VOCABULARY)
        np.testing.assert_allclose(everything[i], plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_the_sensitivity_of_all_edits_is_that_of_the_library(name, tokens):
    model = MODELS[name]
    params = model.init(jax.random.key(3), tokens)
    clean = jnp.sign(model.apply(params, tokens))
    edited = jax.vmap(lambda row: model.apply(params, row, method="edited"))(tokens)
    flips = (jnp.sign(edited) != clean[:, None, None]).sum(axis=2)
    replace = Perturbation(Tokens(), Resample(VOCABULARY))
    est = sensitivity(model.apply, params, tokens, replace, "all", key=jax.random.key(0))
    np.testing.assert_array_equal(flips, est.totals)


def test_a_logit_far_below_the_others_is_no_division_by_zero():
    model = TokenAttention(3, 2, width=1)
    params = {
        "params": {
            "query": jnp.full((3, 1), 10.0),
            "key": jnp.array([[-100.0], [-100.0], [100.0]]),
            "value": jnp.ones((3, 1)),
            "head": jnp.ones((2, 1)),
        }
    }
    np.testing.assert_allclose(model.apply(params, jnp.array([[0, 1]])), [2.0], rtol=1e-6)
