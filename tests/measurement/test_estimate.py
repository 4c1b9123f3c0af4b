"""Means, error bars and intervals against their formulas; JSON and merge without loss."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxsens.core.intervals import mean_interval
from jaxsens.measurement.estimate import Provenance, SensitivityEstimate


def provenance(**changes):
    made = {
        "metric": "label_flip",
        "perturbation": "Perturbation(grid=Bits(), edit=Flip(low=-1, high=1))",
        "num_samples": 5,
        "exact": False,
        "positions": "all",
        "tolerance": None,
        "seed": (0, 7),
        "precision": "highest",
        "device": "cpu",
        "num_devices": 1,
        "seconds": 0.25,
        "num_passes": 1234,
        "exhaustive_passes": 5678,
    }
    return Provenance(**(made | changes))


def estimate(totals, counts, bounds=(0.0, 1.0), **changes):
    totals = np.asarray(totals, float)
    counts = np.broadcast_to(counts, totals.shape).copy()
    made = provenance(**({"num_samples": int(counts.max())} | changes))
    return SensitivityEstimate(totals, counts, bounds, made)


def drawn(n, num_positions, p, num_samples=5, seed=0, **changes):
    totals = np.random.default_rng(seed).binomial(num_samples, p, (n, num_positions))
    return estimate(totals, num_samples, **changes)


#: (draws, share of flips) at each position of each example; here and there without draws.
CELLS = st.tuples(st.sampled_from([0, 1, 2, 5, 300]), st.sampled_from([0.0, 0.01, 0.5, 1.0]))
TABLES = st.integers(1, 4).flatmap(
    lambda T: st.lists(st.lists(CELLS, min_size=T, max_size=T), min_size=1, max_size=6)
)


def tabled(table):
    counts, shares = np.moveaxis(np.array(table), -1, 0)
    counts[0, 0] += 1
    return estimate(np.round(counts * shares), counts.astype(int))


# Exact values.


def test_mean_error_and_profiles_by_hand():
    est = estimate([[1, 0, 2], [0, 0, 0], [5, 5, 5]], 5)
    assert est.per_example.tolist() == [3 / 15, 0, 1]
    assert est.per_position.tolist() == [6 / 15, 5 / 15, 7 / 15]
    assert est.mean == pytest.approx(0.4)
    assert est.stderr == pytest.approx(np.std([0.2, 0, 1], ddof=1) / math.sqrt(3))
    assert (est.num_examples, est.num_positions, est.num_draws) == (3, 3, 45)
    assert est.per_example_position[0].tolist() == [1 / 5, 0, 2 / 5]
    assert est.draws_per_second == 45 / 0.25


def test_an_example_counts_once_however_many_positions_it_has():
    est = estimate([[5, 5, 5, 5], [0, 0, 0, 0]], [[5, 5, 5, 5], [5, 0, 0, 0]])
    assert est.mean == 0.5
    assert est.per_position.tolist() == [0.5, 1, 1, 1]


def test_what_was_not_measured_is_nan_and_left_out():
    est = estimate([[2, 0], [0, 0]], [[4, 0], [0, 0]])
    assert est.num_examples == 1
    assert est.mean == 0.5
    assert np.array_equal(est.per_example, [0.5, np.nan], equal_nan=True)
    assert np.array_equal(est.per_position, [0.5, np.nan], equal_nan=True)


def test_nothing_measured_is_an_error():
    with pytest.raises(ValueError, match="no position was measured"):
        estimate([[0.0]], 0)


# Limits.


def test_no_flips_give_a_one_sided_interval():
    low, high = estimate(np.zeros((1000, 49)), 5).ci()
    assert low == 0
    assert high == pytest.approx(0.00383, abs=1e-5)


def test_all_flips_give_its_mirror_image():
    n, num_samples = 1000, 5
    low, high = estimate(np.full((n, 3), num_samples), num_samples).ci()
    assert high == 1
    assert 1 - low == pytest.approx(estimate(np.zeros((n, 3)), num_samples).ci()[1])


@pytest.mark.parametrize("flips", [0, 3, 10])
def test_one_example_says_next_to_nothing(flips):
    est = estimate([[flips]], 10)
    low, high = est.ci()
    assert math.isnan(est.stderr)
    assert low <= est.mean <= high
    assert high - low > 0.8


def test_a_single_example_of_an_unbounded_metric_has_no_interval():
    assert estimate([[2.0]], 1, bounds=(0.0, math.inf)).ci() == (0.0, math.inf)
    assert estimate([[2.0]], 1, bounds=(-math.inf, math.inf)).ci() == (-math.inf, math.inf)


def test_equal_examples_have_no_error():
    est = estimate(np.full((8, 4), 1), 4)
    assert est.stderr == 0
    assert est.ci() == (0.25, 0.25)


def test_a_large_sample_has_the_normal_interval():
    est = drawn(20_000, 4, 0.3)
    low, high = est.ci()
    assert high - est.mean == pytest.approx(1.96 * est.stderr, rel=5e-3)
    assert est.mean - low == pytest.approx(1.96 * est.stderr, rel=5e-3)
    assert est.half_width() == pytest.approx((high - low) / 2)


def test_independent_draws_have_the_wilson_interval_of_the_textbook():
    """10 flips in 100: scipy.stats.binomtest(10, 100).proportion_ci(method="wilson")."""
    values = np.array([1.0] * 10 + [0.0] * 90)
    low, high = mean_interval(values, (0.0, 1.0), 0.95).ends
    # Student's t and n - 1 make it a little wider than the textbook's (0.0552, 0.1744).
    assert low == pytest.approx(0.0552, abs=1e-3)
    assert high == pytest.approx(0.1744, abs=2e-3)


def test_draws_of_one_example_are_not_taken_for_independent():
    """Half of the examples flip always, half never: 2000 draws, but only 20 facts."""
    totals = np.repeat([[100], [0]], 10, axis=0)
    clustered = estimate(totals, 100)
    independent = drawn(20, 1, 0.5, num_samples=100)
    assert clustered.half_width() > 0.2
    assert independent.half_width() < 0.05


@settings(max_examples=200, deadline=None)
@given(TABLES, st.floats(1e-6, 1 - 1e-6))
def test_an_interval_lies_inside_the_bounds_and_around_the_mean(table, level):
    est = tabled(table)
    low, high = est.ci(level)
    assert 0 <= low <= est.mean + 1e-12
    assert est.mean - 1e-12 <= high <= 1


@settings(max_examples=100, deadline=None)
@given(TABLES)
def test_a_higher_level_is_a_wider_interval(table):
    est = tabled(table)
    widths = [est.half_width(level) for level in (0.5, 0.9, 0.99)]
    assert widths == sorted(widths)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-3, 5), min_size=2, max_size=20))
def test_other_bounds_are_respected_too(values):
    low, high = mean_interval(np.array(values), (-3.0, 5.0), 0.95).ends
    assert -3 <= low <= high <= 5
    low, high = mean_interval(np.abs(values), (0.0, math.inf), 0.95).ends
    assert 0 <= low <= np.mean(np.abs(values)) <= high


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0, -0.1, math.nan])
def test_a_level_is_a_probability(level):
    with pytest.raises(ValueError, match="level must lie strictly between 0 and 1"):
        drawn(10, 2, 0.5).ci(level)


@pytest.mark.parametrize(("n", "p"), [(1000, 0.3), (1000, 0.02), (30, 0.5)])
def test_intervals_of_a_fixed_number_of_examples_cover(n, p):
    rng = np.random.default_rng(0)
    concentration = 8.0
    hits = 0
    for _ in range(1000):
        rates = rng.beta(concentration * p, concentration * (1 - p), n)
        low, high = mean_interval(rng.binomial(5, rates) / 5, (0.0, 1.0), 0.95).ends
        hits += low <= p <= high
    assert 930 <= hits <= 970


# Words.


def test_it_prints_on_one_line():
    est = drawn(1000, 49, 0.0312)
    low, high = est.ci()
    error = max(est.mean - low, high - est.mean)
    assert str(est) == f"sensitivity {est.mean:.5f} ± {error:.5f} (95 % CI, n=1000, T=49, S=5)"
    assert repr(est) == str(est)
    assert str(drawn(100, 4, 0.5)).count(".") == 2


def test_the_printed_error_is_the_longer_side():
    """Near 0 the interval is lopsided: half its length would promise too much."""
    est = estimate(np.zeros((1000, 1)), 1)
    assert str(est) == "sensitivity 0.0000 ± 0.0038 (95 % CI, n=1000, T=1, S=1)"
    assert est.half_width() == pytest.approx(0.0038 / 2, abs=1e-4)


def test_a_small_sensitivity_is_printed_with_the_digits_it_has():
    est = drawn(50_000, 10, 2e-5)
    mean, error = (float(word) for word in str(est).split()[1:4:2])
    assert mean == pytest.approx(est.mean, rel=0.1)
    assert error > 0


def test_other_ways_of_measuring_print_what_they_are():
    assert "T=2, every replacement)" in str(drawn(9, 2, 0.5, exact=True))
    assert str(drawn(9, 2, 0.5, metric="relative_l2")).startswith("relative_l2 0.")
    sampled = drawn(9, 2, 0.5, positions="random", num_passes=100, exhaustive_passes=1230)
    assert "T=2, 90 random draws, 12.3× fewer passes than exhaustive)" in str(sampled)
    alone = estimate([[2.0]], 1, bounds=(0.0, math.inf), metric="squared_change")
    assert str(alone) == "squared_change 2.0000 ± inf (95 % CI, n=1, T=1, S=1)"


@pytest.mark.parametrize(("num", "said"), [(0, ""), (1, ", few sensitive examples (1)"), (5, "")])
def test_it_says_when_few_examples_are_sensitive(num, said):
    totals = np.zeros((100, 8))
    totals[:num, 3] = 2
    est = estimate(totals, 50)
    assert est.num_sensitive == est.summary()["num_sensitive"] == num
    assert str(est).endswith(f"(95 % CI, n=100, T=8, S=50){said}")


def test_few_examples_of_which_all_are_sensitive_are_just_few():
    assert "sensitive examples" not in str(estimate(np.full((3, 8), 2), 50))


# JSON.


@pytest.mark.parametrize(
    "est",
    [
        drawn(7, 3, 0.3),
        drawn(7, 3, 0.3, tolerance=0.01, positions="random"),
        estimate(np.random.default_rng(0).normal(size=(5, 2)), 3, (-math.inf, math.inf)),
        estimate([[1 / 3, 2.5]], [[1, 0]], (0.0, math.inf)),
    ],
)
def test_json_keeps_everything_exactly(est):
    text = est.to_json()
    json.loads(text, parse_constant=pytest.fail)
    back = SensitivityEstimate.from_json(text)
    assert np.array_equal(back.totals, est.totals)
    assert np.array_equal(back.counts, est.counts)
    assert (back.totals.dtype, back.counts.dtype) == (est.totals.dtype, est.counts.dtype)
    assert back.bounds == est.bounds
    assert back.provenance == est.provenance
    assert back.mean == est.mean
    assert back.ci(0.9) == est.ci(0.9)
    assert back.to_json() == text


def test_a_summary_is_plain_json_with_the_numbers_of_the_estimate():
    est = estimate([[2, 0], [1, 0]], [[4, 0], [4, 0]])
    summary = json.loads(json.dumps(est.summary(), allow_nan=False))
    assert summary["mean"] == est.mean
    assert (summary["low"], summary["high"]) == est.ci()
    assert summary["stderr"] == est.stderr
    assert summary["per_position"] == [0.375, None]
    assert (summary["num_examples"], summary["num_positions"], summary["num_draws"]) == (2, 2, 8)


def test_large_results_are_small_files():
    est = drawn(2000, 49, 0.03)
    assert len(est.to_json()) < est.totals.nbytes / 10


# Merge.


def test_merging_shards_is_measuring_them_together():
    whole = drawn(11, 4, 0.3, seconds=3.0, num_passes=30, exhaustive_passes=60)
    parts = [
        estimate(whole.totals[rows], 5, seconds=1.5, num_passes=15, exhaustive_passes=30)
        for rows in (slice(0, 4), slice(4, 11))
    ]
    merged = parts[0].merge(parts[1])
    assert merged.mean == whole.mean
    assert merged.stderr == whole.stderr
    assert merged.ci() == whole.ci()
    assert np.array_equal(merged.per_position, whole.per_position)
    assert merged.provenance == whole.provenance
    assert merged.num_examples == 11


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metric": "relative_l2"}, "metric='label_flip' and 'relative_l2'"),
        ({"perturbation": "other"}, "perturbation="),
        ({"num_samples": 6}, "num_samples=5 and 6"),
        ({"exact": True}, "exact=False and True"),
        ({"positions": "random"}, "positions='all' and 'random'"),
        ({"precision": "default"}, "precision="),
        ({"bounds": (0.0, 2.0)}, "bounds="),
    ],
)
def test_estimates_of_different_quantities_do_not_merge(changes, message):
    with pytest.raises(ValueError, match=f"cannot merge estimates with {message}"):
        drawn(5, 2, 0.5).merge(drawn(5, 2, 0.5, **changes))


def test_estimates_of_different_lengths_do_not_merge():
    with pytest.raises(ValueError, match="T=2 and T=3"):
        drawn(5, 2, 0.5).merge(drawn(5, 3, 0.5))
