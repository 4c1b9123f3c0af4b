"""Measuring to a tolerance: intervals cover the truth, estimates are unbiased, passes are saved.

A parity of signs flips exactly when the noise carries the edited coordinate across zero, which has
probability Φ(-|x|/σ). So inputs can be made for any distribution of per-example sensitivities, and
the true value over that distribution is known.
"""

import itertools
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from scipy.special import ndtri

import jaxsens
from jaxsens import Bits, Flip, Gaussian, Patches, Perturbation
from jaxsens.core.intervals import mean_interval
from jaxsens.measurement import random_positions, samples
from jaxsens.measurement.exhaustive import Measurement

ONE = jax.devices()[:1]
NOISE = Perturbation(Bits(), Gaussian(sigma=1.0))
T, S = 4, 200


def sign_parity(params, x):
    return jnp.prod(jnp.sign(x), axis=1)


def inputs(rates):
    """Examples whose every edit flips with the example's rate, at most 1/2."""
    return np.repeat(-ndtri(rates)[:, None], T, axis=1).astype(np.float32)


def measure(x, tolerance, seed=0, **options):
    return jaxsens.sensitivity(
        sign_parity, (), x, NOISE, S, key=jax.random.key(seed), tolerance=tolerance, devices=ONE,
        **options,
    )  # fmt: skip


def halved_beta(mean, concentration):
    """Rates spread over the examples: Beta/2, with this mean."""

    def rates(rng, n):
        share = 2 * mean
        return rng.beta(concentration * share, concentration * (1 - share), n) / 2

    return rates


def equal(mean):
    return lambda rng, n: np.full(n, mean)


# (rates, their mean, number of examples, tolerance)
CASES = {
    "moderate": (halved_beta(0.2, 4.0), 0.2, 2000, 0.02),
    "rare": (halved_beta(0.015, 20.0), 0.015, 2000, 0.008),
    "few examples, many draws each": (halved_beta(0.2, 4.0), 0.2, 60, 0.04),
}
MORE_CASES = {
    "rare, every example alike": (equal(0.015), 0.015, 3000, 0.006),
    "fewer examples than the tolerance needs": (halved_beta(0.2, 4.0), 0.2, 30, 0.02),
    "rare, and more draws than examples": (halved_beta(0.015, 20.0), 0.015, 500, 0.005),
}


def check_many_runs(case, num_runs, bias, first_seed=0):
    """Each run has new examples and a new key; `bias` is in standard errors of one run."""
    rates, truth, n, tolerance = case
    rng = np.random.default_rng(first_seed)
    means, stderrs, covered = np.zeros(num_runs), np.zeros(num_runs), np.zeros(num_runs, bool)
    for run in range(num_runs):
        est = measure(inputs(rates(rng, n)), tolerance, seed=first_seed + run)
        low, high = est.ci()
        means[run], stderrs[run], covered[run] = est.mean, est.stderr, low <= truth <= high
        if est.provenance.positions == "all":
            assert np.all(est.counts == S)
        else:
            assert est.half_width() <= tolerance
    assert 0.93 <= covered.mean() <= 0.97
    # Unbiased, and with the spread that the standard error says.
    assert abs(means.mean() - truth) < bias * means.std(ddof=1)
    assert means.std(ddof=1) == pytest.approx(math.sqrt(np.mean(stderrs**2)), rel=0.1)


@pytest.fixture
def unchecked_shapes():
    """Thousands of runs of code whose shapes every other test checks."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_interval_covers_the_truth_as_often_as_it_says(case):
    check_many_runs(case, 600, bias=3 / math.sqrt(600))


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("case", (CASES | MORE_CASES).values(), ids=CASES | MORE_CASES)
def test_the_interval_covers_the_truth_in_many_more_runs(case):
    check_many_runs(case, 1500, bias=0.15, first_seed=10_000)


# Few examples, few of which flip: thousands of runs, so draws come from the rates and no model.


def simulated(rates, num_samples, seed):
    """The work of measuring examples that flip at these rates."""
    n = len(rates)
    return SimpleNamespace(
        x=rates,
        mask=np.ones((n, T), bool),
        unmasked=np.tile(np.arange(T), (n, 1)),
        seed=(seed,),
        rng=np.random.default_rng(seed),
        spec=SimpleNamespace(metric=jaxsens.label_flip, num_samples=num_samples, exact=False),
        exhaustive_cost=n * T * num_samples,
        report=lambda *_: None,
        draw_costs=(1.0, 1.0),
        draw_reuse=None,
    )


class FlipsByRate:
    """Makes draws of such work."""

    self_check = "none"

    def __init__(self, job):
        self.job = job

    def changes(self, draws, report):
        return (self.job.rng.random(len(draws)) < self.job.x[draws[:, 0]]).astype(np.float64)


def all_flips_by_rate(job):
    num_samples = job.spec.num_samples
    totals = job.rng.binomial(num_samples, np.repeat(job.x[:, None], T, axis=1)).astype(float)
    counts = np.full(totals.shape, num_samples)
    return Measurement(totals, counts, job.exhaustive_cost, "all")


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(
    "n", [30, *(pytest.param(n, marks=pytest.mark.slow) for n in (10, 100, 300))]
)
def test_few_examples_few_of_which_flip_are_covered(n, monkeypatch):
    monkeypatch.setattr(samples, "DrawEngine", FlipsByRate)
    monkeypatch.setattr(random_positions, "measure_all", all_flips_by_rate)
    num_runs, p = 200, 0.01
    for spread, tolerance in itertools.product((1.0, 8.0), (0.01, 0.05)):
        rng, covered, costs = np.random.default_rng(n), 0, []
        for run in range(num_runs):
            rates = rng.beta(spread * p, spread * (1 - p), n)
            job = simulated(rates, num_samples=16_000 // (n * T), seed=run)
            (found,) = random_positions.measure_within([job], tolerance)
            totals, counts = found.totals.sum(axis=1), found.counts.sum(axis=1)
            drawn = counts > 0
            _, low, high = mean_interval(totals[drawn] / counts[drawn], (0.0, 1.0))
            covered += low <= p <= high
            costs.append(found.num_passes / job.exhaustive_cost)
            assert found.positions == "all" or (high - low) / 2 <= tolerance
        assert covered > 0.93 * num_runs - 3 * math.sqrt(num_runs * 0.93 * 0.07)
        assert np.mean(costs) < 1.5


# What a run costs.


def test_most_passes_are_saved_where_the_tolerance_is_wide():
    est = measure(inputs(np.full(3000, 0.2)), 0.02)
    made = est.provenance
    # Every draw is a pass, and every visit one more. What was left out of the pilot is paid for.
    visited = est.counts.any(axis=1).sum()
    assert est.num_draws + visited <= made.num_passes <= est.num_draws + visited + 1500
    assert made.exhaustive_passes == 3000 * (T * S + 1)
    assert made.num_passes < made.exhaustive_passes / 100
    assert made.tolerance == 0.02
    saved = made.exhaustive_passes / made.num_passes
    assert f"{est.num_draws} random draws, {saved:.3g}× fewer passes than exhaustive" in str(est)
    # No more draws than a textbook would ask for, with a margin of half as many again.
    assert est.num_draws < 1.5 * 1.96**2 * 0.2 * 0.8 / 0.02**2


def test_draws_of_an_example_are_spread_over_its_positions():
    est = measure(inputs(np.full(3000, 0.2)), 0.015)
    draws = est.counts.sum(axis=1)
    assert 500 <= (draws > 0).sum() < 3000
    assert draws[draws > 0].min() >= 2
    # A position lies in as many of m strata of length T/m, and one more at their borders.
    assert np.all(est.counts <= np.ceil(draws / T)[:, None] + 1)


def test_examples_that_differ_have_few_draws_each_and_those_alike_have_many():
    """m = √(σ_w²/σ_b² · c/e): examples that always or never flip need no second draw."""
    rng = np.random.default_rng(0)
    n = 8000
    differ = np.where(rng.random(n) < 0.3, 0.5 - 1e-6, 1e-9)
    draws = [
        measure(inputs(rates), 0.008).counts.sum(axis=1) for rates in (differ, np.full(n, 0.15))
    ]
    few, many = (each[each > 0].mean() for each in draws)
    assert few < 3.5 < many


def test_a_pilot_that_is_enough_is_the_estimate():
    est = measure(inputs(np.full(3000, 0.01)), 0.02)
    assert est.num_draws == 1000
    assert est.provenance.num_passes == 1000 + est.num_examples == 1500


def test_a_small_job_is_measured_whole():
    x = inputs(np.full(4, 0.3))
    est = measure(x, 0.3)
    whole = jaxsens.sensitivity(sign_parity, (), x, NOISE, S, key=jax.random.key(0), devices=ONE)
    assert est.provenance.positions == "all"
    assert est.provenance.num_passes == whole.provenance.num_passes
    assert np.array_equal(est.totals, whole.totals)


def test_a_tolerance_out_of_reach_costs_little_more_than_the_whole():
    rng = np.random.default_rng(0)
    est = measure(inputs(halved_beta(0.2, 4.0)(rng, 50)), 1e-4)
    assert est.provenance.positions == "all"
    assert est.half_width() > 1e-4
    assert est.provenance.num_passes < 1.1 * est.provenance.exhaustive_passes


def test_a_function_that_never_flips_is_within_any_reachable_tolerance():
    est = measure(np.full((3000, T), 50.0, np.float32), 0.002)
    assert est.mean == 0
    assert 0 < est.half_width() <= 0.002


def test_other_metrics_have_tolerances_too():
    est = measure(
        inputs(np.full(2000, 0.2)), 0.2,
        metric=lambda clean, perturbed: 10.0 + (perturbed - clean) ** 2,
    )  # fmt: skip
    assert est.half_width() <= 0.2
    truth = 10 + 4 * 0.2
    assert abs(est.mean - truth) < 4 * est.stderr


def test_enumerable_edits_may_be_sampled():
    """Parity of 11 bits: every draw flips, whichever position and replacement it is."""
    x = np.sign(inputs(np.full(3000, 0.2)))
    flip = Perturbation(Bits(), Flip())
    est = jaxsens.sensitivity(
        sign_parity, (), x, flip, "all", key=jax.random.key(0), tolerance=0.01, devices=ONE
    )
    assert est.provenance.exact
    assert est.mean == 1
    assert est.ci()[1] == 1


def test_masked_positions_are_never_drawn():
    rates = np.full((3000, T), 0.4)
    rates[:, 1] = 1e-9
    x = -ndtri(rates).astype(np.float32)
    mask = np.ones((3000, T), bool)
    mask[:, 1], mask[:100] = False, False
    est = measure(x, 0.03, mask=mask)
    assert not est.counts[~mask].any()
    assert abs(est.mean - 0.4) < 4 * est.stderr


def test_the_mean_is_over_the_positions_of_an_example():
    """A short example counts as much as a long one: Def. 4.3, not a mean over tokens."""
    n = 4000
    rates, mask = np.full((n, T), 0.4), np.ones((n, T), bool)
    rates[: n // 2] = 0.1
    mask[: n // 2, 1:] = False
    est = measure(-ndtri(rates).astype(np.float32), 0.02, mask=mask)
    assert est.provenance.positions == "random"
    assert abs(est.mean - 0.25) < 4 * est.stderr


def test_the_same_key_is_the_same_estimate_and_another_key_another():
    x = inputs(np.full(3000, 0.2))
    first, again, other = (measure(x, 0.02, seed) for seed in (1, 1, 2))
    assert np.array_equal(first.totals, again.totals)
    assert not np.array_equal(first.counts, other.counts)


def test_progress_is_told():
    calls = []
    est = measure(inputs(np.full(3000, 0.2)), 0.01, progress=lambda *call: calls.append(call))
    done, total, mean = calls[-1]
    assert done == total == est.num_draws
    assert mean == pytest.approx(est.mean, abs=0.01)


def test_an_image_model_meets_its_tolerance():
    rng = np.random.default_rng(0)
    x, weights = rng.normal(size=(500, 4, 4, 1)), rng.normal(size=(16, 3)).astype(np.float32)
    est = jaxsens.sensitivity(
        lambda w, x: x.reshape(len(x), -1) @ w, weights, x,
        Perturbation(Patches(2), Gaussian(sigma=0.5)), 50, key=jax.random.key(3), tolerance=0.03,
    )  # fmt: skip
    assert est.provenance.positions == "random"
    assert est.half_width() <= 0.03


# (draws reuse clean values, positions): so does the exhaustive measurement, unless nothing does.
@pytest.mark.parametrize(
    ("incremental", "n", "positions"),
    [(False, 300, "random"), ("auto", 300, "random"), ("auto", 10, "all")],
)
def test_draws_are_weighed_against_what_reuse_costs(incremental, n, positions):
    x = jax.random.normal(jax.random.key(0), (n, 32, 32, 1))
    params = jax.random.normal(jax.random.key(1), (1024, 10))
    noise = Perturbation(Patches(2), Gaussian(sigma=3.0))
    est = jaxsens.sensitivity(
        lambda params, x: x.reshape(len(x), -1) @ params, params, x, noise, 2,
        key=jax.random.key(2), tolerance=0.05, incremental=incremental,
    )  # fmt: skip
    assert est.provenance.positions == positions
    assert est.provenance.incremental == (incremental == "auto")
    assert positions == "all" or est.half_width() <= 0.05


# Reuse.


def image_mlp(seed=0):
    rng = np.random.default_rng(seed)
    shapes = [(64, 24), (24, 5)]
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def apply_image_mlp(weights, x):
    first, second = weights
    return jnp.tanh(x.reshape(len(x), -1) @ first) @ second


def measure_images(**options):
    x = np.random.default_rng(1).normal(size=(80, 8, 8, 1)).astype(np.float32)
    noise = Perturbation(Patches(2), Gaussian(sigma=1.0))
    return jaxsens.sensitivity(
        apply_image_mlp, image_mlp(), x, noise, 7, key=jax.random.key(4), **options
    )


def test_random_positions_by_reuse_are_those_of_whole_passes():
    plain, reused = (
        measure_images(positions="random", incremental=incremental, devices=ONE)
        for incremental in (False, True)
    )
    assert np.array_equal(plain.counts, reused.counts)
    assert np.array_equal(plain.totals, reused.totals)
    assert plain.totals.sum() > 10
    assert (plain.provenance.incremental, reused.provenance.incremental) == (False, True)
    assert (plain.provenance.self_check, reused.provenance.self_check) == ("none", "passed")


@pytest.mark.slow
@pytest.mark.parametrize("incremental", [False, True])
def test_random_draws_do_not_depend_on_the_cut(incremental):
    expected = measure_images(positions="random", incremental=incremental, devices=ONE)
    for options in ({"chunk_bytes": 4_000}, {"devices": jax.devices()[:3]}):
        found = measure_images(positions="random", incremental=incremental, **options)
        assert np.array_equal(found.totals, expected.totals)


def test_a_random_draw_is_the_draw_of_all_positions():
    """S draws at random positions have the noise that the same draws have among all of them."""
    every = measure_images()
    some = measure_images(positions="random")
    everywhere = (some.counts > 0) & (every.totals == 0)
    assert everywhere.sum() > 20
    assert not some.totals[everywhere].any()
    always = (some.counts > 0) & (every.totals == every.counts)
    assert np.array_equal(some.totals[always], some.counts[always])


def test_a_wrong_rule_is_found_and_whole_passes_take_over(monkeypatch):
    from jaxsens.incremental.program import Program

    right = Program.edit
    expected = measure_images(positions="random", incremental=False)

    def wrong(self, *arguments):
        out, doubt = right(self, *arguments)
        return 1.5 * out + 1, doubt

    monkeypatch.setattr(Program, "edit", wrong)
    x = np.random.default_rng(1).normal(size=(80, 8, 8, 1)).astype(np.float32)
    with pytest.warns(UserWarning, match="reuse gave another output than a whole pass"):
        found = jaxsens.sensitivity(
            lambda weights, x: apply_image_mlp(weights, x), image_mlp(), x,
            Perturbation(Patches(2), Gaussian(sigma=1.0)), 7, key=jax.random.key(4),
            positions="random", incremental=True,
        )  # fmt: skip
    assert np.array_equal(found.totals, expected.totals)
    assert found.provenance.self_check == "failed"
    assert not found.provenance.incremental


# A fixed population: the examples themselves.


def test_a_fixed_population_needs_fewer_draws_and_says_so():
    rng = np.random.default_rng(0)
    x = inputs(halved_beta(0.2, 1.0)(rng, 1500))
    sample, fixed = (measure(x, 0.008, population=name) for name in ("sample", "fixed"))
    assert fixed.provenance.population == "fixed"
    assert fixed.provenance.population_size == 1500
    assert sample.provenance.population_size is None
    assert fixed.half_width() <= 0.008
    assert fixed.num_draws < sample.num_draws
    assert f"of {1500}" in str(fixed)
    again = jaxsens.SensitivityEstimate.from_json(fixed.to_json())
    assert again.ci() == fixed.ci()


def test_every_replacement_at_every_point_of_a_fixed_population_leaves_no_error():
    cube = np.array([[a, b, c] for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)], np.float32)
    est = jaxsens.sensitivity(
        lambda params, x: x[:, 0] + x[:, 1] + x[:, 2], (), cube, Perturbation(Bits(), Flip()),
        "all", key=jax.random.key(0), population="fixed",
    )  # fmt: skip
    assert est.mean == est.ci()[0] == est.ci()[1] == 0.5
    assert est.stderr == 0


def test_merged_fixed_populations_are_one():
    x = inputs(np.full(20, 0.3))
    options = {"population": "fixed", "tolerance": None}
    first, second = (
        measure(part, seed=seed, **options) for seed, part in enumerate((x[:8], x[8:]))
    )
    merged = first.merge(second)
    assert merged.provenance.population_size == 20
    assert merged.half_width() < min(first.half_width(), second.half_width())
    with pytest.raises(ValueError, match="population='fixed' and 'sample'"):
        first.merge(measure(x[8:], None, seed=1))


FIXED_CASES = {
    "few of many": (halved_beta(0.2, 4.0), 2000, 0.02),
    "most of them": (halved_beta(0.2, 1.0), 400, 0.012),
    "rare": (halved_beta(0.015, 20.0), 2000, 0.006),
}


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("case", FIXED_CASES.values(), ids=FIXED_CASES)
def test_the_mean_of_a_fixed_population_is_covered(case):
    """The same examples in every run, whose mean is the truth; new keys."""
    rates, n, tolerance = case
    num_runs, rates = 400, rates(np.random.default_rng(0), n)
    truth, means, held = rates.mean(), [], 0
    for seed in range(num_runs):
        est = measure(inputs(rates), tolerance, seed, population="fixed")
        low, high = est.ci()
        held += low <= truth <= high
        means.append(est.mean)
        assert est.half_width() <= tolerance
    assert held / num_runs > 0.93 - 3 * math.sqrt(0.93 * 0.07 / num_runs)
    assert abs(np.mean(means) - truth) < 0.2 * np.std(means)


# Precision.


def test_a_precision_is_recorded_and_changes_no_draw_on_a_cpu():
    full, fast = (measure_images(precision=precision) for precision in ("highest", "default"))
    assert (full.provenance.precision, fast.provenance.precision) == ("highest", "default")
    assert jaxsens.changed_draws(full, fast) == 0
    other = measure_images(incremental=False, precision="high", positions="random")
    with pytest.raises(ValueError, match="positions='all'"):
        jaxsens.changed_draws(full, other)
