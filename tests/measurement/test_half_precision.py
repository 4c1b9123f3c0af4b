"""Half precision is measured, and the estimate says how often rounding decides."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens import (
    Bits,
    Gaussian,
    Perturbation,
    SensitivityEstimate,
    relative_l2,
    sensitivity,
)  # fmt: skip

KEY = jax.random.key(0)
X = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)
W = jnp.asarray(np.random.default_rng(1).normal(size=(8, 3)), jnp.float32)
NOISE = Perturbation(Bits(), Gaussian(sigma=1.0))


def model(params, x):
    return x.astype(params.dtype) @ params


def measured(params, **options):
    return sensitivity(model, params, X, NOISE, 2, key=KEY, **options)


def test_float32_has_no_note():
    est = measured(W)
    assert est.provenance.near_ties is None
    assert "half precision" not in str(est)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precision_has_one(dtype):
    est = measured(W.astype(dtype))
    assert 0 <= est.provenance.near_ties < 0.5
    assert str(est).endswith("% of draws near a tie")
    again = SensitivityEstimate.from_json(est.to_json())
    assert again.provenance.near_ties == est.provenance.near_ties
    assert measured(W.astype(dtype), metric=relative_l2).provenance.near_ties is None


def test_classes_that_almost_tie_are_all_near_a_tie():
    close = jnp.stack([W[:, 0], W[:, 0] * 1.001, W[:, 0] * 0.999], axis=1).astype(jnp.bfloat16)
    assert measured(close).provenance.near_ties > 0.9
    apart = jnp.stack([W[:, 0], -W[:, 0]], axis=1).astype(jnp.bfloat16)
    assert measured(apart).provenance.near_ties < 0.1


def test_merged_estimates_have_the_larger_share():
    half = W.astype(jnp.bfloat16)
    first, second = (
        sensitivity(model, half, X[i : i + 30], NOISE, 2, key=KEY, example_ids=np.arange(i, i + 30))
        for i in (0, 30)
    )
    shares = [est.provenance.near_ties for est in (first, second)]
    assert first.merge(second).provenance.near_ties == max(shares)
