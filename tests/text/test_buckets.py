"""Buckets: every sequence once, whole, in the shortest bucket that holds it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxsens.text.buckets import into_buckets, padding_share


def sequences_of(sizes):
    return [np.arange(5, 5 + size, dtype=np.int32) for size in sizes]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 40), max_size=30), st.sets(st.integers(1, 60), max_size=5))
def test_nothing_is_lost_and_nothing_is_longer_than_it_must_be(sizes, lengths):
    lengths = sorted({*lengths, 40})
    sequences = sequences_of(sizes)
    buckets = into_buckets(sequences, lengths, pad_id=1)
    rows = np.concatenate([np.zeros(0, np.int64), *(bucket.example_ids for bucket in buckets)])
    np.testing.assert_array_equal(np.sort(rows), np.arange(len(sizes)))
    for bucket in buckets:
        assert len(bucket) == len(bucket.example_ids) > 0
        assert (np.diff(bucket.example_ids) > 0).all()
        length = bucket.tokens.shape[1]
        for row, tokens, size, mask in zip(
            bucket.example_ids, bucket.tokens, bucket.lengths, bucket.mask, strict=True
        ):
            assert length == min(allowed for allowed in lengths if allowed >= sizes[row])
            np.testing.assert_array_equal(tokens[:size], sequences[row])
            np.testing.assert_array_equal(tokens[mask], sequences[row])
            assert (tokens[~mask] == 1).all()
    shapes = [bucket.tokens.shape[1] for bucket in buckets]
    assert shapes == sorted(set(shapes))


def test_a_length_that_fits_exactly_needs_no_padding():
    [bucket] = into_buckets(sequences_of([16, 16]))
    assert bucket.tokens.shape == (2, 16)
    assert bucket.mask.all()
    assert padding_share([bucket]) == 0


def test_a_bucket_of_too_few_joins_the_next_longer():
    sequences = sequences_of([2, 3, 6, 9, 9, 12])

    def rows(at_least):
        return {
            bucket.tokens.shape[1]: bucket.example_ids.tolist()
            for bucket in into_buckets(sequences, (4, 8, 10, 16, 32), at_least=at_least)
        }

    assert rows(1) == {4: [0, 1], 8: [2], 10: [3, 4], 16: [5]}
    assert rows(2) == {4: [0, 1], 10: [2, 3, 4], 16: [5]}
    assert rows(4) == {10: [0, 1, 2, 3, 4], 16: [5]}
    assert rows(9) == {16: [0, 1, 2, 3, 4, 5]}


def test_dtypes_and_order_of_lengths():
    buckets = into_buckets(sequences_of([3, 9]), lengths=(16, 4))
    assert [bucket.tokens.shape for bucket in buckets] == [(1, 4), (1, 16)]
    for bucket in buckets:
        assert (bucket.tokens.dtype, bucket.lengths.dtype) == ("i4", "i4")
        assert (bucket.example_ids.dtype, bucket.mask.dtype) == ("i8", "?")


def test_padding_share_counts_places():
    buckets = into_buckets(sequences_of([1, 4, 7]), lengths=(4, 8))
    assert padding_share(buckets) == (16 - 12) / 16
    with pytest.raises(ValueError, match="at least one bucket, got none"):
        padding_share([])


def test_no_sequences_are_no_buckets():
    assert into_buckets([]) == []


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ([3, 17, 18], r"of 1 to 16 tokens, got 17 at index 1 \(2 of 3 do not fit\); add a longer"),
        ([3, 0], r"of 1 to 16 tokens, got 0 at index 1 \(1 of 2"),
    ],
)
def test_what_fits_no_bucket_is_named(sizes, message):
    with pytest.raises(ValueError, match=message):
        into_buckets(sequences_of(sizes), lengths=(8, 16))
