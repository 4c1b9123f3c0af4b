"""The measurement: exact truths, equivalences, limits, one compilation, bad input."""

import itertools
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx

import jaxsens
from jaxsens import Bits, Donor, Flip, Gaussian, Patches, Perturbation, Resample, Tokens
from jaxsens.core import runtime

KEY = jax.random.key(0)
ONE = jax.devices()[:1]
FLIP = Perturbation(Bits(), Flip())


def measure(apply_fn, params, x, perturbation, num_samples=5, *, key=KEY, devices=ONE, **options):
    return jaxsens.sensitivity(
        apply_fn, params, x, perturbation, num_samples, key=key, devices=devices, **options
    )


def same(a, b):
    return np.array_equal(a.totals, b.totals) and np.array_equal(a.counts, b.counts)


def cube(d):
    return np.array(list(itertools.product([-1.0, 1.0], repeat=d)), np.float32)


# Exact truths: Boolean functions on the whole cube.


def parity(params, x):
    return jnp.prod(x, axis=1)


def dictator(params, x):
    return x[:, 2]


def constant(params, x):
    return jnp.ones(len(x))


def majority(params, x):
    return jnp.sum(x, axis=1)


def majority_sensitivity(d):
    """Share of (point, bit) pairs whose flip changes sign(Σ x), sign 0 being a class of its own."""
    if d % 2:
        sensitive = 2 * math.comb(d, d // 2) * (d + 1) // 2
    else:
        ties = math.comb(d, d // 2) * d
        next_to_ties = 2 * math.comb(d, d // 2 - 1) * (d // 2 + 1)
        sensitive = ties + next_to_ties
    return Fraction(sensitive, 2**d * d)


@pytest.mark.parametrize(
    ("function", "d", "truth"),
    [
        (parity, 7, Fraction(1)),
        (dictator, 7, Fraction(1, 7)),
        (constant, 7, Fraction(0)),
        (majority, 7, majority_sensitivity(7)),
        (majority, 8, majority_sensitivity(8)),
    ],
)
def test_boolean_functions_have_their_exact_sensitivity(function, d, truth):
    est = measure(function, (), cube(d), FLIP, "all")
    assert Fraction(int(est.totals.sum()), int(est.counts.sum())) == truth
    assert est.mean == pytest.approx(float(truth), abs=1e-15)
    assert est.num_draws == 2**d * d


def test_a_dictator_is_sensitive_to_its_own_bit_only():
    est = measure(dictator, (), cube(7), FLIP, "all")
    assert est.per_position.tolist() == [0, 0, 1, 0, 0, 0, 0]


def table_lookup(table, x):
    d = x.shape[1]
    return table[(x > 0).astype(jnp.int32) @ (2 ** jnp.arange(d, dtype=jnp.int32))]


@pytest.mark.parametrize("seed", range(3))
def test_a_random_boolean_function_has_the_counted_sensitivity(seed):
    d = 7
    table = np.random.default_rng(seed).choice([-1.0, 1.0], 2**d).astype(np.float32)
    points = np.arange(2**d)
    counted = np.stack([table != table[points ^ (1 << bit)] for bit in range(d)], axis=1)
    x = np.where((points[:, None] >> np.arange(d)) & 1, 1.0, -1.0).astype(np.float32)
    est = measure(table_lookup, jnp.asarray(table), x, FLIP, "all")
    assert np.array_equal(est.totals, counted)


def test_bits_may_be_zero_and_one():
    x = (cube(5) > 0).astype(np.int32)
    even = lambda params, x: 1 - 2 * (x.sum(axis=1) % 2)  # noqa: E731
    assert measure(even, (), x, Perturbation(Bits(), Flip(0, 1)), "all").mean == 1


# Exact truths: the paper's synthetic task, every replacement enumerated (specs §9).


def vocabulary(m, M):
    """Ids of sparse(+), sparse(-), frequent(+), frequent(-) and irrelevant tokens."""
    plus, minus = range(2, 2 * m + 2, 2), range(3, 2 * m + 3, 2)
    return [0], [1], list(plus), list(minus), list(range(2 * m + 2, M))


def sequences(n, setting, M, T=50, seed=0):
    n_s, n_f, n_d, m = setting
    rng = np.random.default_rng(seed)
    sparse_plus, sparse_minus, plus, minus, irrelevant = vocabulary(m, M)
    many = (n_f + n_d) // 2
    rows = []
    for _ in range(n):
        sparse, mine, other = (sparse_plus, plus, minus)
        if rng.random() < 0.5:
            sparse, mine, other = (sparse_minus, minus, plus)
        row = [
            *rng.choice(mine, many),
            *rng.choice(other, n_f - many),
            *rng.choice(sparse, n_s),
            *rng.choice(irrelevant, T - n_f - n_s),
        ]
        rows.append(rng.permutation(row))
    return np.array(rows, np.int32)


def votes(kind, m, M):
    sparse_plus, sparse_minus, plus, minus, _ = vocabulary(m, M)
    weights = np.zeros(M, np.float32)
    for ids, sign in zip(
        (sparse_plus, sparse_minus) if kind == "sparse" else (plus, minus), (1, -1), strict=True
    ):
        weights[ids] = sign
    return jnp.asarray(weights)


def score_ids(weights, ids):
    return weights[ids].sum(axis=1)


def score_rows(weights, x):
    return (x @ weights).sum(axis=1)


SETTINGS = [
    ("frequent", (3, 3, 1, 6), 59, Fraction(194, 1475)),
    ("frequent", (3, 5, 1, 16), 59, Fraction(849, 2950)),
    ("frequent", (3, 7, 1, 28), 59, Fraction(664, 1475)),
    ("sparse", (3, 5, 1, 16), 59, Fraction(0)),
    ("sparse", (1, 7, 7, 10), 69, Fraction(39, 1150)),
    ("sparse", (1, 17, 7, 20), 69, Fraction(39, 1150)),
    ("sparse", (1, 32, 7, 33), 69, Fraction(39, 1150)),
    ("sparse", (1, 32, 7, 36), 75, Fraction(41, 1250)),
    ("frequent", (1, 17, 7, 20), 69, Fraction(0)),
    ("frequent", (1, 32, 7, 33), 69, Fraction(0)),
]


@pytest.mark.parametrize(("kind", "setting", "M", "truth"), SETTINGS)
def test_enumeration_gives_the_fractions_of_the_paper_s_tables(kind, setting, M, truth):
    ids = sequences(24, setting, M)
    est = measure(
        score_ids, votes(kind, setting[3], M), ids, Perturbation(Tokens(), Resample(M)), "all"
    )
    per_example = {Fraction(int(total), 50 * M) for total in est.totals.sum(axis=1)}
    assert per_example == {truth}
    assert est.mean == pytest.approx(float(truth), abs=1e-15)
    assert est.stderr < 1e-16
    assert est.num_draws == 24 * 50 * M
    assert "every replacement" in str(est)


@pytest.mark.parametrize(("kind", "setting", "M", "truth"), [SETTINGS[0], SETTINGS[4]])
def test_one_hot_rows_are_the_same_sequences(kind, setting, M, truth):
    ids = sequences(6, setting, M)
    weights, replace = votes(kind, setting[3], M), Perturbation(Tokens(), Resample(M))
    rows = np.eye(M, dtype=np.float32)[ids]
    assert same(
        measure(score_rows, weights, rows, replace, "all"),
        measure(score_ids, weights, ids, replace, "all"),
    )


def test_sampling_agrees_with_enumeration():
    kind, setting, M, _ = SETTINGS[2]
    ids, weights = sequences(40, setting, M), votes(kind, setting[3], M)
    replace = Perturbation(Tokens(), Resample(M))
    exact = measure(score_ids, weights, ids, replace, "all").per_example_position
    for options in ({"num_samples": 8}, {"num_samples": 150, "positions": "random"}):
        est = measure(score_ids, weights, ids, replace, **options)
        error = est.totals.sum() - (est.counts * exact).sum()
        variance = (est.counts * exact * (1 - exact)).sum()
        if options.get("positions") == "random":
            # Positions vary as well: a draw is Bernoulli(mean over the positions of its example).
            p = exact.mean(axis=1)
            error = est.totals.sum() - (est.counts.sum(axis=1) * p).sum()
            variance = (est.counts.sum(axis=1) * p * (1 - p)).sum()
        assert abs(error) < 4 * math.sqrt(variance)


# Limits.


def test_sigma_zero_is_exactly_zero():
    still = Perturbation(Patches(2), Gaussian(sigma=0.0))
    est = measure(apply_mlp, mlp(), images(20), still, 2)
    assert est.mean == 0
    assert not est.totals.any()


def sign_parity(params, x):
    return jnp.prod(jnp.sign(x), axis=1)


def test_gaussian_flips_have_their_normal_probability():
    """A parity of signs flips exactly when the noise crosses zero: Φ(-|x|/σ)."""
    x = np.full((50, 3), 1.5, np.float32)
    est = measure(sign_parity, (), x, Perturbation(Bits(), Gaussian(sigma=2.0)), 100)
    p = 0.5 * math.erfc(1.5 / 2.0 / math.sqrt(2))
    assert abs(est.mean - p) < 4 * math.sqrt(p * (1 - p) / est.num_draws)
    assert np.all(np.abs(est.per_position - p) < 4.5 * math.sqrt(p * (1 - p) / 5000))


# Equivalence with a plain loop.


def mlp(seed=1, features=16, classes=3):
    rng = np.random.default_rng(seed)
    hidden, out = rng.normal(size=(features, 12)) / 4, rng.normal(size=(12, classes))
    return {"hidden": jnp.asarray(hidden, jnp.float32), "out": jnp.asarray(out, jnp.float32)}


def apply_mlp(params, x):
    return jnp.tanh(x.reshape(len(x), -1) @ params["hidden"]) @ params["out"]


def images(n, seed=2):
    return np.random.default_rng(seed).normal(size=(n, 4, 4, 1)).astype(np.float32)


NOISE = Perturbation(Patches(2), Gaussian(sigma=1.0))


def reference(apply_fn, params, x, perturbation, num_samples, key, change):
    """Totals by the definition: three Python loops, one input at a time."""
    totals = np.zeros((len(x), perturbation.num_positions(x.shape[1:])))
    predict = jax.jit(lambda x: apply_fn(params, x[None])[0])
    edit = jax.jit(lambda key, x, tau, i, pool: perturbation(key, x, tau, pool=pool, example=i))
    pool = jnp.asarray(x)
    for i, x_i in enumerate(x):
        clean = predict(x_i)
        for tau, s in np.ndindex(totals.shape[1], num_samples):
            draw = jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(key, i), tau), s)
            totals[i, tau] += change(clean, predict(edit(draw, x_i, tau, i, pool)))
    return totals


def flipped(clean, perturbed):
    return float(np.argmax(clean) != np.argmax(perturbed))


@pytest.mark.parametrize("edit", [Gaussian(sigma=1.0), Donor()])
def test_a_plain_loop_over_examples_positions_and_samples_gives_the_same_totals(edit):
    x, params, perturb = images(6), mlp(), Perturbation(Patches(2), edit)
    est = measure(apply_mlp, params, x, perturb, 2)
    assert np.array_equal(est.totals, reference(apply_mlp, params, x, perturb, 2, KEY, flipped))
    assert est.totals.sum() > 0
    assert np.all(est.counts == 2)


@pytest.mark.parametrize(
    ("metric", "change"),
    [
        (jaxsens.relative_l2, lambda a, b: np.linalg.norm(b - a) / np.linalg.norm(a)),
        (jaxsens.squared_change, lambda a, b: np.sum((b - a) ** 2)),
        (lambda clean, perturbed: perturbed[0] - clean[0], lambda a, b: b[0] - a[0]),
    ],
)
def test_other_metrics_agree_with_the_loop_too(metric, change):
    x, params = cube(4)[::3], mlp(features=4)
    est = measure(apply_mlp, params, x, FLIP, 2, metric=metric)
    totals = reference(apply_mlp, params, x, FLIP, 2, KEY, change)
    np.testing.assert_allclose(est.totals, totals, rtol=2e-5, atol=1e-6)
    low, high = est.ci()
    assert low <= est.mean <= high
    assert isinstance(metric, jaxsens.Metric) is (low >= 0)


# Equivalence of every way to cut the work.


@pytest.mark.parametrize("n", [1, 7, 300])
@pytest.mark.parametrize(
    ("num_devices", "chunk_bytes"), [(1, None), (1, 1), (2, 32_000), (8, 1 << 34)]
)
def test_no_cut_of_the_work_changes_a_number(n, num_devices, chunk_bytes):
    x, params = images(n), mlp()
    whole = measure(apply_mlp, params, images(300), NOISE, 2)
    cut = measure(
        apply_mlp, params, x, NOISE, 2, devices=jax.devices()[:num_devices], chunk_bytes=chunk_bytes
    )
    assert np.array_equal(cut.totals, whole.totals[:n])
    assert cut.provenance.num_devices == num_devices


@pytest.mark.parametrize("options", [{"positions": "random"}, {"tolerance": 0.06}])
def test_random_positions_do_not_depend_on_the_cut_either(options):
    x, params = images(300), mlp()
    one = measure(apply_mlp, params, x, NOISE, 20, **options)
    many = measure(
        apply_mlp, params, x, NOISE, 20, devices=jax.devices(), chunk_bytes=80_000, **options
    )
    assert one.provenance.positions == "random"
    assert same(one, many)


@pytest.mark.parametrize("options", [{}, {"positions": "random"}])
def test_context_reaches_the_model_beside_its_own_example(options):
    x, params = images(9), mlp(features=19)
    context = {"a": np.arange(18, dtype=np.float32).reshape(9, 2) / 9, "b": np.ones(9, np.float32)}

    def beside(params, x, context):
        features = [x.reshape(len(x), -1), context["a"], context["b"][:, None]]
        return apply_mlp(params, jnp.concatenate(features, axis=1))

    def inside(params, x):
        # The same model of inputs that carry their context in a row below the image.
        rows = x[:, 4, :3, 0]
        return beside(params, x[:, :4], {"a": rows[:, :2], "b": rows[:, 2]})

    below = np.concatenate([context["a"], context["b"][:, None], np.zeros((9, 1))], axis=1)
    tall = np.concatenate([x, below.astype(np.float32)[:, None, :, None]], axis=1)
    taller = np.concatenate([tall, np.zeros((9, 1, 4, 1), np.float32)], axis=1)
    mask = np.arange(6)[None] < np.full((9, 1), 4)
    est = measure(beside, params, x, NOISE, 3, context=context, chunk_bytes=4_800, **options)
    other = measure(inside, params, taller, NOISE, 3, mask=mask, **options)
    assert np.array_equal(est.totals, other.totals[:, :4])
    assert est.totals.sum() > 0


def test_a_part_with_its_names_has_the_draws_of_the_whole():
    x, params, part = images(30), mlp(), np.array([3, 29, 4, 11])
    whole = measure(apply_mlp, params, x, NOISE, 2)
    by_itself = measure(apply_mlp, params, x[part], NOISE, 2, example_ids=part)
    assert np.array_equal(by_itself.totals, whole.totals[part])
    assert not np.array_equal(by_itself.totals, whole.totals[:4])


def test_jit_off_is_the_same():
    x, params = cube(3), mlp(features=3)
    jitted = measure(apply_mlp, params, x, FLIP, "all")
    with jax.disable_jit():
        eager = measure(apply_mlp, params, x, FLIP, "all", chunk_bytes=1_600)
    assert jitted.totals.any()
    assert same(jitted, eager)


def test_old_and_new_style_keys_are_the_same_key():
    x, params = images(5), mlp()
    new = measure(apply_mlp, params, x, NOISE, 2, key=jax.random.key(7))
    old = measure(apply_mlp, params, x, NOISE, 2, key=jax.random.PRNGKey(7))
    assert same(new, old)
    assert new.provenance.seed == old.provenance.seed == (0, 7)
    other = measure(apply_mlp, params, x, NOISE, 2, key=jax.random.key(8))
    assert not same(new, other)


def test_arrays_of_numpy_jax_and_other_devices_are_the_same_arrays():
    x, params, key = cube(5), mlp(features=5), jax.random.key(7)
    expected = measure(apply_mlp, params, x, FLIP, 2, key=key, positions="random")
    away = jax.device_put((params, x, key), jax.devices()[3])
    there = jax.devices()[5:7]
    moved = measure(
        apply_mlp, away[0], away[1], FLIP, 2, key=away[2], positions="random", devices=there
    )
    assert same(expected, moved)
    on_host = jax.tree.map(np.asarray, params)
    assert same(expected, measure(apply_mlp, on_host, x, FLIP, 2, key=key, positions="random"))


def test_merged_shards_have_the_examples_of_both():
    x, params = images(9), mlp()
    first = measure(apply_mlp, params, x[:4], NOISE, 2)
    second = measure(apply_mlp, params, x[4:], NOISE, 2, key=jax.random.key(1))
    merged = first.merge(second)
    assert np.array_equal(merged.totals, np.concatenate([first.totals, second.totals]))
    assert merged.mean == pytest.approx((4 * first.mean + 5 * second.mean) / 9)


# Positions and masks.


def test_positions_average_to_the_mean():
    est = measure(apply_mlp, mlp(), images(30), NOISE, 2)
    assert est.per_position.mean() == pytest.approx(est.mean)
    assert est.per_example.mean() == pytest.approx(est.mean)
    assert est.per_position.shape == (4,)


def test_random_positions_are_s_draws_an_example():
    est = measure(apply_mlp, mlp(), images(300), NOISE, 2, positions="random")
    assert np.all(est.counts.sum(axis=1) == 2)
    assert est.num_draws == 600
    assert est.provenance.num_passes == 300 * (2 + 1)
    assert est.provenance.exhaustive_passes == 300 * (4 * 2 + 1)
    # Uniform over positions.
    share = est.counts.sum(axis=0) / 600
    assert np.all(np.abs(share - 1 / 4) < 4 * math.sqrt(3 / 16 / 600))


MASK = np.array(
    [[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 0], [0, 1, 1, 0]] * 4, dtype=bool
)


@pytest.mark.parametrize("positions", ["all", "random"])
def test_masked_positions_never_count(positions):
    x, params = images(20), mlp()
    est = measure(apply_mlp, params, x, NOISE, 2, mask=MASK, positions=positions)
    assert not est.counts[~MASK].any()
    assert not est.totals[~MASK].any()
    assert est.num_examples == 16
    assert np.isnan(est.per_example[2])
    assert np.isnan(est.per_position[3])
    assert not np.isnan(est.per_position[:3]).any()
    if positions == "random":
        assert np.array_equal(est.counts.sum(axis=1), 2 * MASK.any(axis=1))
        return
    full = measure(apply_mlp, params, x, NOISE, 2)
    assert np.array_equal(est.totals, np.where(MASK, full.totals, 0))
    assert est.provenance.exhaustive_passes == 2 * MASK.sum() + 20
    kept = MASK.any(axis=1)
    expected = full.totals[kept].sum(axis=1, where=MASK[kept]) / (2 * MASK[kept].sum(axis=1))
    assert est.mean == pytest.approx(expected.mean())


def test_a_mask_may_be_of_numbers():
    x, params = images(20), mlp()
    numbers = measure(apply_mlp, params, x, NOISE, 2, mask=MASK.astype(np.float32))
    assert same(numbers, measure(apply_mlp, params, x, NOISE, 2, mask=MASK))


def test_padding_may_hold_what_the_edit_would_refuse():
    x, mask = cube(3).copy(), np.ones((8, 3), bool)
    x[:, 2], mask[:, 2] = 0, False
    assert measure(dictator_of_first, (), x, FLIP, "all", mask=mask).mean == 0.5


def dictator_of_first(params, x):
    return x[:, 0]


# Provenance.


def test_the_record_says_how_it_was_made():
    est = measure(apply_mlp, mlp(), images(10), NOISE, 2, key=jax.random.key(5))
    made = est.provenance
    assert made.metric == "label_flip"
    assert made.perturbation == (
        "Perturbation(grid=Patches(size=2), edit=Gaussian(sigma=1, variance=1))"
    )
    assert (made.num_samples, made.exact, made.positions) == (2, False, "all")
    assert made.tolerance is None
    assert made.seed == (0, 5)
    assert made.precision == "highest"
    assert made.device == "cpu"
    assert made.num_passes == made.exhaustive_passes == 10 * (4 * 2 + 1)
    assert made.seconds > 0
    assert est.draws_per_second == pytest.approx(est.num_draws / made.seconds)


@pytest.mark.parametrize("incremental", [False, True])
@pytest.mark.parametrize("streams", [2, 3, 5])
def test_calls_side_by_side_change_no_number(monkeypatch, streams, incremental):
    x, options = images(13), {"key": jax.random.key(5), "incremental": incremental}
    monkeypatch.setattr(runtime, "num_concurrent_calls", lambda mesh: 1)
    one = measure(apply_mlp, mlp(), x, NOISE, 2, **options)
    monkeypatch.setattr(runtime, "num_concurrent_calls", lambda mesh: streams)
    several = measure(apply_mlp, mlp(), x, NOISE, 2, **options)
    np.testing.assert_array_equal(one.totals, several.totals)


def test_products_run_in_full_precision():
    seen = []

    def spy(params, x):
        seen.append(jax.config.jax_default_matmul_precision)
        return x

    measure(spy, (), cube(3), FLIP, "all")
    assert seen[-1] == "highest"


def test_progress_ends_at_the_whole():
    calls = []
    est = measure(
        apply_mlp, mlp(), images(700), NOISE, 2, progress=lambda *call: calls.append(call)
    )
    done, total, mean = zip(*calls, strict=True)
    assert list(done) == sorted(done)
    assert len(done) > 1
    assert set(total) == {700}
    assert done[-1] == 700
    assert mean[-1] == pytest.approx(est.mean)


# A user's own model.


class Linen(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(x)


class Nnx(nnx.Module):
    def __init__(self, rngs):
        self.dense = nnx.Linear(6, 3, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, deterministic=True, rngs=rngs)

    def __call__(self, x):
        return self.dropout(self.dense(x))


def test_linen_nnx_and_plain_jax_agree_on_one_model():
    x, linen = cube(6), Linen()
    params = linen.init(KEY, x)
    kernel, bias = params["params"]["Dense_0"]["kernel"], params["params"]["Dense_0"]["bias"]
    model = Nnx(nnx.Rngs(0))
    model.dense.kernel[...], model.dense.bias[...] = kernel, bias
    graph, state = nnx.split(model)
    by_linen = measure(linen.apply, params, x, FLIP, "all")
    by_nnx = measure(lambda state, x: nnx.merge(graph, state)(x), state, x, FLIP, "all")
    by_hand = measure(lambda kernel, x: x @ kernel + bias[None], kernel, x, FLIP, "all")
    assert same(by_linen, by_nnx)
    assert same(by_linen, by_hand)
    assert by_linen.mean > 0


# One compilation.


@pytest.mark.parametrize("num_devices", [1, 8])
@pytest.mark.parametrize(
    "options", [{}, {"positions": "random"}, {"tolerance": 0.1}], ids=["all", "random", "within"]
)
def test_one_compilation_whatever_the_number_of_examples(options, num_devices, compilations):
    traces = []

    def counted(params, x):
        traces.append(x.shape)
        return apply_mlp(params, x)

    devices, params, x = jax.devices()[:num_devices], mlp(features=11), cube(11)
    measure(counted, params, x[:600], FLIP, 5, devices=devices, **options)
    once = len(traces)
    assert compilations
    params, key = mlp(seed=5, features=11), jax.random.key(5)
    compilations.clear()
    for n in (600, 599, 601, 2048, 1000):
        est = measure(counted, params, x[:n], FLIP, 5, devices=devices, key=key, **options)
        assert est.provenance.positions == ("random" if options else "all")
    assert len(traces) == once
    assert compilations == []


# Bad input: one clear line each.


def bad(message, **changes):
    return pytest.param(changes, message, id=message[:40])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        bad(r"Patches needs images \(H, W, C\); got an example of shape", x=np.ones((3, 16))),
        bad("x has no examples: its shape is", x=np.ones((0, 4, 4, 1))),
        bad("x has no examples: its shape is", x=np.float32(1.0)),
        bad("have no position to edit", x=np.ones((3, 0, 0, 1))),
        bad(
            "patch=3 does not divide image side 4; choose one of 1, 2, 4",
            perturbation=Perturbation(Patches(3), Gaussian(sigma=1.0)),
        ),
        bad("x has non-finite values in 1 of 3 examples, first in example 1",
            x=np.stack([np.ones((4, 4, 1)), np.full((4, 4, 1), np.nan), np.ones((4, 4, 1))])),
        bad("x has non-finite values in 2 of 2 examples", x=np.full((2, 4, 4, 1), np.inf)),
        bad("mask must have shape", mask=np.ones((3, 5), bool)),
        bad("mask must have shape", mask=np.ones(3, bool)),
        bad("mask leaves no position to measure", mask=np.zeros((3, 4), bool)),
        bad("example_ids must be n = 3 whole numbers", example_ids=np.arange(4)),
        bad("example_ids must be n = 3 whole numbers", example_ids=np.array([0, -1, 2])),
        bad("leave example_ids out",
            example_ids=np.arange(3), perturbation=Perturbation(Patches(2), Donor())),
        bad("context must hold arrays with n = 3 examples", context={"mask": np.ones((2, 4))}),
        bad("num_samples must be a whole number >= 1, or 'all'; got 0", num_samples=0),
        bad("num_samples must be a whole number >= 1, or 'all'; got -2", num_samples=-2),
        bad("num_samples='all' enumerates every replacement", num_samples="all"),
        bad("tolerance must be positive; got -0.1", tolerance=-0.1),
        bad("tolerance must be positive; got 0.0", tolerance=0.0),
        bad("tolerance must be positive; got nan", tolerance=math.nan),
        bad("tolerance draws positions at random", tolerance=0.1, positions="all"),
        bad("chunk_bytes must be positive; got 0", chunk_bytes=0),
        bad("Gaussian noise needs floating-point inputs; got int32", x=np.ones((3, 4, 4, 1), int)),
        bad("needs at least 2 examples; got 1",
            x=np.ones((1, 4, 4, 1)), perturbation=Perturbation(Patches(2), Donor())),
        bad("needs inputs that are -1 or 1; got 0",
            x=np.zeros((3, 4)), perturbation=FLIP, apply_fn=parity),
        bad(r"apply_fn must map a batch .* got tuple", apply_fn=lambda p, x: (x, x)),
        bad(r"apply_fn must map a batch .* got dict", apply_fn=lambda p, x: {"logits": x}),
        bad(r"apply_fn must map a batch .* got \(\)", apply_fn=lambda p, x: x.sum()),
        bad(r"apply_fn must map a batch .* got \(2, 4, 4, 1\)", apply_fn=lambda p, x: x),
        bad(r"apply_fn must map a batch .* got \(4, 4\)", apply_fn=lambda p, x: x[0, :, :, 0]),
        bad("key must be one key", key=jax.random.split(KEY)),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_line(changes, message):
    given = {
        "apply_fn": apply_mlp,
        "params": mlp(),
        "x": np.ones((3, 4, 4, 1)),
        "perturbation": NOISE,
        "num_samples": 2,
    }
    with pytest.raises(ValueError, match=message) as error:
        measure(**(given | changes))
    assert "\n" not in str(error.value)


def blows_up(limit, x):
    total = x.sum(axis=1)
    return jnp.stack([jnp.where(total > limit, jnp.inf, total), total], axis=1)


@pytest.mark.parametrize("positions", ["all", "random"])
def test_non_finite_logits_of_a_clean_example_are_named(positions):
    """Example 270 alone has a sum of 4; its edits have 2, those of the others -2."""
    x = np.full((300, 4), -1.0, np.float32)
    x[270] = 1
    with pytest.raises(ValueError, match="not finite for example 270 or an edit"):
        measure(blows_up, jnp.float32(3), x, FLIP, 2, positions=positions)
    assert measure(blows_up, jnp.float32(4), x, FLIP, 2, positions=positions).mean == 0


@pytest.mark.parametrize("positions", ["all", "random"])
def test_non_finite_logits_of_an_edit_alone_are_found(positions):
    """Every clean sum is -4, every edited one -2."""
    x = np.full((300, 4), -1.0, np.float32)
    with pytest.raises(ValueError, match="not finite for example"):
        measure(blows_up, jnp.float32(-3), x, FLIP, 2, positions=positions)


def test_non_finite_logits_of_a_masked_position_do_not_matter():
    mask = np.zeros((8, 3), bool)
    mask[:, 0] = True

    def hates_an_edit_of_the_second_bit(params, x):
        return jnp.where(x[:, 1] < 0, jnp.nan, x[:, 0])

    x = np.ones((8, 3), np.float32)
    assert measure(hates_an_edit_of_the_second_bit, (), x, FLIP, "all", mask=mask).mean == 1
    with pytest.raises(ValueError, match="not finite for example 0"):
        measure(hates_an_edit_of_the_second_bit, (), x, FLIP, "all")


def test_a_relative_change_of_nothing_is_not_a_number():
    with pytest.raises(ValueError, match="logits, or the metric of them, are not finite"):
        measure(majority, (), cube(4), FLIP, "all", metric=jaxsens.relative_l2)
