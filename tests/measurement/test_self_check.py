"""Whole passes have the last word: ties, cancellation, infinities, and rules that are wrong."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxsens import Gaussian, Patches, Perturbation, Resample, Tokens, sensitivity
from jaxsens.incremental import UnmappableError, propagate
from jaxsens.incremental.values import Dense
from jaxsens.measurement import exhaustive
from jaxsens.measurement.metrics import label_flip, relative_l2
from jaxsens.measurement.whole_passes import disagreement, entries_of, probes_of

GENERATOR = np.random.default_rng(0)


def normal(*shape):
    return jnp.asarray(GENERATOR.normal(size=shape), jnp.float32)


@dataclass(frozen=True)
class Zero:
    """Windows of zeros."""

    def __call__(self, key, window):
        return jnp.zeros_like(window)


def both(f, params, x, perturbation, num_samples=3, **options):
    """The same measurement by reuse and by whole passes."""
    return [
        sensitivity(
            f, params, x, perturbation, num_samples, key=jax.random.key(1),
            incremental=incremental, devices=jax.local_devices()[:1], **options,
        )
        for incremental in (True, False)
    ]  # fmt: skip


def bias_free_cnn(params, x):
    kernel, read = params
    y = lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return jax.nn.relu(y).reshape(len(x), -1) @ read


@pytest.mark.parametrize("num_outputs", [1, 3])
def test_an_exact_tie_is_decided_by_a_whole_pass(num_outputs):
    # Only one patch of each image is lit: without it every score is exactly 0.
    x = np.zeros((8, 8, 8, 1), np.float32)
    x[np.arange(8), :2, :2] = 1 + np.arange(8)[:, None, None, None]
    params = normal(3, 3, 1, 4), normal(8 * 8 * 4, num_outputs)
    reused, whole = both(bias_free_cnn, params, x, Perturbation(Patches(2), Zero()))
    assert reused.provenance.incremental
    np.testing.assert_array_equal(reused.totals, whole.totals)
    if num_outputs == 1:  # off the sign of a score onto a tie
        assert (reused.per_example_position[:, 0] == 1).all()


def test_a_huge_entry_that_goes_leaves_no_rounding_behind():
    table = jnp.concatenate([jnp.full((1, 4), -1e9), normal(9, 4)])
    mixing, read = normal(12, 7), normal(28, 5)
    ids = GENERATOR.integers(1, 10, (6, 12)).astype(np.int32)
    ids[:, 5] = 0

    def f(table, ids):
        mixed = jnp.einsum("ntc,ts->nsc", table[ids], mixing)
        return jnp.tanh(mixed).reshape(len(ids), -1) @ read

    noise = Perturbation(Tokens(), Resample(10))
    reused, whole = both(f, table, ids, noise, metric=relative_l2)
    np.testing.assert_allclose(reused.totals, whole.totals, rtol=1e-4, atol=1e-4)


def hidden_infinity(params, x):
    mixing, read = params
    logs = jnp.log(jax.nn.relu(x))  # -inf wherever x is negative
    mixed = jnp.nan_to_num(jnp.einsum("ntc,ts->nsc", logs, mixing), nan=0.0, posinf=1, neginf=-1)
    return 1.0 + jnp.abs(mixed.reshape(len(x), -1) @ read)


def test_infinities_are_noticed_even_if_the_output_hides_them():
    params = normal(12, 7), normal(28, 5)
    x, noise = normal(6, 12, 4), Perturbation(Tokens(), Gaussian(sigma=2.0))
    reused, whole = both(hidden_infinity, params, x, noise, metric=relative_l2)
    np.testing.assert_allclose(reused.totals, whole.totals, rtol=1e-5, atol=1e-6)


def mlp(params, x):
    first, second = params
    return jnp.tanh(x.reshape(len(x), -1) @ first) @ second


@pytest.fixture
def images():
    return (normal(64, 16), normal(16, 5)), normal(20, 8, 8, 1), Perturbation(
        Patches(2), Gaussian(sigma=2.0)
    )  # fmt: skip


def test_a_right_rule_passes(images):
    reused, whole = both(mlp, *images)
    assert reused.provenance.self_check == "passed"
    assert whole.provenance.self_check == "none"


@pytest.mark.parametrize("share", [1.0, 0.1], ids=["everywhere", "in a tenth of the images"])
def test_a_wrong_rule_is_found_out(images, monkeypatch, share):
    params, x, noise = images
    whole = sensitivity(mlp, params, x, noise, key=jax.random.key(1), incremental=False)
    right = propagate.RULES["tanh"]

    def wrong(call):
        value = right(call)[0].value
        is_wrong = value.sum() < jnp.inf if share == 1 else jnp.abs(value).max() > 0.999
        return [Dense(jnp.where(is_wrong, 1.1 * value, value))]

    monkeypatch.setitem(propagate.RULES, "tanh", wrong)
    with pytest.warns(UserWarning, match="a fault of jaxsens: please report it"):
        found = sensitivity(
            lambda params, x: mlp(params, x), params, x, noise, key=jax.random.key(1),
            incremental=True,
        )  # fmt: skip
    assert found.provenance.self_check == "failed"
    assert not found.provenance.incremental
    np.testing.assert_array_equal(found.totals, whole.totals)


def test_a_rule_that_raises_is_our_fault_and_not_the_models(images, monkeypatch):
    def broken(call):
        raise TypeError("no rule for that")

    monkeypatch.setitem(propagate.RULES, "tanh", broken)
    own = lambda params, x: mlp(params, x)  # noqa: E731 - not traced before
    with pytest.warns(UserWarning, match="a fault of jaxsens: please report it"):
        sensitivity(own, *images, key=jax.random.key(1))


@pytest.mark.parametrize("options", [{}, {"tolerance": 0.2}], ids=["all", "tolerance"])
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (UnmappableError("no batching rule"), "the model cannot be mapped over edits"),
        (KeyError("a table"), "a fault of jaxsens: please report it"),
    ],
)
def test_whose_fault_it_is_that_a_program_cannot_be_traced(
    images, monkeypatch, options, error, reason
):
    def fails(job):
        raise error

    whole = sensitivity(mlp, *images, key=jax.random.key(1), incremental=False)
    monkeypatch.setattr(exhaustive, "_trace_reuse", fails)
    with pytest.warns(UserWarning, match=reason):
        found = sensitivity(mlp, *images, key=jax.random.key(1), **options)
    assert found.provenance.positions == "all"
    np.testing.assert_array_equal(found.totals, whole.totals)
    with pytest.raises(type(error)):
        sensitivity(mlp, *images, key=jax.random.key(1), incremental=True, **options)


def test_probes_are_unmasked_and_spread_over_positions():
    mask = GENERATOR.random((50, 30)) < 0.5
    probes = probes_of(mask, np.arange(50), 4)
    assert mask[np.arange(50)[:, None], probes].all()
    assert len(np.unique(probes)) == 30


def test_disagreement_sees_a_small_output_beside_a_huge_one():
    expected = np.column_stack([np.full(8, -1e9), GENERATOR.normal(size=(8, 3))])
    assert disagreement(expected, expected, 1e-7).max() == 0
    found = expected.copy()
    found[3, 2] += 0.01
    apart = disagreement(found, expected, 1e-7)
    assert (apart > 1).tolist() == [False] * 3 + [True] + [False] * 4


@pytest.mark.parametrize("outputs", [[0.0], [1.0, 1.0, 0.5], [1.0, 1.0 + 1e-8]])
def test_what_is_within_rounding_of_a_tie_is_close(outputs):
    outputs = jnp.asarray(outputs)
    assert label_flip.is_close(outputs + 1e-3, outputs, 1e-6)
    assert not label_flip.is_close(outputs, outputs, 1e-6)  # the same to the bit
    far = outputs.at[0].add(0.5)
    assert not label_flip.is_close(far, far.at[0].add(1e-3), 1e-6)
    assert not relative_l2.is_close(outputs + 1e-3, outputs, 1e-6)


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
def test_draws_of_any_kind_of_key_are_the_same_however_many_are_made_at_a_time(images, impl):
    params, x, noise = images
    found = [
        sensitivity(
            mlp, params, x, noise, key=jax.random.key(3, impl=impl), metric=relative_l2, **options
        ).totals
        for options in ({}, {"chunk_bytes": 20_000}, {"incremental": False})
    ]
    for other in found[1:]:
        np.testing.assert_allclose(found[0], other, rtol=1e-4)


def test_what_is_finite_on_one_side_alone_is_infinitely_far():
    expected = GENERATOR.normal(size=(8, 3))
    found = expected.copy()
    found[2, 1] = np.nan
    assert disagreement(found, expected, 1e-7)[2] == np.inf
    assert disagreement(expected, found, 1e-7)[2] == np.inf
    # One such row does not hide another that is wrong.
    wrong = expected * np.where(np.arange(8) == 5, 1.5, 1.0)[:, None]
    assert disagreement(wrong, found, 1e-7)[5] > 1


def whole_numbers(params, x):
    return jnp.maximum(x.reshape(len(x), -1) @ params, 0)


@pytest.mark.parametrize("off_by", [0, 500_000])
def test_models_of_whole_numbers_are_checked_too(off_by, monkeypatch):
    params = jnp.asarray(GENERATOR.integers(-9, 10, (30, 4)), jnp.int32)
    x = GENERATOR.integers(0, 9, (20, 30)).astype(np.int32)
    noise = Perturbation(Tokens(), Resample(9))
    right = propagate.RULES["max"]
    monkeypatch.setitem(
        propagate.RULES, "max", lambda call: [Dense(v.value + off_by) for v in right(call)]
    )
    own = lambda params, x: whole_numbers(params, x)  # noqa: E731 - not traced before
    if not off_by:
        assert both(own, params, x, noise)[0].provenance.self_check == "passed"
        return
    with pytest.warns(UserWarning, match="a fault of jaxsens"):
        found, whole = both(own, params, x, noise)
    np.testing.assert_array_equal(found.totals, whole.totals)


def test_a_masked_class_does_not_bring_everything_near_a_tie(images):
    params, x, noise = images
    fill = jnp.array([0.0, 0.0, 0.0, 0.0, -1e9])
    reused, whole = both(lambda params, x: mlp(params, x) + fill[None], params, x, noise)
    assert reused.provenance.incremental
    np.testing.assert_array_equal(reused.totals, whole.totals)


def test_a_measurement_that_is_mostly_in_doubt_is_given_up_early():
    """Two equal classes: every draw is a tie, which only a whole pass may decide."""
    n, weights = 600, normal(64, 16)  # more than one call takes

    def twins(params, x):
        score = jnp.tanh(x.reshape(len(x), -1) @ params).sum(axis=1)
        return jnp.stack([score, score], axis=1)

    reports = []
    noise = Perturbation(Patches(2), Gaussian(sigma=2.0))
    reused, whole = both(
        twins, weights, normal(n, 8, 8, 1), noise, 2,
        progress=lambda done, total, mean: reports.append(done),
    )  # fmt: skip
    assert not reused.provenance.incremental
    np.testing.assert_array_equal(reused.totals, whole.totals)
    # Both measurements by whole passes came to their end, and that by reuse did not.
    assert reports.count(n) == 2


def test_outputs_of_any_size_and_kind_are_compared_in_a_few_entries():
    wide = jnp.asarray(GENERATOR.normal(size=(3, 40, 50)), jnp.float32)
    assert entries_of(wide).shape == (3, 256)
    np.testing.assert_array_equal(entries_of(wide[:, :2, :2]), wide[:, :2, :2].reshape(3, 4))
    assert entries_of(lax.complex(wide[:, 0], wide[:, 1])).shape == (3, 100)
    assert entries_of(wide[:, 0, 0]).shape == (3, 1)


def test_features_by_reuse_are_checked(images):
    params, x, noise = images

    def features(params, x):
        return jnp.tanh(x.reshape(len(x), 8, 8) @ params[0][:8])[..., None] * jnp.ones(
            (1, 1, 1, 20)
        )

    reused, whole = both(features, params, x, noise, metric=relative_l2)
    assert reused.provenance.self_check == "passed"
    np.testing.assert_allclose(reused.totals, whole.totals, rtol=1e-4, atol=1e-6)
