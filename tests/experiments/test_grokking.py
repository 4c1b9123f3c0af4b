"""Grokking: tasks and measures, training to the bit, lead times with known answers, a tiny run."""

import dataclasses
import importlib
import json
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxsens
from jaxsens import Bits, Flip, Gaussian, Perturbation, Tokens
from jaxsens.models import BareTransformer
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.run import load_experiment, main
from jaxsens.training.checkpoints import Checkpoints

grokking = load_experiment("grokking")
leads, training, tasks, outcomes, claims = (
    importlib.import_module(f"{grokking.__package__}.{name}")
    for name in ("leads", "training", "tasks", "outcome", "claims")
)
common_lanes = importlib.import_module(training.train_lanes.__module__)
MODEL = BareTransformer(vocab_size=12, width=16, heads=2, hidden=24)
ADDITION = tasks.Addition(MODEL, 0.5, sigma=0.4, relative_sigma=0.2, num_draws=40)
PARITY = tasks.Parity(bits=8, degree=3, num_train=40, num_test=30, hidden=16)
KEY = jax.random.key(0)


# --- Tasks ----------------------------------------------------------------------------------------


def test_addition_has_all_pairs_and_a_control_with_the_same_split():
    data, control = (ADDITION.data(3, rule=rule) for rule in (True, False))
    a, b = data["inputs"].T
    assert len({*zip(a.tolist(), b.tolist(), strict=True)}) == 121
    np.testing.assert_array_equal(data["labels"], (a + b) % 11)
    np.testing.assert_array_equal(control["inputs"], data["inputs"])
    assert ADDITION.num_train == 60
    train = {*zip(a[:60].tolist(), b[:60].tolist(), strict=True)}
    mirrored = [(y, x) in train for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    np.testing.assert_array_equal(data["mirrored"], mirrored)


def test_the_control_s_labels_are_commutative_and_have_no_rule():
    control = ADDITION.data(3, rule=False)
    table = np.full((11, 11), -1)
    table[tuple(control["inputs"].T)] = control["labels"]
    np.testing.assert_array_equal(table, table.T)
    right = np.mean(control["labels"] == control["inputs"].sum(axis=1) % 11)
    assert right < 1 / 11 + 4 * np.sqrt(1 / 11 / 66)


def test_parity_is_of_the_relevant_bits():
    data = PARITY.data(0, rule=True)
    assert data["relevant"].sum() == 3
    signs = data["inputs"][:, data["relevant"]].prod(axis=1)
    np.testing.assert_array_equal(data["labels"], (signs > 0).astype(int))
    np.testing.assert_array_equal(PARITY.data(0, rule=False)["inputs"], data["inputs"])


def test_fourier_concentration_of_one_and_of_all_frequencies():
    waves = np.cos(2 * np.pi * 2 / 11 * np.arange(11))[:, None] * np.ones((1, 3))
    assert float(tasks.fourier_concentration(jnp.asarray(waves + 5, jnp.float32))) == pytest.approx(
        1, abs=1e-4
    )
    assert float(tasks.fourier_concentration(jnp.eye(11))) == pytest.approx(1 / 5, abs=1e-5)


# --- Sensitivities against the library ------------------------------------------------------------


@dataclass(frozen=True)
class Operands(Tokens):
    """Both operands as one window."""

    def layout(self, shape):
        return (1,)

    def window_shape(self, shape):
        return (2, *shape[1:])

    def start(self, position, shape):
        return (0, 0)


@pytest.fixture(scope="module")
def measured():
    """The measures of one lane with its first weights, and what the library needs for the same."""
    data = {name: jnp.asarray(v) for name, v in ADDITION.data(0, rule=True).items()}
    # First weights all predict one class, whatever the input; larger ones do not.
    params = jax.tree.map(lambda p: 3 * p, jax.jit(ADDITION.init)(KEY))
    found = jax.jit(ADDITION.measures)(params, data, KEY)
    pairs = data["inputs"][: ADDITION.num_train]
    tokens = jnp.concatenate([pairs, jnp.full((len(pairs), 1), 11)], axis=1)
    return found, params, MODEL.apply(params, tokens, method="embed")


def from_embeddings(params, e):
    return MODEL.apply(params, e, method="from_embeddings")


@pytest.mark.parametrize(
    ("grid", "relative"),
    [
        (Tokens(), True),
        (Operands(), False),
        pytest.param(Tokens(), False, marks=pytest.mark.slow),
        pytest.param(Operands(), True, marks=pytest.mark.slow),
    ],
)
def test_sensitivity_is_the_library_s(measured, grid, relative):
    found, params, e = measured
    sigma = 0.2 * float(found["embedding_rms"]) if relative else 0.4
    one_at_a_time = type(grid) is Tokens
    mask = np.tile([True, True, False], (len(e), 1)) if one_at_a_time else None
    noise = Perturbation(grid, Gaussian(sigma=sigma))
    key = jax.random.key(1)
    est = jaxsens.sensitivity(from_embeddings, params, e, noise, 40, key=key, mask=mask)
    name = ("definition" if one_at_a_time else "authors") + ("_relative" if relative else "")
    # The same examples in both: what differs is the noise, 40 draws per example each.
    p = np.clip(est.per_example_position[:, :2], 0.02, 0.98)
    stderr = np.sqrt((p * (1 - p)).mean() / 40 / len(e))
    assert abs(float(found[name]) - est.mean) < 4 * np.sqrt(2) * stderr
    assert 0.01 < est.mean < 0.9


def test_without_noise_nothing_changes():
    task = dataclasses.replace(ADDITION, sigma=0.0, relative_sigma=0.0, num_draws=2)
    data = {name: jnp.asarray(v) for name, v in task.data(0, rule=True).items()}
    found = jax.jit(task.measures)(jax.jit(task.init)(KEY), data, KEY)
    names = ("authors", "definition", "authors_relative", "definition_relative")
    assert [float(found[name]) for name in names] == [0, 0, 0, 0]


def test_sensitivity_of_parity_is_exactly_the_library_s():
    data = {name: jnp.asarray(v) for name, v in PARITY.data(0, rule=True).items()}
    params = jax.jit(PARITY.init)(KEY)
    found = jax.jit(PARITY.measures)(params, data, KEY)
    x = data["inputs"][: PARITY.num_train]
    flip = Perturbation(Bits(), Flip())
    est = jaxsens.sensitivity(PARITY.logits, params, x, flip, "all", key=KEY)
    assert float(found["definition"]) == pytest.approx(est.mean, abs=1e-6)
    assert est.mean > 0


# --- Training -------------------------------------------------------------------------------------

ARMS = (training.Arm("rule", "rule", 0.5), training.Arm("no-decay", "no decay", 0.0))
TRAINING = training.Training("parity", PARITY, ARMS, (0, 1), 1e-2, epochs=12, every=5)


def test_evaluations_are_dense_at_first():
    assert dataclasses.replace(TRAINING, epochs=40).evaluations == [*range(25), 25, 30, 35, 40]


def test_a_lane_is_trained_as_if_alone(tmp_path):
    with RunFolder.open(tmp_path / "run", "x", {}) as folder:
        state = training.train(TRAINING, folder, key=KEY)
        records = folder.appended()
    assert [record["epoch"] for record in records] == TRAINING.evaluations

    def loss(params, x, y):
        logits = PARITY.logits(params, x)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    @jax.jit
    def step(params, opt_state, x, y, weight_decay):
        with jax.numpy_dtype_promotion("standard"):
            optimizer = optax.adamw(1e-2, weight_decay=weight_decay)
            gradient = jax.grad(loss)(params, x, y)
            updates, opt_state = optimizer.update(gradient, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    for lane, (arm, seed) in enumerate((arm, seed) for arm in ARMS for seed in (0, 1)):
        data = PARITY.data(seed, rule=True)
        x, y = (jnp.asarray(data[name][: PARITY.num_train]) for name in ("inputs", "labels"))
        params = jax.jit(PARITY.init)(jax.random.key(seed))
        opt_state = optax.adamw(1e-2).init(params)
        for _ in range(12):
            params, opt_state = step(params, opt_state, x, y, jnp.float32(arm.weight_decay))
        mine = jax.tree.map(lambda leaf, lane=lane: leaf[lane], state.params)
        for one, other in zip(jax.tree.leaves(mine), jax.tree.leaves(params), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


class Killed(BaseException):
    pass


def test_killed_anywhere_it_resumes_to_the_bit(tmp_path, monkeypatch):
    monkeypatch.setattr(common_lanes, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    with RunFolder.open(tmp_path / "alone", "x", {}) as folder:
        reference = training.train(TRAINING, folder, key=KEY)
        expected = [record["measured"] for record in folder.appended()]
    append, save = RunFolder.append, Checkpoints.save

    def append_and_die(folder, record):
        append(folder, record)
        if record["epoch"] == 3:
            raise Killed

    def die_before_saving(checkpoints, epoch, tree):
        if epoch == 7:
            raise Killed
        save(checkpoints, epoch, tree)

    with RunFolder.open(tmp_path / "killed", "x", {}) as folder:
        monkeypatch.setattr(RunFolder, "append", append_and_die)
        with pytest.raises(Killed):
            training.train(TRAINING, folder, key=KEY)
        monkeypatch.setattr(RunFolder, "append", append)
        monkeypatch.setattr(Checkpoints, "save", die_before_saving)
        with pytest.raises(Killed):
            training.train(TRAINING, folder, key=KEY)
        monkeypatch.setattr(Checkpoints, "save", save)
        state = training.train(TRAINING, folder, key=KEY)
        found = [record["measured"] for record in folder.appended()]
    assert found == expected
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(reference), strict=True):
        np.testing.assert_array_equal(one, other)


# --- Lead times -----------------------------------------------------------------------------------

EPOCHS = np.arange(0, 1000, 100)
MEMORISED = np.array([0.0, 1, 1, 1, 1, 1, 1, 1, 1, 1])
JUMPS_AT_600 = np.array([0.0, 0.3, 0.3, 0.3, 0.3, 0.4, 0.7, 1, 1, 1])
#: From 10 to 0: 10 % at 300, 50 % at 500.
FALLS = np.array([50.0, 2, 10, 8.9, 7, 5, 4, 2, 1, 0])
STAYS = np.array([50.0, 2, 10, 9, 9, 9, 9, 9, 9, 9])


def test_memorised_and_jump():
    assert leads.memorised(MEMORISED) == 1
    assert leads.memorised(MEMORISED * 0.99) is None
    assert leads.jump(JUMPS_AT_600, 1) == 6
    assert leads.jump(np.minimum(JUMPS_AT_600, 0.9), 1) is None


@pytest.mark.parametrize(
    ("values", "sign", "share", "expected"),
    [
        (FALLS, -1, 0.1, 3),
        (FALLS, -1, 0.5, 5),
        (-FALLS, 1, 0.5, 5),
        (FALLS, -1, 0.9, 8),
        (np.array([0.0, 9, 10, 3, 9.9, 8, 7, 2, 1, 0]), -1, 0.1, 5),
        (-FALLS, -1, 0.5, None),
    ],
    ids=["10 %", "50 %", "rising", "late", "a dip that does not last", "the other way"],
)
def test_crossing(values, sign, share, expected):
    assert leads.crossing(values, sign, start=1, at=6, share=share) == expected


def test_the_alarm_is_what_no_control_does():
    measure, run = leads.Measure("m", "m", -1), {"train_accuracy": MEMORISED, "m": STAYS}
    # Its 2 counts, at 100, when it has memorised; an earlier value would not.
    assert leads.limit([run], measure) == 2
    assert leads.limit([run | {"train_accuracy": 0.9 * MEMORISED}], measure) is None
    assert leads.alarm(FALLS, -1, 1, 6, limit=6.5) == 5
    assert leads.alarm(FALLS, -1, 1, 6, limit=1.5) == 8
    assert leads.alarm(STAYS, -1, 1, 6, limit=1.5) is None


def test_a_hump_is_a_rise():
    assert leads.largest_rise(np.array([10.0, 5, 2, 1])) == 0
    assert leads.largest_rise(np.array([10.0, 2, 8, 1])) == pytest.approx(0.6)
    assert leads.largest_rise(np.zeros(3)) == 0


def made_up(measure, test_accuracy=JUMPS_AT_600, num_seeds=3):
    """Curves of an arm whose measures are all the same."""
    names = [m.name for m in outcomes.ADDITION]
    names += ["mirror_share", "mirrored_accuracy", "new_accuracy", "train_loss"]
    rows = np.tile(measure, (num_seeds, 1))
    curves = {"epochs": EPOCHS} | dict.fromkeys(names, rows)
    curves["train_accuracy"] = np.tile(MEMORISED, (num_seeds, 1))
    curves["test_accuracy"] = np.tile(test_accuracy, (num_seeds, 1))
    curves["concentration"] = -rows
    return curves


def outcome(control):
    addition = grokking.Config(p=11, num_seeds=3, controls=("no-rule",), epochs=900).addition
    flat = np.minimum(JUMPS_AT_600, 0.3)
    curves = {"rule": made_up(FALLS), "no-rule": made_up(control, flat)}
    return outcomes.Outcome.of(addition, "Addition mod 11", outcomes.ADDITION, curves)


def test_a_lead_counts_only_if_the_controls_do_not_have_it():
    real, shared = outcome(STAYS + 4), outcome(FALLS)
    assert real.runs[0].jump == 600
    for found in (real, shared):
        assert found.leads("authors", "10 %") == [300, 300, 300]
        assert found.leads("authors", "50 %") == [100, 100, 100]
    assert real.leads("authors", "alarm") == [100, 100, 100]
    assert outcomes.is_progress_measure(real, "authors")
    # In the control it falls in the same way: the same lead, and no alarm.
    assert outcomes.early_alarms(shared, "authors") == 0
    assert not outcomes.is_progress_measure(shared, "authors")


def test_the_verdict_is_plain():
    assert "absolute: yes (alarm before the jump in 3 of 3" in claims.verdict(outcome(STAYS + 4))
    assert "absolute: no (alarm before the jump in 0 of 3" in claims.verdict(outcome(FALLS))
    holds = {claim.statement: claim.holds for claim in claims.lead_claims(outcome(FALLS))}
    before = [v for s, v in holds.items() if "covers 10 %" in s]
    progress = [v for s, v in holds.items() if "a progress measure" in s]
    assert all(before)
    assert not any(progress)


def test_the_hump_is_judged_by_both_units():
    found = outcome(STAYS)
    by_unit = {"authors": FALLS, "authors_relative": np.maximum(10.0 - np.arange(10), 0)}
    for name, values in by_unit.items():
        found.first[name] = np.tile(values, (3, 1))
    assert [claim.holds for claim in claims.hump_claims(found)] == [True, True, True, True]
    found.first["authors_relative"] = found.first["authors"]
    assert [claim.holds for claim in claims.hump_claims(found)] == [True, False, True, False]


def test_a_last_pair_learned_late_hides_the_hump_from_one_of_both_windows():
    found = outcome(STAYS)
    found.first["authors_relative"] = np.tile(np.maximum(10.0 - np.arange(10), 0), (3, 1))
    # The training accuracy reaches 1 at 200, where the hump is at its top.
    found.first["train_accuracy"][:] = [0.0, 0.99, 1, 1, 1, 1, 1, 1, 1, 1]
    assert [claim.holds for claim in claims.hump_claims(found)] == [False, False, True, True]


def test_claims_of_runs_that_generalise_have_their_numbers(check_claims):
    found = claims.claims_of(outcome(STAYS + 4))
    assert len(found) > 15
    check_claims([dataclasses.asdict(claim) for claim in found])
    (lead,) = [c for c in found if "authors': both operands, absolute: covers 10 %" in c.statement]
    assert (lead.values, lead.interval, lead.num_seeds) == ({"lead in epochs": 300}, (300, 300), 3)


def test_figures_of_made_up_curves(tmp_path):
    with RunFolder.open(tmp_path / "run", "x", {}) as folder:
        for figure in grokking.figures.figures_of(outcome(STAYS), folder):
            assert (folder.path / figure.file).stat().st_size > 5_000


# --- The experiment -------------------------------------------------------------------------------

TINY = (
    "--exp grokking --p 5 --width 8 --heads 2 --hidden 16 --epochs 4 --evaluate-every 2 "
    "--num-seeds 2 --controls no-rule --num-draws 2 --parity-bits 5 --parity-train 20 "
    "--parity-hidden 8 --parity-epochs 4"
)


def test_a_tiny_run(tmp_path, check_claims):
    assert main([*TINY.split(), "--workdir", "run"]) == 0
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    check_claims(results["claims"])
    assert "no run generalised" in results["summary"]
    assert {table["title"] for table in results["tables"]} == {
        "Addition mod 5: runs",
        "Parity of 3 of 5 bits: runs",
    }
    for figure in results["figures"]:
        assert (tmp_path / "run" / figure["file"]).stat().st_size > 5_000


def test_the_paper_preset_is_the_paper_s():
    config = grokking.PRESETS["paper"]
    task = config.addition.task
    assert task.num_train == 3_830
    assert config.seeds == (42, 43, 44, 45, 46)
    assert (config.learning_rate, config.weight_decay, config.epochs) == (1e-3, 1.0, 25_000)
    assert config.addition.arms[0].weight_decay == 1.0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--p 4", "p must be odd"),
        ("--train-share 1.0", "train_share"),
        ("--heads 3", "heads must divide width"),
        ("--num-seeds 1", "at least 2"),
        ("--sigma -1", "sigma"),
        ("--parity-degree 40", "parity_degree"),
    ],
)
def test_bad_arguments_end_with_one_line(flags, message, capsys):
    assert main(["--exp", "grokking", *flags.split()]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert message in err
