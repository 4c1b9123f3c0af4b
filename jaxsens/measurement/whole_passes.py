"""Single draws by whole forward passes, which have the last word over reuse.

Reuse gives the same outputs as whole passes within rounding. Where rounding decides (a prediction
at a tie), or a rule of reuse may be wrong, the draws concerned are made again by whole passes, in
small batches.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from jaxsens.core import call_log, runtime
from jaxsens.core.compiling import quickly_compiled
from jaxsens.core.runtime import REPLICATED, SPLIT
from jaxsens.measurement.jobs import Context, MeasurementJob, MeasurementSpec

#: The most draws that go through the model together on one device.
_BATCH = 32
#: The most entries of an output that are compared: a call holds them for every example.
_ENTRIES = 256
#: Multiples of the golden section, modulo 1, are spread evenly however many there are.
_GOLDEN = (math.sqrt(5) - 1) / 2


def outputs_of(
    job: MeasurementJob, draws: Int[np.ndarray, "B 3"], *, is_edited: bool = True
) -> Shaped[np.ndarray, "B ..."]:
    """The model's outputs for some draws, on this process's devices.

    Args:
      job: what is measured.
      draws: (example, position, sample) of each draw; the example by its index.
      is_edited: False for the outputs without the edit.
    """
    batch = batch_of(job)
    starts = range(0, len(draws), batch)
    parts = [batch_outputs(job, draws[start : start + batch], batch, is_edited) for start in starts]
    return np.concatenate(parts)


def batch_of(job: MeasurementJob) -> int:
    """Draws that go through the model together, on all of this process's devices."""
    return min(_BATCH, job.max_batch) * job.mesh.size


def batch_outputs(
    job: MeasurementJob, draws: Int[np.ndarray, "B 3"], batch: int, is_edited: bool = True
) -> Shaped[np.ndarray, "B ..."]:
    """As `outputs_of`, in a single call that repeats the last draw up to `batch` of them."""
    padded = draws[np.minimum(np.arange(batch), len(draws) - 1)].astype(np.int32)
    examples, padded[:, 0] = padded[:, 0].copy(), job.example_ids[padded[:, 0]]
    all_edited = np.full(batch, is_edited)
    outputs = _outputs(
        job.spec, job.mesh, job.params,
        *runtime.place((*job.inputs(examples), padded, all_edited), job.mesh, SPLIT),
        job.key, job.pool,
    )  # fmt: skip
    return np.asarray(outputs)[: len(draws)]


@quickly_compiled(0, 1)
def _outputs(
    spec: MeasurementSpec,
    mesh: Mesh,
    params: Any,
    x: Shaped[Array, "B ..."],
    context: Context,
    draws: Int[Array, "B 3"],
    is_edited: Bool[Array, " B"],
    key: PRNGKeyArray,
    pool: Array | None,
) -> Shaped[Array, "B ..."]:
    # Not one program with that of `draw_program`, which gives the change and no outputs: here
    # the outputs themselves are compared, clean ones and edited ones share one compilation, and
    # another program might round, and so decide a tie, differently.
    def outputs(params, x, context, draws, is_edited, key, pool):
        edited = spec.edited_inputs(key, x, draws, pool)
        inputs = jax.vmap(jnp.where)(is_edited, edited, x)
        return spec.whole_pass(params, inputs, *context)

    in_specs = (REPLICATED, SPLIT, SPLIT, SPLIT, SPLIT, REPLICATED, REPLICATED)
    return runtime.over_devices(outputs, mesh, in_specs)(
        params, x, context, draws, is_edited, key, pool
    )


def totals_of(job: MeasurementJob, cells: Int[np.ndarray, "k 2"]) -> Float[np.ndarray, " k"]:
    """Sums of changes over all samples at these (example, position) cells, by whole passes.

    A sum is nan where an output is not finite.
    """
    samples, batch = job.spec.num_samples, batch_of(job)
    draws = np.column_stack(
        [np.repeat(cells, samples, axis=0), np.tile(np.arange(samples), len(cells))]
    )
    changes = np.zeros(len(draws), np.float32)
    calls = call_log.begin(lambda: ("whole passes", job.identity, cells))
    for start in range(0, len(draws), batch):
        # Padded to one length, so that `_changes` is compiled once.
        padded = draws[np.minimum(np.arange(start, start + batch), len(draws) - 1)]
        found = calls.recall()
        if found is None:
            clean, perturbed = (outputs_of(job, padded, is_edited=bit) for bit in (False, True))
            found = {"changes": np.asarray(_changes(job.spec, clean, perturbed))}
            calls.add(found)
        changes[start : start + batch] = found["changes"][: len(draws) - start]
    return changes.reshape(len(cells), samples).sum(axis=1)


@functools.partial(jax.jit, static_argnums=0)
def _changes(spec: MeasurementSpec, clean: Array, perturbed: Array) -> Float[Array, " B"]:
    return jax.vmap(spec.change)(clean, perturbed)


def probes_of(
    mask: Bool[np.ndarray, "n T"], examples: Int[np.ndarray, " c"], num: int
) -> Int[np.ndarray, "c num"]:
    """`num` unmasked positions of each example, spread evenly, to compare reuse with whole passes.

    Args:
      mask: which positions of each example are measured.
      examples: the indices of the examples.
      num: how many positions of each.
    """
    mask = mask[examples]
    lengths = mask.sum(axis=1)
    unmasked = np.argsort(~mask, axis=1, kind="stable")
    steps = np.arange(examples.size * num).reshape(examples.size, num) + 0.5
    places = (steps * _GOLDEN % 1 * lengths[:, None]).astype(int)
    return np.take_along_axis(unmasked, places, axis=1).astype(np.int32)


def disagreement(found: np.ndarray, expected: np.ndarray, rounding: float) -> np.ndarray:
    """How far outputs (B, …) are from the expected ones, (B,); 1 is the most allowed.

    Rounding grows on its way through a model by an unknown factor; a wrong rule is wrong by a
    fraction of the outputs. The line drawn between them is 3√ε of the largest output: 0.001 in
    float32, 0.26 in bfloat16. An output that is finite on one side alone is infinitely far. Each
    entry is compared with the largest of the same entry of all draws, so that the fill of a masked
    class, -1e9, does not hide the other classes.

    Args:
      found: the outputs to judge.
      expected: what they should be.
      rounding: the relative rounding error of the model's coarsest numbers, ε.
    """
    found, expected = (np.asarray(a, np.float64).reshape(len(a), -1) for a in (found, expected))
    finite = np.isfinite(expected).all(axis=1)
    if not finite.any():
        return np.full(len(found), np.inf)
    sizes = np.abs(expected[finite]).max(axis=0)
    sizes = np.maximum(sizes, np.median(sizes))
    sizes = np.where(sizes > 0, sizes, 1.0)
    with np.errstate(invalid="ignore"):
        apart = (np.abs(found - expected) / sizes).max(axis=1) / (3 * math.sqrt(rounding))
    return np.where(np.isfinite(apart), apart, np.inf)


def entries_of(outputs: Shaped[Array, "b ..."]) -> Float[Array, "b _"]:
    """At most 256 entries of each output, spread evenly, as float32."""
    flat = outputs.reshape(len(outputs), -1)
    if jnp.issubdtype(flat.dtype, jnp.complexfloating):
        flat = jnp.concatenate([flat.real, flat.imag], axis=1)
    size = flat.shape[1]
    places = np.arange(size) if size <= _ENTRIES else np.linspace(0, size - 1, _ENTRIES).astype(int)
    return flat[:, places].astype(jnp.float32)
