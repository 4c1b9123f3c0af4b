"""Intervals against exact ones, their symmetries and limits; coverage is tested beside."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import betaincinv, stdtrit

from jaxsens.core.intervals import (
    Interval,
    bonferroni,
    independent_difference,
    mean_interval,
    paired_difference,
    ratio_of_means,
    student_half_width,
    student_interval,
    two_way_interval,
    two_way_variance,
)

UNIT = (0.0, 1.0)
#: Values of examples: of a few flips, of many, of one draw, continuous.
SAMPLES = st.one_of(
    st.lists(st.sampled_from([0.0, 0.0, 0.0, 0.0025, 0.2, 1.0]), min_size=1, max_size=30),
    st.lists(st.floats(0, 1), min_size=1, max_size=30),
    st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=30),
).map(np.array)


@pytest.fixture
def rng():
    """Draws of the test's own, whatever ran before it."""
    return np.random.default_rng(0)


def wilson(x, n, level=0.95):
    """Of x in n, with Student's t."""
    p, k = x / n, stdtrit(n - 1, (1 + level) / 2) ** 2 / (n - 1)
    centre, half = p + k / 2, math.sqrt(k * p * (1 - p) + k**2 / 4)
    return (centre - half) / (1 + k), (centre + half) / (1 + k)


def clopper_pearson(x, n, level=0.95):
    tail = (1 - level) / 2
    low = betaincinv(x, n - x + 1, tail) if x else 0.0
    return low, betaincinv(x + 1, n - x, 1 - tail) if x < n else 1.0


def flips(x, n):
    return (np.arange(n) < x).astype(float)


# The mean of bounded values.


@pytest.mark.parametrize(("x", "n"), [(30, 100), (50, 100), (12, 40), (400, 1000)])
def test_values_of_0_and_1_have_wilson_s_interval(x, n):
    low, high = mean_interval(flips(x, n), UNIT).ends
    assert high == pytest.approx(wilson(x, n)[1], rel=1e-9)
    # The step of the lower end is a small part of one flip.
    assert wilson(x, n)[0] - 0.02 / n < low <= wilson(x, n)[0] + 1e-12


def test_few_flips_have_the_exact_binomial_interval_nearly():
    for x, n in itertools.product(range(6), (50, 1000)):
        low, high = mean_interval(flips(x, n), UNIT).ends
        exact_low, exact_high = clopper_pearson(x, n)
        assert 0.97 * exact_high < high < 1.09 * exact_high
        assert exact_low - 0.01 / n <= low < exact_low + 0.5 / n


@settings(max_examples=60, deadline=None)
@given(SAMPLES, st.floats(0.01, 0.99))
def test_it_holds_the_mean_and_keeps_to_the_bounds(v, level):
    mean, low, high = mean_interval(v, UNIT, level)
    assert mean == pytest.approx(v.mean())
    assert 0 <= low <= mean <= high <= 1


@settings(max_examples=40, deadline=None)
@given(SAMPLES)
def test_a_higher_level_holds_the_interval_of_a_lower_one(v):
    found = [mean_interval(v, UNIT, level) for level in (0.5, 0.9, 0.95, 0.999)]
    for inner, outer in itertools.pairwise(found):
        assert outer.low <= inner.low + 1e-12
        assert inner.high <= outer.high + 1e-12


@settings(max_examples=40, deadline=None)
@given(SAMPLES)
def test_mirrored_values_have_the_mirrored_interval(v):
    mean, low, high = mean_interval(v, UNIT)
    mirrored = mean_interval(1 - v, UNIT)
    assert mirrored == pytest.approx((1 - mean, 1 - high, 1 - low), abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(SAMPLES, st.sampled_from([(-3.0, 2.0), (5.0, 100.0), (0.0, 1e-6)]))
def test_shifted_and_scaled_values_have_a_shifted_and_scaled_interval(v, bounds):
    lower, size = bounds[0], bounds[1] - bounds[0]
    expected = [lower + size * end for end in mean_interval(v, UNIT)]
    moved = mean_interval(lower + size * v, bounds)
    if len(set(v)) > 1 or v[0] in UNIT:
        assert moved == pytest.approx(expected, abs=1e-6 * size)


def test_the_order_of_the_values_does_not_matter(rng):
    v = rng.beta(0.1, 3, 50)
    assert mean_interval(v[::-1], UNIT) == pytest.approx(mean_interval(v, UNIT))


def test_nothing_seen_counts_each_example_once():
    for n in (10, 1000):
        k = stdtrit(n - 1, 0.975) ** 2 / (n - 1)
        none, every, no_difference = (
            mean_interval(np.full(n, value), bounds)
            for value, bounds in ((0.0, UNIT), (1.0, UNIT), (0.0, (-1.0, 1.0)))
        )
        assert none == (0, 0, pytest.approx(k / (1 + k)))
        assert every == (1, pytest.approx(1 - none.high), 1)
        assert no_difference == (0, pytest.approx(-none.high), pytest.approx(none.high))


def test_equal_values_that_say_something_have_no_error():
    assert mean_interval(np.full(8, 0.25), UNIT) == (0.25, 0.25, 0.25)
    low, high = mean_interval(np.full(30, 0.1), UNIT).ends
    assert high - low < 1e-12


def test_one_value_says_next_to_nothing():
    mean, low, high = mean_interval(np.array([0.3]), UNIT)
    assert (mean, round(low, 2), round(high, 2)) == (0.3, 0.0, 1.0)
    assert mean_interval(np.array([0.3]), (0.0, math.inf)) == (0.3, 0, math.inf)


def test_one_example_among_many_leaves_room_for_others():
    """A flip in 400 draws of one example says no more of the others than no flip at all."""
    none, one = (mean_interval(np.append(np.zeros(99), v), UNIT) for v in (0.0, 1 / 400))
    assert one.high == pytest.approx(none.high, rel=0.01)
    assert 0 < one.low < one.mean / 10


def test_many_values_have_student_s_interval(rng):
    v = rng.beta(3, 9, 20_000)
    found, student = mean_interval(v, UNIT), student_interval(v)
    assert found == pytest.approx(student, abs=0.02 * student.half_width)


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0, -0.1, math.nan])
def test_a_level_is_a_probability(level, rng):
    table = rng.random((5, 4))
    for find in (
        lambda: mean_interval(table[0], UNIT, level),
        lambda: student_interval(table[0], level=level),
        lambda: two_way_interval(table[:1], UNIT, level),
        lambda: ratio_of_means(table[0], table[1], level),
    ):
        with pytest.raises(ValueError, match="level must lie strictly between 0 and 1"):
            find()


# Student's.


def test_student_s_interval_by_hand():
    half = stdtrit(2, 0.95) / math.sqrt(3)
    assert student_interval(np.array([1.0, 2.0, 3.0]), level=0.9) == pytest.approx(
        (2, 2 - half, 2 + half)
    )
    assert student_interval(np.array([1.0, 2.0, 3.0]), (1.5, 2.5), 0.9).ends == (1.5, 2.5)
    assert student_half_width(np.array([1.0, 2.0]), 2, 0.9) == pytest.approx(
        np.array([1, 2]) * stdtrit(2, 0.95)
    )
    assert mean_interval(np.arange(5.0)) == student_interval(np.arange(5.0))


def test_several_intervals_at_once():
    assert bonferroni(0.95, 1) == 0.95
    assert bonferroni(0.9, 4) == pytest.approx(0.975)


def test_an_interval_knows_its_sides():
    found = Interval(1.0, 0.5, 3.0)
    assert (found.ends, found.half_width, found.longer_side) == ((0.5, 3.0), 1.25, 2.0)


# Two means.


def test_a_paired_difference_is_the_mean_difference(rng):
    a, b = rng.random((2, 40))
    assert paired_difference(a, b, UNIT) == mean_interval(a - b, (-1.0, 1.0))
    mean, low, high = paired_difference(b, a, UNIT)
    assert paired_difference(a, b, UNIT) == pytest.approx((-mean, -high, -low))
    assert paired_difference(a, b) == student_interval(a - b)


def test_a_pair_is_told_apart_where_two_means_are_not():
    random = np.random.default_rng(3)
    hard = random.uniform(0.1, 0.9, 60)
    a, b = (hard + shift + random.uniform(-0.02, 0.02, 60) for shift in (0.02, 0.0))
    assert paired_difference(a, b, UNIT).low > 0
    assert independent_difference(mean_interval(a, UNIT), mean_interval(b, UNIT)).low < 0


def test_an_independent_difference_of_symmetric_intervals_adds_their_squares():
    found = independent_difference(Interval(5.0, 2.0, 8.0), Interval(1.0, -3.0, 5.0))
    assert found == (4.0, -1.0, 9.0)


def test_a_ratio_s_ends_are_those_that_student_s_interval_cannot_exclude(rng):
    top, bottom = rng.normal(3, 1, 30), rng.normal(2, 1, 30)
    ratio, low, high = ratio_of_means(top, bottom)
    assert ratio == pytest.approx(top.mean() / bottom.mean())
    assert low < ratio < high
    assert student_interval(top - low * bottom).low == pytest.approx(0, abs=1e-9)
    assert student_interval(top - high * bottom).high == pytest.approx(0, abs=1e-9)


def test_a_ratio_to_what_may_be_0_can_be_anything():
    around_0 = np.array([-1.0, 1.5, -0.5, 0.4])
    assert ratio_of_means(np.ones(4), around_0).ends == (-math.inf, math.inf)
    assert np.isnan(ratio_of_means(np.ones(4), np.zeros(4))).all()
    assert ratio_of_means(2 * around_0, around_0).mean == 2
    assert ratio_of_means(np.ones(1), np.ones(1)) == (1, -math.inf, math.inf)


def test_ratios_are_covered():
    rng, covered = np.random.default_rng(1), 0
    for _ in range(300):
        bottom = rng.exponential(1.0, 50)
        low, high = ratio_of_means(0.5 * bottom + rng.normal(0.2, 1.0, 50), bottom).ends
        covered += low <= 0.7 <= high
    assert covered > 0.92 * 300


# Rows and columns.


def test_two_draws_that_agree_say_little_of_others(rng):
    """Examples that differ much would hide how few draws there are."""
    table = np.add.outer(rng.normal(0, 1, 200), [0.0, 0.1])
    assert two_way_interval(table, (-math.inf, math.inf)).half_width == pytest.approx(
        max(
            stdtrit(1, 0.975) * 0.05,
            stdtrit(two_way_variance(table).dof, 0.975) * math.sqrt(two_way_variance(table).total),
        )
    )
    assert two_way_interval(table, (-math.inf, math.inf)).half_width > 0.6


def test_a_table_of_differences_mirrors_with_its_sign(rng):
    table = (rng.random((30, 5)) < 0.2).astype(float) - (rng.random((30, 5)) < 0.1)
    mean, low, high = two_way_interval(table, (-1.0, 1.0))
    assert two_way_interval(-table, (-1.0, 1.0)) == pytest.approx((-mean, -high, -low))
    assert -1 < low < mean < high < 1


def test_two_equal_values_know_little():
    low, high = mean_interval(np.array([0.5, 0.5]), (0.0, 1.0)).ends
    assert low < 0.1
    assert high > 0.9


@pytest.mark.parametrize("n", [2, 10, 15, 26])
def test_rounding_of_the_mean_makes_no_spread(n):
    on_the_bound = mean_interval(np.full(n, 0.3), (0.0, 0.3))
    assert on_the_bound.low < 0.3 == on_the_bound.high
    nearly = mean_interval(np.append(np.full(998, 0.5), [np.nextafter(0.5, 1)] * 2), (0.0, 1.0))
    assert nearly.high - nearly.low < 0.01
