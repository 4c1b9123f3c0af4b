"""Sharpness: how far random noise on the weights changes the output.

    E_x E_θ' Δ( f_θ(x), f_θ'(x) ),    θ' = θ + noise

with Δ the flip of the prediction (ShPred) and the L1 change of the outputs (ShOp) of Vasudeva et
al., arXiv 2403.06925; the squared change, which is average-direction sharpness if the noise is a
`Sphere`; and the increase of the cross-entropy. One perturbed pass gives all of them.

Draw s of the weights is shared by all examples and keyed by (key, s) alone: chunk size, device
count and host count do not change it.

Assumption: `apply_fn` treats the inputs of a batch independently and has no randomness of its own
(dropout off, BatchNorm with running statistics), and every selected leaf of `params` is a weight.
"""

import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Int, PRNGKeyArray

from jaxsens.core import runtime
from jaxsens.core.adapted import takes_models
from jaxsens.core.scalars import checked_choice, whole_number
from jaxsens.core.user_code import user_call
from jaxsens.measurement import arguments, lookups, model_arguments
from jaxsens.measurement.batching import device_budget, make_plan, max_batch_within, to_compile
from jaxsens.measurement.independence import check_examples_independence
from jaxsens.measurement.jobs import ApplyFn, ProgressCallback
from jaxsens.measurement.sharpness_estimate import SharpnessEstimate, SharpnessProvenance
from jaxsens.measurement.weight_draws import (
    PerturbedApplyFn,
    SharpnessJob,
    SharpnessSpec,
    measure,
)
from jaxsens.perturbations import weight_noise
from jaxsens.perturbations.weight_noise import WeightNoise


@takes_models
def sharpness(
    apply_fn: ApplyFn,
    params: Any,
    x: ArrayLike,
    perturbation: WeightNoise,
    num_samples: int = 5,
    *,
    key: PRNGKeyArray | Array,
    y: ArrayLike | None = None,
    mask: Any = None,
    perturbed_apply_fn: PerturbedApplyFn | None = None,
    perturbed_batch: int = 100,
    chunk_bytes: int | None = None,
    devices: Sequence[jax.Device] | None = None,
    progress: ProgressCallback | None = None,
    check: bool = True,
    precision: runtime.Precision = runtime.PRECISION,
) -> SharpnessEstimate:
    """How far random noise on a model's weights changes its output, with error bars.

        E_x E_θ' Δ( f_θ(x), f_θ'(x) ),    θ' = θ + noise

    where Δ is the flip of the prediction, the L1 change and the squared change of the logits and,
    with labels, the increase of the cross-entropy: all from the same passes. A model may stand in
    place of `apply_fn` and `params`, as for `sensitivity`.

    Each device holds S + 1 copies of the selected weights, and as much again while they are drawn;
    if that is more than 1 GiB, the draws are made in several rounds.

    Args:
      apply_fn: `apply_fn(params, x) -> logits`, (n, …) to (n, C), or to (n,) if the sign of a score
        is the prediction; without randomness. Pass the same function object again and nothing is
        compiled again.
      params: the model's parameters, any pytree of arrays. Integers, bools and random keys among
        them are never perturbed.
      x: (n, …) inputs.
      perturbation: `Gaussian(sigma=…)` adds N(0, σ²) to every weight, `Sphere(radius)` moves all
        of them by exactly that norm, `Relative(scale)` each leaf in proportion to its own norm.
      num_samples: S, the draws of the weights. With a single draw there is no interval.
      key: a JAX random key; it decides the noise. Models with parameters of the same shapes get the
        same noise from the same key.
      y: (n,) class indices, for the loss. For a model with one score they are 0 or 1, and the score
        is the log-odds of 1.
      mask: which leaves to perturb: a pytree of bools with the structure of `params` or a prefix of
        it, default all. Running statistics are not weights: for Flax variables with BatchNorm give
        `{"params": True, "batch_stats": False}`.
      perturbed_apply_fn: `(params, x, key) -> logits` for the perturbed pass, default `apply_fn`:
        for a comparison with code that leaves dropout on there, or takes statistics of the batch.
        It has its own key for every draw and batch.
      perturbed_batch: how many consecutive examples `perturbed_apply_fn` gets together, and nothing
        beside them; the last batch may be smaller. `chunk_bytes` is ignored then.
      chunk_bytes: memory that the intermediates of one call may take, beside the copies of the
        weights; default by device.
      devices: devices to use; default all of this process. Changes no number.
      progress: called now and then with (perturbed passes done, all of them, running mean of the
        flips).
      check: whether to refuse a model whose output for an example depends on the rest of its batch.
      precision: of matrix products, as in `sensitivity`.

    Returns:
      The estimate: `.flips`, `.l1`, `.squared` and, with y, `.loss`, each with `.mean`, `.ci()` and
      the changes (n, S). Every process of a multi-host job returns the whole.

    Raises:
      ValueError: arguments do not fit each other; ids have no row in the model's table; the output
        for an example depends on its batch; logits, or their changes, are not finite.
      TypeError: the model cannot be traced by JAX.

    >>> import jax, jax.numpy as jnp
    >>> from jaxsens import Sphere, sharpness
    >>> line = lambda w, x: x * w
    >>> weight, x = jnp.float32(3.0), jnp.array([1.0, 2.0, 3.0])
    >>> est = sharpness(line, weight, x, Sphere(0.5), key=jax.random.key(0))
    >>> est.flips.mean, est.l1.per_example.tolist()
    (0.0, [0.5, 1.0, 1.5])
    """
    started = time.perf_counter()
    key, x = arguments.typed_key(key), arguments.checked_examples(x)
    weight_noise.check_noise(perturbation)
    arguments.check_function("apply_fn", apply_fn)
    arguments.check_function("perturbed_apply_fn", perturbed_apply_fn, optional=True)
    arguments.check_progress(progress)
    model_arguments.check_params(params)
    check = arguments.checked_check(check)
    precision = checked_choice("precision", precision, runtime.PRECISIONS)
    selected = weight_noise.select(params, mask)
    num_draws = whole_number("num_samples", num_samples)
    fixed_batch: int | None = whole_number("perturbed_batch", perturbed_batch)
    if perturbed_apply_fn is None:
        fixed_batch = None
    num_classes = _checked_outputs(apply_fn, perturbed_apply_fn, params, x, key)
    lookups.check_ids(apply_fn, params, (x,), x)
    labels = None if y is None else _checked_labels(y, len(x), num_classes)

    mesh = runtime.local_mesh(devices)
    budget = device_budget(chunk_bytes, mesh, params)
    example = jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
    max_batch = max_batch_within(budget.widest, apply_fn, params, example)
    with jax.default_matmul_precision(precision):
        job = SharpnessJob(
            spec=SharpnessSpec(to_compile(apply_fn, params, example), perturbed_apply_fn, selected),
            noise=perturbation,
            params=runtime.place(params, mesh, runtime.REPLICATED),
            x=x,
            labels=labels,
            num_draws=num_draws,
            key=runtime.place(key, mesh, runtime.REPLICATED),
            mesh=mesh,
            plan=make_plan(max_batch, 1),
            fixed_batch=fixed_batch,
            progress=progress,
        )
        if check:
            check_examples_independence(
                job.spec.apply_fn, job.params, x, key=job.key, mesh=mesh, max_batch=max_batch
            )
        tables = measure(job)
    return SharpnessEstimate.of(
        tables,
        SharpnessProvenance(
            perturbation=repr(perturbation),
            num_weights=weight_noise.num_weights(params, selected),
            perturbed_apply_fn=_name_of(perturbed_apply_fn),
            seed=tuple(int(word) for word in np.ravel(jax.random.key_data(key))),
            precision=precision,
            device=runtime.device_kind(mesh),
            num_devices=mesh.size * jax.process_count(),
            seconds=time.perf_counter() - started,
            num_passes=job.num_passes,
            perturbed_batch=fixed_batch,
        ),
    )


def _name_of(function: PerturbedApplyFn | None) -> str | None:
    return None if function is None else getattr(function, "__name__", type(function).__name__)


def _checked_outputs(
    apply_fn: ApplyFn,
    perturbed_apply_fn: PerturbedApplyFn | None,
    params: Any,
    x: np.ndarray,
    key: PRNGKeyArray,
) -> int:
    """The number of classes, 2 for a single score."""
    batch = jax.ShapeDtypeStruct((2, *x.shape[1:]), x.dtype)
    out = model_arguments.checked_logits(apply_fn, params, (batch,), (1, 2))
    shape = out.shape
    if jnp.issubdtype(out.dtype, jnp.complexfloating):
        raise ValueError(f"apply_fn must give real logits; got {out.dtype}: take their real part")
    if perturbed_apply_fn is not None:
        with user_call("perturbed_apply_fn", params=params, x=batch, key=key):
            other = jax.eval_shape(perturbed_apply_fn, params, batch, key)
        if getattr(other, "shape", None) != shape:
            got = getattr(other, "shape", type(other).__name__)
            raise ValueError(
                f"perturbed_apply_fn must give logits of shape {shape}, as apply_fn; got {got}"
            )
    return max((2, *shape[1:]))


def _checked_labels(y: ArrayLike, n: int, num_classes: int) -> Int[np.ndarray, " n"]:
    y = arguments.as_numbers("y", y)
    if y.shape != (n,) or not jnp.issubdtype(y.dtype, jnp.integer):
        raise ValueError(
            f"y must be whole numbers of shape (n,) = {(n,)}; got {y.dtype} of shape {y.shape}"
        )
    if y.min() < 0 or y.max() >= num_classes:
        raise ValueError(
            f"y must be class indices from 0 to {num_classes - 1}; "
            f"got values from {y.min()} to {y.max()}"
        )
    return y.astype(np.int32)
