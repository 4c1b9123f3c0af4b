"""Models as people write them: how many operations are saved, and that flips are the same."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens import Gaussian, Patches, Perturbation, Tokens, explain, sensitivity
from jaxsens.incremental import flops
from tests.incremental.as_written import (
    BERT,
    GPT,
    IMAGES,
    MASK,
    ROWS,
    WIDTH,
    Scanned,
    T,
    ViT,
    additive,
    made,
    weights,
)

KEY = jax.random.key(0)
TOKENS = Perturbation(Tokens(), Gaussian(sigma=3.0))
PATCHES = Perturbation(Patches(4), Gaussian(sigma=3.0))
CAUSAL, FOUND = "causal attention (recognised)", "attention (recognised)"


def causal_bool(mask):
    return jnp.tril(jnp.ones((1, 1, T, T), bool)) & mask[:, None, None]


def grouped(x, mask):
    """One causal block of four heads of queries and two of keys and values."""
    q, k, v = (
        jnp.einsum("ntd,dhe->nthe", x, weights(WIDTH, heads, 4, seed=seed))
        for seed, heads in enumerate((4, 2, 2))
    )
    y = jax.nn.dot_product_attention(q, k, v, mask=causal_bool(mask))
    return (x + y.reshape(x.shape))[:, -1] @ weights(WIDTH, 4)


def in_bfloat16(x, mask):
    """Two blocks in bfloat16 whose softmax is float32, as large models have it."""
    x = x.astype(jnp.bfloat16)
    for seed in range(2):
        table = weights(3, WIDTH, 2, 8, seed=seed).astype(jnp.bfloat16)
        q, k, v = (jnp.einsum("ntd,dhe->nhte", x, w) for w in table)
        logits = (q @ k.swapaxes(-1, -2)).astype(jnp.float32) / 3
        logits = jnp.where(causal_bool(mask), logits, jnp.finfo(jnp.float32).min)
        y = jax.nn.softmax(logits, axis=-1).astype(jnp.bfloat16) @ v
        x = x + y.transpose(0, 2, 1, 3).reshape(x.shape)
        mlp = weights(WIDTH, 64, seed=seed).astype(jnp.bfloat16)
        x = x + jax.nn.gelu(x @ mlp) @ mlp.T
    return (x[:, -1] @ weights(WIDTH, 4).astype(jnp.bfloat16)).astype(jnp.float32)


def plain(function):
    return lambda _, *inputs: function(*inputs)


#: Model, inputs, edit, the attention that is found, and how many times fewer operations an edit
#: takes than a pass of the model as it is written.
MODELS = {
    "ViT": (ViT(), (IMAGES,), PATCHES, {FOUND}, 2.0),
    "BERT, padded": (BERT(), (ROWS, MASK), TOKENS, {FOUND}, 2.0),
    "GPT": (GPT(), (ROWS,), TOKENS, {FOUND, CAUSAL}, 2.8),
    "GPT, padded": (GPT(), (ROWS, MASK), TOKENS, {FOUND, CAUSAL}, 2.8),
    "scanned": (Scanned(), (ROWS,), TOKENS, {FOUND}, 1.5),
    "added mask": (plain(additive), (ROWS, MASK), TOKENS, {CAUSAL}, 3.0),
    "grouped queries": (plain(grouped), (ROWS, MASK), TOKENS, {FOUND}, 1.5),
    "bfloat16": (plain(in_bfloat16), (ROWS, MASK), TOKENS, {FOUND, CAUSAL}, 3.0),
}


def parts(name):
    model, inputs, noise, names, gain = MODELS[name]
    if isinstance(model, nn.Module):
        return model.apply, made(model, *inputs), inputs, noise, names, gain
    return model, (), inputs, noise, names, gain


#: They save what "GPT, padded" does, by the same ways.
ALIKE = {"GPT", "added mask", "scanned", "bfloat16"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in ALIKE else ()) for n in MODELS]
)
def test_operations_saved(name):
    apply_fn, params, (x, *context), noise, names, gain = parts(name)
    found = explain(apply_fn, params, x, noise, context=context[0] if context else None)
    assert {step.name for step in found.steps if "attention" in step.name} == names
    one = [jax.ShapeDtypeStruct((1, *a.shape[1:]), a.dtype) for a in (x, *context)]
    as_it_is = flops.count(jax.make_jaxpr(apply_fn)(params, *one).jaxpr)
    assert as_it_is > gain * found.incremental


#: These are compiled quickly, and have what others have: a mask of each example, one token read.
QUICK = {"BERT, padded", "grouped queries"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in MODELS]
)
def test_the_same_flips(name):
    apply_fn, params, (x, *context), noise, _, _ = parts(name)
    options = {"key": KEY, "context": context[0] if context else None}
    if context:
        options["mask"] = context[0]
    whole, reused = (
        sensitivity(apply_fn, params, x, noise, 2, incremental=way, **options)
        for way in (False, True)
    )
    assert whole.totals.sum() > 0
    np.testing.assert_array_equal(whole.totals, reused.totals)
    assert reused.provenance.incremental
    assert reused.provenance.self_check == "passed"
