"""The program of whole passes: the example itself goes through the model beside its edits."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens import Gaussian, Perturbation, Tokens, sensitivity
from jaxsens.core.jaxprs import equations
from jaxsens.measurement.batching import make_plan
from jaxsens.measurement.chunk_program import device_totals
from jaxsens.measurement.jobs import MeasurementSpec
from jaxsens.measurement.metrics import label_flip

N, T, S = 5, 6, 3
NOISE = Perturbation(Tokens(), Gaussian(sigma=2.0))
WEIGHTS = jnp.asarray(np.random.default_rng(0).normal(size=(T * 2, 4)), jnp.float32)
X = np.random.default_rng(1).normal(size=(N, T, 2)).astype(np.float32)


def small(weights, x):
    return jnp.tanh(x.reshape(len(x), -1)) @ weights


def large(weights, x):
    """The same labels, from more numbers than the inputs of a block are."""
    classes = small(weights, x)
    return jnp.concatenate([classes, jnp.full((len(x), 500), -100.0)], axis=1)


def measured(model, chunk_bytes):
    return sensitivity(
        model, WEIGHTS, X, NOISE, S, key=jax.random.key(0), incremental=False, check=False,
        chunk_bytes=chunk_bytes,
    ).totals  # fmt: skip


@pytest.mark.parametrize("num_inputs", [6, 100])
def test_large_outputs_do_not_wait_for_each_other_and_give_the_same(num_inputs):
    expected = measured(small, None)
    assert expected.any()
    # Their widest intermediate, the output, gets a sixteenth of the budget.
    np.testing.assert_array_equal(measured(large, 16 * num_inputs * 504 * 4), expected)


@pytest.mark.parametrize(("model", "num"), [(small, 1), (large, 2)])
def test_the_model_is_compiled_once_where_outputs_are_small(model, num):
    spec = MeasurementSpec(model, NOISE, label_flip, S, False)
    program = functools.partial(device_totals, spec, make_plan(7, T * S + 1), "cpu")
    ids, probes = jnp.arange(256), jnp.zeros((256, 1), jnp.int32)
    x, num_valid = jnp.zeros((256, *X.shape[1:])), jnp.ones(1, jnp.int32)
    traced = jax.make_jaxpr(program)(
        WEIGHTS, x, (), ids, probes, num_valid, jax.random.key(0), None
    )
    names = [equation.primitive.name for equation in equations(traced.jaxpr)]
    assert names.count("tanh") == num
