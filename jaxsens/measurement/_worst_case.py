"""Worst case: how far can a move of one window inside a ball change the output?

    c(x, τ) = sup_{‖Δ‖ ≤ radius} metric( f(x), f(x with window τ moved by Δ) )

With the relative change ‖f(x') - f(x)‖/‖f(x)‖ for the metric, max_τ c(x, τ) is the word sensitivity
of Bombari & Mondelli, arXiv 2402.02969. Their released code takes τ = 0 alone, one start near Δ = 0
and a ball around that start; here all positions, several starts on the sphere, and a ball around
the clean window (`ascent` has the steps).

Start s at position τ of example i is the draw of `sensitivity` with the same key: chunk size,
device count and host count do not change it.

Assumption: the model is differentiable in its input, and treats the inputs of a batch
independently. What is found is a lower bound of the supremum, whatever the model.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Int, PRNGKeyArray

from jaxsens.core import runtime
from jaxsens.core.adapted import takes_models
from jaxsens.core.scalars import as_list, as_whole, one_line, whole_number
from jaxsens.core.user_code import user_call
from jaxsens.measurement import arguments, metrics
from jaxsens.measurement.batching import device_budget, max_gradient_batch
from jaxsens.measurement.jobs import ApplyFn, MeasurementJob, ProgressCallback
from jaxsens.measurement.preparation import prepare_job
from jaxsens.measurement.search import SearchJob, SearchResult, search_all
from jaxsens.measurement.worst_case_estimate import WorstCaseEstimate, WorstCaseProvenance
from jaxsens.perturbations.ball import Ball
from jaxsens.perturbations.perturbation import Perturbation

#: With more steps, what is computed once per position counts for nothing, and costs are not counted
#: anew for another number of steps.
_MANY_STEPS = 100


@takes_models
def worst_case(
    apply_fn: ApplyFn,
    params: Any,
    x: ArrayLike,
    perturbation: Perturbation,
    *,
    key: PRNGKeyArray | Array,
    num_starts: int = 8,
    num_steps: int = 200,
    metric: metrics.Metric | Callable[[Array, Array], Array] = metrics.relative_l2,
    positions: Sequence[int] | Int[np.ndarray, " P"] | Literal["all"] = "all",
    context: Any = None,
    mask: ArrayLike | None = None,
    example_ids: ArrayLike | None = None,
    incremental: bool | Literal["auto"] = "auto",
    chunk_bytes: int | None = None,
    devices: Sequence[jax.Device] | None = None,
    progress: ProgressCallback | None = None,
    check: bool = True,
    precision: runtime.Precision = runtime.PRECISION,
) -> WorstCaseEstimate:
    """The largest change of the output that a move of one window inside a ball was found to make.

        c(x, τ) = sup_{‖Δ‖ ≤ radius} metric( f(x), f(x with window τ moved by Δ) )

    by projected ascent along the normalised gradient, from several starts on the sphere. It is the
    adversarial sibling of `sensitivity`, which with the same `Ball` gives the mean over random
    directions. It is a lower bound of the supremum: `estimate.agreement` says how many starts found
    it. A model may stand in place of `apply_fn` and `params`, as for `sensitivity`.

    Args:
      apply_fn: `apply_fn(params, x) -> outputs`, (n, …) to (n, …), as for `sensitivity`, and
        differentiable in `x`.
      params: the model's parameters, any pytree of arrays.
      x: (n, …) inputs of floating-point numbers.
      perturbation: a grid with a `Ball`.
      key: a JAX random key; it decides the starts.
      num_starts: S, ascents at each position. One start falls into the wrong basin now and then.
      num_steps: of each ascent; the first is 0.3 of the radius long, the others shrink to 0.
      metric: what counts as a change. For the label flip the margin is followed: the largest other
        logit minus the predicted one, or the score times minus its clean sign. A metric of your own
        needs a gradient, or something smoother to follow (`Metric(ascent=)`).
      positions: "all", as the definition has it, or the numbers of some: [0] for the first word.
      context: what belongs to each example but is never edited, as for `sensitivity`.
      mask: (n, T), true at the positions to search; default all.
      example_ids: (n,) as for `sensitivity`.
      incremental: whether what a window cannot reach is computed once per position instead of once
        per step. For one layer of attention a step then costs O(nd + d²) and not O(n²d + nd²).
        "auto" does so if it saves a quarter of the operations; True insists; False takes whole
        passes. Whole passes look at every window that is found, and its change is theirs; if they
        disagree by more than rounding explains, a warning says so and whole passes search again.
      chunk_bytes: memory that the intermediates of one call may take; default by device.
      devices: devices to use; default all of this process. Changes no number beyond rounding.
      progress: called now and then with (cells done, all of them, mean of their changes), a cell
        being one position of one example.
      check: whether to refuse a model whose output for an example depends on the rest of its batch.
      precision: of matrix products, as in `sensitivity`.

    Returns:
      The estimate: `.changes` (n, P) and `.windows` (n, P, …) at the P positions, the largest of
      each example, their mean with its interval, and how far the starts agree. Every process of a
      multi-host job returns the whole. Another chunk size or number of devices rounds differently:
      changes agree to about 1e-4 of their size, unless two starts of equal height exchange ranks.

    Raises:
      ValueError: arguments do not fit each other; the edit is no Ball; x has no gradient (ids);
        outputs or gradients are not finite, or gradients 0 everywhere.
      TypeError: the model or the metric cannot be traced, or cannot be differentiated, by JAX.

    >>> import jax, jax.numpy as jnp
    >>> from jaxsens import Ball, Perturbation, Tokens, worst_case
    >>> weights = jnp.array([[3.0, 4.0], [0.0, 1.0]])
    >>> model = lambda weights, x: (x * weights[None]).sum(axis=(1, 2))
    >>> x, ball = jnp.ones((1, 2, 2)), Perturbation(Tokens(), Ball(0.8))
    >>> est = worst_case(model, weights, x, ball, key=jax.random.key(0))
    >>> print(est.changes.round(4), est.agreement)  # 0.8·‖w_τ‖/|f(x)|, for f(x) = 8
    [[0.5 0.1]] [[1. 1.]]
    """
    started = time.perf_counter()
    perturbation = _checked_ball(perturbation)
    num_starts, num_steps = (
        whole_number(name, value)
        for name, value in (("num_starts", num_starts), ("num_steps", num_steps))
    )
    metric = _checked_metric(metric)
    x = _checked_floats(x, perturbation)
    num_positions = perturbation.num_positions(x.shape[1:])
    searched = _checked_positions(positions, num_positions)
    mask = arguments.checked_mask(mask, len(x), num_positions)
    job = prepare_job(
        apply_fn, params, x, perturbation, num_starts, key=key, context=context,
        mask=_only(mask, searched), metric=metric, example_ids=example_ids,
        incremental=incremental, chunk_bytes=chunk_bytes, devices=devices, progress=progress,
        check=check, precision=precision, edits_per_sample=min(num_steps, _MANY_STEPS),
    )  # fmt: skip
    _check_gradient(job)
    budget = device_budget(chunk_bytes, job.mesh, job.params)
    inputs = arguments.shapes((job.x, *job.context))
    search = SearchJob(
        job, num_starts, num_steps, max_gradient_batch(budget, apply_fn, job.params, inputs)
    )
    with jax.default_matmul_precision(job.precision):
        result = search_all(search)
    return _as_estimate(search, result, searched, time.perf_counter() - started)


def _as_estimate(
    search: SearchJob, result: SearchResult, positions: Int[np.ndarray, " P"], seconds: float
) -> WorstCaseEstimate:
    job, spec = search.job, search.job.spec
    shape = (len(job.x), job.mask.shape[1])
    cells = tuple(search.cells.T)

    def table(values: np.ndarray) -> np.ndarray:
        every = np.full((*shape, *values.shape[1:]), np.nan, values.dtype)
        every[cells] = values
        return every[:, positions]

    jumps = spec.metric.jumps_within is not None
    return WorstCaseEstimate(
        changes=table(result.changes),
        windows=table(result.windows),
        start_values=table(result.start_heights if jumps else result.start_changes),
        margins=table(result.heights) if jumps else None,
        positions=positions,
        num_positions=shape[1],
        bounds=(spec.metric.lower, spec.metric.upper),
        provenance=WorstCaseProvenance(
            metric=spec.metric.name,
            perturbation=repr(spec.perturbation),
            num_starts=search.num_starts,
            num_steps=search.num_steps,
            seed=job.seed,
            precision=job.precision,
            device=runtime.device_kind(job.mesh),
            num_devices=job.mesh.size * jax.process_count(),
            seconds=seconds,
            num_passes=len(search.cells) * search.num_starts * (search.num_steps + 1),
            incremental=result.incremental,
            self_check=result.self_check,
        ),
    )


def _checked_ball(perturbation: Any) -> Perturbation:
    """A grid with a ball."""
    perturbation = arguments.checked_perturbation(perturbation)
    if not isinstance(perturbation.edit, Ball):
        raise ValueError(
            "worst_case needs a Ball to search in, such as Perturbation("
            f"{one_line(perturbation.grid)}, Ball(1.0)); got {one_line(perturbation.edit)}"
        )
    return perturbation


def _checked_metric(metric: Any) -> metrics.Metric:
    """A metric with something to follow."""
    metric = metrics.as_metric(metric)
    if metric.jumps_within is not None and metric.ascent is None:
        raise ValueError(
            f"metric {metric.name!r} jumps, so it has no gradient to follow: say what to follow "
            "instead with Metric(ascent=)"
        )
    return metric


def _checked_floats(x: Any, perturbation: Perturbation) -> np.ndarray:
    """Inputs that have a gradient."""
    x = arguments.checked_inputs(x, perturbation)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(
            "worst_case follows the gradient in x, which must be of floating-point numbers; got "
            f"{x.dtype} of shape {x.shape}: of token ids, give the embeddings as x"
        )
    return x


def _checked_positions(positions: Any, num_positions: int) -> Int[np.ndarray, " P"]:
    """The numbers of the positions to search."""
    if isinstance(positions, str) and positions == "all":
        return np.arange(num_positions)
    listed = None if isinstance(positions, str) else as_list(positions)
    numbers = [as_whole(position) for position in listed or [None]]
    if any(number is None or not 0 <= number < num_positions for number in numbers):
        raise ValueError(
            f"positions must be 'all', or some of 0 … {num_positions - 1}; got "
            f"{one_line(positions)}"
        )
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"positions must be given once each; got {one_line(positions)}")
    return np.array(numbers, np.int64)


def _only(mask: Bool[np.ndarray, "n T"], positions: np.ndarray) -> Bool[np.ndarray, "n T"]:
    """The mask at these positions, false elsewhere."""
    chosen = np.zeros_like(mask)
    chosen[:, positions] = mask[:, positions]
    if not chosen.any():
        raise ValueError(f"mask leaves none of the positions {one_line(positions.tolist())}")
    return chosen


def _check_gradient(job: MeasurementJob) -> None:
    """Differentiates the model by shapes alone, so that JAX says here if it cannot."""
    spec, inputs = job.spec, arguments.shapes((job.x, *job.context), 1)

    def height(x: Any, params: Any, *context: Any) -> Array:
        outputs = spec.apply_fn(params, x, *context)
        return spec.metric.height(outputs[0], outputs[0])

    batch, *context = inputs
    with user_call("the gradient of apply_fn in x", params=job.params, x=batch):
        jax.eval_shape(jax.grad(height), batch, job.params, *context)
