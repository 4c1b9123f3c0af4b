"""Random feature maps: as functions of one word, against the same maps of whole texts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens import Ball, Perturbation, Tokens, worst_case
from jaxsens.models import RandomAttentionFeatures, RandomFeatures
from jaxsens.models.tokens.feature_maps import random_first_word
from jaxsens.perturbations.ascent import ascend

LENGTH, WIDTH = 6, 5
MAPS = {
    "rf": RandomFeatures(LENGTH, WIDTH),
    "narrow rf": RandomFeatures(LENGTH, WIDTH, units=7),
    "drf": RandomFeatures(LENGTH, WIDTH, depth=3, gain=2.0),
    "raf": RandomAttentionFeatures("softmax"),
    "relu-raf": RandomAttentionFeatures("relu"),
}


def rows(key, *shape):
    x = jax.random.normal(key, shape)
    return x * (shape[-1] ** 0.5 / jnp.linalg.norm(x, axis=-1, keepdims=True))


@pytest.fixture(scope="module")
def text():
    return rows(jax.random.key(0), LENGTH, WIDTH)


def by_definition(name, params, x):
    """φ of one text in float64, as the paper writes it."""
    p = {key: np.asarray(value, np.float64) for key, value in params["params"].items()}
    x = np.asarray(x, np.float64)
    if not name.endswith("raf"):
        h = np.maximum(x.reshape(-1) @ p["kernel"].reshape(x.size, -1), 0)
        for layer in p["layers"]:
            h = np.maximum(h @ layer, 0)
        return h
    logits = x @ p["kernel"] @ x.T / np.sqrt(x.shape[1])
    weights = np.exp(logits) if name == "raf" else np.maximum(logits, 0)
    sums = weights.sum(axis=1, keepdims=True)
    return (weights / np.where(sums > 0, sums, 1) @ x).reshape(-1)


@pytest.mark.parametrize("name", MAPS)
def test_maps_are_their_definition(name, text):
    params = MAPS[name].init(jax.random.key(1), text[None])
    expected = by_definition(name, params, text)
    np.testing.assert_allclose(MAPS[name].apply(params, text[None])[0], expected, atol=1e-5)


@pytest.mark.parametrize("place", [0, 3, LENGTH - 1])
@pytest.mark.parametrize("name", MAPS)
def test_one_word_free_equals_the_whole_map(name, place, text):
    model = MAPS[name]
    params = model.init(jax.random.key(1), text[None])
    of_word = model.apply(params, text, place, method="with_word")
    for seed in range(3):
        word = 3.0 * jax.random.normal(jax.random.key(seed), (WIDTH,))
        whole = model.apply(params, text.at[place].set(word)[None])[0]
        np.testing.assert_allclose(of_word(word), whole, rtol=1e-5, atol=1e-5)


def test_large_logits_neither_overflow_nor_vanish(text):
    model = MAPS["raf"]
    params = jax.tree.map(lambda w: 400 * w, model.init(jax.random.key(1), text[None]))
    of_word = model.apply(params, text, 2, method="with_word")
    whole = model.apply(params, text[None])[0]
    np.testing.assert_allclose(of_word(text[2]), whole, rtol=1e-4, atol=1e-4)
    assert jnp.isfinite(jax.jacobian(of_word)(text[2])).all()


def test_relu_attention_without_a_positive_logit_is_zero():
    text = jnp.ones((3, 2))
    model = MAPS["relu-raf"]
    params = {"params": {"kernel": -jnp.eye(2)}}
    assert not model.apply(params, text[None]).any()
    assert not model.apply(params, text, 1, method="with_word")(text[1]).any()


@pytest.mark.parametrize("name", ["rf", "drf", "raf", "relu-raf"])
def test_weights_have_the_scales_of_the_paper(name):
    n, d = 30, 20
    text = rows(jax.random.key(2), n, d)
    large = {
        "rf": RandomFeatures(n, d),
        "drf": RandomFeatures(n, d, depth=2, gain=2.0),
        "raf": RandomAttentionFeatures(),
        "relu-raf": RandomAttentionFeatures("relu"),
    }
    weights = large[name].init(jax.random.key(3), text[None])["params"]
    variances = {"rf": 1 / (n * d), "drf": 2 / (n * d)}
    for leaf in jax.tree.leaves(weights):
        if leaf.size:
            error = 4 * np.sqrt(2 / leaf.size)
            expected = variances.get(name, 1 / d)
            assert abs(float(jnp.var(leaf)) / expected - 1) < error


def test_a_drawn_rest_has_the_law_of_the_whole_map():
    n, d, k = 4, 3, 6000
    text = rows(jax.random.key(4), n, d)
    drawn = random_first_word(jax.random.key(5), n, d, units=k)
    model = RandomFeatures(n, d, units=k)
    params = model.init(jax.random.key(6), text[None])
    made = model.apply(params, text, 0, method="with_word")
    for one, other in ((drawn.rest, made.rest), (drawn.block, made.block)):
        # Standard deviations of equal laws, each known to 1/√(2k).
        assert float(jnp.std(one)) == pytest.approx(float(jnp.std(other)), rel=5 / k**0.5)
    assert float(jnp.var(drawn.rest)) == pytest.approx((n - 1) / n, rel=5 * (2 / k) ** 0.5)
    assert float(jnp.var(drawn.block)) == pytest.approx(1 / (n * d), rel=5 * (2 / (k * d)) ** 0.5)


def worst(of_word, word, radius, num_starts=6, num_steps=100):
    clean = of_word(word)

    def squared(point):
        return jnp.sum(jnp.square(of_word(point) - clean)) / jnp.sum(jnp.square(clean))

    found = jax.jit(
        lambda word: ascend(
            *(squared, word, Ball(radius)),
            key=jax.random.key(7),
            num_starts=num_starts,
            num_steps=num_steps,
        )
    )(word)
    return squared, found


@pytest.mark.parametrize("name", ["rf", "raf", "relu-raf"])
def test_the_worst_word_is_no_less_than_random_ones_and_grows_with_the_ball(name, text):
    model = MAPS[name]
    params = model.init(jax.random.key(1), text[None])
    of_word = model.apply(params, text, 0, method="with_word")
    before = 0.0
    for radius in (0.1, 0.5, WIDTH**0.5):
        # ReLU attention jumps where a row has no positive logit: few starts find its best part.
        squared, found = worst(of_word, text[0], radius, num_starts=64)
        moves = jax.random.normal(jax.random.key(8), (200, WIDTH))
        moves = radius * moves / jnp.linalg.norm(moves, axis=1, keepdims=True)
        drawn = jax.vmap(squared)(text[0][None] + moves)
        assert float(found.values.max()) >= float(drawn.max())
        assert float(found.values.max()) >= before
        before = float(found.values.max())
        lengths = jnp.linalg.norm(found.points - text[0][None], axis=1)
        assert float(lengths.max()) <= radius * (1 + 1e-5)


def test_the_ascent_finds_the_closed_form_of_a_linear_map():
    weights = jax.random.normal(jax.random.key(9), (7,))
    centre = jax.random.normal(jax.random.key(10), (7,))
    found = ascend(
        lambda p: weights @ (p - centre),
        *(centre, Ball(1.5)),
        key=jax.random.key(11),
        num_starts=2,
        num_steps=100,
    )
    assert float(found.values.min()) == pytest.approx(
        1.5 * float(jnp.linalg.norm(weights)), rel=1e-4
    )
    assert float(weights @ (found.best - centre)) == pytest.approx(float(found.values.max()))


def test_random_points_are_looked_at_before_the_ascent():
    weights = jnp.array([3.0, 4.0])
    found = ascend(
        lambda p: weights @ p,
        *(jnp.zeros(2), Ball(2.0)),
        key=jax.random.key(11),
        num_starts=3,
        num_steps=0,
        num_draws=50,
    )
    assert found.drawn.shape == (3, 50)
    # Without a step the best is the best of them; their mean is 0, their variance (5·2)²/2.
    np.testing.assert_array_equal(found.values, found.drawn.max(axis=1))
    assert abs(float(found.drawn.mean())) < 4 * (50 / 150) ** 0.5
    few = ascend(
        lambda p: weights @ p,
        *(jnp.zeros(2), Ball(2.0)),
        key=jax.random.key(11),
        num_starts=2,
        num_steps=0,
        num_draws=50,
    )
    np.testing.assert_array_equal(few.drawn, found.drawn[:2])


def test_a_flat_function_is_left_where_it_starts():
    found = ascend(
        lambda p: 0.0 * p.sum(),
        *(jnp.zeros(3), Ball(1.0)),
        key=jax.random.key(0),
        num_starts=2,
        num_steps=3,
    )
    assert jnp.isfinite(found.points).all()
    np.testing.assert_allclose(jnp.linalg.norm(found.points, axis=1), 1.0, rtol=1e-5)


@pytest.mark.parametrize("name", ["raf"])
def test_the_library_finds_the_same_worst_word(name, text):
    model = MAPS[name]
    params = model.init(jax.random.key(1), text[None])
    of_word = model.apply(params, text, 2, method="with_word")
    _, found = worst(of_word, text[2], WIDTH**0.5, 8, 200)
    ball = Perturbation(Tokens(), Ball(WIDTH**0.5))
    theirs = worst_case(
        *(model.apply, params, text[None], ball),
        key=jax.random.key(12),
        positions=[2],
        devices=jax.devices()[:1],
    )
    assert float(theirs.changes[0, 0]) == pytest.approx(float(found.values.max()) ** 0.5, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "expected"), [(90, 0.1164), (150, 0.0883)])
def test_random_features_of_the_papers_size(n, expected):
    d = 192
    found = []
    for seed in range(3):
        key = jax.random.key(seed)
        of_word = random_first_word(key, n, d, units=n * d)
        word = rows(jax.random.fold_in(key, 1), 1, d)[0]
        found.append(float(worst(of_word, word, d**0.5, 4, 200)[1].values.max()) ** 0.5)
    assert np.mean(found) == pytest.approx(expected, rel=0.05)
