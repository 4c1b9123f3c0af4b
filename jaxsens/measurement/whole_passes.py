"""Single draws by whole forward passes, which have the last word.

Reuse gives the same outputs as whole passes within rounding. Where rounding decides (a prediction
at a tie) or a rule of reuse may be wrong, the draws in question are made once more by whole passes,
a small batch of them at a time.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from jaxsens.core import runtime
from jaxsens.core.runtime import SAME, SPLIT
from jaxsens.measurement.jobs import Context, Question, Work

#: Draws that go through the model together on a device, if they fit.
_BATCH = 32
#: Entries of an output that are compared at the most: every example of a call has room for them.
_ENTRIES = 256
#: A golden section deals out positions evenly, however many are asked for.
_GOLDEN = (math.sqrt(5) - 1) / 2


def outputs_of(
    work: Work, draws: Int[np.ndarray, "B 3"], *, edited: bool = True
) -> Shaped[np.ndarray, "B ..."]:
    """Outputs of these draws (example, position, sample), on this process's devices.

    Args:
      work: what is measured.
      draws: which draws of it.
      edited: False for the outputs without the edit.
    """
    batch = batch_of(work)
    starts = range(0, len(draws), batch)
    parts = [_batch_outputs(work, draws[start : start + batch], batch, edited) for start in starts]
    return np.concatenate(parts)


def batch_of(work: Work) -> int:
    """Draws that go through the model together, on all of this process's devices."""
    return min(_BATCH, work.rows) * work.mesh.size


def _batch_outputs(
    work: Work, draws: Int[np.ndarray, "B 3"], batch: int, edited: bool
) -> Shaped[np.ndarray, "B ..."]:
    padded = draws[np.minimum(np.arange(batch), len(draws) - 1)].astype(np.int32)
    rows, padded[:, 0] = padded[:, 0].copy(), work.names[padded[:, 0]]
    is_edited = np.full(batch, edited)
    outputs = _outputs(
        work.question, work.mesh, work.params,
        *runtime.place((*work.inputs(rows), padded, is_edited), work.mesh, SPLIT),
        work.key, work.pool,
    )  # fmt: skip
    return np.asarray(outputs)[: len(draws)]


@functools.partial(jax.jit, static_argnums=(0, 1))
def _outputs(
    question: Question,
    mesh: Mesh,
    params: Any,
    x: Shaped[Array, "B ..."],
    context: Context,
    draws: Int[Array, "B 3"],
    is_edited: Bool[Array, " B"],
    key: PRNGKeyArray,
    pool: Array | None,
) -> Shaped[Array, "B ..."]:
    def outputs(params, x, context, draws, is_edited, key, pool):
        def one(x_i, draw, is_edited):
            example, position, sample = draw
            edited = question.edited(key, x_i, example, position, sample, pool)
            return jnp.where(is_edited, edited, x_i)

        return question.apply_fn(params, jax.vmap(one)(x, draws, is_edited), *context)

    in_specs = (SAME, SPLIT, SPLIT, SPLIT, SPLIT, SAME, SAME)
    return runtime.over_devices(outputs, mesh, in_specs)(
        params, x, context, draws, is_edited, key, pool
    )


def totals_of(work: Work, cells: Int[np.ndarray, "k 2"]) -> Float[np.ndarray, " k"]:
    """Totals over all samples at these (example, position) cells; nan where one is not finite."""
    samples, batch = work.question.num_samples, batch_of(work)
    draws = np.column_stack(
        [np.repeat(cells, samples, axis=0), np.tile(np.arange(samples), len(cells))]
    )
    changes = np.zeros(len(draws), np.float32)
    for start in range(0, len(draws), batch):
        # Of one length, so that the change is compiled once.
        rows = np.minimum(np.arange(start, start + batch), len(draws) - 1)
        clean, edited = (outputs_of(work, draws[rows], edited=edited) for edited in (False, True))
        found = np.asarray(_changes(work.question, clean, edited))
        changes[start : start + batch] = found[: len(draws) - start]
    return changes.reshape(len(cells), samples).sum(axis=1)


@functools.partial(jax.jit, static_argnums=0)
def _changes(question: Question, clean: Array, perturbed: Array) -> Float[Array, " B"]:
    return jax.vmap(question.change)(clean, perturbed)


def probes_of(
    mask: Bool[np.ndarray, "n T"], examples: Int[np.ndarray, " c"], num: int
) -> Int[np.ndarray, "c num"]:
    """Positions of each example at which reuse is compared with whole passes, spread evenly."""
    mask = mask[examples]
    lengths = mask.sum(axis=1)
    unmasked = np.argsort(~mask, axis=1, kind="stable")
    steps = np.arange(examples.size * num).reshape(examples.size, num) + 0.5
    places = (steps * _GOLDEN % 1 * lengths[:, None]).astype(int)
    return np.take_along_axis(unmasked, places, axis=1).astype(np.int32)


def disagreement(found: np.ndarray, expected: np.ndarray, rounding: float) -> np.ndarray:
    """How far outputs are from what they should be, one number per row: 1 is the most allowed.

    Rounding grows on its way through a model by an unknown factor; a wrong rule is off by a share
    of the outputs. The line between them is 3√ε of the largest output: 0.001 in float32, 0.26 in
    bfloat16. What is finite on one side alone is infinitely far. An entry is compared with the
    largest one of its own kind, so that the fill of a masked class does not hide the others.
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
    """Some entries of each output, spread evenly: as many as there is room for."""
    flat = outputs.reshape(len(outputs), -1)
    if jnp.issubdtype(flat.dtype, jnp.complexfloating):
        flat = jnp.concatenate([flat.real, flat.imag], axis=1)
    size = flat.shape[1]
    places = np.arange(size) if size <= _ENTRIES else np.linspace(0, size - 1, _ENTRIES).astype(int)
    return flat[:, places].astype(jnp.float32)
