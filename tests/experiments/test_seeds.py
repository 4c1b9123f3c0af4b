"""Several trainings of each model, and models compared at equal training accuracy."""

import dataclasses
import json

import numpy as np
import pytest

from experiments._common.claims import less_sensitive_over_seeds
from experiments._common.equal_accuracy import (
    EqualAccuracy,
    at_accuracy,
    equally_accurate_claim,
)
from experiments._common.seeds import with_seed
from jaxsens.cli.discovery import load_experiment
from jaxsens.core.intervals import Interval
from jaxsens.run import main

TINY = "--exp vision --models mlp-leaky cnn --num-measured 6 --tolerance 0.2 --epochs 2"


def records(*points):
    return [
        {"train_accuracy": a, "sensitivity": {"mean": s, "low": s - 0.1, "high": s + 0.1}}
        for a, s in points
    ]


@pytest.mark.parametrize(
    ("accuracy", "expected"),
    [(0.1, 0.8), (0.05, 0.8), (0.3, 0.7), (0.5, 0.6), (0.8, 0.2), (0.9, None)],
)
def test_sensitivity_is_linear_between_evaluations(accuracy, expected):
    # Accuracy may fall on the way: its first passing counts.
    training = records((0.1, 0.8), (0.5, 0.6), (0.4, 0.9), (0.8, 0.2))
    found = at_accuracy(training, accuracy)
    if expected is None:
        assert found is None
    elif accuracy == 0.8:
        assert found.mean == pytest.approx(0.2)
    else:
        assert found.mean == pytest.approx(expected)
        assert found.low == pytest.approx(expected - 0.1)


def specs():
    config = load_experiment("vision").Config(models=("mlp-leaky", "mlp-sigmoid"))
    return config.filled("quick").model_specs()


def test_at_equal_accuracy_seeds_decide():
    lesser, greater = specs()
    near = [Interval(0.1, 0.0, 0.3), Interval(0.12, 0.0, 0.3), Interval(0.11, 0.0, 0.3)]
    far = [Interval(s.mean + 0.05, s.low, s.high) for s in near]
    claim = equally_accurate_claim(lesser, greater, EqualAccuracy(0.9, {
        lesser.name: near, greater.name: far,
    }))  # fmt: skip
    # All three differ by the same: images alone could not tell them apart.
    assert claim.holds
    assert claim.num_seeds == 3
    assert claim.values["difference"] == pytest.approx(0.05)
    alone = EqualAccuracy(0.9, {lesser.name: near[:1], greater.name: far[:1]})
    assert not equally_accurate_claim(lesser, greater, alone).holds


def test_a_model_that_never_gets_there_is_not_compared():
    lesser, greater = specs()
    there = EqualAccuracy(0.9, {lesser.name: [None], greater.name: [Interval(0.5, 0.4, 0.6)]})
    claim = equally_accurate_claim(lesser, greater, there)
    assert not claim.holds
    assert "MLP-LeakyReLU not always trained to 90.0%" in claim.measured


def test_a_model_with_seed_0_is_itself():
    spec = specs()[0]
    assert with_seed(spec, 0) is spec
    other = with_seed(spec, 2)
    assert other == dataclasses.replace(spec, name=other.name, label=other.label, seed=2)


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """A run with two seeds, and one with the second of them alone."""
    folder = tmp_path_factory.mktemp("seeds")
    tiny = [*TINY.split(), "--evaluate-every", "1", "--num-train", "100"]
    assert main([*tiny, "--seeds", "2", "--seed", "5", "--workdir", str(folder / "two")]) == 0
    assert main([*tiny, "--seed", "6", "--workdir", str(folder / "second")]) == 0
    return folder


def values_of(run):
    return json.loads((run / "results.json").read_text())


def test_the_second_of_two_seeds_is_the_run_with_that_seed(several):
    two, second = (values_of(several / name)["values"] for name in ("two", "second"))
    for model in ("mlp-leaky", "cnn"):
        assert two[f"{model}-seed-1"]["mean"] == second[model]["mean"]
    assert two["mlp-leaky"]["mean"] != second["mlp-leaky"]["mean"]


def test_tables_and_claims_are_over_seeds(several, check_claims):
    results = values_of(several / "two")
    check_claims(results["claims"])
    rows = {row[0]: row for row in results["tables"][0]["rows"]}
    for model, label in (("mlp-leaky", "MLP-LeakyReLU"), ("cnn", "CNN")):
        means = [results["values"][f"{model}{end}"]["mean"] for end in ("", "-seed-1")]
        assert float(rows[label][2]) == pytest.approx(np.mean(means), abs=1e-4)
    assert [f["file"] for f in results["figures"]].count("figures/equal_accuracy.png") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "names", "number"),
    [
        (
            "--exp robustness --dataset shapes --models mlp-leaky --interventions augment "
            "--corruptions brightness --num-corrupted 20",
            ("mlp-leaky", "mlp-leaky-augment"),
            lambda value: (value["mean"], value["mean_corruption_error"], value["clean_error"]),
        ),
        (
            "--exp sharpness --models mlp-leaky --interventions augment --num-draws 2 --sigma 0.05 "
            "--num-sharpness 8",
            ("mlp-leaky", "mlp-leaky-augment"),
            lambda value: value["l1"]["mean"],
        ),
        (
            "--exp ablations --depths 1 --heads 1",
            ("cnn", "vit-small-depth-1"),
            lambda value: value["mean"],
        ),
    ],
    ids=["robustness", "sharpness", "ablations"],
)
def test_seeds_of_other_experiments_are_runs_too(flags, names, number, tmp_path, check_claims):
    tiny = "--epochs 2 --evaluate-every 1 --num-train 100 --num-measured 6 --tolerance 0.2"
    tiny = [*flags.split(), *tiny.split(), "--until-accuracy", "0.05"]
    assert main([*tiny, "--seeds", "2", "--seed", "5", "--workdir", str(tmp_path / "two")]) == 0
    assert main([*tiny, "--seed", "6", "--workdir", str(tmp_path / "second")]) == 0
    two, second = (values_of(tmp_path / name) for name in ("two", "second"))
    for name in names:
        mine, alone = two["values"][f"{name}-seed-1"], second["values"][name]
        assert number(mine) == number(alone)
        assert number(two["values"][name]) != number(alone)
    check_claims(two["claims"])
    at_the_end = [c for c in two["claims"] if "less sensitive" in c["statement"]]
    assert {claim["num_seeds"] for claim in at_the_end} == {2}
    assert any("at equal training accuracy" in claim["statement"] for claim in at_the_end)
    files = [figure["file"] for figure in two["figures"]]
    assert "figures/equal_accuracy.png" in files
    assert len(set(files)) == len(files)


def test_differences_by_seed_decide():
    class Estimate:
        def __init__(self, mean):
            self.mean = mean

    lesser, greater = specs()
    estimates = {
        lesser.name: [Estimate(s) for s in (0.10, 0.30, 0.20)],
        greater.name: [Estimate(s) for s in (0.15, 0.36, 0.24)],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jaxsens.compare", lambda a, b: _Difference(a.mean - b.mean))
        claim = less_sensitive_over_seeds(lesser, greater, estimates)
    low, high = claim.interval
    # Student's t for three seeds: 0.05 ± 4.303 · 0.01/√3.
    assert (low, high) == pytest.approx((0.0252, 0.0748), abs=1e-3)
    assert claim.holds
    assert claim.num_seeds == 3


class _Difference:
    values = (0.0,) * 6

    def __init__(self, mean):
        self.mean = mean

    def interval(self):
        return self.mean, self.mean - 1, self.mean + 1


def test_too_many_seeds_is_one_line(capsys, tmp_path):
    status = main(["--exp", "vision", "--seed", str(2**32 - 1), "--seeds", "2"])
    assert status == 2
    assert "go beyond the last seed" in capsys.readouterr().err


@pytest.mark.slow
def test_texts_have_seeds_too(tmp_path, check_claims):
    """The second seed trains anew on the same texts."""
    tiny = (
        "--exp language --models roberta-softmax lstm --epochs 1 --evaluate-every 1 --num-train 64 "
        "--num-measured 4 --num-along 2 --depth 1 --width 8 --heads 2 --hidden 16 --max-length 16 "
        "--num-samples 2 --seeds 2 --no-authors --depths 2"
    )
    assert main([*tiny.split(), "--workdir", str(tmp_path / "run")]) == 0
    results = values_of(tmp_path / "run")
    check_claims(results["claims"])
    by_statement = {claim["statement"]: claim for claim in results["claims"]}
    over_seeds = by_statement["RoBERTa is less sensitive than LSTM"]
    assert over_seeds["num_seeds"] == 2
    means = [results["values"]["main"][f"lstm{end}"]["mean"] for end in ("", "-seed-1")]
    assert over_seeds["values"]["LSTM"] == pytest.approx(np.mean(means))
    assert "RoBERTa is less sensitive than LSTM at equal training accuracy" in by_statement
    assert {claim["num_seeds"] for claim in results["claims"]} == {2}
    of_places = by_statement[
        "LSTM is more sensitive to the second half of a text than to the first"
    ]
    second, first = (of_places["values"][f"{half} half"] for half in ("second", "first"))
    assert of_places["values"]["difference"] == pytest.approx(second - first)
    other_words = by_statement["RoBERTa is less sensitive than LSTM: other words"]
    means = [results["values"]["other words"][f"lstm{end}"]["mean"] for end in ("", "-seed-1")]
    assert other_words["values"]["LSTM"] == pytest.approx(np.mean(means))
