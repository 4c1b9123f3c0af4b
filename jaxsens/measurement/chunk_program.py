"""The jitted program of the exhaustive measurement: all edits of a chunk of examples.

Examples go through the model in groups, their edits in blocks, either by whole forward passes or by
reuse of clean values. The loop over groups has a traced length, so that padding costs nothing and
the program is compiled once whatever the number of examples.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from jaxsens.core import runtime
from jaxsens.core.compiling import quickly_compiled
from jaxsens.core.jaxprs import bytes_of
from jaxsens.core.runtime import REPLICATED, SPLIT
from jaxsens.measurement.arguments import shapes
from jaxsens.measurement.batching import BatchPlan
from jaxsens.measurement.jobs import Context, MeasurementSpec
from jaxsens.measurement.program_parts import EditsByReuse, over_groups
from jaxsens.measurement.whole_passes import entries_of

#: Bytes that the new windows of an example, at all positions, may take where they are drawn before
#: its groups of positions: with 16 examples a twelfth of a CPU's budget.
_DRAWN_BYTES = 1 << 18


@quickly_compiled(0, 1, 2)
def chunk_totals(
    spec: MeasurementSpec,
    plan: BatchPlan,
    mesh: Mesh,
    params: Any,
    x: Shaped[Array, "c ..."],
    context: Context,
    examples: Int[Array, " c"],
    probes: Int[Array, "c P"],
    num_valid: Int[Array, " devices"],
    key: PRNGKeyArray,
    pool: Array | None,
) -> tuple[Array, ...]:
    """Sums of changes over samples, (c, T); nan where a logit was not finite or reuse is in doubt.

    By reuse also some entries of the outputs of the first sample at the positions to probe.

    Args:
      spec: what is measured.
      plan: how many examples, positions and samples go through the model together.
      mesh: the devices.
      params: the model's parameters.
      x: the examples of the chunk.
      context: what the model needs beside them.
      examples: their ids.
      probes: the positions of each example that will be compared with whole passes.
      num_valid: how many of each device's examples are no padding.
      key: the key of the measurement.
      pool: all examples, for edits that borrow from another one.
    """
    totals = functools.partial(device_totals, spec, plan, runtime.platform(mesh))
    in_specs = (REPLICATED, SPLIT, SPLIT, SPLIT, SPLIT, SPLIT, REPLICATED, REPLICATED)
    return runtime.over_devices(totals, mesh, in_specs)(
        params, x, context, examples, probes, num_valid, key, pool
    )


def device_totals(spec, plan, platform, params, x, context, examples, probes, num_valid, key, pool):
    """What one device of a platform (cpu, gpu, tpu) does for `chunk_totals`."""
    group_totals: Callable = functools.partial(_group_totals, spec, plan.block)
    if plan.num_position_groups:
        group_totals = functools.partial(_incremental_totals, spec, plan, platform)

    def of_group(x, context, examples, probes):
        return group_totals(params, x, context, examples, probes, key, pool)

    num_groups = (num_valid[0] + plan.group - 1) // plan.group
    num_positions = spec.perturbation.num_positions(x.shape[1:])
    nothing = [jnp.zeros((plan.chunk, num_positions), jnp.float32)]
    if plan.num_position_groups:
        output = jax.eval_shape(spec.model, params, *shapes((x, *context), 1))
        entries = jax.eval_shape(entries_of, output).shape[1:]
        nothing.append(jnp.zeros((plan.chunk, probes.shape[1], *entries), jnp.float32))
    return over_groups(
        of_group, (x, context, examples, probes), plan.group, num_groups, tuple(nothing)
    )


def _group_totals(spec, block, params, x, context, examples, _, key, pool):
    """Totals of a few examples, whose edits go through the model block by block.

    The examples themselves stand behind their last edit, so that the model is compiled once, if
    the outputs of all edits, which wait for those then, take no more than the inputs of a block.
    """
    g, samples = x.shape[0], spec.num_samples
    num_positions = spec.perturbation.num_positions(x.shape[1:])
    num_pairs = num_positions * samples
    repeated = jax.tree.map(lambda values: jnp.repeat(values, block, axis=0), context)
    output = jax.eval_shape(spec.model, params, x, *context)
    one_input, one_output = (bytes_of(each) // g for each in (x, output))
    is_clean_apart = -(-(num_pairs + 1) // block) * one_output > one_input

    def block_outputs(pairs):
        def edited(x_i, i):
            def of_pair(pair):
                j = jnp.minimum(pair, num_pairs - 1)
                new = spec.edited_input(key, x_i, i, j // samples, j % samples, pool)
                return new if is_clean_apart else jnp.where(pair < num_pairs, new, x_i)

            return jax.vmap(of_pair)(pairs)

        inputs = jax.vmap(edited)(x, examples)
        outputs = spec.whole_pass(params, inputs.reshape(g * block, *x.shape[1:]), *repeated)
        return outputs.reshape(g, block, *output.shape[1:])

    def changes_of(clean, outputs):
        return jax.vmap(jax.vmap(spec.change, (None, 0)))(clean, outputs)

    def in_blocks(function, num):
        pairs = jnp.arange(-(-num // block) * block).reshape(-1, block)
        by_block = jnp.moveaxis(lax.map(function, pairs), 0, 1)
        return by_block.reshape(g, -1, *by_block.shape[3:])

    if is_clean_apart:
        clean = spec.whole_pass(params, x, *context)
        changes = in_blocks(lambda pairs: changes_of(clean, block_outputs(pairs)), num_pairs)
    else:
        outputs = in_blocks(block_outputs, num_pairs + 1)
        changes = changes_of(outputs[:, num_pairs], outputs[:, :num_pairs])
    changes = changes[:, :num_pairs].reshape(g, num_positions, samples)
    return (changes.sum(axis=2),)


def _incremental_totals(spec, plan, platform, params, x, context, examples, probes, key, pool):
    """The same totals, with all that an edit cannot reach computed once per example."""
    edits = EditsByReuse.of(spec, plan, platform, params, x, context)
    samples, is_sample = _cut(spec.num_samples, plan.samples)
    num_positions = spec.perturbation.num_positions(x.shape[1:])

    def of_example(x_i, context_i, i, probes_i):
        clean = edits.program.clean(params, x_i, context_i)

        def new_window(position, sample):
            return spec.edited_window(key, x_i, i, position, sample, pool)

        if len(samples) == 1 and _is_drawn_first(spec, plan, x_i):
            new_window = _drawn_first(new_window, num_positions, samples[0], plan.block)

        def of_position(position_group, position, index):
            def change(sample):
                window = new_window(position, sample)
                return edits.change(clean, position_group, index, window)

            def of_some(some, is_one):
                changes, outputs = jax.vmap(change)(some)
                return jnp.where(is_one, changes, 0.0).sum(), outputs[0]

            if len(samples) == 1:
                changes, outputs = jax.vmap(change)(samples[0])
                return changes.sum(), outputs[0]
            totals, outputs = lax.map(lambda some: of_some(*some), (samples, is_sample))
            return totals.sum(), outputs[0]

        def of_position_group(position_group, positions):
            index, is_index = _cut(len(positions), plan.block)
            blocks = jnp.asarray(positions)[index]

            def of_block(positions, index, is_index):
                in_group = functools.partial(of_position, position_group)
                totals, outputs = jax.vmap(in_group)(positions, index)
                return totals, _picked(
                    outputs, (probes_i[:, None] == positions[None]) & is_index[None]
                )

            totals, picked = lax.map(lambda block: of_block(*block), (blocks, index, is_index))
            return totals.reshape(-1)[: len(positions)], picked.sum(axis=0)

        parts = [
            of_position_group(number, positions)
            for number, (positions, _) in enumerate(edits.program.position_groups)
        ]
        totals, picked = zip(*parts, strict=True)
        return jnp.concatenate(totals), functools.reduce(jnp.add, picked)

    return jax.vmap(of_example)(x, context, examples, probes)


def _is_drawn_first(spec: MeasurementSpec, plan: BatchPlan, x: Array) -> bool:
    """Whether all windows of an example are drawn before its groups of positions.

    Each group is compiled by itself, and with it the drawing of its noise.
    """
    draws = spec.num_samples * spec.perturbation.num_positions(x.shape)
    window = spec.perturbation.grid.window_shape(x.shape)
    num_bytes = draws * math.prod(window) * x.dtype.itemsize
    return plan.num_position_groups > 1 and num_bytes <= _DRAWN_BYTES


def _drawn_first(new_window: Callable, num_positions: int, samples: Array, block: int) -> Callable:
    """`new_window(position, sample)` of one example, all of them drawn here, block by block."""
    blocks, _ = _cut(num_positions, block)
    at_positions = jax.vmap(jax.vmap(new_window, (None, 0)), (0, None))
    drawn = lax.map(lambda positions: at_positions(positions, samples), blocks)
    windows = drawn.reshape(-1, *drawn.shape[2:])
    return lambda position, sample: windows[position, sample]


def _picked(outputs: Shaped[Array, "b ..."], hits: Bool[Array, "P b"]) -> Float[Array, "P _"]:
    """Some entries of the output that each probe hits, 0 where it hits none of this block."""
    return jnp.where(hits[:, :, None], entries_of(outputs)[None], 0.0).sum(axis=1)


def _cut(num: int, size: int) -> tuple[Int[Array, "k s"], Bool[Array, "k s"]]:
    """0 … num-1 in blocks of one size, the last one padded, and which entries are no padding."""
    size = min(size, num)
    index = np.arange(-(-num // size) * size, dtype=np.int32).reshape(-1, size)
    return jnp.asarray(np.minimum(index, num - 1)), jnp.asarray(index < num)
