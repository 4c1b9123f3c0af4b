"""Labels at several places: a flip at any of them, their share, or at one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsens
from jaxsens import (
    Ball,
    Gaussian,
    Perturbation,
    Tokens,
    label_flip,
    label_flip_any,
    label_flip_at,
    label_flip_mean,
)  # fmt: skip

KEY = jax.random.key(0)
X = np.random.default_rng(0).normal(size=(5, 6, 4)).astype(np.float32)
W = jnp.asarray(np.random.default_rng(1).normal(size=(4, 3)), jnp.float32)
NOISE = Perturbation(Tokens(), Gaussian(sigma=2.0))


def per_token(params, x):
    """Each token's own label: an edit of one token reaches that token alone."""
    return x @ params


def causal(params, x):
    return jnp.cumsum(x @ params, axis=1)


def test_exact_values():
    clean = jnp.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [3.0, 0.0]])
    perturbed = clean.at[1].set(jnp.array([2.0, 1.0]))
    assert float(label_flip_any(clean, perturbed)) == 1
    assert float(label_flip_any(clean, 2 * clean)) == 0
    assert float(label_flip_mean(clean, perturbed)) == 0.25
    assert [float(label_flip_at(i)(clean, perturbed)) for i in range(4)] == [0, 1, 0, 0]
    pixels = clean.reshape(2, 2, 2)
    assert float(label_flip_at((0, 1))(pixels, perturbed.reshape(2, 2, 2))) == 1
    assert float(label_flip_mean(pixels, perturbed.reshape(2, 2, 2))) == 0.25


def test_a_single_class_has_a_sign():
    clean, perturbed = jnp.array([[1.0], [2.0]]), jnp.array([[-1.0], [1.0]])
    assert float(label_flip_mean(clean, perturbed)) == 0.5


def test_of_one_place_all_are_the_label_flip():
    clean, perturbed = jnp.array([[1.0, 2.0]]), jnp.array([[3.0, 2.0]])
    flips = [label_flip_any, label_flip_mean, label_flip_at(0)]
    assert {float(m(clean, perturbed)) for m in flips} == {
        float(label_flip(clean[0], perturbed[0]))
    }


@pytest.mark.parametrize("metric", [label_flip_any, label_flip_mean, label_flip_at(2)])
def test_reuse_gives_the_same_flips(metric):
    plain, reused = (
        jaxsens.sensitivity(causal, W, X, NOISE, 3, key=KEY, metric=metric, incremental=bit)
        for bit in (False, True)
    )
    np.testing.assert_allclose(plain.totals, reused.totals, rtol=1e-6)  # thirds do not add up
    assert plain.mean > 0


def test_shares_and_single_places_follow_from_each_other():
    options = {"key": KEY, "num_samples": 4}
    some, share = (
        jaxsens.sensitivity(per_token, W, X, NOISE, metric=metric, **options)
        for metric in (label_flip_any, label_flip_mean)
    )
    np.testing.assert_allclose(share.totals, some.totals / 6, rtol=1e-6)
    third = jaxsens.sensitivity(per_token, W, X, NOISE, metric=label_flip_at(2), **options)
    np.testing.assert_array_equal(third.totals[:, 2], some.totals[:, 2])
    np.testing.assert_array_equal(np.delete(third.totals, 2, axis=1), 0)


def test_the_worst_case_follows_the_margins():
    ball = Perturbation(Tokens(), Ball(4.0))
    for metric in (label_flip_any, label_flip_mean, label_flip_at(2)):
        est = jaxsens.worst_case(
            per_token, W, X[:2], ball, key=KEY, metric=metric, num_starts=2, num_steps=20,
            positions=[2],
        )  # fmt: skip
        assert (est.changes > 0).all()


def test_without_a_metric_it_is_a_question_in_one_line():
    with pytest.raises(
        ValueError, match=r"metric=jaxsens.label_flip_any, .*label_flip_at"
    ) as error:
        jaxsens.sensitivity(per_token, W, X, NOISE, key=KEY)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("place", [1.5, (), "a", (0, None), True])
def test_a_place_is_a_whole_number_or_several(place, types_unchecked):
    with pytest.raises(ValueError, match=r"label_flip_at needs a place, such as 3 or \(2, 5\)"):
        label_flip_at(place)


@pytest.mark.parametrize("place", [6, -7, (0, 0)])
def test_a_place_that_is_not_there_is_named(place):
    with pytest.raises(ValueError, match=r"there is no place .* among outputs with places"):
        jaxsens.sensitivity(per_token, W, X, NOISE, key=KEY, metric=label_flip_at(place))


def test_metrics_of_one_place_are_equal():
    assert label_flip_at(3) == label_flip_at((3,))
    assert hash(label_flip_at(3)) == hash(label_flip_at(3))
    assert label_flip_at((1, 2)).name == "label_flip_at(1, 2)"
