"""Two-way error bars against their formulas and by simulation; JSON without loss."""

import dataclasses
import json
import math

import numpy as np
import pytest
from scipy.special import stdtrit

from jaxsens.measurement.sharpness_estimate import (
    BOUNDS,
    Change,
    SharpnessEstimate,
    SharpnessProvenance,
)

PROVENANCE = SharpnessProvenance(
    perturbation="Gaussian(sigma=0.005, variance=2.5e-05)",
    num_weights=1234,
    perturbed_apply_fn=None,
    seed=(0, 7),
    precision="highest",
    device="cpu",
    num_devices=1,
    seconds=0.25,
    num_passes=60,
)


def change(table, kind="loss"):
    return Change(np.asarray(table, float), BOUNDS[kind])


def crossed(rng, n, S, sigma_x, sigma_w, sigma_xw):
    """A table with independent effects of example, draw and both, and mean 0."""
    rows, columns = rng.normal(0, sigma_x, (n, 1)), rng.normal(0, sigma_w, (1, S))
    return rows + columns + rng.normal(0, sigma_xw, (n, S))


# Exact values.


def test_means_and_error_by_hand():
    made = change([[1.0, 3.0], [2.0, 4.0], [6.0, 8.0]])
    assert made.per_example.tolist() == [2, 3, 7]
    assert made.per_draw.tolist() == [3, 5]
    assert made.mean == 4
    # Purely additive: V_xw = 0.
    v_x, v_w = np.var([2, 3, 7], ddof=1) / 3, np.var([3, 5], ddof=1) / 2
    assert made.stderr == pytest.approx(math.sqrt(v_x + v_w))
    assert made.dof == pytest.approx((v_x + v_w) ** 2 / (v_x**2 / 2 + v_w**2 / 1))
    # Two draws say no more than t with one degree of freedom, whatever the examples say.
    half = stdtrit(1, 0.975) * math.sqrt(v_w)
    assert half > stdtrit(made.dof, 0.975) * made.stderr
    assert made.ci() == (pytest.approx(4 - half), pytest.approx(4 + half))
    assert made.half_width() == pytest.approx(half)


def test_the_interval_is_student_s_with_satterthwaite_s_degrees_of_freedom():
    made = change(crossed(np.random.default_rng(0), 8, 6, 2.0, 0.5, 0.7))
    half = stdtrit(made.dof, 0.975) * made.stderr
    assert made.ci() == (pytest.approx(made.mean - half), pytest.approx(made.mean + half))


def test_draws_alone_leave_s_minus_one_degrees_of_freedom():
    made = change(np.repeat([[1.0, 2.0, 3.0, 4.0, 5.0]], 1000, axis=0))
    assert made.stderr == pytest.approx(np.std([1, 2, 3, 4, 5], ddof=1) / math.sqrt(5))
    assert made.dof == pytest.approx(4)


def test_examples_alone_leave_n_minus_one():
    made = change(np.repeat(np.arange(50.0)[:, None], 5, axis=1))
    assert made.stderr == pytest.approx(np.std(np.arange(50), ddof=1) / math.sqrt(50))
    assert made.dof == pytest.approx(49)


def test_flips_that_cancel_in_every_margin_still_have_an_error():
    assert change([[1.0, 0.0], [0.0, 1.0]], "flips").stderr == pytest.approx(0.5)


def test_the_squared_error_is_unbiased():
    rng, n, S = np.random.default_rng(0), 40, 6
    truth = 1.0 / n + 0.5**2 / S + 0.7**2 / (n * S)
    squared = [change(crossed(rng, n, S, 1.0, 0.5, 0.7)).stderr ** 2 for _ in range(3000)]
    error = np.std(squared) / math.sqrt(len(squared))
    assert abs(np.mean(squared) - truth) < 4 * error


# Limits.


@pytest.mark.parametrize("shape", [(1, 5), (5, 1), (1, 1)])
@pytest.mark.parametrize("kind", BOUNDS)
def test_one_draw_or_one_example_has_no_interval(shape, kind):
    made = change(np.full(shape, 0.5), kind)
    assert made.mean == 0.5
    assert math.isnan(made.stderr)
    assert made.ci() == BOUNDS[kind]


@pytest.mark.parametrize("kind", ["l1", "squared", "loss"])
def test_no_change_at_all_is_exactly_zero(kind):
    made = change(np.zeros((30, 5)), kind)
    assert (made.mean, made.stderr, made.ci()) == (0, 0, (0, 0))


def test_no_flips_give_a_one_sided_interval_and_all_flips_its_mirror_image():
    low, high = change(np.zeros((1000, 5)), "flips").ci()
    assert low == 0
    assert high == pytest.approx(0.0038, abs=1e-4)
    assert change(np.ones((1000, 5)), "flips").ci() == (pytest.approx(1 - high), 1)


@pytest.mark.parametrize("kind", ["flips", "l1", "squared"])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.9999999])
@pytest.mark.parametrize("shape", [(2, 2), (30, 2), (30, 5), (4, 50)])
def test_intervals_hold_their_mean_and_stay_in_bounds(kind, level, shape):
    table = np.random.default_rng(0).random(shape) < 0.2
    table[0, 0] = True
    made = change(table, kind)
    low, high = made.ci(level)
    assert 0 <= low <= made.mean <= high <= BOUNDS[kind][1]
    assert low < high


@pytest.mark.parametrize("level", [0.0, 1.0, math.nan])
def test_a_level_is_a_probability(level):
    with pytest.raises(ValueError, match="level must lie strictly between 0 and 1"):
        change(np.ones((3, 3))).ci(level)


# Coverage where neither, either or both sources dominate.


def covered(tables, truth, kind):
    """Share of intervals that hold the truth."""
    ends = [change(table, kind).ci() for table in tables]
    return np.mean([low <= truth <= high for low, high in ends])


EFFECTS = {
    "draws": (0.3, 1.0, 0.3),
    "examples": (3.0, 0.1, 0.3),
    "both": (3.0, 0.7, 1.0),
    "neither": (0.0, 0.0, 1.0),
}


@pytest.mark.parametrize("effects", EFFECTS.values(), ids=EFFECTS)
@pytest.mark.parametrize(("n", "S"), [(100, 5), (20, 20)])
def test_normal_effects_are_covered(effects, n, S):
    rng = np.random.default_rng(0)
    share = covered((crossed(rng, n, S, *effects) for _ in range(400)), 0.0, "loss")
    assert share > 0.95 - 4 * math.sqrt(0.95 * 0.05 / 400)


@pytest.mark.parametrize("p", [0.003, 0.05, 0.4])
@pytest.mark.parametrize("spread", [0.0, 0.4])
def test_flips_are_covered(p, spread):
    """Rates that differ from example to example and from draw to draw, by factors of mean 1."""
    rng, n, S = np.random.default_rng(0), 300, 5

    def table():
        rows = rng.choice([0.2, 1.8], (n, 1))
        columns = 1 + spread * rng.uniform(-1, 1, (1, S))
        return rng.random((n, S)) < p * rows * columns

    assert covered((table() for _ in range(400)), p, "flips") > 0.92


@pytest.mark.parametrize(("n", "S"), [(50, 20), (30, 100)])
def test_a_few_examples_that_seldom_flip_are_covered(n, S):
    """Three examples in a hundred flip, each at a rate of its own: mean 0.03/2."""
    rng = np.random.default_rng(0)

    def table():
        rates = rng.random((n, 1)) * (rng.random((n, 1)) < 0.03)
        return rng.random((n, S)) < rates

    assert covered((table() for _ in range(400)), 0.015, "flips") > 0.92


def test_a_one_way_error_would_not_do():
    """Draws shared by all examples: error bars clustered by example alone miss the truth."""
    rng, missed = np.random.default_rng(0), 0
    for _ in range(200):
        made = change(crossed(rng, 200, 5, 1.0, 1.0, 1.0))
        one_way = made.per_example.std(ddof=1) / math.sqrt(200)
        missed += abs(made.mean) > 1.96 * one_way
    assert missed > 100


# The record.


def estimate(n=12, S=5, kinds=tuple(BOUNDS)):
    rng = np.random.default_rng(1)
    tables = {kind: rng.random((n, S)).astype(np.float32) for kind in kinds}
    tables["flips"] = (tables["flips"] < 0.3).astype(np.float32)
    return SharpnessEstimate.of(tables, PROVENANCE)


def test_a_line_says_it_all():
    est = estimate()
    low, high = est.l1.ci()
    assert str(est).startswith("sharpness: flips 0.")
    assert str(est).endswith("(95 % CI, n=12, S=5)")
    assert f"l1 {est.l1.mean:.2f} ± {max(est.l1.mean - low, high - est.l1.mean):.2f}" in str(est)
    assert "\n" not in repr(est)
    assert "loss" not in str(estimate(kinds=("flips", "l1", "squared")))
    assert "± inf" in str(estimate(S=1))


def test_a_line_says_when_few_examples_flip():
    tables = {kind: np.zeros((12, 5), np.float32) for kind in BOUNDS}
    tables["flips"][[2, 7], [0, 3]] = 1
    est = SharpnessEstimate.of(tables, PROVENANCE)
    assert est.num_sensitive == est.summary()["num_sensitive"] == 2
    assert str(est).endswith("S=5), few sensitive examples (2)")


@pytest.mark.parametrize("kinds", [tuple(BOUNDS), ("flips", "l1", "squared")])
@pytest.mark.parametrize("S", [1, 5])
def test_json_is_lossless(kinds, S):
    est = estimate(S=S, kinds=kinds)
    again = SharpnessEstimate.from_json(est.to_json())
    assert again.provenance == est.provenance
    assert list(again.changes) == list(est.changes) == list(kinds)
    for name, made in est.changes.items():
        assert np.array_equal(made.per_example_draw, again.changes[name].per_example_draw)
        assert made.ci() == again.changes[name].ci()


def test_json_is_standard_and_its_summary_readable():
    def refuse(constant):
        raise AssertionError(constant)

    record = json.loads(estimate(S=1).to_json(), parse_constant=refuse)
    assert record["summary"]["l1"]["stderr"] is None
    assert record["summary"]["num_draws"] == 1
    assert estimate().summary()["flips"]["mean"] == estimate().flips.mean


def part(est, rows, **changes):
    """The estimate of some of the examples."""
    tables = {name: change.per_example_draw[rows] for name, change in est.changes.items()}
    return SharpnessEstimate.of(tables, dataclasses.replace(PROVENANCE, **changes))


def test_merged_shards_are_the_whole():
    whole = estimate()
    merged = part(whole, slice(5)).merge(part(whole, slice(5, None)))
    assert (merged.num_examples, merged.num_draws) == (12, 5)
    for name, change in whole.changes.items():
        assert merged.changes[name].ci() == change.ci()
    assert merged.provenance == dataclasses.replace(PROVENANCE, seconds=0.5, num_passes=120)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (part(estimate(), slice(5), seed=(0, 8)), "seed"),
        (part(estimate(), slice(5), perturbation="Sphere(1.0)"), "perturbation"),
        (part(estimate(), slice(5), num_weights=1000), "num_weights=1234 and 1000"),
        (estimate(S=4), "num_draws=5 and 4"),
        (estimate(kinds=("flips", "l1", "squared")), "changes"),
    ],
)
def test_estimates_with_other_noise_do_not_merge(other, message):
    with pytest.raises(ValueError, match=f"cannot merge estimates with {message}"):
        estimate().merge(other)
