"""How often intervals for a fixed population hold its mean: simulated.

n examples flip at rates of their own at each of T positions. They are all there are, and the truth
is the mean of their rates. An estimate sees some of them, either at all positions, S draws each, or
at a few random positions. Rates stay, so each data set is of the same population; each cell has
several populations.
"""

import itertools
from typing import NamedTuple

import numpy as np

from jaxsens.core.intervals import population_interval
from tests.core.simulation import ALL, UNIT


class PopulationCell(NamedTuple):
    """Tail of the rates, their mean, n, the share that is drawn, T and draws of each example."""

    tail: str
    p: float
    n: int
    share: float
    num_positions: int
    draws: int
    all_positions: bool


def populations(rng, cell):
    """Rates (n, T): of examples, times factors of positions with mean 1."""
    rates = ALL[cell.tail].rates(rng, cell.p, cell.n)[:, None]
    factors = rng.exponential(1.0, (1, cell.num_positions))
    factors = factors / factors.mean()
    return np.minimum(rates * factors, 1.0)


def estimate(rng, cell, rates):
    """Totals and counts of one estimate of a population."""
    n, num_positions = rates.shape
    totals, counts = np.zeros(rates.shape), np.zeros(rates.shape, int)
    drawn = rng.permutation(n)[: max(2, round(cell.share * n))]
    if cell.all_positions:
        counts[drawn] = cell.draws // num_positions
    else:
        strata = np.arange(cell.draws) + rng.random((len(drawn), cell.draws))
        positions = (strata * (num_positions / cell.draws)).astype(int)
        np.add.at(counts, (np.repeat(drawn, cell.draws), positions.ravel()), 1)
    totals[:] = rng.binomial(counts, rates)
    return totals, counts


def covered(rng, cell, num_populations, num_estimates):
    """The share of intervals that hold the truth, and their mean length."""
    held, lengths = [], []
    for _ in range(num_populations):
        rates = populations(rng, cell)
        truth = rates.mean()
        for _ in range(num_estimates):
            totals, counts = estimate(rng, cell, rates)
            found = population_interval(
                totals, counts, UNIT, cell.n, all_positions=cell.all_positions, exact=False
            )
            held.append(found.low <= truth <= found.high)
            lengths.append(found.high - found.low)
    return float(np.mean(held)), float(np.mean(lengths))


#: Random positions of a share of the examples, and all positions of all or half of them.
GRID = [
    *itertools.starmap(PopulationCell, itertools.product(
        ("all alike", "beta 2", "beta 8", "two-point 0.3"), (0.002, 0.02, 0.2), (30, 100, 500),
        (0.2, 0.6, 1.0), (16,), (2, 8), (False,),
    )),
    *itertools.starmap(PopulationCell, itertools.product(
        ("all alike", "beta 2", "two-point 0.3"), (0.002, 0.02, 0.2), (30, 100), (0.5, 1.0), (8,),
        (8, 16, 40), (True,),
    )),
]  # fmt: skip
#: A few cells of every kind.
SMALL_GRID = GRID[::17]
