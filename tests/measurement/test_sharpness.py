"""The measurement: closed forms, equivalences, limits, one compilation, coverage, bad input."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx
from scipy.stats import norm

import jaxsens
from jaxsens import Gaussian, Relative, Sphere
from jaxsens.measurement import weight_draws
from jaxsens.perturbations.weight_noise import directions, perturb

KEY = jax.random.key(0)
ONE = jax.devices()[:1]
NOISE = Gaussian(sigma=0.3)


def measure(
    apply_fn, params, x, perturbation=NOISE, num_samples=5, *, key=KEY, devices=ONE, **rest
):
    return jaxsens.sharpness(
        apply_fn, params, x, perturbation, num_samples, key=key, devices=devices, **rest
    )


def mlp(seed=1, features=6, classes=3):
    rng = np.random.default_rng(seed)
    hidden, out = rng.normal(size=(features, 12)) / 2, rng.normal(size=(12, classes))
    return {"hidden": jnp.asarray(hidden, jnp.float32), "out": jnp.asarray(out, jnp.float32)}


def apply_mlp(params, x):
    return jnp.tanh(x @ params["hidden"]) @ params["out"]


def inputs(n, features=6, seed=2):
    return np.random.default_rng(seed).normal(size=(n, features)).astype(np.float32)


def labels(n, classes=3, seed=3):
    return np.random.default_rng(seed).integers(0, classes, n)


def linear(w, x):
    return x @ w


def close(a, b):
    """The same flips, and the same numbers to rounding."""
    assert list(a.changes) == list(b.changes)
    assert np.array_equal(a.flips.per_example_draw, b.flips.per_example_draw)
    for name, change in a.changes.items():
        other = b.changes[name].per_example_draw
        np.testing.assert_allclose(change.per_example_draw, other, rtol=1e-4, atol=2e-6)


# Closed forms: a linear score w·x under N(0, σ²) on w moves by N(0, σ²‖x‖²).


def z_score(values, truth):
    """Of independent values, against their expectation."""
    return (np.mean(values) - truth) / (np.std(values, ddof=1) / math.sqrt(len(values)))


def test_a_linear_score_moves_by_its_closed_forms():
    x, w, sigma, S = inputs(4), jnp.asarray(inputs(1, seed=9)[0] / 3), 0.5, 4000
    est = measure(linear, w, x, Gaussian(sigma=sigma), S)
    for i, size in enumerate(sigma * np.linalg.norm(x, axis=1)):
        score = abs(float(x[i] @ w))
        truths = {
            "l1": size * math.sqrt(2 / math.pi),
            "squared": size**2,
            "flips": norm.cdf(-score / size),
        }
        for name, truth in truths.items():
            assert abs(z_score(est.changes[name].per_example_draw[i], truth)) < 4


def test_classes_add_up():
    """Independent noise on each of C columns: L1 and squared changes are C times those of one."""
    x, C, S, sigma = inputs(3), 5, 3000, 0.5
    est = measure(linear, jnp.zeros((6, C)), x, Gaussian(variance=sigma**2), S)
    for i, size in enumerate(sigma * np.linalg.norm(x, axis=1)):
        one = C * size * math.sqrt(2 / math.pi)
        assert abs(z_score(est.l1.per_example_draw[i], one)) < 4
        assert abs(z_score(est.squared.per_example_draw[i], C * size**2)) < 4


def test_flips_of_a_draw_are_the_angle_between_the_weights():
    """For isotropic inputs P(sign w·x ≠ sign w'·x) = arccos(cos(w, w'))/π."""
    n, w = 20_000, jnp.asarray([1.0, -0.5, 0.2])
    est = measure(linear, w, inputs(n, 3), Gaussian(sigma=0.7), 4)
    for s, flips in enumerate(est.flips.per_draw):
        new = w + 0.7 * directions(KEY, s, w)
        p = math.acos(float(w @ new / jnp.linalg.norm(w) / jnp.linalg.norm(new))) / math.pi
        assert abs(flips - p) < 4 * math.sqrt(p * (1 - p) / n)


def test_loss_of_a_score_rises_by_its_integral():
    """From w = 0 the loss log 2 becomes E log(1 + e^z), z ~ N(0, σ²‖x‖²), whatever the label."""
    x, S = inputs(4), 4000
    est = measure(linear, jnp.zeros(6), x, Gaussian(sigma=0.8), S, y=np.array([0, 1, 1, 0]))
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    for i, size in enumerate(0.8 * np.linalg.norm(x, axis=1)):
        truth = weights @ np.logaddexp(0, size * nodes) / weights.sum() - math.log(2)
        assert abs(z_score(est.loss.per_example_draw[i], truth)) < 4


def test_a_sphere_around_one_weight_is_two_points():
    est = measure(lambda w, x: w * x, jnp.float32(3.0), inputs(9, 1)[:, 0], Sphere(0.5), 8)
    expected = np.repeat(0.5 * np.abs(inputs(9, 1)), 8, axis=1)
    np.testing.assert_allclose(est.l1.per_example_draw, expected, rtol=2e-6)
    np.testing.assert_allclose(est.squared.per_example_draw, expected**2, rtol=4e-6)


def test_a_sphere_of_radius_sigma_root_p_is_nearly_gaussian():
    w, x = jnp.zeros(500), inputs(40, 500)
    truth = 0.1**2 * np.square(x).sum(axis=1).mean()
    for noise in (Gaussian(sigma=0.1), Sphere(0.1 * math.sqrt(500))):
        low, high = measure(linear, w, x, noise, 50).squared.ci(0.9999)
        assert low < truth < high


def test_a_tie_is_a_class_of_its_own():
    """From score 0 any move is a flip; class 1 of equal logits is not the first of them."""
    assert measure(linear, jnp.zeros(6), inputs(5)).flips.mean == 1
    shift = lambda w, x: jnp.zeros((len(x), 2)) + w  # noqa: E731
    est = measure(shift, jnp.zeros((1, 1)), inputs(5))
    assert est.flips.mean == 0
    assert est.l1.mean > 0


# Limits.


@pytest.mark.parametrize("noise", [Gaussian(sigma=0.0), Sphere(0.0), Relative(0.0)])
@pytest.mark.parametrize("num_samples", [1, 3])
def test_no_noise_is_exactly_no_change(noise, num_samples):
    est = measure(apply_mlp, mlp(), inputs(70), noise, num_samples, y=labels(70))
    for change in est.changes.values():
        assert not change.per_example_draw.any()


def test_masked_leaves_stay():
    """An output layer of zeros hides the hidden layer; noise on the output alone is linear."""
    params = mlp() | {"out": jnp.zeros((12, 3))}
    est = measure(apply_mlp, params, inputs(20), mask={"hidden": True, "out": False})
    assert not est.l1.per_example_draw.any()
    assert est.provenance.num_weights == 6 * 12
    assert measure(apply_mlp, params, inputs(20), mask={"hidden": False, "out": True}).l1.mean > 0


def test_one_draw_has_a_mean_but_no_interval():
    est = measure(apply_mlp, mlp(), inputs(20), num_samples=1)
    assert est.l1.mean > 0
    assert (est.flips.ci(), est.l1.ci()) == ((0, 1), (0, math.inf))


# Equivalence with a plain loop.


@pytest.mark.parametrize("noise", [NOISE, Sphere(2.0), Relative(0.4)])
def test_a_plain_loop_gives_the_same_changes(noise):
    x, y, params, S = inputs(11), labels(11), mlp(), 3
    est = measure(apply_mlp, params, x, noise, S, y=y)
    clean = np.asarray(apply_mlp(params, x), float)

    def cross_entropy(logits):
        return np.logaddexp.reduce(logits, axis=1) - logits[np.arange(len(y)), y]

    for s in range(S):
        new = perturb(noise, directions(KEY, s, params), params, (True, True))
        out = np.asarray(apply_mlp(dict(zip(["hidden", "out"], new, strict=True)), x), float)
        expected = {
            "flips": out.argmax(axis=1) != clean.argmax(axis=1),
            "l1": np.abs(out - clean).sum(axis=1),
            "squared": np.square(out - clean).sum(axis=1),
            "loss": cross_entropy(out) - cross_entropy(clean),
        }
        for name, change in est.changes.items():
            mine = change.per_example_draw[:, s]
            np.testing.assert_allclose(mine, expected[name], rtol=1e-4, atol=1e-5)
    assert est.flips.mean > 0


# Equivalence of every way to cut the work.


@pytest.mark.parametrize("n", [1, 7, 300])
@pytest.mark.parametrize(
    ("num_devices", "chunk_bytes"), [(1, None), (1, 1), (2, 32_000), (8, 1 << 34)]
)
def test_no_cut_of_the_examples_changes_a_number(n, num_devices, chunk_bytes):
    params = mlp()
    whole = measure(apply_mlp, params, inputs(300), y=labels(300))
    devices = jax.devices()[:num_devices]
    cut = measure(
        apply_mlp, params, inputs(300)[:n], y=labels(300)[:n], devices=devices,
        chunk_bytes=chunk_bytes,
    )  # fmt: skip
    first = {name: change.per_example_draw[:n] for name, change in whole.changes.items()}
    close(cut, jaxsens.SharpnessEstimate.of(first, whole.provenance))
    assert cut.provenance.num_devices == num_devices


@pytest.mark.parametrize("copies", [0, 2, 3, 4])
def test_no_cut_of_the_draws_changes_a_number(copies, monkeypatch):
    """Clean weights and as many draws as fit, at least one."""
    params = mlp()
    whole = measure(apply_mlp, params, inputs(40))
    monkeypatch.setattr(weight_draws, "WEIGHT_BYTES", copies * 2 * 4 * (6 * 12 + 12 * 3))
    cut = measure(apply_mlp, params, inputs(40))
    close(cut, whole)
    rounds = {0: 5, 2: 5, 3: 3, 4: 2}[copies]
    assert cut.provenance.num_passes == 40 * (5 + rounds)
    assert whole.provenance.num_passes == 40 * (5 + 1)


def test_more_draws_extend_fewer():
    few, many = (measure(apply_mlp, mlp(), inputs(20), num_samples=S) for S in (3, 8))
    assert np.array_equal(few.flips.per_example_draw, many.flips.per_example_draw[:, :3])


@pytest.mark.slow
def test_jit_off_is_the_same():
    options = {"num_samples": 2, "y": labels(5), "chunk_bytes": 8_000}
    jitted = measure(apply_mlp, mlp(), inputs(5), **options)
    with jax.disable_jit():
        close(measure(apply_mlp, mlp(), inputs(5), **options), jitted)


def test_keys_and_arrays_of_any_kind_are_the_same():
    x, params = inputs(20), mlp()
    expected = measure(apply_mlp, params, x, key=jax.random.key(7))
    close(measure(apply_mlp, params, x, key=jax.random.PRNGKey(7)), expected)
    away = jax.device_put((params, x, jax.random.key(7)), jax.devices()[3])
    close(measure(apply_mlp, *away[:2], key=away[2], devices=jax.devices()[5:7]), expected)
    on_host = jax.tree.map(np.asarray, params)
    close(measure(apply_mlp, on_host, jnp.asarray(x), key=jax.random.key(7)), expected)
    other = measure(apply_mlp, params, x, key=jax.random.key(8))
    assert not np.array_equal(other.l1.per_example_draw, expected.l1.per_example_draw)


# A user's own model.


class Linen(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        x = nn.BatchNorm(use_running_average=not train)(nn.Dense(3)(x))
        return nn.Dropout(0.5, deterministic=not train)(x)


class Nnx(nnx.Module):
    def __init__(self, rngs):
        self.dense = nnx.Linear(6, 3, rngs=rngs)

    def __call__(self, x):
        return self.dense(x)


WEIGHTS = {"params": True, "batch_stats": False}


def test_linen_variables_are_measured_without_their_statistics():
    model, x = Linen(), inputs(30)
    variables = model.init(KEY, x)
    est = measure(model.apply, variables, x, mask=WEIGHTS)
    assert est.provenance.num_weights == 6 * 3 + 3 + 3 + 3
    statistics = variables["batch_stats"]
    by_closure = measure(
        lambda params, x: model.apply({"params": params, "batch_stats": statistics}, x),
        variables["params"], x,
    )  # fmt: skip
    # The same weights, but other noise: "batch_stats" comes first in ξ.
    assert by_closure.provenance.num_weights == est.provenance.num_weights
    assert est.l1.mean == pytest.approx(by_closure.l1.mean, rel=0.5)


def test_nnx_and_plain_jax_agree_on_one_model():
    graph, state = nnx.split(Nnx(nnx.Rngs(0)))
    x, leaves = inputs(30), jax.tree.leaves(state)
    by_nnx = measure(lambda state, x: nnx.merge(graph, state)(x), state, x)
    close(by_nnx, measure(lambda leaves, x: x @ leaves[1] + leaves[0][None], leaves, x))


@dataclass(frozen=True)
class LargestFirst:
    """Noise in proportion to the largest weight of each leaf."""

    share: float

    def scales(self, leaves, xi):
        return [self.share * jnp.max(jnp.abs(leaf)) for leaf in leaves]


def test_a_noise_of_one_s_own():
    x, w = inputs(8), jnp.full(6, 2.0)
    close(measure(linear, w, x, LargestFirst(0.1)), measure(linear, w, x, Gaussian(sigma=0.2)))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_low_precision_models_are_compared_in_float32(dtype):
    params = jax.tree.map(lambda leaf: leaf.astype(dtype), mlp())
    apply = lambda params, x: apply_mlp(params, x.astype(dtype))  # noqa: E731
    est = measure(apply, params, inputs(20), y=labels(20))
    rough = measure(apply_mlp, mlp(), inputs(20), y=labels(20))
    # Not the same noise in another dtype, but noise of the same size.
    assert est.l1.mean == pytest.approx(rough.l1.mean, rel=0.6)


def test_whole_numbers_may_be_outputs():
    apply = lambda w, x: jnp.stack([jnp.round(x @ w), jnp.zeros(len(x))], axis=1).astype(jnp.int32)  # noqa: E731
    est = measure(apply, jnp.ones(6), inputs(20), y=labels(20, 2))
    assert np.array_equal(est.l1.per_example_draw, np.round(est.l1.per_example_draw))


# The perturbed pass in training mode.


def test_the_perturbed_pass_may_have_noise_of_its_own():
    model, x = Linen(), inputs(600)
    variables = model.init(KEY, x)

    def train(variables, x, key):
        logits, _ = model.apply(
            variables, x, train=True, rngs={"dropout": key}, mutable=["batch_stats"]
        )
        return logits

    still = Gaussian(sigma=0.0)
    assert measure(model.apply, variables, x, still, mask=WEIGHTS).l1.mean == 0
    est = measure(model.apply, variables, x, still, mask=WEIGHTS, perturbed_apply_fn=train)
    assert est.provenance.perturbed_apply_fn == "train"
    assert est.l1.mean > 0.1
    # Dropout differs from draw to draw.
    table = est.l1.per_example_draw
    assert len(np.unique(table, axis=1).T) == 5
    again = measure(model.apply, variables, x, still, mask=WEIGHTS, perturbed_apply_fn=train)
    assert np.array_equal(table, again.l1.per_example_draw)


def test_every_batch_and_draw_has_its_own_key():
    def coin(params, x, key):
        return jnp.broadcast_to(jax.random.normal(key, ()), (len(x),))

    est = measure(
        lambda params, x: jnp.zeros(len(x)), jnp.zeros(1), inputs(70), num_samples=3,
        perturbed_apply_fn=coin, perturbed_batch=30,
    )  # fmt: skip
    assert len(np.unique(est.l1.per_example_draw)) == 3 * 3
    for batch in (slice(0, 30), slice(30, 60), slice(60, 70)):
        assert len(np.unique(est.l1.per_example_draw[batch])) == 3


@pytest.mark.parametrize("n", [1, 7, 8, 300, 701])
@pytest.mark.parametrize(("num_devices", "chunk_bytes"), [(1, None), (1, 1), (2, 2_000), (8, None)])
def test_a_batch_is_its_own_examples_whatever_the_cut(n, num_devices, chunk_bytes, monkeypatch):
    """A model that takes the mean off its batch, as BatchNorm in training mode does."""
    monkeypatch.setattr(weight_draws, "WEIGHT_BYTES", 2 * 2 * 4 * (6 * 12 + 12 * 3))
    x, params, size = inputs(n), mlp(), 8

    def centred(params, x, key):
        logits = apply_mlp(params, x)
        return logits - logits.mean(axis=0, keepdims=True)

    est = measure(
        apply_mlp, params, x, Gaussian(sigma=0.0), 2, chunk_bytes=chunk_bytes,
        devices=jax.devices()[:num_devices], perturbed_apply_fn=centred, perturbed_batch=size,
    )  # fmt: skip
    clean = np.asarray(apply_mlp(params, x))
    means = [clean[at : at + size].mean(axis=0) for at in range(0, n, size)]
    expected = np.repeat(np.abs(means).sum(axis=1), size)[:n]
    for column in est.l1.per_example_draw.T:
        np.testing.assert_allclose(column, expected, rtol=1e-4)
    assert est.provenance.perturbed_batch == size
    assert measure(apply_mlp, params, x[:3]).provenance.perturbed_batch is None


def test_hosts_share_whole_batches(monkeypatch):
    plan = weight_draws._plan_of_batches(40)
    part = weight_draws.Part(0, 7 * 40, 40, plan)
    monkeypatch.setattr(jax, "process_count", lambda: 3)
    shares = []
    for process in range(3):
        monkeypatch.setattr(jax, "process_index", lambda process=process: process)
        shares.append((part.share.start, part.share.stop))
    assert shares == [(0, 80), (80, 160), (160, 280)]
    dealt = part.dealt(num_devices=2)
    assert plan.chunk == 240
    assert [set(row // 40) for row in dealt] == [{0, 2, 4, 6, 8, 10}, {1, 3, 5, 7, 9, 11}]
    assert np.array_equal(np.sort(dealt.ravel()), np.arange(2 * 240))


def test_the_same_function_is_the_same_measurement():
    deaf = lambda params, x, key: apply_mlp(params, x)  # noqa: E731
    plain = measure(apply_mlp, mlp(), inputs(20), y=labels(20))
    close(measure(apply_mlp, mlp(), inputs(20), y=labels(20), perturbed_apply_fn=deaf), plain)


# Provenance.


def test_the_record_says_how_it_was_made():
    est = measure(apply_mlp, mlp(), inputs(10), key=jax.random.key(5))
    made = est.provenance
    assert made.perturbation == "Gaussian(sigma=0.3, variance=0.09)"
    assert made.num_weights == 6 * 12 + 12 * 3
    assert (made.seed, made.precision, made.device) == ((0, 5), "highest", "cpu")
    assert made.perturbed_apply_fn is None
    assert made.seconds > 0
    assert est.loss is None
    assert (est.num_examples, est.num_draws) == (10, 5)


def test_products_run_in_full_precision():
    seen = []

    def spy(w, x):
        seen.append(jax.config.jax_default_matmul_precision)
        return x @ w

    measure(spy, jnp.ones(6), inputs(3))
    assert seen[-1] == "highest"


def test_progress_ends_at_the_whole():
    calls = []
    est = measure(apply_mlp, mlp(), inputs(700), progress=lambda *call: calls.append(call))
    done, total, mean = zip(*calls, strict=True)
    assert list(done) == sorted(done)
    assert len(done) > 1
    assert set(total) == {700 * 5}
    assert done[-1] == 700 * 5
    assert mean[-1] == pytest.approx(est.flips.mean)


# One compilation.


@pytest.mark.parametrize("num_devices", [1, 8])
def test_one_compilation_whatever_the_number_of_examples(num_devices, compilations):
    traces = []

    def counted(params, x):
        traces.append(x.shape)
        return apply_mlp(params, x)

    devices, params, x, y = jax.devices()[:num_devices], mlp(), inputs(2048), labels(2048)
    measure(counted, params, x[:600], devices=devices, y=y[:600])
    once = len(traces)
    assert compilations
    params, key = mlp(seed=5), jax.random.key(5)
    compilations.clear()
    for n in (600, 599, 1, 2048, 1000):
        measure(counted, params, x[:n], devices=devices, y=y[:n], key=key)
    assert len(traces) == once
    assert compilations == []
    # Another noise is another program that draws weights, but not another model.
    for noise in (Gaussian(sigma=0.1), Sphere(1.0)):
        measure(counted, params, x[:600], noise, devices=devices, y=y[:600])
    assert len(traces) == once


# Coverage: inputs uniform on the sphere in three dimensions, a linear score.


def truths(a):
    """With a = ‖w‖/σ, and |w·x|/‖w‖ uniform on [0, 1] (Archimedes): E Φ(-a·t) over t."""
    flips = (a * norm.cdf(-a) + norm.pdf(0) - norm.pdf(a)) / a
    return {"flips": flips, "l1": math.sqrt(2 / math.pi) / a, "squared": 1 / a**2}


def coverage(a, n, S, runs):
    """Share of runs, each with its own examples and draws, whose intervals hold the truth."""
    rng, w = np.random.default_rng(0), jnp.asarray([0.0, 0.0, 1.0])
    held = dict.fromkeys(truths(a), 0)
    for run in range(runs):
        x = rng.normal(size=(n, 3)).astype(np.float32)
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        est = measure(linear, w, x, Gaussian(sigma=1 / a), S, key=jax.random.key(run))
        for name, truth in truths(a).items():
            low, high = est.changes[name].ci()
            held[name] += low <= truth <= high
    return {name: count / runs for name, count in held.items()}


def test_intervals_cover_the_truth_in_a_few_runs():
    assert min(coverage(3.0, 100, 5, 40).values()) >= 0.8


@pytest.mark.slow
@pytest.mark.parametrize("a", [0.5, 3.0, 30.0])
@pytest.mark.parametrize(("n", "S"), [(400, 5), (50, 20), (30, 100)])
def test_intervals_cover_the_truth(a, n, S):
    """Three weights are the hardest case: draws differ as ‖N(0, I₃)‖ does, and dominate."""
    assert min(coverage(a, n, S, 400).values()) > 0.95 - 4 * math.sqrt(0.95 * 0.05 / 400)


# Bad input: one clear line each.


def bad(message, **changes):
    return pytest.param(changes, message, id=message[:40])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        bad("x has no examples: its shape is", x=np.ones((0, 6))),
        bad("x has no examples: its shape is", x=np.float32(1.0)),
        bad("num_samples must be a whole number >= 1; got 0", num_samples=0),
        bad("num_samples must be a whole number >= 1; got -2", num_samples=-2),
        bad("there is no weight to perturb: of 2 leaves, 0 are selected", mask=False),
        bad("there is no weight to perturb: of 0 leaves", params=(), apply_fn=lambda p, x: x),
        bad("mask must have the structure of params or a prefix", mask={"hidden": True}),
        bad(r"y must be whole numbers of shape \(n,\) = \(3,\); got int64 of shape",
            y=np.ones((3, 1), int)),
        bad(r"y must be whole numbers .*; got float64 of shape", y=np.ones(3)),
        bad("y must be class indices from 0 to 2; got values from 0 to 3", y=np.array([0, 1, 3])),
        bad("y must be class indices from 0 to 2; got values from -1 to 1", y=np.array([0, 1, -1])),
        bad("y must be class indices from 0 to 1; got values from -1 to 1",
            y=np.array([1, 1, -1]), apply_fn=linear, params=jnp.ones(6)),
        bad("chunk_bytes must be positive; got 0", chunk_bytes=0),
        bad("perturbed_batch must be a whole number >= 1; got 0", perturbed_batch=0),
        bad(r"apply_fn must map a batch .* got tuple", apply_fn=lambda p, x: (x, x)),
        bad(r"apply_fn must map a batch .* got \(\)", apply_fn=lambda p, x: x.sum()),
        bad("apply_fn must give real logits; got complex64",
            apply_fn=lambda p, x: jax.lax.complex(x, x)),
        bad(r"perturbed_apply_fn must give logits of shape \(2, 3\), as apply_fn; got \(2, 6\)",
            perturbed_apply_fn=lambda p, x, key: x),
        bad("key must be one key", key=jax.random.split(KEY)),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_line(changes, message):
    given = {"apply_fn": apply_mlp, "params": mlp(), "x": inputs(3)}
    with pytest.raises(ValueError, match=message) as error:
        measure(**(given | changes))
    assert "\n" not in str(error.value)


def test_a_clean_logit_that_is_not_finite_is_named():
    x = inputs(300)
    x[270] = np.nan
    with pytest.raises(ValueError, match="not finite for example 270, before any noise"):
        measure(apply_mlp, mlp(), x)


def test_a_logit_that_noise_makes_infinite_is_named_with_its_draw():
    """The root of a weight of 1 is real until a draw turns it negative."""
    draws = [float(1 + 0.8 * directions(KEY, s, jnp.ones(1))[0]) for s in range(9)]
    first = int(np.argmax(np.array(draws) < 0))
    assert first > 0
    with pytest.raises(ValueError, match=f"example 0 under draw {first} of the weights"):
        measure(lambda w, x: x[:, 0] * jnp.sqrt(w), jnp.ones(1), inputs(3), Gaussian(sigma=0.8), 9)


def test_a_change_that_overflows_is_named():
    with pytest.raises(ValueError, match="or their change, are not finite for example 0"):
        measure(lambda w, x: 1e25 * (x @ w), jnp.ones(6), inputs(3))


def test_merged_shards_of_one_key_are_the_whole():
    x, y = inputs(9), labels(9)
    whole = measure(apply_mlp, mlp(), x, y=y)
    merged = measure(apply_mlp, mlp(), x[:4], y=y[:4]).merge(
        measure(apply_mlp, mlp(), x[4:], y=y[4:])
    )
    close(merged, whole)
    with pytest.raises(ValueError, match="cannot merge estimates with seed="):
        whole.merge(measure(apply_mlp, mlp(), x, y=y, key=jax.random.key(1)))
