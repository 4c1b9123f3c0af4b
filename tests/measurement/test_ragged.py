"""Sequences of different lengths: buckets change no draw, padding is never perturbed.

A tolerance holds for all buckets together, whatever their sizes and rates.
"""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtri

from jaxsens import Gaussian, Perturbation, Resample, Tokens, Whole, sensitivity
from jaxsens.measurement.ragged import ragged_sensitivity
from jaxsens.models import GPT2, LSTM, RoBERTa
from jaxsens.text.buckets import into_buckets
from jaxsens.text.tokenization import PAD_ID
from tests.helpers.weights import weights_of

KEY = jax.random.key(0)
NOISE = Perturbation(Tokens(), Gaussian(variance=15.0))
RNG = np.random.default_rng(0)
SEQUENCES = [RNG.integers(4, 30, size).astype(np.int32) for size in (3, 11, 6, 16, 2, 9)]
LENGTHS = np.array([len(sequence) for sequence in SEQUENCES])
MODELS = {
    "roberta": RoBERTa(30, depth=1, heads=2, width=8, hidden=16),
    "gpt2": GPT2(30, depth=1, heads=2, width=8),
    "lstm": LSTM(30, depth=1, width=8),
}
#: One model does where a test is not about how models look back and forth.
SOME = ["lstm", *(pytest.param(name, marks=pytest.mark.slow) for name in ("roberta", "gpt2"))]


@functools.cache
def seam(name):
    model = MODELS[name]
    params = weights_of(model, jnp.ones((1, 4), jnp.int32))
    params = jax.tree.map(
        lambda w: w + 0.5 * jax.random.normal(jax.random.key(w.size), w.shape), params
    )

    def apply_fn(params, e, mask):
        return model.apply(params, e, mask, method="from_embeddings")

    def embed(params, tokens):
        return model.apply(params, tokens, method="embed")

    return apply_fn, params, embed


@functools.cache
def measure(name, lengths, perturbation=NOISE, num_samples=4):
    apply_fn, params, embed = seam(name)
    return ragged_sensitivity(
        apply_fn, params, into_buckets(SEQUENCES, lengths), perturbation, num_samples, key=KEY,
        embed=embed,
    )  # fmt: skip


@pytest.mark.parametrize(
    "name", [n if n == "lstm" else pytest.param(n, marks=pytest.mark.slow) for n in MODELS]
)
def test_bucket_lengths_change_no_draw(name):
    one, three = measure(name, (16,)), measure(name, (4, 8, 16))
    np.testing.assert_array_equal(one.totals, three.totals)
    np.testing.assert_array_equal(one.counts, three.counts)
    assert one.totals.sum() > 0


@pytest.mark.parametrize("name", SOME)
def test_each_sequence_by_itself_gives_its_row(name):
    apply_fn, params, embed = seam(name)
    whole = measure(name, (4, 8, 16))
    for row in (1, 4):
        tokens = jnp.asarray(SEQUENCES[row])[None]
        e, mask = embed(params, tokens), np.ones(tokens.shape, bool)
        alone = sensitivity(
            apply_fn, params, e, NOISE, 4, key=KEY, context=mask, example_ids=np.array([row])
        )
        np.testing.assert_array_equal(whole.totals[row, : LENGTHS[row]], alone.totals[0])


def test_real_tokens_are_measured_and_padding_never():
    counts = measure("lstm", (16,)).counts
    np.testing.assert_array_equal(counts, 4 * (np.arange(16) < LENGTHS[:, None]))


@pytest.mark.parametrize("name", SOME)
def test_whole_sequences_have_one_position_and_the_same_noise_in_every_bucket(name):
    whole = Perturbation(Whole(), Gaussian(variance=4.0))
    one, three = measure(name, (16,), whole, 8), measure(name, (4, 8, 16), whole, 8)
    assert one.totals.shape == (6, 1)
    assert (one.counts == 8).all()
    np.testing.assert_array_equal(one.totals, three.totals)
    assert one.totals.sum() > 0


def test_noise_on_whole_sequences_leaves_padding_as_it_was():
    """A model that sums over padding too flips as it does for the same sequences unpadded."""
    tokens = [np.full(size, 5, np.int32) for size in (2, 5)]

    def embed(params, tokens):
        return jnp.repeat((tokens != PAD_ID)[..., None].astype(jnp.float32), 3, axis=-1)

    def summed(params, e, mask):
        return e.sum(axis=(1, 2))

    whole = Perturbation(Whole(), Gaussian(variance=4.0))
    padded, exact = (
        ragged_sensitivity(
            summed, (), into_buckets(tokens, lengths), whole, 64, key=KEY, embed=embed
        )
        for lengths in ((8,), (2, 5))
    )
    np.testing.assert_array_equal(padded.totals, exact.totals)
    assert (padded.totals > 0).all()


def test_only_the_chosen_tokens_are_edited():
    edit = Perturbation(Tokens(), Resample(30, first=4))
    first_is_five = lambda params, x, mask: jnp.where(x[:, 0] == 5, 1.0, -1.0)  # noqa: E731
    est = ragged_sensitivity(
        first_is_five, (), into_buckets(SEQUENCES, (8, 16)), edit, 2, key=KEY,
        which_tokens=lambda tokens: tokens % 2 == 0,
    )  # fmt: skip
    for row, sequence in enumerate(SEQUENCES):
        expected = 2 * (sequence % 2 == 0)
        np.testing.assert_array_equal(est.counts[row, : len(sequence)], expected)
    assert est.counts.sum() == 2 * sum((sequence % 2 == 0).sum() for sequence in SEQUENCES)


def test_the_token_weighted_mean_counts_every_token_once():
    est = measure("lstm", (4, 8, 16))
    mean, low, high = est.pooled()
    assert mean == est.totals.sum() / est.counts.sum()
    assert 0 <= low < mean < high <= 1
    assert mean != pytest.approx(est.mean)
    narrower = est.pooled(level=0.5)
    assert low < narrower[1] < mean < narrower[2] < high


def test_sequences_of_one_length_have_one_mean_and_interval():
    est = measure("lstm", (16,))
    rows = replace(est, totals=est.totals[:, :2], counts=est.counts[:, :2])
    np.testing.assert_allclose(rows.pooled(), (rows.mean, *rows.ci()), rtol=1e-12)


def test_replaced_words_are_never_special():
    seen = []

    def apply_fn(params, tokens, mask):
        jax.debug.callback(lambda t, m: seen.append(np.asarray(t)[np.asarray(m)]), tokens, mask)
        return jnp.ones((len(tokens), 2)) * jnp.arange(2.0)[None]

    edit = Perturbation(Tokens(), Resample(30, first=4))
    ragged_sensitivity(apply_fn, (), into_buckets(SEQUENCES, (16,)), edit, "all", key=KEY)
    jax.effects_barrier()
    drawn = np.unique(np.concatenate(seen))
    assert drawn.min() == 4
    assert drawn.max() == 29
    assert PAD_ID < 4


def test_positions_from_either_end_pool_to_the_same_mean():
    est = measure("lstm", (4, 8, 16))
    right = est.right_aligned()
    pooled = est.totals.sum() / est.counts.sum()
    for aligned in (est, right):
        weights = aligned.counts.sum(axis=0) / aligned.counts.sum()
        np.testing.assert_allclose(np.nansum(aligned.per_position * weights), pooled)
        np.testing.assert_array_equal(aligned.per_example, est.per_example)
    last = [est.totals[i, length - 1] for i, length in enumerate(LENGTHS)]
    np.testing.assert_array_equal(right.totals[:, -1], last)
    np.testing.assert_array_equal(right.counts > 0, np.arange(16) >= 16 - LENGTHS[:, None])


def test_a_bucket_without_a_token_to_edit_changes_nothing():
    def first(params, x, mask):
        return jnp.where(x[:, 0] > 6, 1.0, -1.0)

    sequences = [np.array(ids, np.int32) for ids in ([0, 2], [5, 6, 7, 8, 9])]
    resample = Perturbation(Tokens(), Resample(vocabulary=10, first=5))
    short, whole = (
        ragged_sensitivity(
            first, (), into_buckets(sequences, lengths), resample, "all", key=jax.random.key(0),
            which_tokens=lambda tokens: tokens >= 5,
        )
        for lengths in ((2, 8), (8,))
    )  # fmt: skip
    np.testing.assert_array_equal(short.totals, whole.totals)
    np.testing.assert_array_equal(short.counts, whole.counts)
    assert short.counts[0].sum() == 0
    with pytest.raises(ValueError, match="no token to edit"):
        ragged_sensitivity(
            first, (), into_buckets(sequences, (8,)), resample, "all", key=jax.random.key(0),
            which_tokens=lambda tokens: tokens > 99,
        )  # fmt: skip


# A tolerance. Token i of a sequence flips the parity of signs at the rate of its id.

RATES = np.array([0.5, 0.5, 0.45, 0.02, 0.3])
VALUES = jnp.asarray(-ndtri(RATES), jnp.float32)
SIGN_NOISE = Perturbation(Tokens(), Gaussian(sigma=1.0))


def sign_parity(params, e, mask):
    return jnp.prod(jnp.where(mask, jnp.sign(e[..., 0]), 1.0), axis=1)


def looked_up(params, tokens):
    return VALUES[tokens][..., None]


def sequences_of(*kinds):
    """(how many, length, id) of each kind of sequence."""
    return [np.full(length, i, np.int32) for num, length, i in kinds for _ in range(num)]


def measure_parity(sequences, num_samples=20, seed=0, lengths=(2, 6, 12), **options):
    return ragged_sensitivity(
        sign_parity, (), into_buckets(sequences, lengths, pad_id=0), SIGN_NOISE, num_samples,
        key=jax.random.key(seed), embed=looked_up, devices=jax.devices()[:1], incremental=False,
        **options,
    )  # fmt: skip


UNEVEN = sequences_of((40, 2, 2), (3000, 12, 3), (400, 5, 4))
UNEVEN_MEAN = (40 * 0.45 + 3000 * 0.02 + 400 * 0.3) / 3440


def test_small_and_large_buckets_are_sampled_alike():
    """The small bucket alone would be measured whole, the large one at random: no merge then."""
    est = measure_parity(UNEVEN, tolerance=0.012)
    assert est.provenance.positions == "random"
    assert est.half_width() <= 0.012
    # A visit picks its sequence from all buckets alike.
    drawn = est.counts.any(axis=1)
    for part in (slice(0, 40), slice(40, 3040), slice(3040, 3440)):
        num, share = len(drawn[part]), drawn.mean()
        assert abs(drawn[part].mean() - share) < 4 * np.sqrt(share * (1 - share) / num)
    wasted = est.provenance.num_passes - est.num_draws - drawn.sum()
    assert 0 <= wasted <= 1500
    assert est.provenance.exhaustive_passes == 20 * (40 * 2 + 3000 * 12 + 400 * 5) + 3440
    assert est.counts.shape == (3440, 12)
    assert not est.counts[:40, 2:].any()
    assert not est.counts[-400:, 5:].any()


def test_the_mean_is_that_of_all_sequences_whatever_their_buckets():
    estimates = [measure_parity(UNEVEN, seed=seed, tolerance=0.02) for seed in range(40)]
    means = np.array([est.mean for est in estimates])
    assert all(est.half_width() <= 0.02 for est in estimates)
    assert all(est.provenance.positions == "random" for est in estimates)
    # Draws of a few sequences only: the mean of the bucket of rare flips would be far below.
    assert abs(means.mean() - UNEVEN_MEAN) < 4 * means.std(ddof=1) / np.sqrt(len(means))
    for est in estimates:
        assert abs(est.mean - UNEVEN_MEAN) < 4.5 * est.stderr


def test_buckets_draw_random_positions_of_their_own():
    sequences = sequences_of((50, 6, 2), (50, 12, 3))
    est = measure_parity(sequences, num_samples=3, positions="random")
    assert est.provenance.positions == "random"
    assert (est.counts.sum(axis=1) == 3).all()
    # The same draws in both would fall on the same halves and thirds of a sequence.
    short, long = est.counts[:50, :6], est.counts[50:].reshape(50, 6, 2).sum(axis=2)
    assert (short != long).any(axis=1).mean() > 0.5


def test_buckets_do_not_change_how_many_draws_a_tolerance_takes():
    few, one = (measure_parity(UNEVEN, tolerance=0.02, lengths=to) for to in ((2, 6, 12), (12,)))
    assert few.provenance.positions == one.provenance.positions == "random"
    assert 0.8 < few.num_draws / one.num_draws < 1.25


def test_a_tolerance_out_of_reach_measures_every_bucket_whole():
    sequences = sequences_of((30, 2, 2), (60, 12, 3))
    est = measure_parity(sequences, num_samples=10, tolerance=1e-5)
    whole = measure_parity(sequences, num_samples=10)
    assert est.provenance.positions == "all"
    assert est.provenance.tolerance == 1e-5
    np.testing.assert_array_equal(est.totals, whole.totals)
    np.testing.assert_array_equal(est.counts, whole.counts)
    wasted = est.provenance.num_passes - whole.provenance.num_passes
    # A pilot of 1,000 draws, and a clean pass for every sequence that it visits.
    assert 1000 + 90 <= wasted <= whole.provenance.num_passes


def test_progress_of_a_tolerance_counts_the_draws_of_all_buckets():
    calls = []
    est = measure_parity(UNEVEN, tolerance=0.02, progress=lambda *call: calls.append(call))
    done, total, mean = calls[-1]
    assert done == total == est.num_draws
    assert mean == pytest.approx(est.totals.sum() / est.num_draws)
