"""The jitted program of random draws: some positions of each of a chunk of examples.

The clean output of an example is computed once and shared by its draws. Edits go through the model
either as whole passes, in blocks of (example, position) pairs whatever the number of draws of each
example, or by reuse of clean values, in blocks of a few draws of each of a group of examples.
Numbers of examples and of draws are traced, so that a model is compiled once.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array, Int, PRNGKeyArray, Shaped

from jaxsens.core import runtime
from jaxsens.core.compiling import quickly_compiled
from jaxsens.core.runtime import REPLICATED, SPLIT
from jaxsens.measurement.batching import BatchPlan
from jaxsens.measurement.jobs import Context, MeasurementSpec
from jaxsens.measurement.program_parts import EditsByReuse, over_groups
from jaxsens.measurement.whole_passes import entries_of


@quickly_compiled(0, 1, 2)
def draw_changes(
    spec: MeasurementSpec,
    plan: BatchPlan,
    mesh: Mesh,
    params: Any,
    x: Shaped[Array, "c ..."],
    context: Context,
    examples: Int[Array, " c"],
    draws: Int[Array, "c M 2"],
    counts: Int[Array, " c"],
    num_valid: Int[Array, " devices"],
    key: PRNGKeyArray,
    pool: Array | None,
) -> tuple[Array, ...]:
    """The change of each draw, (c, M); nan where a logit was not finite or reuse is in doubt.

    By reuse also some entries of the output of each example's first draw.

    Args:
      spec: what is measured.
      plan: how many examples and draws go through the model together.
      mesh: the devices.
      params: the model's parameters.
      x: the examples of the chunk.
      context: what the model needs beside them.
      examples: their ids.
      draws: (position, sample) of the draws of each example.
      counts: how many of the M draws of each example are to be made: the first ones.
      num_valid: how many of each device's examples are no padding.
      key: the key of the measurement.
      pool: all examples, for edits that borrow from another one.
    """
    of_device = functools.partial(device_changes, spec, plan, runtime.platform(mesh))
    in_specs = (REPLICATED, SPLIT, SPLIT, SPLIT, SPLIT, SPLIT, SPLIT, REPLICATED, REPLICATED)
    return runtime.over_devices(of_device, mesh, in_specs)(
        params, x, context, examples, draws, counts, num_valid, key, pool
    )


def device_changes(spec, plan, platform, *arguments):
    """What one device of a platform (cpu, gpu, tpu) does for `draw_changes`."""
    if plan.num_position_groups:
        return _by_reuse(spec, plan, platform, *arguments)
    return _by_whole_passes(spec, plan, *arguments)


def _by_whole_passes(spec, plan, params, x, context, examples, draws, counts, num_valid, key, pool):
    """Clean outputs group by group, then all draws in blocks, without padding between examples."""
    c, most = draws.shape[:2]
    counts = jnp.where(jnp.arange(c) < num_valid[0], counts, 0)
    group, block = min(plan.group, c), min(plan.block, c * most)

    # A slice that would hang over the end is moved inside, when it is read and when it is written:
    # some examples, or draws, are then made twice, with the same result.
    def add_clean(index, outputs):
        start = index * group
        some_x, some_context = jax.tree.map(
            lambda a: lax.dynamic_slice_in_dim(a, start, group), (x, context)
        )
        new = spec.whole_pass(params, some_x, *some_context)
        return lax.dynamic_update_slice_in_dim(outputs, new, start, axis=0)

    output = jax.eval_shape(spec.model, params, x, *context)
    num_groups = (num_valid[0] + group - 1) // group
    nothing = jnp.zeros(output.shape, output.dtype)
    clean = lax.fori_loop(0, num_groups, add_clean, nothing)

    is_draw = jnp.arange(most)[None] < counts[:, None]
    (order,) = jnp.nonzero(is_draw.ravel(), size=c * most, fill_value=c * most)
    flat = draws.reshape(c * most, 2)

    def add_block(index, changes):
        at = lax.dynamic_slice_in_dim(order, index * block, block)
        inside = jnp.minimum(at, c * most - 1)
        slots = inside // most
        of_block = jnp.concatenate([examples[slots][:, None], flat[inside]], axis=1)
        edited = spec.edited_inputs(key, x[slots], of_block, pool)
        outputs = spec.whole_pass(params, edited, *jax.tree.map(lambda a: a[slots], context))
        new = jax.vmap(spec.change)(clean[slots], outputs)
        return changes.at[at].set(new, mode="drop")

    num_blocks = (counts.sum() + block - 1) // block
    changes = lax.fori_loop(0, num_blocks, add_block, jnp.zeros(c * most, jnp.float32))
    return (changes.reshape(c, most),)


def _by_reuse(
    spec, plan, platform, params, x, context, examples, draws, counts, num_valid, key, pool
):
    """The same changes, with all that an edit cannot reach computed once per example."""
    c, most = draws.shape[:2]
    group, block = plan.group, plan.block
    edits = EditsByReuse.of(spec, plan, platform, params, x, context)
    output = jax.eval_shape(spec.model, params, x, *context)
    entries = jax.eval_shape(entries_of, output).shape[1]

    def of_group(x, context, examples, draws, counts):
        num_blocks = (counts.max() + block - 1) // block

        def of_example(x_i, context_i, i, draws_i):
            clean = edits.program.clean(params, x_i, context_i)

            def change(draw):
                position, sample = draw
                window = spec.edited_window(key, x_i, i, position, sample, pool)
                return edits.change(clean, 0, position, window)

            def add_block(index, found):
                changes, first = found
                some = lax.dynamic_slice_in_dim(draws_i, index * block, block)
                new, outputs = jax.vmap(change)(some)
                first = jnp.where(index == 0, entries_of(outputs[:1])[0], first)
                return lax.dynamic_update_slice_in_dim(changes, new, index * block, axis=0), first

            nothing = jnp.zeros(most, jnp.float32), jnp.zeros(entries, jnp.float32)
            return lax.fori_loop(0, num_blocks, add_block, nothing)

        return jax.vmap(of_example)(x, context, examples, draws)

    nothing = jnp.zeros((c, most), jnp.float32), jnp.zeros((c, entries), jnp.float32)
    num_groups = (num_valid[0] + group - 1) // group
    return over_groups(of_group, (x, context, examples, draws, counts), group, num_groups, nothing)
