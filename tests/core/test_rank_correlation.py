"""Rank correlation: Spearman's, with an interval over images and an exact p-value."""

import math

import numpy as np
import pytest
from scipy.stats import rankdata, spearmanr

from jaxsens.core.intervals import partial_rank_correlation, rank_correlation, ranks

RANDOM = np.random.default_rng(0)


def sure(*means):
    """Models measured without any noise."""
    return [np.full(20, float(mean)) for mean in means]


def test_the_same_order_is_1_and_the_reverse_minus_1():
    assert rank_correlation(sure(1, 2, 3), sure(10, 20, 90)).value == pytest.approx(1)
    assert rank_correlation(sure(1, 2, 3), sure(9, 8, 7)).value == pytest.approx(-1)


def test_it_is_scipy_s_also_with_ties():
    for _ in range(5):
        x, y = RANDOM.integers(0, 4, (2, 6)).astype(float)
        found = rank_correlation(sure(*x), sure(*y)).value
        assert found == pytest.approx(spearmanr(x, y).statistic)


def test_the_p_value_counts_all_orders():
    assert rank_correlation(sure(1, 2, 3, 4), sure(1, 2, 3, 4)).p_value == 1 / math.factorial(4)
    assert rank_correlation(sure(1, 2, 3, 4), sure(4, 3, 2, 1)).p_value == 1
    assert "exact over all orders" in str(rank_correlation(sure(1, 2), sure(1, 2)))


def test_many_models_get_a_p_value_from_random_orders():
    found = rank_correlation(sure(*range(9)), sure(*range(9)))
    assert found.value == pytest.approx(1)
    # None of the random orders is as good: what is left is the order found itself.
    assert found.p_value == pytest.approx(1 / 5001)
    assert "from 5000 random orders" in str(found)


def test_models_measured_without_noise_have_no_interval():
    found = rank_correlation(sure(1, 3, 2), sure(1, 2, 3))
    assert found.low == found.value == found.high


def test_models_that_cannot_be_told_apart_have_a_wide_one():
    noisy = [RANDOM.normal(0, 1, 200) for _ in range(4)]
    found = rank_correlation(noisy, [RANDOM.normal(0, 1, 150) for _ in range(4)])
    assert found.low < 0 < found.high


def test_a_constant_has_no_rank_and_correlates_with_nothing():
    assert rank_correlation(sure(1, 1, 1), sure(1, 2, 3)).value == 0


# --- Given a third quantity -----------------------------------------------------------------------


def residuals(values, given):
    """What a straight line of the ranks of `given` leaves of the ranks of `values`."""
    x, y = rankdata(given), rankdata(values)
    return y - np.polyval(np.polyfit(x, y, 1), x)


def test_a_partial_correlation_is_that_of_the_residuals():
    for _ in range(5):
        x, y, z = RANDOM.normal(size=(3, 9))
        found = partial_rank_correlation(sure(*x), sure(*y), sure(*z)).value
        expected = np.corrcoef(residuals(x, z), residuals(y, z))[0, 1]
        assert found == pytest.approx(expected)


def test_what_the_third_quantity_explains_does_not_count():
    # Both follow z, and nothing else: swaps of neighbours are independent of each other.
    z = np.arange(12.0)
    x, y = z.copy(), z.copy()
    x[[0, 1]], y[[10, 11]] = x[[1, 0]], y[[11, 10]]
    assert rank_correlation(sure(*x), sure(*y)).value > 0.97
    assert abs(partial_rank_correlation(sure(*x), sure(*y), sure(*z)).value) < 0.1


def test_a_third_quantity_that_explains_one_of_them_leaves_nothing():
    found = partial_rank_correlation(sure(1, 2, 3, 4), sure(4, 2, 3, 1), sure(10, 20, 30, 40))
    assert found.value == 0
    assert found.p_value == 1


def test_a_constant_third_quantity_changes_nothing():
    x, y = RANDOM.normal(size=(2, 6))
    given = partial_rank_correlation(sure(*x), sure(*y), sure(*np.ones(6)))
    assert given.value == pytest.approx(rank_correlation(sure(*x), sure(*y)).value)


def test_its_p_value_knows_what_is_left_by_chance(monkeypatch):
    """Models related through the third alone: few have a small p-value, though many by orders."""
    monkeypatch.setattr(ranks, "NUM_RESAMPLES", 2)
    monkeypatch.setattr(ranks, "NUM_RANDOM", 400)
    num, k = 200, 12
    z, one, other = RANDOM.normal(size=(3, num, k))
    found = [
        partial_rank_correlation(*(sure(*row) for row in rows))
        for rows in zip(z + 0.3 * one, z + 0.3 * other, z, strict=True)
    ]
    small = np.mean([each.p_value < 0.05 for each in found])
    # Four standard errors of a share of 0.05.
    assert abs(small - 0.05) < 4 * math.sqrt(0.05 * 0.95 / num)
    assert "random models in which only the third relates them" in str(found[0])


def test_errors_and_the_third_quantity_are_of_the_same_images():
    """Resampled together: noise that both share takes no model out of order."""
    noise = RANDOM.normal(size=200)
    means = np.arange(5.0)
    errors = [mean + noise for mean in means]
    given = [mean + noise for mean in (0.0, 2.0, 1.0, 4.0, 3.0)]
    found = partial_rank_correlation(sure(*means), errors, given)
    assert found.low == found.value == found.high
