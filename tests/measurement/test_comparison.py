"""The paired difference of two estimates, and what must not be compared."""

import dataclasses
import math

import numpy as np
import pytest

import jaxsens
from jaxsens.core.intervals import mean_interval, student_interval, two_way_interval
from jaxsens.measurement.estimate import Provenance, SensitivityEstimate
from jaxsens.measurement.sharpness_estimate import BOUNDS, Change

PROVENANCE = Provenance(
    metric="label_flip",
    perturbation="Perturbation(grid=Bits(), edit=Flip(low=-1, high=1))",
    num_samples=5,
    exact=False,
    positions="all",
    tolerance=None,
    seed=(0, 7),
    precision="highest",
    device="cpu",
    num_devices=1,
    seconds=0.25,
    num_passes=100,
    exhaustive_passes=100,
)
RANDOM = np.random.default_rng(0)


def estimate(p, n=40, T=3, counts=5, bounds=(0.0, 1.0), **changes):
    made = dataclasses.replace(PROVENANCE, **changes)
    counts = np.broadcast_to(counts, (n, T)).copy()
    return SensitivityEstimate(RANDOM.binomial(counts, p).astype(float), counts, bounds, made)


def test_it_is_the_paired_difference():
    a, b = estimate(0.5), estimate(0.2, T=7)
    found = jaxsens.compare(a, b)
    assert found.mean == pytest.approx(a.mean - b.mean)
    assert found.per_example.tolist() == (a.per_example - b.per_example).tolist()
    assert found.interval(0.9) == mean_interval(a.per_example - b.per_example, (-1.0, 1.0), 0.9)
    assert found.ci() == found.interval().ends
    assert found.ci()[0] > 0
    _, low, high = found.interval()
    assert str(found) == f"difference {found.mean:.4f} (95 % CI {low:.4f} to {high:.4f}, n=40)"


def test_changes_by_noise_on_the_weights_are_clustered_by_draw_too():
    tables = [(RANDOM.random((30, 5)) < p).astype(np.float32) for p in (0.4, 0.1)]
    found = jaxsens.compare(*(Change(table, BOUNDS["flips"]) for table in tables))
    assert found.interval() == two_way_interval(tables[0] - tables[1], (-1.0, 1.0))
    assert found.per_example.shape == (30,)


def test_unbounded_metrics_have_student_s_interval():
    a, b = (estimate(p, bounds=(0.0, math.inf), metric="squared_change") for p in (0.4, 0.3))
    assert jaxsens.compare(a, b).interval() == student_interval(a.per_example - b.per_example)


def test_few_examples_that_differ_are_named():
    a = estimate(0.5)
    b = dataclasses.replace(a, totals=a.totals.copy())
    assert "few" not in str(jaxsens.compare(a, b))
    b.totals[:3, 0] = 5 - a.totals[:3, 0]
    assert str(jaxsens.compare(a, b)).endswith("n=40), few examples differ (3)")


def test_examples_that_neither_measured_are_left_out():
    counts = np.full((40, 3), 5)
    counts[7] = 0
    found = jaxsens.compare(estimate(0.5, counts=counts), estimate(0.2, counts=counts))
    assert len(found.values) == 39
    assert math.isfinite(found.mean)


def change(n=6, S=4, kind="flips"):
    return Change(np.zeros((n, S)), BOUNDS[kind])


@pytest.mark.parametrize(
    ("a", "b", "error", "message"),
    [
        (estimate(0.5), estimate(0.5, n=41), ValueError, "n=40 and n=41"),
        (estimate(0.5), estimate(0.5, metric="l2"), ValueError, "metric='label_flip' and"),
        (estimate(0.5), estimate(0.5, bounds=(0.0, 2.0)), ValueError, "bounds="),
        (
            estimate(0.5),
            estimate(0.5, counts=np.arange(40)[:, None] % 2),
            ValueError,
            "different examples: 40 measured in one, 20 in the other, 20 in both",
        ),
        (change(), change(n=7), ValueError, "n=6 and n=7"),
        (change(), change(S=5), ValueError, "S=4 and S=5"),
        (change(), change(kind="l1"), ValueError, "bounds="),
    ],
)
def test_what_cannot_be_the_same_examples_is_refused(a, b, error, message):
    with pytest.raises(error, match=message):
        jaxsens.compare(a, b)
