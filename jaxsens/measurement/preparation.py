"""From a user's arguments to a job: everything is checked before anything is measured."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import numpy as np
from jaxtyping import Array, ArrayLike, PRNGKeyArray

from jaxsens.core import runtime
from jaxsens.core.scalars import checked_choice
from jaxsens.measurement import arguments, lookups, metrics, model_arguments
from jaxsens.measurement.batching import device_budget, max_batch_within, to_compile
from jaxsens.measurement.independence import check_independence
from jaxsens.measurement.jobs import ApplyFn, MeasurementJob, MeasurementSpec, ProgressCallback
from jaxsens.measurement.needed_model import needed_model
from jaxsens.measurement.reuse import choose_draw_reuse, choose_reuse
from jaxsens.measurement.stored import StoredExamples
from jaxsens.perturbations.perturbation import Perturbation


def prepare_job(
    apply_fn: ApplyFn,
    params: Any,
    x: Any,
    perturbation: Perturbation,
    num_samples: int | Literal["all"],
    *,
    key: PRNGKeyArray | Array,
    context: Any = None,
    mask: ArrayLike | None = None,
    metric: metrics.Metric | Callable[[Array, Array], Array] = metrics.label_flip,
    example_ids: ArrayLike | None = None,
    incremental: bool | Literal["auto"] = "auto",
    chunk_bytes: int | None = None,
    devices: Sequence[jax.Device] | None = None,
    progress: ProgressCallback | None = None,
    check: bool = True,
    precision: runtime.Precision = runtime.PRECISION,
    edits_per_sample: int = 1,
    at_random: bool = False,
) -> MeasurementJob:
    """Checks the arguments of `sensitivity`, puts the parameters on devices and sizes batches.

    Arguments and errors are those of `sensitivity`; but `edits_per_sample` is how many edits each
    sample makes at its position, one after the other, by which reuse is judged, and `at_random`
    whether positions will be drawn.
    """
    perturbation = arguments.checked_perturbation(perturbation)
    metric = metrics.as_metric(metric)
    key = arguments.typed_key(key)
    x = arguments.checked_inputs(x, perturbation)
    shape = x.shape[1:]
    mask = arguments.checked_mask(mask, len(x), perturbation.num_positions(shape))
    example_ids = arguments.checked_example_ids(example_ids, len(x), perturbation)
    context = arguments.checked_context(context, len(x))
    inputs = (x, *context)
    is_by_token = x.shape[:2] == mask.shape
    # Of examples in a file the first stands for all, until they are read.
    seen = slice(0, 1) if isinstance(x, StoredExamples) else slice(None)
    measured_x = x[seen][mask[seen]] if is_by_token else x[seen]
    perturbation.check(measured_x)
    samples = arguments.checked_samples(num_samples, perturbation, shape)
    exact = isinstance(num_samples, str)
    incremental = arguments.checked_incremental(incremental)
    check = arguments.checked_check(check)
    precision = checked_choice("precision", precision, runtime.PRECISIONS)
    arguments.check_function("apply_fn", apply_fn)
    model_arguments.check_params(params)
    arguments.check_progress(progress)
    arguments.check_edit(perturbation, x, key, exact=exact)
    # In the precision of the measurement, so that these traces serve for it too.
    with jax.default_matmul_precision(precision):
        model_arguments.check_outputs(apply_fn, params, inputs, metric)
    vocabulary = getattr(perturbation.edit, "vocabulary", None)
    check_ids = functools.partial(
        lookups.check_ids, apply_fn, params, inputs, vocabulary=vocabulary
    )
    check_ids(measured_x)
    if isinstance(x, StoredExamples):

        def check_read(values: np.ndarray, numbers: np.ndarray) -> None:
            measured = values[mask[numbers]] if is_by_token else values
            perturbation.check(measured)
            check_ids(measured)

        x.check = check_read

    mesh = runtime.local_mesh(devices)
    platform = runtime.platform(mesh)
    budget = device_budget(chunk_bytes, mesh, params)
    shapes = arguments.shapes(inputs)
    placed = runtime.place(params, mesh, runtime.REPLICATED)
    with jax.default_matmul_precision(precision):
        apply_fn = to_compile(apply_fn, params, shapes)
        apply_fn = needed_model(apply_fn, placed, inputs, mesh)
        spec = MeasurementSpec(apply_fn, perturbation, metric, samples, exact)
        job = MeasurementJob(
            spec=spec,
            params=placed,
            x=x,
            context=context,
            mask=mask,
            example_ids=example_ids,
            key=runtime.place(key, mesh, runtime.REPLICATED),
            mesh=mesh,
            max_batch=max_batch_within(budget.widest, apply_fn, params, shapes),
            reuse=choose_reuse(
                incremental,
                spec,
                params,
                shapes,
                platform,
                budget,
                samples * edits_per_sample,
                len(x),
            ),
            progress=progress,
            draw_reuse=choose_draw_reuse(incremental, spec, params, shapes, platform, budget)
            if at_random
            else None,
            precision=precision,
        )
        if check:
            check_independence(job)
    return job
