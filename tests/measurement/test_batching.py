"""Plans cover all the work inside their budget; the budget counts what grows with the batch."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxsens.measurement.batching import (
    DEFAULT_BYTES,
    MAX_CHUNK,
    byte_budget,
    make_plan,
    max_batch_within,
    to_compile,
)


@given(st.integers(1, 10**7), st.integers(1, 10**5))
def test_a_plan_covers_every_edit_within_its_batches(max_batch, num_pairs):
    plan = make_plan(max_batch, num_pairs)
    assert 1 <= plan.group <= plan.chunk <= MAX_CHUNK
    assert plan.chunk % plan.group == 0
    assert 1 <= plan.block <= num_pairs
    assert plan.group * plan.block <= max_batch
    assert plan.group == 1 or plan.block == num_pairs


@given(st.integers(1, 10**4), st.integers(1, 10**4))
def test_blocks_waste_less_than_one_edit_each(max_batch, num_pairs):
    block = make_plan(max_batch, num_pairs).block
    num_blocks = math.ceil(num_pairs / block)
    assert num_blocks * block - num_pairs < num_blocks


@given(st.integers(1, 10**4), st.integers(1, 10**4))
def test_a_plan_uses_most_of_its_batches(max_batch, num_pairs):
    plan = make_plan(max_batch, num_pairs)
    full = plan.group == MAX_CHUNK
    assert full or 2 * plan.group * plan.block >= min(max_batch, num_pairs)


def example(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def widening(params, x):
    return jnp.tanh(x @ params["up"]) @ params["down"]


PARAMS = {"up": jnp.zeros((10, 1000)), "down": jnp.zeros((1000, 2))}


def test_an_input_costs_its_widest_intermediate():
    assert max_batch_within(4000 * 25, widening, PARAMS, example(10)) == 25


def test_an_input_costs_at_least_its_input():
    assert max_batch_within(4000, lambda params, x: x[:, 0], (), example(100)) == 10


def test_weights_are_not_inputs():
    def transposed(params, x):
        return x @ params["large"].T

    params = {"large": jnp.zeros((10, 10_000))}
    assert max_batch_within(40 * 7, transposed, params, example(10_000)) == 1
    assert max_batch_within(40_000 * 7, transposed, params, example(10_000)) == 7


@pytest.mark.parametrize("wrap", [jax.jit, jax.checkpoint])
def test_intermediates_inside_other_programs_count(wrap):
    assert max_batch_within(4000 * 3, wrap(widening), PARAMS, example(10)) == 3


def test_intermediates_inside_loops_and_branches_count():
    def looping(params, x):
        step = lambda carry, _: (carry, widening(params, x))  # noqa: E731
        return jax.lax.scan(step, 0, None, length=2)[1][0]

    def branching(params, x):
        return jax.lax.cond(x[0, 0] > 0, lambda: widening(params, x), lambda: x[:, :2])

    assert max_batch_within(4000 * 3, looping, PARAMS, example(10)) == 3
    assert max_batch_within(4000 * 3, branching, PARAMS, example(10)) == 3


def test_a_tiny_budget_still_holds_one_input():
    assert max_batch_within(1, widening, PARAMS, example(10)) == 1


def test_the_default_budget_is_the_platform_s():
    assert byte_budget(None, "cpu").total == DEFAULT_BYTES["cpu"]
    assert byte_budget(None, "gpu").total == DEFAULT_BYTES["gpu"]
    assert byte_budget(None, "new") == byte_budget(None, "gpu")
    assert byte_budget(None, "tpu", memory=32 << 30).total == 16 << 30
    assert byte_budget(None, "cpu", memory=32 << 30).total == DEFAULT_BYTES["cpu"]
    assert byte_budget(7, "tpu", memory=32 << 30).total == 7
    assert byte_budget(5_000, "gpu").total == 5_000


def test_a_budget_is_positive():
    with pytest.raises(ValueError, match="chunk_bytes must be positive; got 0"):
        byte_budget(0, "cpu")


def test_planning_traces_a_model_once():
    traces = []

    def counting(params, x):
        traces.append(x.shape)
        return x @ params

    for _ in range(3):
        max_batch_within(4000, counting, jnp.ones((4, 2)), example(4))
    assert traces == [(1, 4), (2, 4)]


def test_a_model_is_compiled_as_it_is_unless_it_closes_over_a_large_array():
    table = np.ones((300, 300), np.float32)

    def large(params, x):
        return x @ jnp.cumsum(table, axis=1)[: x.shape[1], :2]

    def small(params, x):
        return x @ jnp.ones((8, 2))

    example = jax.ShapeDtypeStruct((8,), jnp.float32)
    assert to_compile(small, (), example) is small
    wrapped = to_compile(large, (), example)
    assert to_compile(large, (), example) is wrapped
    assert "optimization_barrier" in str(jax.make_jaxpr(wrapped)((), jnp.ones((1, 8))))
