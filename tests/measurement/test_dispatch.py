"""How a measurement is dealt out to calls."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jaxsens.measurement import dispatch
from jaxsens.measurement.batching import MAX_CHUNK, BatchPlan


@given(
    st.integers(1, 2_000), st.integers(1, MAX_CHUNK), st.integers(1, 4), st.integers(1, 8),
    st.booleans(),
)  # fmt: skip
def test_calls_take_whole_groups_and_miss_no_example(n, group, num_devices, num_concurrent, even):
    chunk = MAX_CHUNK // group * group if even else MAX_CHUNK
    plan = BatchPlan(chunk, group, block=1)
    pieces = dispatch.pieces(np.arange(n), plan, num_devices, num_concurrent)
    np.testing.assert_array_equal(np.concatenate(pieces), np.arange(n))
    assert all(0 < len(piece) <= chunk * num_devices for piece in pieces)
    assert all(len(piece) % (group * num_devices) == 0 for piece in pieces[:-1])
    num_groups = [-(-len(piece) // (group * num_devices)) for piece in pieces]
    assert max(num_groups) - min(num_groups) <= 1
