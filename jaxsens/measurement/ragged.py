"""Sensitivity of sequences of different lengths: bucket by bucket, put together as one estimate.

A draw is keyed by the sequence's index in the dataset, its position and its sample, none of which
depends on the buckets: other bucket lengths give the same draws, and the same flips up to rounding.

Assumption: the model never looks at padding, which it can tell by its mask.
"""

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from jaxsens.core.adapted import takes_models
from jaxsens.core.notices import renamed_keyword
from jaxsens.core.scalars import as_list, checked_choice, one_line
from jaxsens.core.user_code import user_call
from jaxsens.measurement import arguments, model_arguments
from jaxsens.measurement._sensitivity import POPULATIONS, as_estimate, sensitivity
from jaxsens.measurement.estimate import SensitivityEstimate
from jaxsens.measurement.jobs import ApplyFn, MeasurementJob
from jaxsens.measurement.lookups import check_ids
from jaxsens.measurement.preparation import prepare_job
from jaxsens.measurement.random_positions import measure_random, measure_within
from jaxsens.perturbations.perturbation import Perturbation
from jaxsens.text.buckets import Bucket


@takes_models
@renamed_keyword("places", "which_tokens")
def ragged_sensitivity(
    apply_fn: ApplyFn,
    params: Any,
    buckets: Sequence[Bucket],
    perturbation: Perturbation,
    num_samples: int | Literal["all"] = 3,
    *,
    key: PRNGKeyArray,
    embed: Callable[[Any, Array], Array] | None = None,
    which_tokens: Callable[[np.ndarray], np.ndarray] | None = None,
    positions: Literal["all", "random"] | None = None,
    tolerance: float | None = None,
    population: Literal["sample", "fixed"] = "sample",
    **options: Any,
) -> SensitivityEstimate:
    """Sensitivity of a text model over all real tokens of sequences of different lengths.

        S(f) = (1/n) Σ_i (1/T_i) Σ_τ E_noise Δ( f(x_i), f(x_i with token τ edited) )

    where T_i counts the real tokens of sequence i, special ones included. Padding is never edited:
    an edit of the whole sequence leaves the padding as it is.

    Args:
      apply_fn: `apply_fn(params, x, mask) -> logits`, (n, C), with the mask (n, T) of the real
        tokens of x: of ids (n, T) or, with `embed`, of what it gives, (n, T, d).
      params: the model's parameters.
      buckets: the sequences, from `jaxsens.text.into_buckets`.
      perturbation: the window edit, of tokens or of whole sequences.
      num_samples: S, draws for each position.
      key: a JAX random key.
      embed: `embed(params, tokens) -> (n, T, d)`, what is edited in place of the ids.
      which_tokens: `which_tokens(tokens) -> (n, T)`, true at the real tokens to edit one at a
        time; default all. Formerly `places`.
      positions: as in `sensitivity`.
      tolerance: as in `sensitivity`, for the mean over the sequences of all buckets. Draws pick
        their sequence from all buckets alike, so that none weighs more than its share, or all
        buckets are measured at every position: modes are never mixed. All sequences are embedded
        at the same time then, else one bucket at a time.
      population: as in `sensitivity`, of the sequences of all buckets.
      **options: as in `sensitivity`.

    Returns:
      The estimate, with one row for each sequence, in the order of the dataset, and T of the
      longest bucket.

    Raises:
      ValueError: as in `sensitivity`; buckets share a sequence; no token is left to edit.

    >>> from jaxsens import Resample, Tokens
    >>> from jaxsens.text import into_buckets
    >>> sequences = [np.array(ids, np.int32) for ids in ([5, 6, 7], [5], [5, 6, 7, 8, 9])]
    >>> first_is_five = lambda params, x, mask: jnp.where(x[:, 0] == 5, 1.0, -1.0)
    >>> resample = Perturbation(Tokens(), Resample(vocabulary=10, first=5))
    >>> est = ragged_sensitivity(first_is_five, (), into_buckets(sequences, (3, 8)), resample,
    ...                          "all", key=jax.random.key(0))
    >>> est.per_example.round(3)
    array([0.267, 0.8  , 0.16 ])
    """
    started = time.perf_counter()
    perturbation = arguments.checked_perturbation(perturbation)
    tolerance = arguments.checked_tolerance(tolerance)
    positions = arguments.checked_positions(positions, tolerance)
    population = checked_choice("population", population, POPULATIONS)
    buckets = _checked_buckets(buckets)
    model_arguments.check_params(params)
    arguments.check_function("apply_fn", apply_fn)
    arguments.check_function("embed", embed, optional=True)
    arguments.check_function("which_tokens", which_tokens, optional=True)
    chosen_tokens = [_chosen(which_tokens, bucket) for bucket in buckets]
    if embed is not None:
        for bucket in buckets:
            _check_embed(embed, params, bucket)
    measured: list[Bucket] = []

    def measurable() -> Iterator[dict[str, Any]]:
        """What `sensitivity` takes for each bucket that has a position to measure."""
        for bucket, chosen in zip(buckets, chosen_tokens, strict=True):
            x = bucket.tokens if embed is None else _embedded(embed, params, bucket.tokens)
            per_token = perturbation.num_positions(x.shape[1:]) == bucket.tokens.shape[1]
            if per_token and not chosen.any():
                continue
            measured.append(bucket)
            yield {
                "apply_fn": apply_fn if per_token else _padding_kept(apply_fn),
                "params": params,
                "x": x,
                "perturbation": perturbation,
                "num_samples": num_samples,
                "key": key,
                "context": bucket.mask if per_token else (x, bucket.mask),
                "mask": chosen if per_token else None,
                "example_ids": bucket.example_ids,
                **options,
            }

    if positions == "all":
        parts = [sensitivity(**each, population=population) for each in measurable()]
    else:
        jobs = [prepare_job(**each, at_random=True) for each in measurable()]
        parts = _at_random(tolerance, population, jobs)
    if not parts:
        raise ValueError("which_tokens leaves no token to edit in any sequence")
    longest = max(part.num_positions for part in parts)
    whole = functools.reduce(SensitivityEstimate.merge, [_padded(part, longest) for part in parts])
    every = np.sort(np.concatenate([bucket.example_ids for bucket in buckets]))
    at = np.searchsorted(every, np.concatenate([bucket.example_ids for bucket in measured]))

    def in_order(values: np.ndarray) -> np.ndarray:
        ordered = np.zeros((len(every), longest), values.dtype)
        ordered[at] = values
        return ordered

    return replace(
        whole,
        totals=in_order(whole.totals),
        counts=in_order(whole.counts),
        provenance=replace(whole.provenance, seconds=time.perf_counter() - started),
    )


def _at_random(
    tolerance: float | None, population: Literal["sample", "fixed"], jobs: list[MeasurementJob]
) -> list[SensitivityEstimate]:
    """The estimate of each bucket at random positions, drawn from all of them together.

    With a tolerance, such that all together are within it.
    """
    if not jobs:
        return []
    with jax.default_matmul_precision(jobs[0].precision):
        if tolerance is None:
            measured = measure_random(jobs)
        else:
            measured = measure_within(jobs, tolerance, population)
    pairs = zip(jobs, measured, strict=True)
    return [as_estimate(job, found, tolerance, 0.0, population) for job, found in pairs]


@functools.lru_cache(maxsize=64)
def _padding_kept(apply_fn: ApplyFn) -> ApplyFn:
    """A model that puts the clean padding back before it calls `apply_fn`.

    It is the same function for the same `apply_fn`, so that nothing is compiled again.
    """

    def applied(params: Any, x: Array, context: tuple[Array, Array]) -> Any:
        clean, mask = context
        real = mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim))
        return apply_fn(params, jnp.where(real, x, clean), mask)

    return applied


def _checked_buckets(buckets: Any) -> list[Bucket]:
    """At least one bucket, all of different sequences."""
    chosen = as_list(buckets)
    if not chosen or not all(isinstance(bucket, Bucket) for bucket in chosen):
        raise ValueError(
            "buckets must be what jaxsens.text.into_buckets makes of sequences, at least one; "
            f"got {one_line(buckets)}"
        )
    ids, counts = np.unique(
        [i for bucket in chosen for i in bucket.example_ids], return_counts=True
    )
    if counts.max() > 1:
        raise ValueError(
            f"buckets must hold every sequence once; got example {ids[counts.argmax()]} twice"
        )
    return chosen


def _chosen(which_tokens: Callable[[np.ndarray], np.ndarray] | None, bucket: Bucket) -> np.ndarray:
    """(n, T), true at the real tokens to edit."""
    if which_tokens is None:
        return bucket.mask
    with user_call("which_tokens", tokens=bucket.tokens):
        chosen = np.asarray(which_tokens(bucket.tokens))
    if chosen.shape != bucket.tokens.shape or chosen.dtype != bool:
        raise ValueError(
            f"which_tokens must give bools of shape (n, T) = {bucket.tokens.shape}; "
            f"got {chosen.dtype} of shape {chosen.shape}"
        )
    return bucket.mask & chosen


def _check_embed(embed: Callable[[Any, Array], Array], params: Any, bucket: Bucket) -> None:
    """Traces the embedding by shapes, and compares ids with its table, before any measurement."""
    tokens = bucket.tokens
    with user_call("embed", params=params, tokens=tokens):
        embedded = jax.eval_shape(embed, params, tokens)
    if getattr(embedded, "shape", ())[:2] != tokens.shape:
        got = getattr(embedded, "shape", type(embedded).__name__)
        raise ValueError(f"embed must map tokens {tokens.shape} to (n, T, d); got {got}")
    check_ids(embed, params, (tokens,), tokens[bucket.mask])


@functools.partial(jax.jit, static_argnums=0)
def _embedded(embed: Callable[[Any, Array], Array], params: Any, tokens: Array) -> Array:
    return embed(params, tokens)


def _padded(estimate: SensitivityEstimate, num_positions: int) -> SensitivityEstimate:
    beside = ((0, 0), (0, num_positions - estimate.num_positions))
    return replace(
        estimate, totals=np.pad(estimate.totals, beside), counts=np.pad(estimate.counts, beside)
    )
