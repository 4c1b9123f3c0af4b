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
from jaxsens.measurement import random_positions
from jaxsens.measurement.exhaustive import Measurement

ONE = jax.devices()[:1]
ONE_DEVICE = SimpleNamespace(size=1)
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


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=() if name == "rare" else pytest.mark.slow)
        for name, case in CASES.items()
    ],
)
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
        max_batch=1000,
        mesh=ONE_DEVICE,
        spec=SimpleNamespace(metric=jaxsens.label_flip, num_samples=num_samples, exact=False),
        exhaustive_cost=n * T * num_samples,
        report=lambda *_: None,
    )


def flips_by_rate(job, draws, batch):
    return (job.rng.random(len(draws)) < job.x[draws[:, 0]]).astype(np.float32)


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
    monkeypatch.setattr(random_positions, "_changes_of", flips_by_rate)
    monkeypatch.setattr(random_positions, "measure_all", all_flips_by_rate)
    num_runs, p = 200, 0.01
    for spread, tolerance in itertools.product((1.0, 8.0), (0.01, 0.05)):
        rng, covered, costs = np.random.default_rng(n), 0, []
        for run in range(num_runs):
            rates = rng.beta(spread * p, spread * (1 - p), n)
            job = simulated(rates, num_samples=16_000 // (n * T), seed=run)
            (found,) = random_positions.measure_within([job], tolerance)
            counts = found.counts.sum(axis=1)
            _, low, high = mean_interval(found.totals.sum(axis=1) / counts, (0.0, 1.0))
            covered += low <= p <= high
            costs.append(found.num_passes / job.exhaustive_cost)
            assert found.positions == "all" or (high - low) / 2 <= tolerance
        assert covered > 0.93 * num_runs - 3 * math.sqrt(num_runs * 0.93 * 0.07)
        assert np.mean(costs) < 1.5


# What a run costs.


def test_most_passes_are_saved_where_the_tolerance_is_wide():
    est = measure(inputs(np.full(3000, 0.2)), 0.02)
    made = est.provenance
    # The pilot's draws are thrown away but paid for, and a draw is a clean and an edited pass.
    assert made.num_passes == 2 * (est.num_draws + 1000)
    assert made.exhaustive_passes == 3000 * (T * S + 1)
    assert made.num_passes < made.exhaustive_passes / 100
    assert made.tolerance == 0.02
    saved = made.exhaustive_passes / made.num_passes
    assert f"{est.num_draws} random draws, {saved:.3g}× fewer passes than exhaustive" in str(est)
    # No more draws than a textbook would ask for, with a margin of half as many again.
    assert est.num_draws < 1.5 * 1.96**2 * 0.2 * 0.8 / 0.02**2


def test_draws_spread_over_as_many_examples_as_there_are():
    est = measure(inputs(np.full(3000, 0.2)), 0.015)
    assert est.counts.sum(axis=1).max() == math.ceil(est.num_draws / 3000)


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


@pytest.mark.parametrize(("incremental", "positions"), [(False, "random"), ("auto", "all")])
def test_draws_are_weighed_against_what_reuse_costs(incremental, positions):
    x = jax.random.normal(jax.random.key(0), (300, 32, 32, 1))
    params = jax.random.normal(jax.random.key(1), (1024, 10))
    noise = Perturbation(Patches(2), Gaussian(sigma=3.0))
    est = jaxsens.sensitivity(
        lambda params, x: x.reshape(len(x), -1) @ params, params, x, noise, 2,
        key=jax.random.key(2), tolerance=0.05, incremental=incremental,
    )  # fmt: skip
    assert est.provenance.positions == positions
    assert est.half_width() <= 0.05
