"""Sensitivity of sequences of different lengths: bucket by bucket, put together as one estimate.

A draw is keyed by the example's place in the dataset, its position and its sample, none of which
depends on the buckets: other bucket lengths give the same draws, and the same flips up to rounding.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from jaxsens.core.notices import renamed_keyword
from jaxsens.core.scalars import as_list, one_line
from jaxsens.core.user_code import user_call
from jaxsens.measurement import arguments
from jaxsens.measurement._sensitivity import sensitivity
from jaxsens.measurement.estimate import SensitivityEstimate
from jaxsens.measurement.jobs import ApplyFn
from jaxsens.measurement.lookups import check_ids
from jaxsens.perturbations.perturbation import Perturbation
from jaxsens.text.buckets import Bucket


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
    **options: Any,
) -> SensitivityEstimate:
    """Sensitivity of a text model over all real tokens, special ones included, never padding.

    Padding is never edited: an edit of the whole sequence leaves its rows as they are.

    Args:
      apply_fn: `apply_fn(params, x, mask) -> logits` with the mask (n, T) of the real tokens.
      params: the model's parameters.
      buckets: the sequences, from `jaxsens.text.into_buckets`.
      perturbation: the window edit, of tokens or of whole sequences.
      num_samples: S, draws for each position.
      key: a JAX random key.
      embed: `embed(params, tokens) -> (n, T, d)`, what is edited in place of the ids.
      which_tokens: `which_tokens(tokens) -> (n, T)`, true at the real tokens to edit one at a
        time; default all. Formerly `places`.
      **options: as in `sensitivity`.

    Returns:
      One row for each sequence, in the order of the dataset, with T of the longest bucket.

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
    perturbation = arguments.checked_perturbation(perturbation)
    buckets = _checked_buckets(buckets)
    arguments.check_params(params)
    arguments.check_function("apply_fn", apply_fn)
    arguments.check_function("embed", embed, optional=True)
    arguments.check_function("which_tokens", which_tokens, optional=True)
    chosen_tokens = [_chosen(which_tokens, bucket) for bucket in buckets]
    if embed is not None:
        for bucket in buckets:
            _check_embed(embed, params, bucket)
    parts, measured = [], []
    for bucket, chosen in zip(buckets, chosen_tokens, strict=True):
        x = bucket.tokens if embed is None else _embedded(embed, params, bucket.tokens)
        per_token = perturbation.num_positions(x.shape[1:]) == bucket.tokens.shape[1]
        if per_token and not chosen.any():
            continue
        measured.append(bucket.example_ids)
        parts.append(
            sensitivity(
                apply_fn if per_token else _padding_kept(apply_fn),
                params,
                x,
                perturbation,
                num_samples,
                key=key,
                context=bucket.mask if per_token else (x, bucket.mask),
                mask=chosen if per_token else None,
                example_ids=bucket.example_ids,
                **options,
            )
        )
    if not parts:
        raise ValueError("which_tokens leaves no token to edit in any sequence")
    longest = max(part.num_positions for part in parts)
    whole = functools.reduce(SensitivityEstimate.merge, [_padded(part, longest) for part in parts])
    every = np.sort(np.concatenate([bucket.example_ids for bucket in buckets]))
    at = np.searchsorted(every, np.concatenate(measured))

    def in_order(values: np.ndarray) -> np.ndarray:
        placed = np.zeros((len(every), longest), values.dtype)
        placed[at] = values
        return placed

    return replace(whole, totals=in_order(whole.totals), counts=in_order(whole.counts))


@functools.lru_cache(maxsize=64)
def _padding_kept(apply_fn: ApplyFn) -> ApplyFn:
    """`apply_fn` on inputs whose padding is as it was; one function, so one compilation, each."""

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
    """The real tokens to edit."""
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
    """Tries the embedding on shapes, and the ids on its table, before any bucket is measured."""
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
