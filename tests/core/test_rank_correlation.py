"""Rank correlation: Spearman's, with an interval over images and an exact p-value."""

import math

import numpy as np
import pytest
from scipy.stats import spearmanr

from jaxsens.core.intervals import rank_correlation

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
