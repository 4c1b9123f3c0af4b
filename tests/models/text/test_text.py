"""Text models: parameter counts, padding that never matters, order in time, one seam for noise."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens.models import GPT2, LSTM, RoBERTa
from jaxsens.text.tokenization import PAD_ID

SMALL = {"vocab_size": 30, "width": 16}
MODELS = {
    "roberta": RoBERTa(**SMALL, depth=2, heads=4, hidden=24),
    "roberta-relu": RoBERTa(**SMALL, depth=2, heads=4, hidden=24, attention="relu"),
    "gpt2": GPT2(**SMALL, depth=2, heads=4),
    "gpt2-plain": GPT2(**SMALL, depth=2, heads=4, normalised=False),
    "lstm": LSTM(**SMALL, depth=2),
}
#: Four sequences of different lengths, one of them without padding.
TOKENS = np.random.default_rng(0).integers(4, 30, (4, 9)).astype(np.int32)
TOKENS[np.arange(9) >= np.array([9, 5, 7, 1])[:, None]] = PAD_ID
MASK = TOKENS != PAD_ID


@functools.cache
def jitted(name, method):
    """A method of a model: operation by operation, most of the time would be compilation."""
    return jax.jit(functools.partial(MODELS[name].apply, method=method))


@functools.cache
def initial(name):
    return jax.jit(MODELS[name].init)(jax.random.key(1), jnp.asarray(TOKENS))


@functools.cache
def variables(name):
    # Weights of order one, so that every part of the network has a say.
    leaves, tree = jax.tree.flatten(initial(name))
    keys = jax.random.split(jax.random.key(2), len(leaves))
    noise = [0.3 * jax.random.normal(k, v.shape) for k, v in zip(keys, leaves, strict=True)]
    return jax.tree.map(jnp.add, initial(name), jax.tree.unflatten(tree, noise))


def logits(name, tokens):
    return np.asarray(jitted(name, None)(variables(name), jnp.asarray(tokens)))


def from_embeddings(name, e, mask=MASK):
    return np.asarray(jitted(name, "from_embeddings")(variables(name), e, jnp.asarray(mask)))


def embed(name, tokens=TOKENS):
    return jitted(name, "embed")(variables(name), jnp.asarray(tokens))


@pytest.mark.parametrize(
    ("model", "count"),
    [
        (RoBERTa(50_265), 20_428_034),
        (RoBERTa(50_265, attention="relu"), 20_428_034),
        (RoBERTa(50_265, depth=8), 27_789_570),
        (RoBERTa(50_265, depth=12), 35_151_106),
        (LSTM(50_265), 14_974_210),
        (GPT2(50_257), 16_288_000),
        (GPT2(50_257, normalised=False), 16_288_000),
    ],
)
def test_parameter_counts(model, count):
    tokens = jax.ShapeDtypeStruct((1, 8), jnp.int32)
    shapes = jax.eval_shape(model.init, jax.random.key(0), tokens)
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == count


#: Those that differ from another one in a flag alone are slow ones.
SOME = [pytest.param(name, marks=pytest.mark.slow) if "-" in name else name for name in MODELS]


@pytest.mark.parametrize("name", SOME)
def test_the_network_is_its_two_halves(name):
    np.testing.assert_allclose(
        logits(name, TOKENS), from_embeddings(name, embed(name)), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("name", MODELS)
def test_a_longer_bucket_changes_nothing(name):
    longer = np.pad(TOKENS, ((0, 0), (0, 7)), constant_values=PAD_ID)
    np.testing.assert_allclose(logits(name, TOKENS), logits(name, longer), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_what_stands_in_the_padding_never_matters(name):
    e = embed(name)
    changed = jnp.where(jnp.asarray(MASK)[..., None], e, 100.0)
    np.testing.assert_allclose(
        from_embeddings(name, e), from_embeddings(name, changed), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("name", MODELS)
def test_every_real_token_matters(name):
    e, clean = embed(name), logits(name, TOKENS)
    for i, t in np.argwhere(MASK):
        noise = jax.random.normal(jax.random.key(t), e.shape[2:])
        moved = from_embeddings(name, e.at[i, t].add(noise))
        assert np.abs(moved - clean)[i].max() > 1e-4
        np.testing.assert_allclose(np.delete(moved, i, 0), np.delete(clean, i, 0), atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_sequences_of_a_batch_do_not_meet(name):
    alone = np.concatenate([logits(name, row[None]) for row in TOKENS])
    np.testing.assert_allclose(logits(name, TOKENS), alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "lstm"])
def test_causal_models_read_the_last_real_token(name):
    """A sequence cut after k tokens gives what the whole gave after k tokens."""
    whole = TOKENS[:1]
    for k in (1, 4, 8):
        cut = np.where(np.arange(9) < k, whole, PAD_ID)
        np.testing.assert_allclose(
            logits(name, cut), logits(name, whole[:, :k]), rtol=1e-5, atol=1e-5
        )
    assert np.abs(logits(name, whole) - logits(name, whole[:, :8])).max() > 1e-3


@pytest.mark.parametrize("name", ["roberta", "roberta-relu", "gpt2", "lstm"])
def test_embeddings_are_layer_normed(name):
    e = np.asarray(jitted(name, "embed")(initial(name), jnp.asarray(TOKENS)))[MASK]
    np.testing.assert_allclose(e.mean(axis=1), 0, atol=1e-5)
    # The variance of initial embeddings of 0.02 is not far above the layer norm's epsilon.
    np.testing.assert_allclose(e.var(axis=1), 1, atol=0.05)


def test_embedding_again_renormalises_noise_for_roberta_alone():
    def again(name, e):
        model = MODELS[name]
        return model.apply(variables(name), e, jnp.asarray(MASK), method="embed_again")

    for name in ("roberta", "lstm"):
        noisy = embed(name) + 40 * jax.random.normal(jax.random.key(3), (4, 9, 16))
        changed = np.asarray(again(name, noisy))
        assert (np.abs(changed).max() < 10) == (name == "roberta")
        assert np.array_equal(changed, noisy) == (name == "lstm")


def test_relu_attention_is_not_normalised():
    """Twice the keys' logits, twice the output of attention: softmax would saturate instead."""
    from jaxsens.models.text.text_model import MultiHeadAttention

    x = jax.random.normal(jax.random.key(0), (2, 5, 8))
    visible = jnp.ones((2, 5, 5), bool)
    layer = MultiHeadAttention(2, "relu")
    params = layer.init(jax.random.key(1), x, x, visible, train=False)["params"]
    doubled = params | {"key": jax.tree.map(lambda w: 2 * w, params["key"])}
    once, twice = (
        layer.apply({"params": p}, x, x, visible, train=False) for p in (params, doubled)
    )
    np.testing.assert_allclose(2 * once, twice, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", SOME)
def test_dropout_acts_in_training_alone(name):
    tokens = jnp.asarray(TOKENS)

    @jax.jit
    def train(seed):
        rngs = {"dropout": jax.random.key(seed)}
        return MODELS[name].apply(variables(name), tokens, train=True, rngs=rngs)

    assert not np.array_equal(train(0), train(1))
    np.testing.assert_array_equal(logits(name, TOKENS), logits(name, TOKENS))
