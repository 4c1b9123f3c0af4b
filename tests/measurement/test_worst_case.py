"""The worst case: closed forms, random draws below it, any cut the same, reuse as whole passes."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsens
from jaxsens import Ball, Patches, Perturbation, Tokens, Whole

KEY = jax.random.key(0)
ONE = jax.devices()[:1]


def worst(apply_fn, params, x, perturbation, *, key=KEY, devices=ONE, **options):
    options = {"num_starts": 4, "num_steps": 60, "incremental": False} | options
    return jaxsens.worst_case(
        apply_fn, params, x, perturbation, key=key, devices=devices, **options
    )


def words(n=2, T=6, d=5, seed=0):
    return np.random.default_rng(seed).normal(size=(n, T, d)).astype(np.float32)


def ball(radius=1.0, norm="l2", grid=None):
    return Perturbation(grid or Tokens(), Ball(radius, norm))


# Closed forms.


def linear(weights, x):
    return (x * weights[None]).sum(axis=(1, 2))


@pytest.mark.parametrize("incremental", [False, True])
@pytest.mark.parametrize(("norm", "dual"), [("l2", 2), ("linf", 1)])
def test_a_linear_model_has_radius_times_the_dual_norm(norm, dual, incremental):
    x, weights = words(), words(1, seed=1)[0]
    est = worst(
        linear, weights, x, ball(0.7, norm), num_steps=200, incremental=incremental,
        metric=jaxsens.relative_l2,
    )  # fmt: skip
    size = np.abs((x * weights).sum(axis=(1, 2)))
    expected = 0.7 * np.linalg.norm(weights, ord=dual, axis=1)[None] / size[:, None]
    np.testing.assert_allclose(est.changes, expected, rtol=1e-4)
    np.testing.assert_allclose(est.per_example, expected.max(axis=1), rtol=1e-4)
    assert est.worst_position.tolist() == expected.argmax(axis=1).tolist()
    assert np.all(est.agreement == 1)
    moves = (est.windows - x[:, :, None]).reshape(*x.shape)
    np.testing.assert_allclose(
        np.linalg.norm(moves, ord=2 if norm == "l2" else np.inf, axis=2), 0.7, rtol=1e-5
    )


def test_a_matrix_has_its_largest_singular_value_at_every_patch():
    images = np.random.default_rng(0).normal(size=(1, 4, 4, 1)).astype(np.float32)
    weights = np.random.default_rng(1).normal(size=(16, 3)).astype(np.float32)
    flat = lambda weights, x: x.reshape(len(x), -1) @ weights  # noqa: E731
    est = worst(flat, weights, images, ball(0.5, grid=Patches(2)), num_steps=300)
    blocks = weights.reshape(2, 2, 2, 2, 3).transpose(0, 2, 1, 3, 4).reshape(4, 4, 3)
    expected = 0.5 * np.linalg.norm(blocks, ord=2, axis=(1, 2))
    expected = expected / np.linalg.norm(flat(weights, images))
    np.testing.assert_allclose(est.changes[0], expected, rtol=1e-4)


def test_squares_are_followed_like_any_smooth_metric():
    x, weights = words(1), words(1, seed=1)[0]
    est = worst(linear, weights, x, ball(0.7), metric=jaxsens.squared_change, num_steps=200)
    expected = (0.7 * np.linalg.norm(weights, axis=1)) ** 2
    np.testing.assert_allclose(est.changes[0], expected, rtol=2e-4)


# Attention, as the paper has it.


def attention_features(weights, x):
    logits = (x @ weights) @ x.swapaxes(1, 2) / math.sqrt(x.shape[-1])
    return jax.nn.softmax(logits) @ x


def marked_attention(activation):
    def features(weights, x):
        q = (x @ weights)[:, :, None] / math.sqrt(x.shape[-1])
        return jaxsens.attention(q, x[:, :, None], x[:, :, None], activation=activation)

    return features


SOFTMAX, RELU = marked_attention("softmax"), marked_attention("relu")


def attention_weights(d=5):
    return np.random.default_rng(3).normal(size=(d, d)).astype(np.float32)


def test_the_worst_case_is_no_less_than_any_random_draw():
    x, weights = words(3), attention_weights()
    est = worst(attention_features, weights, x, ball(2.0))
    drawn = jaxsens.Metric("most", jaxsens.relative_l2.change, 0.0)
    for sample in range(4):
        random = jaxsens.sensitivity(
            attention_features, weights, x, ball(2.0), 1, key=jax.random.key(sample), metric=drawn,
            devices=ONE, incremental=False,
        )  # fmt: skip
        assert np.all(est.changes >= random.per_example_position)
    # With the same key the draws are the starts, and each start only climbs.
    starts = jaxsens.sensitivity(
        attention_features, weights, x, ball(2.0), 4, key=KEY, metric=drawn, devices=ONE
    )
    assert np.all(est.start_values.mean(axis=2) > starts.per_example_position)


def test_a_larger_ball_has_a_larger_worst_case():
    x, weights = words(2), attention_weights()
    found = [worst(attention_features, weights, x, ball(r)).changes for r in (0.1, 0.5, 2.0)]
    assert np.all(found[0] < found[1])
    assert np.all(found[1] < found[2])


def test_more_starts_keep_those_there_were():
    x, weights = words(1), attention_weights()
    few = worst(attention_features, weights, x, ball(2.0), num_starts=2)
    more = worst(attention_features, weights, x, ball(2.0), num_starts=5)
    np.testing.assert_allclose(more.start_values[..., :2], few.start_values, rtol=1e-4)
    assert np.all(more.changes >= few.changes * (1 - 1e-4))


# Reuse.


def two_layers(params, x):
    h = jnp.tanh(x @ params[0])
    return jnp.tanh(h.reshape(len(x), -1) @ params[1])


def two_layer_weights():
    rng = np.random.default_rng(5)
    shapes = ((5, 8), (48, 3))
    return tuple(0.5 * rng.normal(size=shape).astype(np.float32) for shape in shapes)


MODELS = {
    "written": (attention_features, attention_weights()),
    "softmax": (SOFTMAX, attention_weights()),
    "relu": (RELU, attention_weights()),
    "layers": (two_layers, two_layer_weights()),
}


@pytest.mark.parametrize(
    ("name", "norm"),
    [
        ("written", "l2"),
        ("softmax", "linf"),
        pytest.param("relu", "l2", marks=pytest.mark.slow),
        pytest.param("layers", "l2", marks=pytest.mark.slow),
    ],
)
def test_reuse_finds_what_whole_passes_find(name, norm):
    apply_fn, params = MODELS[name]
    x, within = words(2), ball(1.0, norm)
    whole = worst(apply_fn, params, x, within, incremental=False)
    reused = worst(apply_fn, params, x, within, incremental=True)
    assert (whole.provenance.incremental, reused.provenance.incremental) == (False, True)
    assert (whole.provenance.self_check, reused.provenance.self_check) == ("none", "passed")
    np.testing.assert_allclose(reused.changes, whole.changes, rtol=2e-3)
    # What is reported is what a whole pass gives for the window that is reported.
    edited = x.copy()
    edited[:, 2] = reused.windows[:, 2, 0]
    clean, perturbed = (apply_fn(params, jnp.asarray(inputs)) for inputs in (x, edited))
    expected = [float(jaxsens.relative_l2(a, b)) for a, b in zip(clean, perturbed, strict=True)]
    np.testing.assert_allclose(reused.changes[:, 2], expected, rtol=1e-4)


def test_auto_reuses_where_it_saves_operations():
    x = words(1, T=40, d=16)
    weights = attention_weights(16)
    options = {"num_steps": 3, "incremental": "auto"}
    est = worst(attention_features, weights, x, ball(2.0), positions=[0], **options)
    assert est.provenance.incremental
    everywhere = worst(linear, words(1)[0], words(1), ball(2.0, grid=Whole()), **options)
    assert not everywhere.provenance.incremental


@jax.custom_vjp
def straight_through(x):
    return jnp.round(x)


straight_through.defvjp(lambda x: (jnp.round(x), None), lambda _, slope: (slope,))


def rounded(weights, x):
    return (straight_through(3 * x) * weights[None]).sum(axis=(1, 2))


def test_a_derivative_of_its_own_sends_the_search_to_whole_passes():
    x, weights = words(1), words(1, seed=1)[0]
    whole = worst(rounded, weights, x, ball(2.0), incremental=False)
    with pytest.warns(UserWarning, match="another gradient, than a whole pass"):
        est = worst(rounded, weights, x, ball(2.0), incremental=True)
    np.testing.assert_array_equal(est.changes, whole.changes)
    assert est.provenance.self_check == "failed"
    assert not est.provenance.incremental


# Any cut gives the same.


@pytest.mark.parametrize("incremental", [pytest.param(False, marks=pytest.mark.slow), True])
def test_chunks_and_devices_change_nothing_but_rounding(incremental):
    x, weights = words(3), attention_weights()
    options = {"incremental": incremental, "num_steps": 30}
    expected = worst(SOFTMAX, weights, x, ball(1.0), **options)
    cuts = [{"chunk_bytes": 2_000}, {"chunk_bytes": 40_000}, {"devices": jax.devices()}]
    for cut in cuts:
        est = worst(SOFTMAX, weights, x, ball(1.0), **options, **cut)
        np.testing.assert_allclose(est.changes, expected.changes, rtol=1e-4)
        np.testing.assert_allclose(est.start_values, expected.start_values, rtol=1e-3)
        assert est.provenance.num_devices == (8 if "devices" in cut else 1)


def test_positions_and_masks_search_what_they_name_and_nothing_else():
    x, weights = words(3), attention_weights()
    everything = worst(SOFTMAX, weights, x, ball(1.0))
    some = worst(SOFTMAX, weights, x, ball(1.0), positions=[4, 0])
    assert some.positions.tolist() == [4, 0]
    assert some.changes.shape == (3, 2)
    assert some.windows.shape == (3, 2, 1, 5)
    assert some.provenance.num_passes == 3 * 2 * 4 * 61
    np.testing.assert_allclose(some.changes, everything.changes[:, [4, 0]], rtol=1e-4)
    mask = np.ones((3, 6), bool)
    mask[0, 4], mask[2] = False, False
    masked = worst(SOFTMAX, weights, x, ball(1.0), mask=mask, positions=np.array([4, 0]))
    assert np.isnan(masked.changes).tolist() == [[True, False], [False, False], [True, True]]
    assert masked.num_examples == 2
    assert np.isnan(masked.per_example).tolist() == [False, False, True]
    assert masked.worst_position[[0, 2]].tolist() == [0, -1]
    np.testing.assert_allclose(masked.changes[1], some.changes[1], rtol=1e-4)
    assert np.isnan(masked.agreement[2]).all()
    assert "n=2, 2 of T=6" in str(masked)


def test_context_reaches_the_model_and_padding_cannot_be_felt():
    x, weights = words(2), words(1, seed=1)[0]
    visible = np.ones((2, 6), np.float32)
    visible[1, 3:] = 0

    def seen(weights, x, context):
        return (x * weights[None] * context["visible"][:, :, None]).sum(axis=(1, 2))

    est = worst(seen, weights, x, ball(0.5), context={"visible": visible}, num_steps=200)
    size = np.abs((x * weights * visible[:, :, None]).sum(axis=(1, 2)))
    expected = 0.5 * np.linalg.norm(weights, axis=1)[None] * visible / size[:, None]
    np.testing.assert_allclose(est.changes, expected, rtol=1e-4, atol=1e-7)
    # Where nothing changes, no start is better than another, and no gradient is nan.
    assert np.all(est.agreement[1, 3:] == 1)
    assert np.all(est.spread[1, 3:] == 0)


def test_keys_decide_the_starts_and_ids_name_the_examples():
    x, weights = words(3), attention_weights()
    options = {"num_steps": 2, "incremental": False}
    a = worst(SOFTMAX, weights, x, ball(1.0), **options)
    b = worst(SOFTMAX, weights, x, ball(1.0), key=jax.random.PRNGKey(0), **options)
    other = worst(SOFTMAX, weights, x, ball(1.0), key=jax.random.key(1), **options)
    np.testing.assert_array_equal(a.start_values, b.start_values)
    assert not np.allclose(a.start_values, other.start_values, rtol=1e-4)
    part = worst(SOFTMAX, weights, x[2:], ball(1.0), example_ids=np.array([2]), **options)
    np.testing.assert_allclose(part.start_values[0], a.start_values[2], rtol=1e-4)


@pytest.mark.parametrize("incremental", [False, True])
def test_one_compilation_for_any_number_of_steps(compilations, incremental):
    def fresh(weights, x):
        return attention_features(weights, x)

    x, weights = words(3), attention_weights()
    options = {"incremental": incremental, "check": False}
    worst(fresh, weights, x, ball(1.0), num_steps=3, **options)
    assert compilations
    compilations.clear()
    worst(fresh, weights, x + 1, ball(1.0), num_steps=9, key=jax.random.key(4), **options)
    assert not compilations


# The label flip follows the margin.


def scores(weights, x):
    return jnp.einsum("ntd,dc->nc", x, weights) / x.shape[1]


def test_a_label_flips_where_the_ball_reaches_over_the_margin():
    # Two classes whose difference has the slope (2, 0)/T in every token.
    weights = np.array([[1.0, -1.0], [0.0, 0.0]], np.float32)
    x = np.zeros((2, 4, 2), np.float32)
    x[0, :, 0], x[1, :, 0] = 0.1, 1.0
    est = worst(scores, weights, x, ball(1.0), metric=jaxsens.label_flip)
    # By 1 in one of 4 tokens the lead of class 0 shrinks by 0.5, from 0.2 and from 2.
    np.testing.assert_allclose(est.margins, [[0.3] * 4, [-1.5] * 4], rtol=1e-4)
    assert est.changes.tolist() == [[1] * 4, [0] * 4]
    assert est.mean == 0.5
    np.testing.assert_allclose(est.start_values.max(axis=2), est.margins, rtol=1e-5)
    np.testing.assert_allclose(est.windows[:, :, 0, 0], x[..., 0] - 1, atol=1e-3)
    assert "worst label_flip found" in str(est)


@pytest.mark.parametrize("columns", [(), (1,)])
def test_a_score_flips_its_sign(columns):
    x = np.full((3, 2), 0.5, np.float32) * np.array([[1], [-1], [0]], np.float32)
    sign = lambda params, x: x.sum(axis=1).reshape(-1, *columns)  # noqa: E731
    est = worst(sign, (), x, ball(1.5), metric=jaxsens.label_flip)
    np.testing.assert_allclose(est.margins, [[0.5] * 2, [0.5] * 2, [1.5] * 2], rtol=1e-5)
    assert est.changes.all()
    assert worst(sign, (), x[:2], ball(0.9), metric=jaxsens.label_flip).mean == 0


# The record.


def test_the_record_says_how_it_was_made_and_comes_back_from_json():
    x, weights = words(3), attention_weights()
    est = worst(SOFTMAX, weights, x, ball(1.0), incremental=True, key=jax.random.key(5))
    made = est.provenance
    assert (made.metric, made.num_starts, made.num_steps) == ("relative_l2", 4, 60)
    assert made.perturbation == "Perturbation(grid=Tokens(), edit=Ball(radius=1.0, norm='l2'))"
    assert (made.seed, made.device, made.precision) == ((0, 5), "cpu", "highest")
    assert made.seconds > 0
    low, high = est.ci()
    assert low < est.mean < high
    assert est.mean == pytest.approx(est.changes.max(axis=1).mean(), rel=1e-6)
    assert est.half_width() == pytest.approx((high - low) / 2)
    assert est.stderr == pytest.approx(est.per_example.std(ddof=1) / math.sqrt(3))
    np.testing.assert_allclose(est.per_position, est.changes.mean(axis=0), rtol=1e-6)
    assert str(est).endswith("a lower bound of the supremum)")
    assert "n=3, T=6, 4 starts × 60 steps" in str(est)
    back = jaxsens.WorstCaseEstimate.from_json(est.to_json())
    for field in ("changes", "windows", "start_values", "positions"):
        np.testing.assert_array_equal(getattr(back, field), getattr(est, field))
    assert back.margins is None
    assert (back.provenance, back.bounds, str(back)) == (made, est.bounds, str(est))
    with pytest.raises(ValueError, match="not an estimate of jaxsens"):
        jaxsens.WorstCaseEstimate.from_json(
            est.to_json().replace('"positions": [0', '"positions": [')
        )


def test_starts_that_disagree_are_told():
    est = worst(attention_features, attention_weights(), words(1), ball(1.0), num_steps=1)
    best, worst_of = est.start_values.max(axis=2), est.start_values.min(axis=2)
    np.testing.assert_allclose(est.spread, (best - worst_of) / best)
    assert np.all((est.agreement >= 1 / 4) & (est.agreement < 1))


def test_progress_counts_cells():
    told = []
    worst(
        linear, words(1)[0], words(2), ball(1.0), num_steps=2, chunk_bytes=2_000, positions=[1, 2],
        progress=lambda *numbers: told.append(numbers), incremental=False,
    )  # fmt: skip
    assert told[-1][:2] == (4, 4)
    assert [done for done, _, _ in told] == sorted(done for done, _, _ in told)
