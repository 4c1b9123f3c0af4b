"""How often intervals hold the truth, on which side they miss it, and how long they are: simulated.

Examples flip at rates of their own, drawn from a distribution with a known mean, its tail; each is
seen in as many draws. For each cell of the grid below:

    covered    share of data sets whose interval holds the truth
    below      share whose interval ends below it: too few sensitive examples were seen
    above      share whose interval begins above it
    flagged    share of which the estimate says "few sensitive examples"
    unflagged  covered, among the others
    silent     share that misses the truth, and without the flag
    length     against the Wilson interval with the effective number of independent draws, which is
               right where flips are common and too short where they are rare; for sharpness the
               median, against the truth
    deciding   n E(v)²/E(v²), the number of examples that make the mean

    PYTHONPATH=. python tests/core/simulation.py

writes what it finds to tests/core/coverage.json; some 10 minutes on one core. Cells in doubt (below
0.94) are simulated anew with 1,000 data sets, and if still in doubt with 4,000, so that 0.93 can be
told from 0.92.
"""

import functools
import itertools
import json
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, stdtrit

from jaxsens.core.intervals.means import bounded_intervals
from jaxsens.core.intervals.two_way import two_way_ends
from jaxsens.measurement.notes import FEW_SENSITIVE

FILE = Path(__file__).with_name("coverage.json")
UNIT = (0.0, 1.0)
P = (0.0005, 0.002, 0.004, 0.01, 0.05, 0.2, 0.5)
N = (10, 30, 100, 300, 1000, 3000)
#: Draws of each example: T = 8 and 49 positions, S = 1, 5 and 50.
DRAWS = (8, 40, 400, 49, 245, 2450)
#: The least that is asked, and the most at which a cell is simulated anew.
COVERED, DOUBT = 0.93, 0.94
NUM_IN_DOUBT = (1000, 4000)
#: Values of one array.
CHUNK = 600_000


# Rates at which examples flip.


class Tail(NamedTuple):
    """Rates as a function of (rng, p, shape); their mean is p, or less where they are cut at 1."""

    rates: object
    mean: object = lambda p: p


def two_point(rate):
    """A share of the examples flips at one rate, the others never."""

    def rates(rng, p, shape):
        highest = max(rate, p)
        return highest * (rng.random(shape) < p / highest)

    return Tail(rates)


def beta(concentration):
    """The smaller the concentration, the more rates differ."""
    return Tail(lambda rng, p, shape: rng.beta(concentration * p, concentration * (1 - p), shape))


def lognormal(sigma):
    def rates(rng, p, shape):
        return np.minimum(p * np.exp(sigma * rng.normal(size=shape) - sigma**2 / 2), 1.0)

    def mean(p):
        centre = math.log(p) - sigma**2 / 2
        return float(p * ndtr(-centre / sigma - sigma) + ndtr(centre / sigma))

    return Tail(rates, mean)


def pareto(index):
    """With an index below 2 there is no variance, but for the cut at 1."""

    def rates(rng, p, shape):
        return np.minimum(p * (index - 1) / index * (1 + rng.pareto(index, shape)), 1.0)

    def mean(p):
        least = p * (index - 1) / index
        return least + least**index * (1 - least ** (1 - index)) / (1 - index)

    return Tail(rates, mean)


def share(part):
    """This part of the examples makes all of the mean; they flip at most always."""
    return Tail(
        lambda rng, p, shape: min(p / part, 1.0) * (rng.random(shape) < part),
        lambda p: min(p, part),
    )


def hidden(part):
    """This part of the examples makes half of the mean, the others, all alike, the rest."""

    def rates(rng, p, shape):
        high = min(p / (2 * part), 1.0)
        return np.where(rng.random(shape) < part, high, (p - part * high) / (1 - part))

    return Tail(rates)


def positions_alike(rng, p, shape):
    """Each of 8 positions of an example flips always or never."""
    return rng.binomial(8, rng.beta(8 * p, 8 * (1 - p), shape)) / 8


TUNED = {
    "all alike": Tail(lambda rng, p, shape: np.full(shape, p)),
    **{f"beta {concentration}": beta(concentration) for concentration in (1, 2, 8, 50)},
    **{f"two-point {rate}": two_point(rate) for rate in (1, 0.3, 0.05)},
    "few at any rate": Tail(
        lambda rng, p, shape: rng.random(shape) * (rng.random(shape) < 2 * p),
    ),
}
OTHERS = {
    **{f"lognormal {sigma}": lognormal(sigma) for sigma in (0.5, 1, 2)},
    **{f"pareto {index}": pareto(index) for index in (1.5, 2.5)},
    "beta 0.1": beta(0.1),
    "beta shape 0.05": Tail(lambda rng, p, shape: rng.beta(0.05, 0.05 * (1 - p) / p, shape)),
    **{f"share {part}": share(part) for part in (0.001, 0.01, 0.1)},
    "positions alike": Tail(positions_alike),
}
#: What few examples do cannot be seen before they are: no interval holds here, and none is asked.
HIDDEN = {f"hidden {part}": hidden(part) for part in (0.001, 0.01, 0.1)}
ALL = TUNED | OTHERS | HIDDEN


def uniform_factors(spread):
    return lambda rng, shape: 1 + spread * rng.uniform(-1, 1, shape)


def lognormal_factors(sigma):
    return lambda rng, shape: np.exp(sigma * rng.normal(size=shape) - sigma**2 / 2)


#: Factors of mean 1 by which draws of the weights differ, each shared by all examples.
FACTORS = {
    "none": lambda rng, shape: np.ones(shape),
    "uniform 0.4": uniform_factors(0.4),
    "uniform": uniform_factors(0.9),
    "lognormal 0.5": lognormal_factors(0.5),
    "exponential": lambda rng, shape: rng.exponential(1, shape),
    "lognormal 1": lognormal_factors(1.0),
}


# What is found in a cell.


class Cell(NamedTuple):
    """Where it was simulated: n examples, each seen in as many draws."""

    tail: str
    p: float
    n: int
    draws: int


class TwoWayCell(NamedTuple):
    """n examples under S draws of the weights; "l1" changes have lognormal examples."""

    kind: str
    tail: str
    p: float
    n: int
    S: int
    factors: str


class Coverage(NamedTuple):
    """What was found in `num` data sets; see above."""

    num: int
    covered: float
    below: float
    above: float
    flagged: float
    unflagged: float
    silent: float
    length: float
    deciding: float


def noise(num, share=COVERED):
    """Three standard errors of a share that was simulated."""
    return 3 * math.sqrt(share * (1 - share) / num)


def wilson_of_effective_n(v, level=0.95):
    """Its length, for every row."""
    n, p = v.shape[1], v.mean(axis=1)
    t, spread = stdtrit(n - 1, (1 + level) / 2), p * (1 - p)
    error = v.var(axis=1, ddof=1) / n
    k = t**2 * np.divide(error, spread, out=np.full(len(v), 1 / n), where=spread > 0)
    return 2 * np.sqrt(k * spread + k**2 / 4) / (1 + k)


def found(truth, low, high, num_sensitive, n, lengths, deciding):
    """The record of some data sets."""
    below, above = high < truth - 1e-9 * truth, low > truth + 1e-9 * truth
    covered = ~(below | above)
    flagged = (num_sensitive > 0) & (num_sensitive < min(FEW_SENSITIVE, n))
    unflagged = float(covered[~flagged].mean()) if not flagged.all() else math.nan
    shares = (float(share.mean()) for share in (covered, below, above, flagged))
    silent = float((~covered & ~flagged).mean())
    return Coverage(len(low), *shares, unflagged, silent, lengths, deciding)


def combined(records):
    """One record of several of the same cell."""
    num = np.array([record.num for record in records], float)
    table = np.array([record[1:] for record in records])
    mean = (num[:, None] * table).sum(axis=0) / num.sum()
    without = num * (1 - table[:, 3])
    mean[4] = (
        np.sum(without * np.nan_to_num(table[:, 4])) / without.sum() if without.any() else np.nan
    )
    return Coverage(int(num.sum()), *map(float, mean))


def of_values(v, truth):
    """Coverage of the mean of data sets, one for each row."""
    _, low, high = bounded_intervals(v, UNIT, 0.95)
    length = float((high - low).mean() / wilson_of_effective_n(v).mean())
    mean, square = float(v.mean()), float(np.square(v).mean())
    deciding = v.shape[1] * mean**2 / square if square else 0.0
    return found(truth, low, high, (v > 0).sum(axis=1), v.shape[1], length, deciding)


def simulate(rng, cell, num):
    """Coverage in one cell, from `num` data sets."""
    tail, at_a_time = ALL[cell.tail], max(CHUNK // cell.n, 1)
    records = []
    for start in range(0, num, at_a_time):
        shape = min(at_a_time, num - start), cell.n
        v = rng.binomial(cell.draws, tail.rates(rng, cell.p, shape)) / cell.draws
        records.append(of_values(v, tail.mean(cell.p)))
    return combined(records)


def simulate_all_n(rng, tail, p, draws, size):
    """Coverage for each n of the grid, of the same `size` values: at most 2,000 data sets."""
    values = rng.binomial(draws, ALL[tail].rates(rng, p, size)) / draws
    for n in N:
        num = min(size // n, 2000)
        yield (
            Cell(tail, p, n, draws),
            of_values(values[: num * n].reshape(num, n), ALL[tail].mean(p)),
        )


def settled(rng, again, cells, doubt):
    """Cells in doubt simulated anew: what was found first would be the unluckiest of many."""
    for num in NUM_IN_DOUBT:
        in_doubt = [cell for cell, record in cells.items() if record.covered < doubt]
        cells = cells | {cell: again(rng, cell, num) for cell in in_doubt}
    return cells


def simulate_grid(rng, tails, draws, size=CHUNK, doubt=DOUBT):
    """Every cell of these tails."""
    cells = {}
    for tail, p, some in itertools.product(tails, P, draws):
        cells |= dict(simulate_all_n(rng, tail, p, some, size))
    return settled(rng, simulate, cells, doubt)


def simulate_two_way(rng, cell, num):
    """Coverage of sharpness: rates by example, times factors by draw."""
    at_a_time, records = max(CHUNK // (cell.n * cell.S), 1), []
    for start in range(0, num, at_a_time):
        m = min(at_a_time, num - start)
        factors = FACTORS[cell.factors](rng, (m, 1, cell.S))
        rates = ALL[cell.tail].rates(rng, cell.p, (m, cell.n, 1))
        if cell.kind == "flips":
            # Cut at 1, the mean is that of the rates which were drawn: they are many.
            tables = (rng.random((m, cell.n, cell.S)) < rates * factors).astype(np.float32)
            bounds, truth = UNIT, two_way_truth(cell.tail, cell.p, cell.factors)
        else:
            changes = rates * factors * rng.exponential(1, (m, cell.n, cell.S))
            tables, bounds = changes, (0.0, math.inf)
            truth = ALL[cell.tail].mean(cell.p)
        low, high = two_way_ends(tables, bounds, 0.95)
        sensitive = tables.any(axis=2).sum(axis=1)
        relative = float(np.median(high - low)) / truth
        records.append(found(truth, low, high, sensitive, cell.n, relative, math.nan))
    return combined(records)


@functools.cache
def two_way_truth(tail, p, factors):
    """Mean of the rates times factors, cut at 1."""
    rng = np.random.default_rng(99)
    products = ALL[tail].rates(rng, p, 4_000_000) * FACTORS[factors](rng, 4_000_000)
    return float(np.minimum(products, 1).mean()) if products.max() > 1 else p


TWO_WAY_GRID = [
    *itertools.product(
        ["flips"], ["all alike", "two-point 0.3", "beta 8"], [0.002, 0.05, 0.2], [30, 300],
        [2, 3, 4, 5, 10], FACTORS,
    ),
    *itertools.product(
        ["l1"], ["all alike", "lognormal 0.5", "lognormal 1", "lognormal 2"], [0.001], [30, 300],
        [2, 3, 4, 5, 10], FACTORS,
    ),
]  # fmt: skip


def simulate_two_way_grid(rng, grid=TWO_WAY_GRID, num=500, doubt=DOUBT):
    """Every cell of sharpness."""
    cells = {cell: simulate_two_way(rng, cell, num) for cell in itertools.starmap(TwoWayCell, grid)}
    return settled(rng, simulate_two_way, cells, doubt)


def rounded(record):
    return [record.num, *(None if math.isnan(x) else float(f"{x:.3g}") for x in record[1:])]


def table(cells, names):
    """Worst and mean of the cells that share these fields."""
    rows = {}
    for cell, record in cells.items():
        rows.setdefault(tuple(getattr(cell, name) for name in names), []).append(record)
    for key, records in rows.items():
        columns = {name: np.array([getattr(r, name) for r in records]) for name in Coverage._fields}
        # Among few data sets without the flag a share says little.
        known = columns["unflagged"][columns["flagged"] < 0.5]
        yield {
            **dict(zip(names, key, strict=True)),
            "cells": len(records),
            "worst": round(float(columns["covered"].min()), 3),
            "mean": round(float(columns["covered"].mean()), 3),
            "worst_unflagged": round(float(known.min()), 3) if len(known) else None,
            "below": round(float(columns["below"].max()), 3),
            "above": round(float(columns["above"].max()), 3),
            "silent": round(float(columns["silent"].max()), 3),
            "length": round(float(np.median(columns["length"])), 3),
        }


def worst(cells, num):
    """The cells that are covered least."""
    least = sorted(cells, key=lambda cell: cells[cell].covered)[:num]
    return [{"cell": list(cell), "found": rounded(cells[cell])} for cell in least]


def main():
    rng = np.random.default_rng(0)
    tuned = simulate_grid(rng, TUNED, DRAWS)
    others = simulate_grid(rng, OTHERS, (8, 245, 2450))
    unknowable = simulate_grid(rng, [t for t in ALL if t not in TUNED | OTHERS], (8, 2450))
    two_way = simulate_two_way_grid(rng)
    many = {c: r for c, r in (tuned | others).items() if r.deciding >= 10}
    common = [r.length for c, r in tuned.items() if c.p >= 0.05 and c.n >= 300]
    record = {
        "fields": Coverage._fields,
        "means": [*table(tuned | others | unknowable, ("tail", "n"))],
        "means_where_ten_examples_decide": [*table(many, ("tail",))],
        "length_where_flips_are_common": [np.mean(common).round(3), np.max(common).round(3)],
        "sharpness": [*table(two_way, ("kind", "factors", "S"))],
        "worst_tuned": worst(tuned, 20),
        "worst_others": worst(others, 20),
        "worst_where_ten_examples_decide": worst(many, 20),
        "worst_sharpness": worst(two_way, 20),
    }
    lines = (json.dumps(key) + ": " + _lines(value) for key, value in record.items())
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _lines(value):
    """A list of records with one of them in each line."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n  " + ",\n  ".join(json.dumps(item) for item in value) + "\n]"
    return json.dumps(value)


if __name__ == "__main__":
    main()
