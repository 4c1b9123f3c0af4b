"""How often intervals hold the truth: what was recorded, simulated again in its worst cells.

`tests/core/coverage.json` has the whole grid, made by `tests/core/simulation.py`, which also says
what is simulated.
"""

import itertools
import json
import math

import numpy as np
import pytest

from jaxsens.core.intervals import (
    Interval,
    bonferroni,
    independent_difference,
    mean_interval,
    rank_correlation,
    ratio_of_means,
    student_interval,
    two_way_interval,
)
from jaxsens.core.intervals.means import bounded_intervals
from tests.core.simulation import (
    ALL,
    COVERED,
    DRAWS,
    FILE,
    OTHERS,
    TUNED,
    UNIT,
    Cell,
    N,
    TwoWayCell,
    noise,
    simulate,
    simulate_all_n,
    simulate_grid,
    simulate_two_way,
    simulate_two_way_grid,
)

RECORDED = json.loads(FILE.read_text())
FIELDS = RECORDED["fields"]
#: Draws of the weights that differ by at most so much are covered as asked.
KNOWABLE_FACTORS = ("none", "uniform", "lognormal 0.5", "exponential")


def recorded(which, kind, num):
    """The worst cells of one list, with what was found there."""
    for entry in RECORDED[which][:num]:
        yield kind(*entry["cell"]), dict(zip(FIELDS, entry["found"], strict=True))


def check_again(again, cell, was, num):
    """What is simulated now is what was recorded, within the noise of both."""
    now = again(np.random.default_rng(7), cell, num)
    assert abs(now.covered - was["covered"]) < noise(num) + noise(was["num"]), (cell, now)


# What was recorded.


def test_where_ten_examples_decide_the_mean_is_covered():
    """All tails but the one that has no variance."""
    for row in RECORDED["means_where_ten_examples_decide"]:
        least = 0.89 if row["tail"] == "pareto 1.5" else COVERED
        assert row["worst"] > least - noise(4000), row
    assert {row["tail"] for row in RECORDED["means_where_ten_examples_decide"]} >= {*TUNED}


def test_the_tails_of_the_grid_are_covered_everywhere():
    rows = [row for row in RECORDED["means"] if row["tail"] in TUNED]
    assert len(rows) == len(TUNED) * len(N)
    for row in rows:
        assert row["worst"] > COVERED - noise(4000), row
        assert row["worst_unflagged"] is None or row["worst_unflagged"] > 0.92 - noise(2000), row
        assert row["silent"] < 1 - COVERED + noise(4000), row


def test_common_flips_have_wilson_s_length():
    mean, largest = RECORDED["length_where_flips_are_common"]
    assert mean < 1.02
    assert largest < 1.1


def test_sharpness_is_covered_as_recorded():
    rows = [row for row in RECORDED["sharpness"] if row["factors"] in KNOWABLE_FACTORS]
    assert min(row["worst"] for row in rows if row["kind"] == "flips") > 0.92
    assert min(row["worst"] for row in rows) > 0.87


@pytest.mark.parametrize("which", ["worst_tuned", "worst_others"])
def test_the_worst_cells_are_as_recorded(which):
    for cell, was in recorded(which, Cell, 6):
        check_again(simulate, cell, was, 1000 if cell.n <= 300 else 300)


def test_the_worst_cells_of_sharpness_are_as_recorded():
    for cell, was in recorded("worst_sharpness", TwoWayCell, 6):
        check_again(simulate_two_way, cell, was, 1000)


# The grid.


def check(cells, least=COVERED):
    for cell, found in cells.items():
        assert found.covered > least - noise(found.num), (cell, found)
    common = [found.length for c, found in cells.items() if c.p >= 0.05 and c.n >= 300]
    assert max(common) < 1.1
    assert np.mean(common) < 1.02


def test_rare_and_common_flips_are_covered():
    rng = np.random.default_rng(0)
    grid = itertools.product(TUNED, (0.0005, 0.004, 0.05, 0.5), (10, 100), (8, 2450))
    large = itertools.product(("all alike", "beta 2"), (0.002, 0.05), (1000,), (8, 400))
    cells = itertools.starmap(Cell, [*grid, *large])
    check({cell: simulate(rng, cell, 400) for cell in cells})


@pytest.mark.slow
def test_the_whole_grid_is_covered():
    cells = simulate_grid(np.random.default_rng(1), TUNED, DRAWS, size=300_000, doubt=0.92)
    check(cells)
    # Of 0.95 with its noise, hardly any is below.
    many = [found for found in cells.values() if found.num >= 600]
    assert np.mean([found.covered < COVERED for found in many]) < 0.03


#: Coverage at the worst, of tails that no number was chosen by and that few examples do not show.
LEAST = {"lognormal 1": 0.9, "lognormal 2": 0.83, "pareto 1.5": 0.82, "pareto 2.5": 0.88}


@pytest.mark.slow
@pytest.mark.parametrize("tail", OTHERS)
def test_tails_that_no_number_was_found_on(tail):
    cells = simulate_grid(
        np.random.default_rng(2), [tail], (8, 245, 2450), size=200_000, doubt=0.92
    )
    for cell, found in cells.items():
        decided = found.deciding >= 10 and tail != "pareto 1.5"
        least = COVERED - noise(found.num) if decided or tail not in LEAST else LEAST[tail]
        assert found.covered > least, (cell, found)
    mean = np.mean([found.covered for found in cells.values()])
    assert mean > (0.94 if tail in ("lognormal 2", "pareto 1.5") else 0.95)


TWO_WAY = [
    ("all alike", 0.05, 300, 2, "uniform"),
    ("two-point 0.3", 0.05, 300, 3, "uniform"),
    ("beta 8", 0.002, 30, 5, "none"),
    ("two-point 0.3", 0.01, 100, 5, "uniform 0.4"),
]


@pytest.mark.parametrize("cell", TWO_WAY)
def test_sharpness_is_covered(cell):
    found = simulate_two_way(np.random.default_rng(3), TwoWayCell("flips", *cell), 400)
    assert found.covered > COVERED - noise(found.num)


@pytest.mark.slow
def test_sharpness_is_covered_on_a_grid():
    tails = ("all alike", "beta 8", "two-point 0.3")
    grid = itertools.product(
        ["flips"], tails, (0.002, 0.01, 0.05), (10, 100, 300), (2, 3, 5, 20), KNOWABLE_FACTORS
    )
    cells = simulate_two_way_grid(np.random.default_rng(4), grid, num=200, doubt=0.92)
    for cell, found in cells.items():
        assert found.covered > COVERED - noise(found.num), (cell, found)
    assert np.mean([found.covered for found in cells.values()]) > 0.95


def test_what_no_interval_can_know():
    """Examples that were never drawn; half of the mean comes from one in a hundred."""
    rng = np.random.default_rng(5)
    found = dict(simulate_all_n(rng, "hidden 0.01", 0.05, 2450, 300_000))
    few, many = (found[Cell("hidden 0.01", 0.05, n, 2450)] for n in (30, 1000))
    assert few.covered < 0.5
    assert many.covered > COVERED - noise(many.num)


# Differences; ratios are tested beside their limits.


def paired(rng, tail, p, share, shape, draws):
    """Differences of two models on the same examples, of which the second flips less."""
    rates = ALL[tail].rates(rng, p, shape)
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


@pytest.mark.parametrize(("p", "q"), [(0.3, 0.2), (0.05, 0.01), (0.004, 0.002)])
def test_independent_differences_are_covered(p, q):
    rng, num = np.random.default_rng(6), 600
    ends = [
        bounded_intervals(
            rng.binomial(40, ALL["beta 8"].rates(rng, r, (num, 200))) / 40, UNIT, 0.95
        )
        for r in (p, q)
    ]
    pairs = zip(*(itertools.starmap(Interval, np.transpose(each)) for each in ends), strict=True)
    found = itertools.starmap(independent_difference, pairs)
    assert np.mean([low <= p - q <= high for _, low, high in found]) > COVERED - noise(num)


# Seeds, several at once, ranks.


@pytest.mark.parametrize("n", [2, 3, 5, 30])
def test_student_s_interval_over_seeds_is_covered(n):
    rng, num = np.random.default_rng(n), 500
    found = [student_interval(rng.normal(1.0, 2.0, n)) for _ in range(num)]
    share = np.mean([low <= 1 <= high for _, low, high in found])
    assert abs(share - 0.95) < noise(num, 0.95)


def test_several_intervals_hold_their_truths_together():
    rng, num, level = np.random.default_rng(8), 300, bonferroni(0.95, 8)

    def all_held():
        found = [student_interval(rng.normal(0.0, 1.0, 20), level=level) for _ in range(8)]
        return all(low <= 0 <= high for _, low, high in found)

    share = np.mean([all_held() for _ in range(num)])
    assert share > 0.95 - noise(num, 0.95)
    # One by one they would not.
    assert 0.95**8 < 0.7


def rank_coverage(num_models, shuffled, num):
    """Models a standard error apart, in the same order or in any."""
    rng, held = np.random.default_rng(9), 0
    for _ in range(num):
        order = rng.permutation(num_models) if shuffled else np.arange(num_models)
        means = 0.1 * np.arange(num_models)[:, None], 0.1 * order[:, None]
        found = rank_correlation(*(list(rng.normal(m, 1.0, (num_models, 100))) for m in means))
        truth = np.corrcoef(np.arange(num_models), order)[0, 1]
        held += found.low - 1e-9 <= truth <= found.high + 1e-9
    return held / num


def test_rank_correlations_of_1_are_covered():
    assert rank_coverage(6, shuffled=False, num=30) > COVERED - noise(30)


@pytest.mark.slow
@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("num_models", [5, 8, 12])
def test_rank_correlations_are_covered(num_models, shuffled):
    assert rank_coverage(num_models, shuffled, num=200) > COVERED - noise(200)


# Tiny and huge values.


def bounded(values):
    return mean_interval(values, (0.0, 20.0 * float(values.max())))


@pytest.mark.parametrize("exponent", [-1000, -700, -520, 500, 700])
def test_values_whose_squares_vanish_or_overflow_have_the_same_interval(exponent):
    rng, scale = np.random.default_rng(0), 2.0**exponent
    v, table = rng.exponential(1.0, 30), rng.exponential(1.0, (30, 4))
    for find, values in (
        (student_interval, v),
        (bounded, v),
        (lambda x: ratio_of_means(x, v[::-1]), v),
        (lambda x: two_way_interval(x, (-math.inf, math.inf)), table),
        (lambda x: two_way_interval(x, (0.0, math.inf)), table),
    ):
        assert np.array(find(scale * values)) / scale == pytest.approx(find(values), rel=1e-9)


def test_tiny_values_beside_a_bound_far_away():
    found = mean_interval(1e-310 * np.arange(20), UNIT)
    assert 0 < found.low < found.mean < found.high < 1
    assert two_way_interval(1e-310 * np.arange(20.0).reshape(5, 4), UNIT).high < 1
