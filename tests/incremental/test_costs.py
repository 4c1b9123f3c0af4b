"""Into how many groups positions are cut, and how little is traced to know it."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxsens import Tokens
from jaxsens.incremental import costs, make_program

W = jnp.asarray(np.random.default_rng(0).normal(size=(4, 4)), jnp.float32)
X = jax.ShapeDtypeStruct((16, 4), jnp.float32)


def in_time(w, x):
    """Sums of what came before, through a layer: late words reach little."""
    return jnp.tanh(jnp.cumsum(x @ w, axis=1) @ w).mean(axis=1)


def at_once(w, x):
    """Every word sees all words."""
    return jnp.tanh((x @ w + x.mean(axis=1, keepdims=True)) @ w).mean(axis=1)


def test_a_program_cut_later_is_one_cut_at_once():
    whole = make_program(in_time, W, X, (), Tokens(), "cpu", 1)
    expected = make_program(in_time, W, X, (), Tokens(), "cpu", 3)
    for mine, theirs in zip(
        whole.regrouped(3).position_groups, expected.position_groups, strict=True
    ):
        np.testing.assert_array_equal(mine.positions, theirs.positions)
        assert mine.layout.shape == theirs.layout.shape
        np.testing.assert_array_equal(mine.layout.reachable, theirs.layout.reachable)
        for one, other in zip(mine.layout.tables, theirs.layout.tables, strict=True):
            np.testing.assert_array_equal(one, other)


def test_groups_between_two_ends_that_save_nothing_are_not_traced(monkeypatch):
    """Where late positions reach less they are cut: tests/incremental/test_models.py."""
    groups, edits_jaxpr = [], costs._edits_jaxpr

    def traced(program, group, *rest):
        groups.append(group)
        return edits_jaxpr(program, group, *rest)

    monkeypatch.setattr(costs, "_edits_jaxpr", traced)
    found = costs.count_costs(at_once, W, X, (), Tokens(), 5, "cpu")
    assert found.num_position_groups == 1
    assert groups == [0, 0, 3]
