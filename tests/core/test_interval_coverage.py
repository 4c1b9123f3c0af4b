"""How often intervals hold the truth, on which side they miss it, and how long they are.

Examples flip at rates of their own, drawn from a distribution with a known mean; each rate is seen
in as many draws. The length is held against the Wilson interval with the effective number of
independent draws, which is right where flips are common and was too short where they are rare.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.special import stdtrit

from jaxsens.core.intervals import two_way_interval
from jaxsens.core.intervals.means import bounded_intervals

P = (0.0005, 0.002, 0.004, 0.01, 0.05, 0.2, 0.5)
N = (10, 30, 100, 300, 1000, 3000)
#: Draws of each example: T = 8 and 49 positions, S = 1, 5 and 50.
DRAWS = (8, 40, 400, 49, 245, 2450)
COVERED = 0.93


def two_point(rate):
    """A share of the examples flips at one rate, the others never."""

    def rates(rng, p, shape):
        highest = max(rate, p)
        return highest * (rng.random(shape) < p / highest)

    return rates


def beta(concentration):
    """Rates from Beta: the smaller the concentration, the more they differ."""
    return lambda rng, p, shape: rng.beta(concentration * p, concentration * (1 - p), shape)


def few_at_any_rate(rng, p, shape):
    return rng.random(shape) * (rng.random(shape) < 2 * p)


TAILS = {
    "all alike": lambda rng, p, shape: np.full(shape, p),
    "beta 1": beta(1.0),
    "beta 2": beta(2.0),
    "beta 8": beta(8.0),
    "beta 50": beta(50.0),
    "two-point 1": two_point(1.0),
    "two-point 0.3": two_point(0.3),
    "two-point 0.05": two_point(0.05),
    "few at any rate": few_at_any_rate,
}


def wilson_of_effective_n(v, level=0.95):
    """Its length, for every row."""
    n, p = v.shape[1], v.mean(axis=1)
    t, spread = stdtrit(n - 1, (1 + level) / 2), p * (1 - p)
    error = v.var(axis=1, ddof=1) / n
    k = t**2 * np.divide(error, spread, out=np.full(len(v), 1 / n), where=spread > 0)
    return 2 * np.sqrt(k * spread + k**2 / 4) / (1 + k)


@dataclass(frozen=True)
class Cell:
    """Shares of intervals that end below the truth and above it, and the relative length."""

    name: tuple
    below: float
    above: float
    length: float

    @property
    def covered(self):
        return 1 - self.below - self.above


def simulate(rng, tail, p, n, draws, num):
    v = rng.binomial(draws, TAILS[tail](rng, p, (num, n))) / draws
    _, low, high = bounded_intervals(v, (0.0, 1.0), 0.95)
    below, above = (float(np.mean(miss)) for miss in (high < p - 1e-12, low > p + 1e-12))
    length = float((high - low).mean() / wilson_of_effective_n(v).mean())
    return Cell((tail, p, n, draws), below, above, length)


def noise(num):
    """Three standard errors of a coverage that was simulated."""
    return 3 * math.sqrt(COVERED * (1 - COVERED) / num)


def check(cells, num):
    worst = min(cells, key=lambda cell: cell.covered)
    assert worst.covered > COVERED - noise(num), worst
    common = [c for c in cells if c.name[1] >= 0.05 and c.name[2] >= 300]
    assert max(c.length for c in common) < 1.1
    assert np.mean([c.length for c in common]) < 1.02


def test_rare_and_common_flips_are_covered():
    rng, num = np.random.default_rng(0), 400
    grid = itertools.product(TAILS, (0.0005, 0.004, 0.05, 0.5), (10, 100), (8, 2450))
    cells = [simulate(rng, *cell, num) for cell in grid]
    large = itertools.product(("all alike", "beta 2"), (0.002, 0.05), (1000,), (8, 400))
    check([*cells, *(simulate(rng, *cell, num) for cell in large)], num)


@pytest.mark.slow
def test_the_whole_grid_is_covered():
    """Prints its table: pytest -s."""
    rng, num = np.random.default_rng(1), 600
    cells = [simulate(rng, *cell, num) for cell in itertools.product(TAILS, P, N, DRAWS)]
    for what, index in (("tail", 0), ("p", 1), ("n", 2), ("draws", 3)):
        print(f"\n{what:>16}  worst  mean  below  above  length, common")
        for value in dict.fromkeys(cell.name[index] for cell in cells):
            some = [cell for cell in cells if cell.name[index] == value]
            common = [cell.length for cell in some if cell.name[1] >= 0.05] or [math.nan]
            columns = np.array([(c.covered, c.below, c.above, c.length) for c in some])
            means = columns.mean(axis=0)
            print(
                f"{value:>16}  {columns[:, 0].min():.3f} {means[0]:.3f}  {columns[:, 1].max():.3f}"
                f"  {columns[:, 2].max():.3f}  {means[3]:.2f}  {np.mean(common):.2f}"
            )
    for cell in sorted(cells, key=lambda cell: cell.covered)[:10]:
        print(cell)
    # Of 0.95 with its noise, hardly any is below.
    assert np.mean([cell.covered < COVERED for cell in cells]) < 0.03
    check(cells, num)


def lognormal(sigma):
    def rates(rng, p, shape):
        return np.minimum(p * np.exp(sigma * rng.normal(size=shape) - sigma**2 / 2), 1.0)

    return rates


def pareto(rng, p, shape):
    """Without a variance, but for the bound."""
    return np.minimum(p / 3 * (1 + rng.pareto(1.5, shape)), 1.0)


#: Coverage at the worst and in the mean, of tails that no number was chosen by.
OTHER_TAILS = {"lognormal 1": (0.9, 0.95), "lognormal 2": (0.83, 0.94), "pareto": (0.82, 0.93)}


@pytest.mark.slow
@pytest.mark.parametrize("tail", OTHER_TAILS)
def test_tails_that_the_numbers_were_not_found_on(tail):
    rng, rates = np.random.default_rng(2), {"pareto": pareto}.get(tail) or lognormal(int(tail[-1]))
    covered = []
    for p, n, draws in itertools.product((0.0005, 0.002, 0.01, 0.05, 0.2), N[:5], (8, 245, 2450)):
        # Cut off at 1, the mean is known from many.
        truth = rates(rng, p, 5_000_000).mean()
        v = rng.binomial(draws, rates(rng, p, (1000, n))) / draws
        _, low, high = bounded_intervals(v, (0.0, 1.0), 0.95)
        covered.append(np.mean((low <= truth) & (truth <= high)))
    worst, mean = OTHER_TAILS[tail]
    assert min(covered) > worst
    assert np.mean(covered) > mean


def paired(rng, tail, p, share, shape, draws):
    """Differences of two models on the same examples, of which the second flips less."""
    rates = TAILS[tail](rng, p, shape)
    return (rng.binomial(draws, rates) - rng.binomial(draws, share * rates)) / draws


@pytest.mark.parametrize("share", [1.0, 0.3])
def test_paired_differences_are_covered(share):
    rng, num = np.random.default_rng(2), 400
    for tail, p, n, draws in itertools.product(
        ("all alike", "beta 2", "beta 8"), (0.0005, 0.01, 0.2), (10, 100, 500), (8, 400)
    ):
        d, truth = paired(rng, tail, p, share, (num, n), draws), (1 - share) * p
        _, low, high = bounded_intervals(d, (-1.0, 1.0), 0.95)
        covered = np.mean((low <= truth + 1e-12) & (truth - 1e-12 <= high))
        assert covered > COVERED - noise(num), (tail, p, n, draws)


# Sharpness: draws are shared by all examples.


def two_way_coverage(rng, tail, p, n, num_draws, spread, num):
    """Rates that differ from example to example and, by factors of mean 1, from draw to draw."""
    covered = 0
    for _ in range(num):
        factors = 1 + spread * rng.uniform(-1, 1, (1, num_draws))
        table = rng.random((n, num_draws)) < TAILS[tail](rng, p, (n, 1)) * factors
        _, low, high = two_way_interval(table.astype(float), (0.0, 1.0))
        covered += low <= p <= high
    return covered / num


TWO_WAY = [
    ("all alike", 0.05, 300, 2, 0.9),
    ("two-point 0.3", 0.05, 300, 3, 0.9),
    ("beta 8", 0.002, 30, 5, 0.0),
    ("two-point 0.3", 0.01, 100, 5, 0.4),
]


@pytest.mark.parametrize("cell", TWO_WAY)
def test_sharpness_is_covered(cell):
    num = 200
    assert two_way_coverage(np.random.default_rng(3), *cell, num) > COVERED - noise(num)


@pytest.mark.slow
def test_sharpness_is_covered_on_a_grid():
    rng, num = np.random.default_rng(4), 300
    tails = ("all alike", "beta 8", "two-point 0.3")
    grid = itertools.product(tails, (0.002, 0.01, 0.05), (10, 100, 300), (2, 3, 5, 20), (0, 0.9))
    covered = {cell: two_way_coverage(rng, *cell, num) for cell in grid}
    print(sorted((share, cell) for cell, share in covered.items())[:10])
    assert min(covered.values()) > COVERED - noise(num)
    assert np.mean(list(covered.values())) > 0.95
