"""Layers that stand in for Flax's own: the same numbers."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens.models.layers.basics import Dropout

X = jax.random.normal(jax.random.key(0), (3, 4, 5, 2))
RNGS = {"dropout": jax.random.key(1)}


def test_dropout_is_flax_s_number_for_number():
    ours = Dropout(0.3).apply({}, X, train=True, rngs=RNGS)
    flax = nn.Dropout(0.3).apply({}, X, deterministic=False, rngs=RNGS)
    np.testing.assert_array_equal(ours, flax)
    assert (np.asarray(ours) == 0).any()


@pytest.mark.parametrize(("rate", "train"), [(0.3, False), (0.0, True)])
def test_dropout_does_nothing_in_eval_mode_or_without_a_rate(rate, train):
    np.testing.assert_array_equal(Dropout(rate).apply({}, X, train=train), X)


def test_dropout_keeps_the_mean():
    ones = jnp.ones(40_000)
    dropped = Dropout(0.2).apply({}, ones, train=True, rngs=RNGS)
    # Values are 0 or 1.25: standard deviation 0.5.
    assert abs(float(dropped.mean()) - 1) < 4 * 0.5 / 200
