"""Sensitivity: how often a random change of one window of the input changes the prediction.

    S(f) = E_x (1/T) Σ_τ E_noise Δ( f(x), f(x with window τ edited) )

with Δ = 1[pred differs]: Definition 4.3 of Vasudeva et al., arXiv 2403.06925. All T positions × S
samples of a chunk of examples run in one jitted call; inside it they go through the model in blocks
that fit the cache, and changes are summed on the device.

Draw (i, τ, s) has the key fold_in(fold_in(fold_in(key, i), τ), s), where i is the id of the
example: chunk size, device count and host count do not change it.

Assumption: `apply_fn` treats the inputs of a batch independently and has no randomness of its own
(dropout off, BatchNorm with running statistics). A model in training mode would be measured
together with its own noise.
"""

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import jax
from jaxtyping import Array, ArrayLike, PRNGKeyArray

from jaxsens.core import runtime
from jaxsens.core.adapted import takes_models
from jaxsens.core.notices import renamed_keyword
from jaxsens.core.scalars import checked_choice
from jaxsens.measurement import arguments, exhaustive, metrics, random_positions
from jaxsens.measurement.batches import is_batches, measure_batches
from jaxsens.measurement.estimate import Provenance, SensitivityEstimate
from jaxsens.measurement.half_precision import near_ties
from jaxsens.measurement.jobs import ApplyFn, Measurement, MeasurementJob, ProgressCallback
from jaxsens.measurement.preparation import prepare_job
from jaxsens.perturbations.perturbation import Perturbation

#: What an interval may speak of.
POPULATIONS = ("sample", "fixed")


@takes_models
@renamed_keyword("names", "example_ids")
def sensitivity(
    apply_fn: ApplyFn,
    params: Any,
    x: Any,
    perturbation: Perturbation,
    num_samples: int | Literal["all"] = 5,
    *,
    key: PRNGKeyArray | Array,
    context: Any = None,
    mask: ArrayLike | None = None,
    positions: Literal["all", "random"] | None = None,
    tolerance: float | None = None,
    metric: metrics.Metric | Callable[[Array, Array], Array] = metrics.label_flip,
    example_ids: ArrayLike | None = None,
    incremental: bool | Literal["auto"] = "auto",
    chunk_bytes: int | None = None,
    devices: Sequence[jax.Device] | None = None,
    progress: ProgressCallback | None = None,
    check: bool = True,
    population: Literal["sample", "fixed"] = "sample",
    precision: runtime.Precision = runtime.PRECISION,
) -> SensitivityEstimate:
    """Sensitivity of a model to a random change of one window of its input, with its error bar.

        S(f) = E_x (1/T) Σ_τ E_noise Δ( f(x), f(x with window τ edited) )

    where Δ is the metric, by default 1 if the prediction changes and 0 if it does not. A model of
    PyTorch, Equinox, Keras or Flax nnx, or what `jaxsens.adapters` made of one, may stand in place
    of `apply_fn` and `params`: `sensitivity(model, x, perturbation, key=key)`.

    Args:
      apply_fn: `apply_fn(params, x) -> logits`, (n, …) to (n, C), or to (n,) if the sign of a score
        is the prediction; without randomness. Pass the same function object again and nothing is
        compiled again.
      params: the model's parameters, any pytree of arrays.
      x: (n, …) inputs; the grid of the perturbation says what shape it needs. A `numpy.memmap`, or
        a dataset of h5py or zarr, may be larger than memory: examples are read, and checked, when
        they are measured. So may an iterable of batches, (b, …) arrays or mappings with "x",
        "context" and "mask"; they are measured as they come, at all positions.
      perturbation: the window edit.
      num_samples: S, the draws at each position. "all" takes every replacement of an edit that has
        finitely many (Resample, Flip) once, so that no noise is left.
      key: a JAX random key; it decides the draws.
      context: what belongs to each example but is never edited, such as the mask of its padding: a
        pytree of (n, …) arrays. If given, the model is called as `apply_fn(params, x, context)`.
      mask: (n, T), true at the positions to measure; default all.
      positions: "all" is the definition above. "random" draws S positions per example at random
        instead: the same quantity, for S + 1 passes per example instead of T·S + 1.
      tolerance: draw (example, position, noise) at random until half the length of the 95 %
        interval is at most this. If that would cost more than positions="all", or cannot be
        reached with so many examples, all positions are measured instead, as the result says.
      metric: what counts as a change of the output; see `jaxsens.measurement.metrics`.
      example_ids: (n,) different whole numbers that stand for the examples in the keys of their
        draws; default 0 … n-1. A part of a dataset that is measured with the ids it has in the
        whole dataset gets the same draws as there. Formerly `names`.
      incremental: whether what an edit cannot reach is computed once per example instead of once
        per edit: the same outputs within rounding. "auto" does so if it saves a quarter of the
        operations; True insists, and raises if the model cannot be mapped over edits; False takes a
        whole forward pass for every edit. For random positions operations are counted anew: there
        an edit shares its clean pass with fewer others. Whole passes decide every draw that
        rounding might decide (outputs within ε^¾ of a tie: 6e-6 of their size in float32, 0.03 in
        bfloat16) or whose numbers are not finite or cancel. They check up to 64 edits of every
        measurement: if one is wrong by more than 3√ε, a warning says so, all edits take whole
        passes, and `provenance.self_check` is "failed". A metric of your own that jumps is decided
        in this way only if it says where it jumps (`jumps_within`).
      chunk_bytes: memory that the intermediates of one call may take, unless a single edit, or the
        clean values of a single example, need more; default by device. On a CPU as many calls run
        at the same time as there are cores, at most 8.
      devices: devices to use; default all of this process. Changes no number.
      progress: called now and then with (examples or draws done, all of them, running mean).
      check: whether to refuse a model whose output for an example depends on the rest of its batch
        (dropout, BatchNorm in training mode). Each model is checked once, in a few passes.
      population: what the interval speaks of: the distribution that the examples came from
        ("sample"), or the n examples themselves ("fixed"), such as the training set of the
        definition. Then only the noise and the examples that a tolerance left out make an error:
        the interval is shorter, and a tolerance needs fewer draws.
      precision: of matrix products. "highest" is full float32. "high" and "default" are faster on
        a GPU (TensorFloat-32) and on a TPU (three products of bfloat16, or one); a CPU knows
        float32 alone. `jaxsens.changed_draws` says how many draws that changes.

    Returns:
      The estimate. Every process of a multi-host job returns the whole.

    Raises:
      ValueError: arguments do not fit each other; ids have no row in the model's table
        (`jaxsens.measurement.lookups`); inputs or logits are not finite; a metric leaves its
        bounds; the output for an example depends on its batch.
      TypeError: the model, the edit or the metric cannot be traced by JAX.

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
    tolerance = arguments.checked_tolerance(tolerance)
    positions = arguments.checked_positions(positions, tolerance)
    population = checked_choice("population", population, POPULATIONS)
    if is_batches(x):
        _check_batches(perturbation, positions, context, mask, example_ids)
        of_block = functools.partial(
            sensitivity, apply_fn, params, perturbation=perturbation, num_samples=num_samples,
            key=key, metric=metric, incremental=incremental, chunk_bytes=chunk_bytes,
            devices=devices, check=check, population=population, precision=precision,
        )  # fmt: skip
        whole = measure_batches(x, of_block, progress)
        took = time.perf_counter() - started
        return replace(whole, provenance=replace(whole.provenance, seconds=took))
    job = prepare_job(
        apply_fn, params, x, perturbation, num_samples, key=key, context=context, mask=mask,
        metric=metric, example_ids=example_ids, incremental=incremental, chunk_bytes=chunk_bytes,
        devices=devices, progress=progress, check=check, precision=precision,
        at_random=positions == "random",
    )  # fmt: skip
    with jax.default_matmul_precision(job.precision):
        if tolerance is not None:
            (measured,) = random_positions.measure_within([job], tolerance, population)
        elif positions == "random":
            (measured,) = random_positions.measure_random([job])
        else:
            measured = exhaustive.measure_all(job)
    return as_estimate(job, measured, tolerance, time.perf_counter() - started, population)


def _check_batches(
    perturbation: Any, positions: str, context: Any, mask: Any, example_ids: Any
) -> None:
    """Raises ValueError for what needs all examples at once, or an index of them."""
    if positions == "random":
        raise ValueError(
            "tolerance= and positions='random' draw examples by their index, and x is an iterable "
            "of batches, which has none: give x as an array, a numpy.memmap or a dataset of h5py"
        )
    if arguments.checked_perturbation(perturbation).needs_pool:
        raise ValueError(
            f"{perturbation.edit!r} finds other examples by their index, and x is an iterable of "
            "batches, which has none: give x as an array"
        )
    given = {"context": context, "mask": mask, "example_ids": example_ids}
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name} must come with the batches, since x is an iterable of them: give each as "
                '{"x": …, "context": …, "mask": …}; their examples are numbered as they come'
            )


def as_estimate(
    job: MeasurementJob,
    measured: Measurement,
    tolerance: float | None,
    seconds: float,
    population: Literal["sample", "fixed"],
) -> SensitivityEstimate:
    """The estimate that a measured job gives; ValueError if the metric left its bounds."""
    spec = job.spec
    arguments.check_bounds(spec.metric, measured.totals, measured.counts)
    return SensitivityEstimate(
        totals=measured.totals,
        counts=measured.counts,
        bounds=(spec.metric.lower, spec.metric.upper),
        provenance=Provenance(
            metric=spec.metric.name,
            perturbation=repr(spec.perturbation),
            num_samples=spec.num_samples,
            exact=spec.exact,
            positions=measured.positions,
            tolerance=tolerance,
            seed=job.seed,
            precision=job.precision,
            device=runtime.device_kind(job.mesh),
            num_devices=job.mesh.size * jax.process_count(),
            seconds=seconds,
            num_passes=measured.num_passes,
            exhaustive_passes=job.exhaustive_passes,
            incremental=measured.incremental,
            self_check=measured.self_check,
            layout=tuple(int(side) for side in spec.perturbation.grid.layout(job.x.shape[1:])),
            near_ties=near_ties(job),
            population=population,
            population_size=int(job.mask.any(axis=1).sum()) if population == "fixed" else None,
        ),
    )
