"""Sequences of different lengths as a few rectangular arrays.

Every sequence goes into the shortest bucket that holds it and is padded at its end. A jitted
function is then compiled once per bucket instead of once per length, and padding costs little.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Int32, Int64

from jaxsens.core.notices import renamed_attribute, renamed_keyword
from jaxsens.core.scalars import MAX_INT32, as_list, as_whole, one_line, whole_number
from jaxsens.text.special_ids import PAD_ID

#: The lengths that buckets have by default.
LENGTHS = (16, 32, 48, 64, 96, 128)


@renamed_keyword("rows", "example_ids")
@dataclasses.dataclass(frozen=True, eq=False)
class Bucket:
    """Sequences of similar length, as one array.

    Attributes:
      example_ids: int64 (n_b,), the index of each sequence in the dataset, increasing.
      tokens: int32 (n_b, L_b), the ids of each, padded at its end.
      lengths: int32 (n_b,), the number of real tokens of each.

    Example:
      >>> tokens = np.array([[5, 6, PAD_ID], [5, 6, 7]], np.int32)
      >>> bucket = Bucket(np.array([4, 9]), tokens, lengths=np.array([2, 3], np.int32))
      >>> len(bucket), bucket.mask.tolist()
      (2, [[True, True, False], [True, True, True]])
    """

    example_ids: Int64[np.ndarray, " n_b"]
    tokens: Int32[np.ndarray, "n_b L_b"]
    lengths: Int32[np.ndarray, " n_b"]

    @property
    def mask(self) -> Bool[np.ndarray, "n_b L_b"]:
        """True at real tokens, special ones included, and False at padding."""
        return np.arange(self.tokens.shape[1]) < self.lengths[:, None]

    def __len__(self) -> int:
        return len(self.example_ids)

    rows = renamed_attribute("rows", "example_ids")


def into_buckets(
    sequences: Sequence[Int32[np.ndarray, " _"]],
    lengths: Sequence[int] = LENGTHS,
    pad_id: int = PAD_ID,
    *,
    at_least: int = 1,
) -> list[Bucket]:
    """Puts every sequence into the shortest bucket that holds it.

    Args:
      sequences: n arrays of at least one token id each.
      lengths: the lengths that buckets may have, in any order. A bucket that would be empty is left
        out.
      pad_id: the id that fills a sequence up to the length of its bucket.
      at_least: a bucket of fewer sequences than this is given up, and they join the next longer
        one: for so few, padding costs less than another compilation. The longest bucket is never
        given up.

    Returns:
      The buckets that are not empty, shortest first. Within a bucket, sequences are in the order of
      the dataset.

    Raises:
      ValueError: a sequence is empty or longer than the longest bucket.

    Example:
      >>> sequences = [np.arange(2, 2 + n, dtype=np.int32) for n in (3, 5, 2)]
      >>> for bucket in into_buckets(sequences, lengths=(4, 8, 16)):
      ...     print(bucket.example_ids, bucket.tokens.tolist())
      [0 2] [[2, 3, 4, 1], [2, 3, 1, 1]]
      [1] [[2, 3, 4, 5, 6, 1, 1, 1]]
    """
    for name, number in (("pad_id", pad_id), ("at_least", at_least)):
        whole = as_whole(number)
        if whole is None or not 0 <= whole <= MAX_INT32:
            raise ValueError(f"{name} must be a whole number >= 0; got {one_line(number)}")
    sequences = [
        _checked_ids(sequence, i) for i, sequence in enumerate(_items("sequences", sequences))
    ]
    allowed = np.array(
        sorted(whole_number("lengths", each) for each in _items("lengths", lengths)), np.int64
    )
    sizes = np.array([len(sequence) for sequence in sequences], np.int64)
    longest = int(allowed[-1]) if len(allowed) else 0
    bad = np.flatnonzero((sizes < 1) | (sizes > longest))
    if bad.size:
        raise ValueError(
            f"expected sequences of 1 to {longest} tokens, got {sizes[bad[0]]} at index {bad[0]} "
            f"({bad.size} of {sizes.size} do not fit); add a longer bucket or cut them"
        )
    home = np.searchsorted(allowed, sizes)
    for i in range(len(allowed) - 1):
        if (home == i).sum() < at_least and (home > i).any():
            home[home == i] = i + 1
    return [
        _bucket(sequences, np.flatnonzero(home == i), int(length), pad_id)
        for i, length in enumerate(allowed)
        if (home == i).any()
    ]


def padding_share(buckets: Sequence[Bucket]) -> float:
    """Which part of all tokens in the buckets is padding: 1 - (real tokens) / Σ n_b L_b.

    Args:
      buckets: at least one, as `into_buckets` returns them.

    Raises:
      ValueError: there is no bucket.

    Example:
      >>> sequences = [np.zeros(n, np.int32) for n in (3, 5, 2)]
      >>> padding_share(into_buckets(sequences, lengths=(4, 8)))
      0.375
      >>> padding_share(into_buckets(sequences, lengths=(5, 20)))
      0.3333333333333333
    """
    if not buckets:
        raise ValueError("expected at least one bucket, got none")
    num_tokens = sum(bucket.tokens.size for bucket in buckets)
    num_real = sum(int(bucket.lengths.sum()) for bucket in buckets)
    return (num_tokens - num_real) / num_tokens


def _items(name: str, value: Any) -> list[Any]:
    items = as_list(value)
    if items is None or isinstance(value, str | bytes):
        raise ValueError(f"{name} must be a list; got {one_line(value)}")
    return items


def _checked_ids(sequence: Any, index: int) -> np.ndarray:
    """One sequence of token ids that fit into 32 bits."""
    try:
        ids = np.asarray(sequence)
    except (TypeError, ValueError):
        ids = np.empty((0, 0))
    if ids.ndim != 1 or (ids.size and not np.issubdtype(ids.dtype, np.integer)):
        raise ValueError(
            f"sequences must be arrays of token ids; got {one_line(sequence)} at index {index}"
        )
    if ids.size and not 0 <= ids.min() <= ids.max() <= MAX_INT32:
        raise ValueError(
            f"sequences must hold ids from 0 to {MAX_INT32}; "
            f"got ids from {ids.min()} to {ids.max()} at index {index}"
        )
    return ids


def _bucket(
    sequences: Sequence[Int32[np.ndarray, " _"]],
    example_ids: Int64[np.ndarray, " n_b"],
    length: int,
    pad_id: int,
) -> Bucket:
    chosen = [sequences[i] for i in example_ids]
    tokens = np.full((len(chosen), length), pad_id, np.int32)
    for target, sequence in zip(tokens, chosen, strict=True):
        target[: len(sequence)] = sequence
    return Bucket(example_ids, tokens, np.array([len(each) for each in chosen], np.int32))
