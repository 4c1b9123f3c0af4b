"""Intervals for the mean over examples that are all there are."""

import math

import numpy as np
import pytest

from jaxsens.core.intervals import (
    mean_interval,
    noise_variance,
    population_interval,
    population_variance,
)
from tests.core.population_simulation import GRID, SMALL_GRID, covered, populations
from tests.core.simulation import COVERED, UNIT, noise

WHOLE = {"all_positions": True, "exact": False}


def table(n=40, num_positions=6, num_samples=10, seed=0):
    rng = np.random.default_rng(seed)
    rates = rng.beta(0.6, 1.4, (n, 1)) * np.ones((1, num_positions))
    return rng.binomial(num_samples, rates).astype(float), np.full(rates.shape, num_samples)


def test_a_whole_population_without_noise_has_no_error():
    totals, counts = table()
    found = population_interval(totals, counts, UNIT, 40, all_positions=True, exact=True)
    assert found.low == found.mean == found.high
    assert population_variance(totals, counts, UNIT, 40, all_positions=True, exact=True) == 0


def test_of_a_huge_population_it_is_the_interval_of_a_sample():
    totals, counts = table()
    found = population_interval(totals, counts, UNIT, 10**12, **WHOLE)
    values = totals.sum(axis=1) / counts.sum(axis=1)
    assert found == pytest.approx(mean_interval(values, UNIT), rel=1e-5)
    variance = population_variance(totals, counts, UNIT, 10**12, **WHOLE)
    assert variance == pytest.approx(values.var(ddof=1) / 40, rel=1e-5)


def test_of_a_whole_population_it_is_the_noise_alone():
    """Half of the examples always flip and half never: they differ, but nothing is uncertain."""
    counts = np.full((40, 6), 10)
    totals = counts * (np.arange(40) % 2)[:, None] * 1.0
    found = population_interval(totals, counts, UNIT, 40, **WHOLE)
    num_draws = counts.sum()
    assert found.half_width < 4.1 / num_draws
    assert mean_interval(totals.mean(axis=1) / 10, UNIT).half_width > 0.1


def test_the_noise_of_flips_is_that_of_binomial_counts():
    """The variance of many repeated measurements of the same examples, by its own estimates."""
    rng = np.random.default_rng(1)
    rates, counts = rng.uniform(size=(20, 5)), np.full((20, 5), 4)
    totals = [rng.binomial(4, rates).astype(float) for _ in range(2000)]
    means = [(each / counts).mean() for each in totals]
    estimates = [noise_variance(each, counts, UNIT, all_positions=True) for each in totals]
    assert np.mean(estimates) == pytest.approx(np.var(means), rel=4 * math.sqrt(2 / 2000))
    # Differences between positions count as noise where positions are drawn.
    drawn = [noise_variance(each, counts, UNIT, all_positions=False) for each in totals]
    assert np.mean(drawn) > np.mean(estimates)


def test_two_stage_variance_is_cochran_s():
    totals, counts = table()
    values = totals.sum(axis=1) / counts.sum(axis=1)
    within = noise_variance(totals, counts, UNIT, all_positions=True)
    for size in (40, 50, 400):
        share = 40 / size
        expected = (1 - share) * values.var(ddof=1) / 40 + share * within
        assert population_variance(totals, counts, UNIT, size, **WHOLE) == pytest.approx(expected)


def test_examples_that_were_not_drawn_do_not_count():
    totals, counts = table()
    padded = [np.concatenate([a, np.zeros_like(a)]) for a in (totals, counts)]
    few = population_interval(totals, counts, UNIT, 80, **WHOLE)
    assert population_interval(*padded, UNIT, 80, **WHOLE) == few


def test_one_draw_of_each_example_shows_no_noise_and_all_counts_as_noise():
    totals, counts = np.eye(30, 2), np.zeros((30, 2), int)
    counts[:, 0] = 1
    totals[:, 1] = 0
    whole = population_interval(totals, counts, UNIT, 30, all_positions=False, exact=False)
    assert whole.half_width >= mean_interval(totals[:, 0], UNIT).half_width * 0.9


def test_changes_without_bounds():
    rng = np.random.default_rng(2)
    counts = np.full((30, 5), 3)
    totals = rng.exponential(1.0, (30, 1)) + rng.normal(size=(30, 5))
    line = (-math.inf, math.inf)
    fixed = population_interval(totals, counts, line, 30, **WHOLE)
    assert 0 < fixed.half_width < mean_interval(totals.mean(axis=1) / 3, line).half_width


def test_fixed_populations_are_covered():
    rng = np.random.default_rng(3)
    for cell in SMALL_GRID:
        held, _ = covered(rng, cell, 10, 20)
        assert held > COVERED - noise(200), cell


@pytest.mark.slow
def test_fixed_populations_are_covered_on_the_whole_grid():
    rng, found = np.random.default_rng(4), []
    for cell in GRID:
        held, _ = covered(rng, cell, 20, 50)
        found.append(held)
        assert held > COVERED - noise(1000), cell
    assert np.mean(found) > 0.95


def test_the_simulation_has_populations_of_its_mean():
    rng = np.random.default_rng(6)
    cell = next(cell for cell in GRID if cell.tail == "beta 8" and cell.n == 500 and cell.p == 0.02)
    means = [populations(rng, cell).mean() for _ in range(50)]
    assert np.mean(means) == pytest.approx(0.02, rel=0.1)
