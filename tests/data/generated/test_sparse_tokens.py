import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens.data.generated.sparse_tokens import (
    Counts,
    SparseTokens,
    generate,
    opposite_sparse,
    token_types,
)

TASKS = [
    Counts(3, 3, 1, 6, 59),
    Counts(3, 7, 1, 28, 59),
    Counts(1, 17, 7, 20, 69),
    Counts(1, 32, 7, 33, 69),
]


@pytest.mark.parametrize("counts", TASKS)
def test_every_sequence_has_the_counts_of_the_definition(counts):
    x, y = (np.asarray(a) for a in generate(counts, 50, 200, key=jax.random.key(0)))
    n_s, n_f, n_d, m, vocabulary = counts
    positive = y[:, None] > 0
    own, other = np.where(positive, 0, 1), np.where(positive, 1, 0)
    assert ((x == own).sum(1) == n_s).all()
    assert ((x == other).sum(1) == 0).all()
    frequent = (x >= 2) & (x < 2 * m + 2)
    majority = (n_f + n_d) // 2
    assert ((frequent & (x % 2 == own)).sum(1) == majority).all()
    assert ((frequent & (x % 2 == other)).sum(1) == n_f - majority).all()
    irrelevant = (x >= 2 * m + 2) & (x < vocabulary)
    assert (irrelevant.sum(1) == 50 - n_s - n_f).all()
    assert set(np.unique(y)) == {-1, 1}


def test_tokens_are_uniform_in_their_sets_and_over_positions():
    counts, n = Counts(3, 5, 1, 16, 59), 4_000
    x, y = (np.asarray(a) for a in generate(counts, 50, n, key=jax.random.key(1)))
    share = (x < 2).mean(axis=0)
    assert np.abs((share - 0.06) / np.sqrt(0.06 * 0.94 / n)).max() < 4.5
    seen = np.bincount(x.ravel(), minlength=59)
    # Mean and variance of the number of times that one token is in a sequence.
    for ids, mean, variance in (
        (np.r_[2:34], 5 / 32, 5 / 32),
        (np.r_[34:59], 42 / 25, 42 / 25),
        (np.r_[0:2], 1.5, 1.5**2),
    ):
        assert np.abs((seen[ids] - n * mean) / np.sqrt(n * variance)).max() < 4.5
    assert abs(y.mean() * np.sqrt(n)) < 4.5


def test_traced_numbers_of_a_task_give_the_same_sequences():
    keys = jax.random.split(jax.random.key(2), len(TASKS))
    stacked = Counts(*(jnp.array(column) for column in zip(*TASKS, strict=True)))
    x, y = jax.vmap(lambda counts, key: generate(counts, 50, 20, key=key))(stacked, keys)
    for i, counts in enumerate(TASKS):
        one = generate(counts, 50, 20, key=keys[i])
        assert (x[i] == one[0]).all()
        assert (y[i] == one[1]).all()


def test_the_other_classes_sparse_tokens_and_nothing_else():
    counts = Counts(3, 5, 1, 16, 59)
    x, _ = generate(counts, 50, 50, key=jax.random.key(3))
    swapped = opposite_sparse(x)
    sparse = token_types(x, counts) == 0
    assert (swapped[sparse] == 1 - x[sparse]).all()
    assert (swapped[~sparse] == x[~sparse]).all()
    assert (opposite_sparse(swapped) == x).all()


@pytest.mark.parametrize(
    ("counts", "length", "message"),
    [
        (Counts(1, 32, 7, 36, 69), 50, "2m.3 = 75"),
        (Counts(3, 5, 7, 6, 59), 50, "n_d"),
        (Counts(30, 30, 1, 6, 59), 50, "do not fit"),
        (Counts(0, 3, 1, 6, 59), 50, "at least 1"),
    ],
)
def test_impossible_tasks_are_refused(counts, length, message):
    with pytest.raises(ValueError, match=message):
        SparseTokens(counts, length)


@pytest.mark.parametrize(("counts", "margin"), list(zip(TASKS, (1, 1, 7, 6), strict=True)))
def test_margin(counts, margin):
    assert SparseTokens(counts).margin == margin
