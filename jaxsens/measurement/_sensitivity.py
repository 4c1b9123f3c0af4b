"""The measurement: how often does a random change of one window change the prediction?

    S(f) = E_x (1/T) Σ_τ E_noise Δ( f(x), f(x with window τ edited) )

with Δ = 1[pred differs]: Definition 4.3 of Vasudeva et al., arXiv 2403.06925. All T positions × S
samples of a chunk of examples run in one jitted call; inside it they go through the model in blocks
that fit the cache, and changes are summed on the device.

Draw (i, τ, s) has the key fold_in(fold_in(fold_in(key, i), τ), s): chunk size, device count and
host count do not change it.

Assumption: `apply_fn` treats the inputs of a batch independently and has no randomness of its own
(dropout off, BatchNorm with running statistics). A model in training mode would be measured
together with its own noise.
"""

import dataclasses
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
from jaxtyping import Array, ArrayLike, PRNGKeyArray

from jaxsens.core import runtime
from jaxsens.incremental import UnmappableError, count_costs, table_size
from jaxsens.measurement import arguments, exhaustive, lookups, metrics, random_positions
from jaxsens.measurement.batching import Budget, budget, rows_within
from jaxsens.measurement.estimate import Provenance, SensitivityEstimate
from jaxsens.measurement.independence import check_independence
from jaxsens.measurement.jobs import ApplyFn, Progress, Question, Reuse, Work
from jaxsens.perturbations.grids import Grid
from jaxsens.perturbations.perturbation import Perturbation

#: Entries from which on a table of what each position touches is too large to look into reuse.
_LARGEST_TABLE = 1 << 25


def sensitivity(
    apply_fn: ApplyFn,
    params: Any,
    x: ArrayLike,
    perturbation: Perturbation,
    num_samples: int | Literal["all"] = 5,
    *,
    key: PRNGKeyArray | Array,
    context: Any = None,
    mask: ArrayLike | None = None,
    positions: Literal["all", "random"] | None = None,
    tolerance: float | None = None,
    metric: metrics.Metric | Callable[[Array, Array], Array] = metrics.label_flip,
    names: ArrayLike | None = None,
    incremental: bool | Literal["auto"] = "auto",
    chunk_bytes: int | None = None,
    devices: Sequence[jax.Device] | None = None,
    progress: Progress | None = None,
    check: bool = True,
) -> SensitivityEstimate:
    """Sensitivity of a model to a random change of one window of its input, with its error bar.

    Args:
      apply_fn: `apply_fn(params, x) -> logits`, (n, …) to (n, C), or (n,) for the sign of a score;
        without randomness. Pass the same function object again and nothing is compiled again.
      params: the model's parameters, any pytree of arrays.
      x: (n, …) inputs; the grid says what shape it needs.
      perturbation: the window edit.
      num_samples: S, draws for each position; "all" enumerates every replacement of an edit that
        has finitely many (Resample, Flip), without any noise.
      key: a JAX random key.
      context: what belongs to each example but is never edited, such as the mask of its padding: a
        pytree of (n, …) arrays. If given, the model is called as `apply_fn(params, x, context)`.
      mask: (n, T), true at the positions to measure; default all.
      positions: "all" is the definition. "random" draws positions instead, S of them an example:
        the same quantity for 2·S passes per example instead of T·S + 1.
      tolerance: draw random (example, position, noise) triples until half the length of the 95 %
        interval is at most this. Where that costs more than positions="all" (which reuses work,
        see `incremental`), or cannot be reached with this many examples, all positions are measured
        instead, as the result says.
      metric: what counts as a change of the output; see `jaxsens.measurement.metrics`.
      names: (n,) different numbers that stand for the examples in their keys; default 0 … n-1. A
        part of a dataset, measured by itself with its own numbers, has the draws it has in the
        whole.
      incremental: whether what an edit cannot reach is computed once per example, not once per
        edit: the same outputs within rounding, in bfloat16 within bfloat16's. "auto" does so where
        it saves a quarter of the operations, with a warning and whole passes instead where the
        model cannot be mapped over edits; there True raises. Whole passes have the last word: they
        decide draws that lie within rounding of a tie (ε^¾ of the outputs' size: 6e-6 in float32,
        0.03 in bfloat16) or whose numbers are not finite or cancel, and check up to 64 edits of
        every measurement. Where one of these is wrong by more than 3√ε, all edits take whole
        passes, with a warning, and `provenance.self_check` is "failed". At random positions whole
        passes are taken always. An own metric that jumps has its ties decided by whole passes only
        if it says where it jumps (`Metric(jumps_within=)`).
      chunk_bytes: memory that the intermediates of one call may take, if one edit and the clean
        values of one example fit into it; default by device. On a CPU as many calls as it has
        cores, 8 at the most, are under way at a time.
      devices: devices to use; default all of this process. Changes no number.
      progress: called with (done, all, running mean).
      check: whether a model whose output for an example depends on the rest of its batch (dropout,
        BatchNorm in training mode) is refused; looked for once per model, in a few passes.

    Returns:
      The estimate. Every process of a multi-host job returns the whole.

    Raises:
      ValueError: for inputs that do not fit each other, ids that the model's table has no row for
        (see `lookups`), non-finite inputs or logits, and a metric outside its own bounds.
      TypeError: for a model, an edit or a metric that cannot be traced.

    >>> import jax, jax.numpy as jnp
    >>> from jaxsens import Bits, Flip, Perturbation, sensitivity
    >>> cube = jnp.array([[a, b, c] for a in (-1., 1.) for b in (-1., 1.) for c in (-1., 1.)])
    >>> parity = lambda params, x: jnp.prod(x, axis=1)
    >>> flip = Perturbation(Bits(), Flip())
    >>> est = sensitivity(parity, (), cube, flip, "all", key=jax.random.key(0))
    >>> est.mean
    1.0
    """
    started = time.perf_counter()
    perturbation = arguments.checked_perturbation(perturbation)
    metric = metrics.as_metric(metric)
    key = arguments.typed_key(key)
    x = arguments.checked_inputs(x, perturbation)
    example = jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
    num_positions = perturbation.num_positions(example.shape)
    mask = arguments.checked_mask(mask, len(x), num_positions)
    names = arguments.checked_names(names, len(x), perturbation)
    context = arguments.checked_context(context, len(x))
    inputs = (x, *context)
    measured_x = x[mask] if x.shape[:2] == mask.shape else x
    perturbation.check(measured_x)
    samples = arguments.checked_samples(num_samples, perturbation, example.shape)
    exact = isinstance(num_samples, str)
    tolerance = arguments.checked_tolerance(tolerance)
    positions = arguments.checked_positions(positions, tolerance)
    incremental = arguments.checked_incremental(incremental)
    check = arguments.checked_check(check)
    arguments.check_function("apply_fn", apply_fn)
    arguments.check_params(params)
    arguments.check_progress(progress)
    arguments.check_edit(perturbation, x, key, exact=exact)
    arguments.check_outputs(apply_fn, params, inputs, metric)
    drawn = getattr(perturbation.edit, "vocabulary", None)
    lookups.check_ids(apply_fn, params, inputs, measured_x, drawn=drawn)

    mesh = runtime.local_mesh(devices)
    platform = runtime.platform(mesh)
    room = budget(chunk_bytes, platform)
    with jax.default_matmul_precision(runtime.PRECISION):
        work = Work(
            question=Question(apply_fn, perturbation, metric, samples, exact),
            params=runtime.place(params, mesh, runtime.SAME),
            x=x,
            context=context,
            mask=mask,
            names=names,
            key=runtime.place(key, mesh, runtime.SAME),
            mesh=mesh,
            rows=rows_within(room.widest, apply_fn, params, arguments.shapes(inputs)),
            reuse=_reuse(
                incremental,
                apply_fn,
                params,
                arguments.shapes(inputs),
                perturbation.grid,
                samples,
                platform,
                room,
            ),
            progress=progress,
        )
        if check:
            check_independence(work)
        if work.reuse is not None and positions != "random" and not _traces(work, incremental):
            work = dataclasses.replace(work, reuse=None)
        if tolerance is not None:
            measured = random_positions.measure_within(work, tolerance)
        elif positions == "random":
            measured = random_positions.measure_random(work)
        else:
            measured = exhaustive.measure_all(work)
    arguments.check_bounds(metric, measured.totals, measured.counts)
    return SensitivityEstimate(
        totals=measured.totals,
        counts=measured.counts,
        bounds=(metric.lower, metric.upper),
        provenance=Provenance(
            metric=metric.name,
            perturbation=repr(perturbation),
            num_samples=samples,
            exact=exact,
            positions=measured.positions,
            tolerance=tolerance,
            seed=work.seed,
            precision=runtime.PRECISION,
            device=runtime.device_kind(mesh),
            num_devices=mesh.size * jax.process_count(),
            seconds=time.perf_counter() - started,
            num_passes=measured.num_passes,
            exhaustive_passes=work.exhaustive_passes,
            incremental=measured.incremental,
            self_check=measured.self_check,
        ),
    )


def _reuse(
    wanted: bool | str, apply_fn: ApplyFn, params: Any, one: Any, grid: Grid, samples: int,
    platform: str, room: Budget,
) -> Reuse | None:  # fmt: skip
    """How to reuse what edits cannot reach, or None for whole forward passes."""
    if wanted is False:
        return None
    x, *context = one
    if wanted == "auto" and table_size(grid, x.shape) > _LARGEST_TABLE:
        return None
    try:
        costs = count_costs(apply_fn, params, x, tuple(context), grid, samples, platform)
    except Exception as error:
        _say_why_not(error, wanted)
        return None
    if wanted == "auto" and not costs.worthwhile:
        return None
    return Reuse(
        buckets=costs.num_position_groups,
        rows=max(1, room.widest // costs.bytes),
        examples=room.clean // costs.clean_bytes,
        cost=costs.incremental / max(costs.plain, 1.0),
        rounding=costs.rounding,
    )


def _traces(work: Work, wanted: bool | str) -> bool:
    """Whether the program that reuses can be made; the same on every host, by shapes alone."""
    try:
        exhaustive.trace_reuse(work)
    except Exception as error:
        _say_why_not(error, wanted)
        return False
    return True


def _say_why_not(error: Exception, wanted: bool | str) -> None:
    """Raises if reuse was insisted on; else warns, and says whose fault it is."""
    if wanted is True:
        raise error.__cause__ or error
    reason = "reuse failed, which is a fault of jaxsens: please report it with the model"
    if isinstance(error, UnmappableError):
        reason = "the model cannot be mapped over edits"
    warnings.warn(
        f"every edit takes a whole forward pass, since {reason} ({type(error).__name__}: {error}); "
        "incremental=False takes them without this warning",
        stacklevel=4,
    )
