"""The synthetic task: exact tables, one program for all jobs, and a tiny run."""

import json
import shutil
from fractions import Fraction
from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsens.figures
from jaxsens import Perturbation, Resample, Tokens, sensitivity
from jaxsens.models import TokenAttention
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.run import load_experiment, main
from jaxsens.training import lanes as many

EXPERIMENT = load_experiment("synthetic")
theory, measuring, training, seeds = (
    import_module(f"{EXPERIMENT.__package__}.{name}")
    for name in ("theory", "measuring", "training", "seeds")
)
TINY = (
    "--exp synthetic --epochs 2 --every 1 --num-seeds 2 --phase-sigmas 0.1 0.3 --phase-rates 0.3 "
    "--phase-seeds 1 --num-train 60 --num-test 30 --batch-size 30 --num-measured 2 --num-final 3 "
    "--num-enumerated 3 --num-checked 1 --block 6 --squared-epochs 2 --squared-every 2"
)
PLAN = training.TrainingPlan("attention", 40, 20, 20, 2, 1, 2, 3)


@pytest.mark.parametrize(
    ("index", "sparse", "frequent"),
    [
        (0, "0", "194/1475"),
        (1, "0", "849/2950"),
        (2, "0", "664/1475"),
        (3, "39/1150", "0"),
        (4, "39/1150", "0"),
        (5, "39/1150", "0"),
        (6, "41/1250", "0"),
    ],
)
def test_closed_forms_and_enumeration_are_these_fractions(index, sparse, frequent):
    setting = theory.ALL[index]
    for predictor, value in (("sparse", sparse), ("frequent", frequent)):
        assert setting.sensitivity(predictor) == Fraction(value)
        assert set(theory.enumerated(setting, predictor, 6)) == {Fraction(value)}


def test_the_paper_prints_these_fractions():
    for setting in theory.SETTINGS:
        for predictor, printed in zip(theory.PREDICTORS, setting.paper, strict=True):
            assert round(float(setting.sensitivity(predictor)), 4) == printed


@pytest.mark.parametrize("margin", [1, 2, 3, 4])
def test_the_closed_form_is_the_enumeration_for_every_margin(margin):
    m, vocabulary, length, minority = 3, 11, 9, 2
    majority = minority + margin
    row = [2, 4, 6, 2, 4, 6][:majority] + [3, 5] + [10] * (length - majority - minority)
    weights = theory.votes(theory.Counts(1, 8, 1, m, vocabulary), "frequent")
    replace = Perturbation(Tokens(), Resample(vocabulary))
    est = sensitivity(theory.vote, weights, jnp.array([row]), replace, "all", key=jax.random.key(0))
    expected = theory.predictor_sensitivity(
        majority, minority, Fraction(m, vocabulary), length=length
    )
    assert Fraction(int(est.totals.sum()), length * vocabulary) == expected


def test_ties_that_never_count_leave_the_exchange_of_majority_and_minority():
    never = theory.predictor_sensitivity(2, 1, Fraction(1, 10), length=5, tie=Fraction(0))
    assert never == Fraction(2, 50)
    with pytest.raises(ValueError, match="no majority"):
        theory.predictor_sensitivity(2, 2, Fraction(1, 10))


@pytest.fixture(scope="module")
def block():
    """A block with all settings, two scales and two rates, trained by one program."""
    jobs = [
        training.TrainingJob(i, 0, 0.1 if i % 2 else 0.3, 0.3 if i < 3 else 0.1) for i in range(6)
    ]
    return jobs, *train(jobs)


def train(jobs, block=None):
    """Everything that was measured, by evaluation; the trained parameters; the sequences."""
    lanes, done, measured = training.make_lanes(PLAN, jobs, 0), 0, []
    state = many.start(PLAN, lanes)
    for step in PLAN.schedule:
        state = many.advance(PLAN, lanes, state, done, step - done, block)
        measured.append(training.measure(PLAN, lanes, state, step, block))
        done = step
    return measured, state.params, lanes.x


def test_jobs_trained_together_are_the_jobs_trained_alone(block):
    jobs, measured, params, _ = block
    alone, one, _ = train(jobs[1:2])
    for mine, theirs in zip(alone, measured, strict=True):
        assert mine.keys() == theirs.keys()
        for name, values in mine.items():
            np.testing.assert_allclose(values[0], theirs[name][1], rtol=1e-4, atol=1e-5)
    assert [("final_sensitivity" in each) for each in measured] == [False, False, True]
    for mine, theirs in zip(jax.tree.leaves(one), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(mine[0], theirs[1], rtol=1e-4, atol=1e-6)


def test_every_epoch_takes_every_sequence_once_in_an_order_of_its_own(block):
    jobs, _, params, x = block
    lanes = training.make_lanes(PLAN, jobs, 0)
    lane = jax.tree.map(lambda values: values[3], lanes)
    mine = PLAN.init(lane)
    orders = []
    for epoch in range(PLAN.epochs):
        _, _, _, order_key = jax.random.split(lane_key(jobs[3]), 4)
        order = jax.random.permutation(jax.random.fold_in(order_key, epoch), PLAN.num_train)
        orders.append(order.tolist())
        for rows in order.reshape(-1, PLAN.batch):
            gradient = jax.grad(logistic)(mine, x[3][rows], lane.y[rows])
            mine = jax.tree.map(lambda p, g: p - jobs[3].rate * g, mine, gradient)
    assert orders[0] != orders[1]
    for one, other in zip(jax.tree.leaves(mine), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(one, other[3], rtol=1e-4, atol=1e-6)


def lane_key(job):
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(0), job.setting), job.seed)


def logistic(params, x, y):
    scores = measuring.HEADS["attention"].apply(params, x)
    return jax.nn.softplus(-y.astype(jnp.float32) * scores).mean()


def test_padding_changes_no_score_and_gets_no_gradient(block):
    _, _, params, x = block
    vocabulary = 59
    padded = jax.tree.map(lambda values: values[0], params)["params"]
    for name, weights in padded.items():
        assert not weights[:, vocabulary:].any()
        assert name == "head" or not weights[vocabulary:].any()
    cut = {n: w[: len(w) if n == "head" else vocabulary, :vocabulary] for n, w in padded.items()}
    small = TokenAttention(vocabulary, theory.LENGTH)
    np.testing.assert_allclose(
        small.apply({"params": cut}, x[0]),
        measuring.HEADS["attention"].apply({"params": padded}, x[0]),
        rtol=1e-4,
        atol=1e-6,
    )


@pytest.mark.parametrize("job", [0, 4])
def test_the_programs_sensitivity_is_that_of_the_library(block, job):
    jobs, measured, params, x = block
    mine = jax.tree.map(lambda values: values[job], params)
    setting = theory.SETTINGS[jobs[job].setting]
    library, program, number = measuring.flips_both_ways("attention", mine, x[job, :3], setting)
    assert library == program
    assert number == 3 * 50 * int(setting.counts.vocabulary)
    np.testing.assert_allclose(measured[-1]["final_sensitivity"][job], program / number, rtol=1e-5)


def test_the_measure_of_a_known_model(block):
    """With H = v_freq in every row and no attention, the model is the frequent predictor."""
    setting = theory.SETTINGS[1]
    weights = theory.votes(setting.counts, "frequent")
    value = jnp.zeros((measuring.PADDED, measuring.PADDED)).at[: len(weights), 0].set(weights)
    zero = jnp.zeros_like(value)
    head = jnp.zeros((theory.LENGTH, measuring.PADDED)).at[:, 0].set(1.0)
    params = {"params": {"query": zero, "key": zero, "value": value, "head": head}}
    x, _ = theory.generate(setting.counts, theory.LENGTH, 4, key=jax.random.key(5))
    model = measuring.HEADS["attention"]
    inside = jax.jit(measuring.inside, static_argnums=0)(model, params, x, setting.counts)
    np.testing.assert_allclose(inside["alignment"], [0, 1, 0], atol=1e-6)
    np.testing.assert_allclose(inside["attention"], [0.06, 0.1, 0.84], rtol=1e-5)
    np.testing.assert_allclose(inside["attention_per_token"], [1, 1, 1], rtol=1e-5)
    share = measuring.exact_sensitivity(model, params, x, setting.counts)
    number = x.size * int(setting.counts.vocabulary)
    assert Fraction(round(float(share) * number), number) == setting.sensitivity("frequent")


def test_a_model_that_diverged_is_no_model(tmp_path):
    jobs = [training.TrainingJob(1, 0, 1.0, 1e30)]
    options = {"name": "x", "seed": 0, "block_size": 6, "num_checked": 1}
    with RunFolder.open(tmp_path / "run", "x", {}) as folder:
        (record,) = training.train_all(folder, PLAN, jobs, **options)
    assert record["loss"][0] is not None
    assert record["loss"][-1] is record["final_sensitivity"] is record["ood_accuracy"][-1] is None
    assert "flips" not in record
    assert not seeds.follows(record)
    assert str(seeds.mean_over_seeds([None, None])) == "diverged"


def test_what_counts_as_following():
    def record(setting, test, ood):
        curves = {"loss": [0.1], "test_accuracy": [test], "ood_accuracy": [ood]}
        return {"setting": setting, **curves}

    assert seeds.follows(record(0, 1.0, 0.0))
    assert not seeds.follows(record(0, 1.0, 1.0))
    assert seeds.follows(record(3, 1.0, 0.97))
    assert not seeds.follows(record(3, 1.0, 0.5))
    assert not seeds.follows(record(3, 0.6, 1.0))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One tiny run: (results, folder)."""
    folder = tmp_path_factory.mktemp("synthetic") / "run"
    with pytest.MonkeyPatch.context() as patch:
        # Compiling takes most of the time; tests/models has the other head.
        patch.delitem(measuring.HEADS, "MLP")
        patch.setattr(theory, "ALL", theory.ALL[:2])
        assert main([*TINY.split(), "--workdir", str(folder)]) == 0
    return json.loads((folder / "results.json").read_text()), folder


def test_a_tiny_run_reports_everything(finished):
    results, folder = finished
    claims = {claim["statement"]: claim for claim in results["claims"]}
    (exact,) = [claim for statement, claim in claims.items() if "194/1475" in statement]
    assert exact["holds"]
    (check,) = [claim for statement, claim in claims.items() if "jaxsens.sensitivity" in statement]
    assert check["holds"]
    assert sum("exchanged sparse tokens →" in statement for statement in claims) == 12
    assert [r["objective"] for r in results["values"]["squared"]] == 12 * ["squared"]
    # Small weights score 0: each loss starts at its value there.
    start = {
        name: [r["loss"][0] for r in records]
        for name, records in (
            ("squared", results["values"]["squared"]),
            ("logistic", results["values"]["trained"]["attention"]),
        )
    }
    np.testing.assert_allclose(start["squared"], 0.5, rtol=0.01)
    np.testing.assert_allclose(start["logistic"], np.log(2), rtol=0.01)
    assert len(results["values"]["trained"]["attention"]) == 12
    assert len(results["values"]["phase"]) == 4
    assert set(results["values"]["trained"]) == {"attention", "summing MLP"}
    assert [figure["file"] for figure in results["figures"]] == [
        f"figures/{name}.png" for name in ("fig2", "fig10", "squared", "phase", "heads")
    ]
    for figure in results["figures"]:
        assert (folder / figure["file"]).stat().st_size > 2_000


def test_claims_have_their_numbers(finished, check_claims):
    results, _ = finished
    check_claims(results["claims"])
    over_seeds = [c for c in results["claims"] if "exchanged sparse tokens →" in c["statement"]]
    assert {claim["num_seeds"] for claim in over_seeds} == {2}


def only_no_steps(advance):
    def checked(task, lanes, state, first, num):
        assert int(num) == 0
        return advance(task, lanes, state, first, num)

    return checked


def test_a_resumed_run_repeats_nothing_and_ends_the_same(finished, tmp_path, monkeypatch):
    results, folder = finished
    (tmp_path / "run").mkdir()
    for name in ("config.json", "metrics.jsonl"):
        (tmp_path / "run" / name).write_bytes((folder / name).read_bytes())
    shutil.copytree(folder / "figures", tmp_path / "run" / "figures")
    monkeypatch.delitem(measuring.HEADS, "MLP")
    monkeypatch.setattr(theory, "ALL", theory.ALL[:2])
    monkeypatch.setattr(jaxsens.figures, "save", lambda *_: None)
    shutil.copytree(folder / "checkpoints", tmp_path / "run" / "checkpoints")
    monkeypatch.setattr(many, "_advance", only_no_steps(many._advance))
    monkeypatch.setattr(training, "measure", lambda *_: pytest.fail("done before"))
    assert main([*TINY.split(), "--workdir", str(tmp_path / "run")]) == 0
    again = json.loads((tmp_path / "run" / "results.json").read_text())
    assert again["values"] == results["values"]
    assert again["claims"] == results["claims"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--every 7", "every=7 does not divide"),
        ("--batch-size 7", "batch_size=7 does not divide"),
        ("--squared-every 7", "squared_every=7 does not divide"),
        ("--num-seeds 1", "num_seeds must be at least 2"),
        ("--phase-settings 6", "phase_settings must be at most 5; got 6"),
        ("--sigma 0", "sigma must be positive"),
        ("--num-final 5000", "num_final"),
    ],
)
def test_bad_arguments_end_with_one_line(flags, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["--exp", "synthetic", *flags.split()]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert message in err
