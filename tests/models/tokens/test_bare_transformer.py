"""The grokking transformer: its size, its first weights, and that its shortcuts change nothing."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens.models import BareTransformer

MODEL = BareTransformer(vocab_size=12, width=16, heads=4, hidden=24)
PAIRS = np.stack(np.meshgrid(np.arange(11), np.arange(11)), axis=-1).reshape(-1, 2)
TOKENS = jnp.asarray(np.concatenate([PAIRS, np.full((len(PAIRS), 1), 11)], axis=1))


@pytest.fixture(scope="module")
def params():
    """First weights, with biases and positions moved from 0, where they would hide mistakes."""
    drawn = MODEL.init(jax.random.key(0), jnp.zeros((1, 3), int))
    leaves, tree = jax.tree.flatten(drawn)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    moved = [p + 0.3 * jax.random.normal(k, p.shape) for p, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(tree, moved)


def in_full(params, tokens):
    """Every layer at every position, one after the other, as written in the paper."""
    w = {name: np.asarray(value, np.float64) for name, value in params["params"].items()}
    e = w["words"][tokens] + w["positions"][None]
    q, k, v = np.split(e @ w["projection"] + w["projection_bias"], 3, axis=-1)
    size = MODEL.width // MODEL.heads
    heads = []
    for h in range(MODEL.heads):
        part = slice(h * size, (h + 1) * size)
        logits = np.einsum("nqe,nke->nqk", q[..., part], k[..., part]) / math.sqrt(size)
        weights = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        heads.append(weights @ v[..., part])
    x = np.concatenate(heads, axis=-1) @ w["out"] + w["out_bias"]
    x = np.maximum(x @ w["up"] + w["up_bias"], 0) @ w["down"] + w["down_bias"]
    return x[:, -1] @ w["head"] + w["head_bias"]


def test_the_paper_s_model_has_227_442_parameters():
    shapes = jax.eval_shape(
        BareTransformer(114).init, jax.random.key(0), jax.ShapeDtypeStruct((1, 3), jnp.int32)
    )
    assert sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes)) == 227_442


def test_the_last_position_alone_gives_the_full_model_s_logits(params):
    expected = in_full(params, np.asarray(TOKENS))
    np.testing.assert_allclose(MODEL.apply(params, TOKENS), expected, rtol=1e-4, atol=1e-4)


def test_pairs_projected_once_give_the_same_logits_and_gradients(params):
    def loss(params, apply):
        return jnp.mean(apply(params) ** 2)

    a, b = jnp.asarray(PAIRS.T)
    plain = jax.value_and_grad(loss)(params, lambda p: MODEL.apply(p, TOKENS))
    fast = jax.value_and_grad(loss)(params, lambda p: MODEL.apply(p, a, b, method="on_pairs"))
    for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(fast), strict=True):
        scale = 1e-5 * float(jnp.abs(one).max())
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=10 * scale)


def test_the_seam_is_exact(params):
    e = MODEL.apply(params, TOKENS, method="embed")
    assert e.shape == (121, 3, 16)
    logits = MODEL.apply(params, e, method="from_embeddings")
    np.testing.assert_array_equal(logits, MODEL.apply(params, TOKENS))


def test_noise_on_operands_goes_through_the_affine_map(params):
    """What the sensitivities of the experiment rest on."""
    a, b = jnp.asarray(PAIRS.T)
    noise = 0.5 * jax.random.normal(jax.random.key(2), (121, 2, 16))
    e = MODEL.apply(params, TOKENS, method="embed").at[:, :2].add(noise)
    matrix, _ = MODEL.apply(params, method="operand_map")
    attended = MODEL.apply(params, a, b, method="attended_pairs").at[:, :2].add(noise @ matrix)
    np.testing.assert_allclose(
        MODEL.apply(params, attended, method="read"),
        MODEL.apply(params, e, method="from_embeddings"),
        rtol=1e-4,
        atol=1e-4,
    )


def test_first_weights_follow_their_laws():
    d, hidden = 128, 512
    w = BareTransformer(114).init(jax.random.key(0), jnp.zeros((1, 3), int))["params"]
    for name in ("positions", "projection_bias", "out_bias"):
        assert not jnp.any(w[name])
    words = np.asarray(w["words"])
    # The variance of a sample variance of N(0, 1) is 2/n.
    assert abs(words.var() - 1) < 4 * math.sqrt(2 / words.size)
    bounds = {
        "projection": math.sqrt(6 / (4 * d)),
        **dict.fromkeys(("out", "up", "up_bias", "head", "head_bias"), 1 / math.sqrt(d)),
        **dict.fromkeys(("down", "down_bias"), 1 / math.sqrt(hidden)),
    }
    for name, bound in bounds.items():
        largest = float(jnp.abs(w[name]).max())
        assert 0.9 * bound < largest <= bound, name


def test_logits_of_the_same_network_in_pytorch(params):
    torch = pytest.importorskip("torch")
    w = {name: torch.tensor(np.asarray(value)) for name, value in params["params"].items()}
    attention = torch.nn.MultiheadAttention(MODEL.width, MODEL.heads, batch_first=True)
    attention.load_state_dict(
        {
            "in_proj_weight": w["projection"].T,
            "in_proj_bias": w["projection_bias"],
            "out_proj.weight": w["out"].T,
            "out_proj.bias": w["out_bias"],
        }
    )
    with torch.no_grad():
        e = w["words"][torch.tensor(np.asarray(TOKENS))] + w["positions"]
        x, _ = attention(e, e, e)
        x = torch.relu(x @ w["up"] + w["up_bias"]) @ w["down"] + w["down_bias"]
        expected = (x[:, -1] @ w["head"] + w["head_bias"]).numpy()
    np.testing.assert_allclose(MODEL.apply(params, TOKENS), expected, rtol=1e-4, atol=1e-4)
