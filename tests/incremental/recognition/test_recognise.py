"""Attention that a model writes out: found, as fast as it should be, and the same numbers."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens import Gaussian, Perturbation, Tokens, explain, sensitivity
from jaxsens.incremental import count_costs, make_program, program

T, HEADS, SIZE = 12, 2, 3
WIDTH = HEADS * SIZE
ROWS = np.random.default_rng(0).normal(size=(T, WIDTH)).astype(np.float32)
LOWER = jnp.tril(jnp.ones((T, T), bool))
DIAGONAL = jnp.eye(T, dtype=bool)
#: What is added to the logits of later tokens.
ADDED = jnp.where(LOWER, 0.0, -1e9)[None, None]
FOUND, CAUSAL = "attention (recognised)", "causal attention (recognised)"


def weights(*shape, seed=0):
    return jnp.asarray(np.random.default_rng((seed, *shape)).normal(size=shape), jnp.float32)


def heads(x, scale=1.0):
    """Queries, keys and values (n, T, h, e)."""
    return [
        scale * jnp.einsum("ntd,dhe->nthe", x, weights(WIDTH, HEADS, SIZE, seed=seed))
        for seed in range(3)
    ]


def by_jax(x, **options):
    return jax.nn.dot_product_attention(*heads(x), **options)


def heads_first(x, scale=1.0, change=lambda logits: logits):
    q, k, v = (a.transpose(0, 2, 1, 3) for a in heads(x))
    logits = change(scale * (q @ k.swapaxes(-1, -2)))
    return jax.nn.softmax(logits, axis=-1) @ v


def tokens_first(x, change=lambda logits: logits):
    q, k, v = heads(x)
    logits = change(jnp.einsum("nqhe,nkhe->nhqk", q, k) / jnp.sqrt(SIZE))
    return jnp.einsum("nhqk,nkhe->nqhe", jax.nn.softmax(logits), v)


def keys_before_queries(x):
    q, k, v = heads(x)
    logits = jnp.einsum("nkhe,nqhe->khnq", k, q)
    return jnp.einsum("khnq,nkhe->neqh", jax.nn.softmax(logits, axis=0), v)


def without_heads(x):
    q, k, v = (a[0, :, 0] for a in heads(x))
    logits = q @ k.T
    exp = jnp.exp(logits - logits.max(axis=-1, keepdims=True))
    return (exp / exp.sum(axis=-1, keepdims=True) @ v)[None]


def two_axes_of_heads(x):
    q, k, v = (jnp.stack([a, 2 * a[:, ::-1]], axis=2) for a in heads(x))
    logits = jnp.einsum("nqghe,nkghe->nghqk", q, k)
    return jnp.einsum("nghqk,nkghe->nqhge", jax.nn.softmax(logits), v)


def fixed_query(x):
    _, k, v = heads(x)
    return jax.nn.dot_product_attention(weights(1, 1, HEADS, SIZE), k, v)


def edited_values_alone(x):
    q, k = weights(1, T, HEADS, SIZE), weights(1, T, HEADS, SIZE, seed=1)
    return jax.nn.dot_product_attention(q, k, heads(x)[2])


def edited_keys_alone(x):
    q, v = weights(1, T, HEADS, SIZE), weights(1, T, HEADS, SIZE, seed=1)
    return jax.nn.dot_product_attention(q, heads(x)[1], v)


def edited_queries_alone(x):
    k, v = weights(1, T, HEADS, SIZE), weights(1, T, HEADS, SIZE, seed=1)
    return jax.nn.dot_product_attention(heads(x)[0], k, v)


def values_of_another_width(x):
    q, k, _ = heads(x)
    v = jnp.einsum("ntd,dhe->nthe", x, weights(WIDTH, HEADS, 5))
    return jnp.einsum("nhqk,nkhe->nqhe", jax.nn.softmax(jnp.einsum("nqhe,nkhe->nhqk", q, k)), v)


def flax_attention(x):
    layer = nn.MultiHeadDotProductAttention(HEADS, qkv_features=WIDTH)
    variables = layer.init(jax.random.key(0), ROWS[None])
    return layer.apply(jax.tree.map(lambda leaf: 3 * leaf, variables), x)


def by_flax(x, **options):
    return nn.dot_product_attention(*heads(x), **options)


def more_heads(x, num, seed):
    return jnp.einsum("ntd,dhe->nthe", x, weights(WIDTH, num, SIZE, seed=seed))


def grouped(x, **options):
    """Six heads of queries and two of keys."""
    q, k, v = (more_heads(x, num, seed) for seed, num in enumerate((6, 2, 2)))
    return jax.nn.dot_product_attention(q, k, v, **options)


def one_head_of_keys(x):
    q, k, v = (more_heads(x, num, seed) for seed, num in enumerate((4, 1, 1)))
    logits = jnp.einsum("nqhe,nke->nhqk", q, k[:, :, 0])
    return jnp.einsum("nhqk,nke->nqhe", jax.nn.softmax(logits), v[:, :, 0])


def grouped_by_hand(x, mask=None):
    q, k, v = (more_heads(x, num, seed) for seed, num in enumerate((6, 2, 2)))
    logits = jnp.einsum("nqkge,ntke->nkgqt", q.reshape(1, T, 2, 3, SIZE), k)
    if mask is not None:
        logits = jnp.where(mask, logits, -jnp.inf)
    return jnp.einsum("nkgqt,ntke->nqkge", jax.nn.softmax(logits), v)


def repeated_keys(x):
    q, k, v = (more_heads(x, num, seed) for seed, num in enumerate((6, 2, 2)))
    k, v = (jnp.repeat(a, 3, axis=2) for a in (k, v))
    return jax.nn.dot_product_attention(q, k, v)


RECOGNISED = {
    "jax": by_jax,
    "jax, mask": lambda x: by_jax(x, mask=weights(1, HEADS, T, T) > 0),
    "jax, bias": lambda x: by_jax(x, bias=weights(1, HEADS, T, T)),
    "jax, bias and mask": lambda x: by_jax(x, bias=weights(1, 1, T, T), mask=~DIAGONAL),
    "jax, self-masked": lambda x: by_jax(x, mask=~DIAGONAL[None, None]),
    "jax, window": lambda x: by_jax(x, local_window_size=(2, 3)),
    "flax": by_flax,
    "flax, mask": lambda x: by_flax(x, mask=weights(1, 1, T, T) > 0),
    "flax, bias": lambda x: by_flax(x, bias=weights(1, HEADS, T, T)),
    "flax, module": flax_attention,
    "heads first": heads_first,
    "sharp": lambda x: heads_first(x, scale=10.0),
    "tokens first": tokens_first,
    "keys before queries": keys_before_queries,
    "without heads": without_heads,
    "two axes of heads": two_axes_of_heads,
    "fixed query": fixed_query,
    "edited values alone": edited_values_alone,
    "edited keys alone": edited_keys_alone,
    "edited queries alone": edited_queries_alone,
    "values of another width": values_of_another_width,
    "additive mask": lambda x: tokens_first(
        x, lambda a: a + jnp.where(DIAGONAL, -1e9, 0.0)[None, None]
    ),
    "masked by -inf": lambda x: tokens_first(x, lambda a: jnp.where(DIAGONAL, -jnp.inf, a)),
    "scaled twice": lambda x: tokens_first(x, lambda a: -2.0 * (weights(1, 1, 1, T) - a) / 3.0),
    "query that sees nothing": lambda x: tokens_first(
        x, lambda a: jnp.where(jnp.tril(LOWER, -1), a, -1e38)
    ),
    "two blocks": lambda x: by_jax(x + by_jax(x).reshape(x.shape)),
    "grouped queries": grouped,
    "grouped queries, mask": lambda x: grouped(x, mask=weights(1, 6, T, T) > 0),
    "grouped queries by hand": grouped_by_hand,
    "one head of keys": one_head_of_keys,
    "keys repeated": repeated_keys,
}
RECOGNISED_AS_CAUSAL = {
    "jax": lambda x: by_jax(x, is_causal=True),
    "jax, mask": lambda x: by_jax(x, mask=LOWER),
    "flax": lambda x: by_flax(x, mask=nn.make_causal_mask(jnp.ones((1, T)))),
    "-inf": lambda x: heads_first(x, change=lambda a: jnp.where(LOWER, a, -jnp.inf)),
    "window": lambda x: by_jax(x, is_causal=True, local_window_size=(3, 0)),
    "two blocks": lambda x: by_jax(by_jax(x, is_causal=True).reshape(x.shape), is_causal=True),
    "grouped queries": lambda x: grouped(x, is_causal=True),
    "grouped queries by hand": lambda x: grouped_by_hand(x, LOWER),
    "a number added": lambda x: tokens_first(x, lambda a: a + ADDED),
    "the lowest number added": lambda x: heads_first(
        x, change=lambda a: a + jnp.where(LOWER, 0.0, jnp.finfo(a.dtype).min)[None, None]),
    "a mild fill": lambda x: tokens_first(x, lambda a: jnp.where(LOWER, a, -1e9)),
}  # fmt: skip


def with_weights(x):
    q, k, v = heads(x)
    made = jax.nn.softmax(jnp.einsum("nqhe,nkhe->nhqk", q, k))
    return jnp.concatenate([jnp.einsum("nhqk,nkhe->nhqe", made, v), made], axis=-1)


def over_queries(x):
    q, k, v = heads(x)
    made = jax.nn.softmax(jnp.einsum("nqhe,nkhe->nhqk", q, k), axis=2)
    return jnp.einsum("nhqk,nkhe->nqhe", made, v)


def with_logits(x):
    q, k, v = heads(x)
    logits = jnp.einsum("nqhe,nkhe->nhqk", q, k)
    return jnp.einsum("nhqk,nkhe->nhqe", jax.nn.softmax(logits), v) + logits.sum(-1)[..., None]


def shared_values(x):
    q, k, v = heads(x)
    made = jax.nn.softmax(jnp.einsum("nqhe,nkhe->nhqk", q, k))
    return jnp.einsum("nhqk,nke->nhqe", made, v[:, :, 0])


def another_largest(x):
    q, k, v = heads(x)
    logits = jnp.einsum("nqhe,nkhe->nhqk", q, k)
    exp = jnp.exp(logits - (0.5 * logits).max(axis=-1, keepdims=True))
    return jnp.einsum("nhqk,nkhe->nqhe", exp / exp.sum(axis=-1, keepdims=True), v)


def in_half_precision(x):
    q, k, v = (a.astype(jnp.bfloat16) for a in heads(x))
    made = jax.nn.softmax(jnp.einsum("nqhe,nkhe->nhqk", q, k))
    return jnp.einsum("nhqk,nkhe->nqhe", made, v).astype(jnp.float32)


def in_float32_alone(x, dtype=jnp.bfloat16, convert=True):
    """Half precision, but for the logits (where they are converted) and the softmax."""
    q, k, v = (a.astype(dtype) for a in heads(x))
    kind = jnp.float32 if convert else None
    logits = jnp.einsum("nqhe,nkhe->nhqk", q, k, preferred_element_type=kind)
    made = jax.nn.softmax(logits.astype(jnp.float32) * 0.5).astype(dtype)
    return jnp.einsum("nhqk,nkhe->nqhe", made, v).astype(jnp.float32)


def in_bfloat16(attend):
    def layer(x):
        q, k, v = (a.astype(jnp.bfloat16) for a in heads(x))
        with jax.numpy_dtype_promotion("standard"):
            return attend(q, k, v).astype(jnp.float32)

    return layer


IN_HALF_PRECISION = {
    "logits in float32": in_float32_alone,
    "logits in bfloat16": lambda x: in_float32_alone(x, convert=False),
    "float16": lambda x: in_float32_alone(x, jnp.float16),
    "jax": in_bfloat16(jax.nn.dot_product_attention),
    "flax": in_bfloat16(functools.partial(nn.dot_product_attention, force_fp32_for_softmax=True)),
}
LEFT_ALONE = {
    "softmax over queries": over_queries,
    "weights returned": with_weights,
    "logits used": with_logits,
    "logits squared": lambda x: tokens_first(x, jnp.square),
    "logits times themselves": lambda x: tokens_first(x, lambda a: a * (a + 1.0)),
    "capped logits": lambda x: tokens_first(x, lambda a: 5.0 * jnp.tanh(a / 5.0)),
    "logits chosen by logits": lambda x: tokens_first(x, lambda a: jnp.where(a > 0, a, -1e9)),
    "rounded logits": lambda x: tokens_first(x, lambda a: a.astype(jnp.int32).astype(jnp.float32)),
    "one over logits": lambda x: tokens_first(x, lambda a: 1.0 / (50.0 + a)),
    "clipped logits": lambda x: tokens_first(x, lambda a: jnp.maximum(a, -1.0)),
    "stopped gradient": lambda x: tokens_first(x, jax.lax.stop_gradient),
    "values without heads": shared_values,
    "another largest": another_largest,
    "half precision": in_half_precision,
}
EDITED = {
    "bias": lambda x: tokens_first(x, lambda a: a + x.sum(-1)[:, None, None]),
    "mask": lambda x: tokens_first(x, lambda a: jnp.where(x[:, None, None, :, 0] > 0, a, -9.0)),
    "scale": lambda x: tokens_first(x, lambda a: a * (1 + x.mean())),
    "relative": lambda x: tokens_first(
        x, lambda a: a + jnp.einsum("nqhe,ke->nhqk", heads(x)[0], weights(T, SIZE))
    ),
    "features": lambda x: by_jax(jnp.sort(x, axis=1)),
}


def model(layer):
    return lambda _, x: layer(x).reshape(len(x), -1)


def names(made):
    return [operation.name for operation in made.trace.operations if operation.parts]


@pytest.mark.parametrize("name", RECOGNISED)
def test_found_and_the_same(compare, name):
    made = compare(model(RECOGNISED[name]), ROWS, Tokens())
    assert set(names(made)) == {FOUND}


@pytest.mark.parametrize("name", RECOGNISED_AS_CAUSAL)
def test_causal_ones(compare, name):
    made = compare(model(RECOGNISED_AS_CAUSAL[name]), ROWS, Tokens(), num_position_groups=3)
    assert set(names(made)) == {CAUSAL}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_near_misses_are_left_alone(compare, name):
    tolerance = 0.05 if name == "half precision" else 1e-4
    assert not names(compare(model(LEFT_ALONE[name]), ROWS, Tokens(), tolerance=tolerance))


@pytest.mark.parametrize("name", IN_HALF_PRECISION)
def test_in_half_precision_beside_the_softmax(compare, name):
    # Two whole passes that round otherwise are as far apart.
    made = compare(model(IN_HALF_PRECISION[name]), ROWS, Tokens(), tolerance=0.05)
    assert names(made) == [FOUND]


@pytest.mark.parametrize("name", EDITED)
def test_edited_operands_of_the_chain(compare, name):
    assert names(compare(model(EDITED[name]), ROWS, Tokens())) == [FOUND]


def test_it_is_what_it_was_made_of():
    shape = jax.ShapeDtypeStruct(ROWS.shape, ROWS.dtype)
    made = make_program(model(tokens_first), (), shape, (), Tokens(), "cpu", 1)
    clean = made.clean((), jnp.asarray(ROWS), ())
    (found,) = (operation for operation in made.trace.operations if operation.parts)
    (out,) = found.apply(*(clean.values[number] for number in found.inputs))
    np.testing.assert_array_equal(out, clean.values[found.outputs[0]])


def test_a_mask_from_context(compare):
    mask = jnp.arange(T) < 7
    made = compare(
        lambda _, x, m: model(lambda x: by_jax(x, mask=m[:, None, None]))(_, x),
        ROWS, Tokens(), contexts=[(mask,)],
    )  # fmt: skip
    assert names(made) == [FOUND]


PADDED = {
    "flax": lambda x, m: by_flax(x, mask=nn.combine_masks(
        nn.make_causal_mask(jnp.ones((1, T)), dtype=bool), m[:, None, None], dtype=bool)),
    "jax": lambda x, m: by_jax(x, mask=m[:, None, None], is_causal=True),
    "grouped": lambda x, m: grouped(x, mask=m[:, None, None] & LOWER[None, None]),
    "numbers added": lambda x, m: tokens_first(
        x, lambda a: a + jnp.where(LOWER[None] & m[:, None], 0.0, jnp.finfo(a.dtype).min)[:, None]),
    "added one after the other": lambda x, m: tokens_first(
        x, lambda a: jnp.where(LOWER, a, -1e9) + (1.0 - m[:, None, None].astype(a.dtype)) * -1e9),
}  # fmt: skip


@pytest.mark.parametrize("name", PADDED)
def test_a_causal_mask_beside_padding_that_is_context(compare, name):
    masks = [(jnp.arange(T) < length,) for length in (T, 7, 1)]
    made = compare(
        lambda _, x, m: PADDED[name](x, m).reshape(len(x), -1),
        ROWS, Tokens(), contexts=masks, num_position_groups=3,
    )  # fmt: skip
    assert names(made) == [CAUSAL]


def doubts(layer, x, *context):
    """What attention is found, and which edits of the last tokens are in doubt."""
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), (x, context))
    made = make_program(layer, (), *shapes, Tokens(), "cpu", 3)
    clean = made.clean((), x, context)
    edit = jax.vmap(lambda index: made.edit(clean, 2, index, -2 * x[:1])[1])
    return names(made), np.asarray(edit(jnp.arange(T // 3)))


def test_padding_on_the_left_is_decided_by_whole_passes():
    def layer(_, x, m):
        return PADDED["flax"](x, m).reshape(len(x), -1)

    for start in (0, 1, 5):
        found, in_doubt = doubts(layer, jnp.asarray(ROWS), jnp.arange(T) >= start)
        assert found == [CAUSAL]
        assert in_doubt.all() if start else not in_doubt.any()


def test_logits_that_outweigh_what_is_added_are_decided_by_whole_passes():
    layer = model(lambda x: tokens_first(x, lambda a: a + ADDED))
    for scale in (1.0, 30.0, 1e5):
        found, in_doubt = doubts(layer, jnp.asarray(scale * ROWS))
        assert found == [CAUSAL]
        assert in_doubt.all() == (scale == 1e5)
        assert in_doubt.any() == (scale == 1e5)


def test_attention_in_each_of_many_rows_stays_in_its_row(compare):
    # Windows lie on what looks like an axis of heads: operation by operation they stay there.
    def rows(x):
        x = (x.reshape(4, 3 * WIDTH) @ weights(3 * WIDTH, 3 * WIDTH)).reshape(1, T, WIDTH)
        q, k, v = (a.reshape(4, 3, HEADS, SIZE) for a in heads(x))
        logits = jnp.einsum("wqhe,wkhe->whqk", q, k)
        return jnp.einsum("whqk,wkhe->wqhe", jax.nn.softmax(logits), v)[None]

    compare(model(rows), ROWS, Tokens())
    found = explain(model(rows), (), jnp.asarray(ROWS)[None], NOISE)
    (step,) = (step for step in found.steps if step.name == FOUND)
    assert step.share == pytest.approx(1 / 4)


NOISE = Perturbation(Tokens(), Gaussian(sigma=3.0))


@pytest.mark.parametrize("options", [{}, {"is_causal": True}], ids=str)
def test_the_same_flips(options):
    def classify(w, x):
        return by_jax(x, **options).reshape(len(x), -1) @ w

    x = np.random.default_rng(1).normal(size=(3, T, WIDTH)).astype(np.float32)
    w = weights(T * WIDTH, 3)
    plain, reused = (
        sensitivity(classify, w, x, NOISE, 2, key=jax.random.key(0), incremental=way)
        for way in (False, True)
    )
    assert plain.totals.sum() > 0
    np.testing.assert_array_equal(plain.totals, reused.totals)


@pytest.mark.parametrize(("causal", "share"), [(False, 0.5), (True, 0.5)])
def test_it_costs_less(monkeypatch, causal, share):
    x = jax.ShapeDtypeStruct((64, WIDTH), jnp.float32)

    def cost():
        # A new function each time: costs are kept by the function.
        layer = model(lambda x: by_jax(x, is_causal=causal))
        return count_costs(layer, (), x, (), Tokens(), 5, "cpu").incremental

    found = cost()
    monkeypatch.setattr(program, "recognise", lambda trace: trace)
    assert found < share * cost()


def test_explain_names_it():
    found = explain(model(by_jax), (), jnp.asarray(ROWS)[None], NOISE)
    assert FOUND in str(found)
    assert sum(step.plain for step in found.steps) == pytest.approx(found.plain)
