"""All models of the project: incremental evaluation finds the same flips and the same outputs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens import Gaussian, Patches, Perturbation, Resample, Tokens, explain, sensitivity
from jaxsens.incremental import count_costs
from jaxsens.models import (
    CNN,
    GPT2,
    LSTM,
    MLP,
    BareTransformer,
    ConvMixer,
    DenseNet,
    ResNet,
    RoBERTa,
    TokenAttention,
    TokenMLP,
    ViTSimple,
    ViTSmall,
)
from tests.helpers.weights import weights_of

VISION = {
    "MLP": MLP(4),
    "CNN": CNN(4, features=4, hidden=8),
    "ViT-small": ViTSmall(4, patch=4, depth=2, heads=2, hidden=16, width=8, head_dim=4),
    "ViT-simple": ViTSimple(4, patch=4, depth=2, heads=2, hidden=16, width=8, head_dim=4),
    "ResNet": ResNet(4, width=4, blocks=(1, 1)),
    "DenseNet": DenseNet(4, growth=4, blocks=(2, 2)),
    "ConvMixer": ConvMixer(4, width=8, depth=1, patch=2),
}
TEXT = {
    "RoBERTa": RoBERTa(20, depth=2, heads=2, width=8, hidden=16),
    "RoBERTa, ReLU": RoBERTa(20, depth=2, heads=2, width=8, hidden=16, attention="relu"),
    "GPT-2": GPT2(20, depth=2, heads=2, width=8),
    "LSTM": LSTM(20, depth=2, width=8),
}
IDS = {
    "attention on ids": TokenAttention(5, 12, sigma=1.0),
    "MLP on ids": TokenMLP(5, 12, "flatten", sigma=1.0),
    "MLP on their sum": TokenMLP(5, 12, "sum", sigma=1.0),
    "bare transformer": BareTransformer(5, 12, width=8, heads=2, hidden=16),
}
KEY = jax.random.key(0)


def lively(variables):
    """Larger weights, so that edits change predictions."""
    return jax.tree.map(lambda leaf: leaf * 3 if leaf.ndim > 1 else leaf, variables)


#: These share their rules with others, and take long to compile.
SLOW = {"ViT-simple", "DenseNet", "RoBERTa, ReLU", "MLP on their sum"}


def some(names):
    return [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in names]


@pytest.mark.parametrize("name", some(VISION))
def test_vision(name, compare):
    model = VISION[name]
    x = np.random.default_rng(0).normal(size=(2, 16, 16, 1)).astype(np.float32)
    variables = lively(weights_of(model, x))
    compare(model.apply, x[0], Patches(4), params=variables, scale=3.0)
    noise = Perturbation(Patches(4), Gaussian(sigma=3.0))
    plain, reused = (
        sensitivity(model.apply, variables, x, noise, 2, key=KEY, incremental=way)
        for way in (False, True)
    )
    np.testing.assert_array_equal(plain.totals, reused.totals)
    assert (plain.provenance.incremental, reused.provenance.incremental) == (False, True)


@pytest.mark.parametrize("name", some(TEXT))
def test_text(name, compare):
    model, length = TEXT[name], 16
    tokens = jnp.ones((1, length), jnp.int32) + 3
    variables = lively(weights_of(model, tokens))
    x = np.random.default_rng(0).normal(size=(3, length, 8)).astype(np.float32)
    mask = np.arange(length) < np.array([[16], [9], [1]])

    def apply_fn(variables, x, mask):
        return model.apply(variables, x, mask, method="from_embeddings")

    compare(
        apply_fn, x[0], Tokens(), params=variables, contexts=[(row,) for row in jnp.asarray(mask)],
        num_position_groups=2, scale=3.0,
    )  # fmt: skip
    noise = Perturbation(Tokens(), Gaussian(sigma=3.0))
    options = {"key": KEY, "context": mask, "mask": mask}
    plain, reused = (
        sensitivity(apply_fn, variables, x, noise, 2, incremental=way, **options)
        for way in (False, True)
    )
    np.testing.assert_array_equal(plain.totals, reused.totals)


@pytest.mark.parametrize("name", some(IDS))
def test_ids(name, compare):
    model = IDS[name]
    x = np.random.default_rng(0).integers(0, 5, (3, 12)).astype(np.int32)
    variables = weights_of(model, x)
    compare(lambda v, x: model.apply(v, x).reshape(len(x), -1), x[0], Tokens(), params=variables)
    replace = Perturbation(Tokens(), Resample(5))
    plain, reused = (
        sensitivity(model.apply, variables, x, replace, "all", key=KEY, incremental=way)
        for way in (False, True)
    )
    np.testing.assert_array_equal(plain.totals, reused.totals)


def test_order_in_time_is_used():
    model = LSTM(20, depth=2, width=8)
    variables = jax.eval_shape(model.init, KEY, jnp.ones((1, 32), jnp.int32))

    def apply_fn(variables, x, mask):
        return model.apply(variables, x, mask, method="from_embeddings")

    x, mask = jnp.zeros((1, 32, 8)), jnp.ones((1, 32), bool)
    noise = Perturbation(Tokens(), Gaussian(sigma=1.0))
    found = explain(apply_fn, variables, x, noise, context=mask)
    assert found.num_position_groups > 1
    assert found.incremental < 0.7 * found.plain
    one = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), (x, (mask,)))
    counted = functools.partial(count_costs, apply_fn, variables, *one, Tokens(), 5, "cpu")
    # Each group is compiled by itself, which few examples do not repay.
    groups = [counted(num_examples=num).num_position_groups for num in (1, 10**8, None)]
    assert groups == [1, found.num_position_groups, found.num_position_groups]


def test_what_gains_nothing_takes_whole_passes():
    noise = Perturbation(Tokens(), Gaussian(sigma=1.0))

    def sorted_first(params, x):
        return jnp.sort(x.reshape(len(x), -1), axis=1) @ params

    found = explain(sorted_first, jnp.ones((80, 3)), jnp.ones((1, 10, 8)), noise)
    assert not found.worthwhile
    assert any(step.turns_dense and step.name == "sort" for step in found.steps)
    assert "whole forward passes" in str(found)


def test_explain_adds_up_to_the_plain_pass():
    model = CNN(4, features=16, hidden=8)
    x = jnp.zeros((1, 16, 16, 1))
    variables = jax.eval_shape(model.init, KEY, x)
    noise = Perturbation(Patches(4), Gaussian(sigma=1.0))
    found = explain(model.apply, variables, x, noise)
    # But for the few operations on parameters alone, which a pass makes once for all examples.
    assert sum(step.plain for step in found.steps) == pytest.approx(found.plain, rel=1e-5)
    # But for its share of the clean pass.
    assert sum(step.incremental for step in found.steps) == pytest.approx(
        found.incremental, rel=0.1
    )
    assert found.incremental < found.plain / 2


def test_explain_counts_what_looking_for_jumps_costs():
    def model(w, x):
        return (jnp.cumsum(x @ w, axis=1) > 0).astype(jnp.float32).mean(axis=1)

    w, x = jnp.ones((8, 8)), jnp.zeros((1, 32, 8))
    found = explain(model, w, x, Perturbation(Tokens(), Gaussian(sigma=1.0)), 50)
    (jump,) = [step for step in found.steps if step.name == "gt"]
    assert jump.incremental > 3 * jump.plain * jump.share
    assert sum(step.incremental for step in found.steps) == pytest.approx(
        found.incremental, rel=0.1
    )
