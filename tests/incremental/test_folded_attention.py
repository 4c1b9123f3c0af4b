"""Attention with folded projections gives what keys and values give, and reuse sees these."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun

from jaxsens import Patches, Tokens
from jaxsens.core.jaxprs import equations
from jaxsens.incremental import count_costs, flops, make_program
from jaxsens.incremental.attention_operation import attention
from jaxsens.incremental.folded_attention import Projections, folded_attention
from jaxsens.incremental.needed import without_unneeded
from jaxsens.models import ViTSimple, ViTSmall
from tests.helpers.weights import weights_of

WIDTH, HEADS, HEAD, OUT = 4, 3, 5, 2


def normal(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


@pytest.fixture(scope="module")
def projections():
    kernel, bias = (WIDTH, HEADS, HEAD), (HEADS, HEAD)
    shapes = [kernel, bias, kernel, bias, kernel, bias, (HEADS, HEAD, OUT)]
    return Projections(*(normal(*shape, seed=seed) for seed, shape in enumerate(shapes)))


def written_out(queries, x, given, *, visible, scale, causal):
    def project(tokens, kernel, bias):
        return jnp.einsum("ntd,dhe->nthe", tokens, kernel) + bias[None, None]

    q = project(queries, given.query, given.query_bias) * scale
    k, v = project(x, given.key, given.key_bias), project(x, given.value, given.value_bias)
    return attention(q, k, v, given.out, visible=visible, causal=causal)


def check(projections, queries, x, **options):
    @jax.jit
    def both(projections, queries, x):
        forms = written_out, folded_attention
        return [form(queries, x, projections, **options) for form in forms]

    expected, found = both(projections, queries, x)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_both_forms_give_the_same_with_all_biases(projections, causal):
    x = normal(2, 6, WIDTH, seed=9)
    seen = np.array(normal(2, 6, 6, seed=10) > 0)
    seen[:, 3] = False  # a query that sees nothing
    visible = jnp.asarray(np.tril(seen) if causal else seen)
    options = {"visible": visible, "scale": jnp.float32(0.7), "causal": causal}
    check(projections, x, x, **options)


def test_some_queries_may_look_at_all_tokens(projections):
    x = normal(2, 6, WIDTH, seed=9)
    visible = jnp.ones((1, 2, 6), bool)
    options = {"visible": visible, "scale": jnp.float32(0.7), "causal": False}
    check(projections, x[:, :2], x, **options)


@pytest.mark.parametrize("is_jitted", [False, True])
def test_reuse_takes_it_apart(projections, compare, is_jitted):
    def model(given, x):
        visible = jnp.ones((1, 6, 6), bool)
        scale = jnp.float32(0.7)
        out = folded_attention(x, x, given, visible=visible, scale=scale, causal=False)
        return jnp.tanh(out).reshape(len(x), -1)

    model = jax.jit(model) if is_jitted else model
    made = compare(model, normal(6, WIDTH), Tokens(), params=projections)
    names = [operation.name for operation in made.trace.operations]
    assert sum(name.startswith("jaxsens_attention") for name in names) == 1


@pytest.mark.parametrize("looped", [False, True])
def test_of_queries_that_nobody_reads_nothing_is_computed(projections, looped):
    def layer(x, given):
        visible, scale = jnp.ones((1, 6, 6), bool), jnp.float32(0.7)
        out = folded_attention(x, x, given, visible=visible, scale=scale, causal=False)
        return x + jnp.pad(out, ((0, 0), (0, 0), (0, WIDTH - OUT))), None

    def model(given, x):
        stacked = jax.tree.map(lambda a: jnp.stack([a, 2 * a]), given)
        return (jax.lax.scan(layer, x, stacked)[0] if looped else layer(x, given)[0])[:, 0]

    leaves, tree = jax.tree.flatten((projections, normal(2, 6, WIDTH)))
    closed = jax.make_jaxpr(lambda *a: model(*jax.tree.unflatten(tree, a)))(*leaves)
    new = without_unneeded(closed)
    names = [str(each.params.get("name")) for each in equations(new.jaxpr)]
    assert names.count("jaxsens_folded_attention") == 1 + looped
    assert flops.count(new.jaxpr) < 0.75 * flops.count(closed.jaxpr)
    (expected,), (found,) = (jaxpr_as_fun(each)(*leaves) for each in (closed, new))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def forward(model, train):
    def apply(variables, x):
        rngs = {"dropout": jax.random.key(1)} if train else None
        return model.apply(variables, x, train=train, rngs=rngs)

    return apply


MODELS = {
    "small": ViTSmall(3, patch=4, depth=2, heads=2, hidden=8, width=8, head_dim=8, dropout=0.0),
    "simple": ViTSimple(3, patch=4, depth=2, heads=2, hidden=8, width=8, head_dim=8),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_vision_transformer_folds_outside_of_training_alone(name):
    model, x = MODELS[name], jnp.zeros((2, 8, 8, 1))
    variables = weights_of(model, x)
    traces = [str(jax.make_jaxpr(forward(model, train))(variables, x)) for train in (False, True)]
    assert ["jaxsens_folded_attention" in trace for trace in traces] == [True, False]
    x = normal(2, 8, 8, 1)
    measured, trained = (jax.jit(forward(model, train))(variables, x) for train in (False, True))
    np.testing.assert_allclose(measured, trained, rtol=1e-4, atol=1e-5)


def test_a_pass_costs_what_the_folded_form_takes():
    model, image = MODELS["small"], (16, 16, 1)
    x = jax.ShapeDtypeStruct(image, jnp.float32)
    variables = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, *image)))
    made = make_program(model.apply, variables, x, (), Patches(4), "cpu", 1)
    separate = flops.count(jax.make_jaxpr(made.forward)(variables, x, ()).jaxpr)
    costs = count_costs(model.apply, variables, x, (), Patches(4), 5, "cpu", group_counts=(1,))
    assert costs.plain < 0.9 * separate


def test_operations_on_parameters_alone_are_not_counted():
    def model(w, x):
        return x @ jax.jit(jnp.matmul)(w, w)

    @functools.partial(jax.jit, inline=False)
    def called(w, x):
        return model(w, x)

    for function in (model, called):
        jaxpr = jax.make_jaxpr(function)(jnp.ones((8, 8)), jnp.ones((2, 8))).jaxpr
        assert flops.count_from(jaxpr, jaxpr.invars[1:]) == 2 * 2 * 8 * 8
