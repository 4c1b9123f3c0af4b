"""Models of another run are taken if they are the same models, whatever is measured on them."""

import dataclasses
import json
import shutil

import pytest

from jaxsens import data
from jaxsens.run import load_experiment, main
from jaxsens.training.trainer import Trainer

TINY = "--epochs 2 --evaluate-every 1 --num-train 100 --num-measured 5 --tolerance 0.2"
MLP = f"--dataset shapes --models mlp-leaky {TINY}"

#: What `--exp robustness --preset small` wrote before runs were compared model by model.
SMALL = {
    "dataset": "cifar10",
    "epochs": 8,
    "evaluate_every": 4,
    "num_train": None,
    "batch_size": 100,
    "learning_rate": None,
    "optimizer": None,
    "schedule": "constant",
    "reduced": True,
    "patch": 4,
    "edit": "gaussian",
    "variance": 1.0,
    "estimator": "patch-grid",
    "num_samples": 5,
    "num_measured": 300,
    "tolerance": 0.01,
    "num_accuracy": 2000,
    "seed": 42,
    "reuse": None,
    "models": ["densenet", "resnet", "convmixer", "vit-small", "vit-simple"],
    "interventions": ["regularise", "augment"],
    "intervene_on": ["vit-small"],
    "strength": 0.25,
    "form": "additive",
    "regularised_patch": "aligned",
    "regularised_variance": 1.0,
    "augmented_images": "doubled",
    "augmented_variance": 0.1,
    "corruptions": ["fog", "snow"],
    "severity": 2,
    "num_corrupted": 1000,
}


def write_config(folder, experiment="robustness", **changes):
    folder.mkdir()
    identity = {"experiment": experiment, "config": SMALL | changes}
    (folder / "config.json").write_text(json.dumps(identity))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of robustness that trained an MLP with and without the regulariser."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    flags = "--exp robustness --interventions regularise --intervene-on mlp-leaky "
    flags += f"--corruptions brightness --num-corrupted 30 {MLP} --workdir {folder}"
    assert main(flags.split()) == 0
    return folder


def records(folder):
    found = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    names = ("model", "epoch", "train_accuracy", "test_accuracy")
    return [[record[name] for name in names] for record in found if "epoch" in record]


@pytest.mark.parametrize(
    "flags",
    [
        "--exp vision",
        pytest.param("--exp estimators --num-samples 2", marks=pytest.mark.slow),
        pytest.param(
            "--exp sharpness --interventions regularise --intervene-on mlp-leaky --sigma 0.1 "
            "--num-sharpness 7 --num-draws 2",
            marks=pytest.mark.slow,
        ),
        "--exp robustness --interventions None --severity 1 --corruptions contrast "
        "--num-corrupted 20",
    ],
)
def test_every_experiment_measures_without_training_again(flags, trained, tmp_path, monkeypatch):
    def refuse(*_):
        raise AssertionError("trained again")

    monkeypatch.setattr(Trainer, "epoch", refuse)
    assert main(f"{flags} {MLP} --reuse {trained} --workdir again".split()) == 0
    again = records(tmp_path / "again")
    assert again == records(trained)[: len(again)]


def test_models_trained_on_other_data_are_refused(trained, capsys, monkeypatch, tmp_path):
    load = data.load

    def flipped(name, split, data_dir=None):
        x, y = load(name, split, data_dir)
        return x, (y + 1) % 10

    monkeypatch.setattr(data, "load", flipped)
    for experiment in ("vision", "robustness --interventions None --corruptions fog"):
        assert main(f"--exp {experiment} {MLP} --reuse {trained} --workdir again".split()) == 2
        err = capsys.readouterr().err
        assert "cannot be reused: they were trained on other data (y differ)" in err
        assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_does_not_name_its_data_is_reused_and_that_is_said(trained, capsys, tmp_path):
    """As those of earlier versions."""
    old = shutil.copytree(trained, tmp_path / "old")
    identity = json.loads((old / "config.json").read_text())
    kept = {name: identity[name] for name in ("experiment", "config")}
    (old / "config.json").write_text(json.dumps(kept))
    for file in old.rglob("checksums.json"):
        file.unlink()
    assert main(f"--exp vision {MLP} --reuse old --workdir again".split()) == 0
    assert "old does not say which data its models were trained on" in capsys.readouterr().err
    assert records(tmp_path / "again") == records(trained)[:3]


@pytest.mark.slow
def test_ablations_take_the_models_they_share(tmp_path):
    assert main(f"--exp vision --models cnn vit-small {TINY} --workdir one".split()) == 0
    again = f"--exp ablations --depths 2 --heads 8 {TINY} --reuse one --workdir two"
    assert main(again.split()) == 0
    times = [(tmp_path / run / "checkpoints/vit-small/2").stat().st_mtime for run in ("one", "two")]
    assert times[0] == times[1]


@pytest.mark.parametrize(
    ("experiment", "fields"),
    [
        ("vision", {"dataset": "cifar10"}),
        ("vision", {"dataset": "cifar10", "estimator": "scattered-pixels", "evaluate_every": 8}),
        ("sharpness", {}),
        ("estimators", {"dataset": "cifar10"}),
        ("ablations", {}),
        ("ablations", {"depths": (1,), "heads": (1,), "adam_rate": 0.1}),
        ("robustness", {"severity": 1, "num_corrupted": None, "corruptions": ("fog",)}),
        ("robustness", {"interventions": ("regularise",), "augmented_variance": 3.0}),
    ],
)
def test_what_is_only_measured_may_differ(experiment, fields, tmp_path):
    write_config(tmp_path / "rob")
    small = {"reuse": str(tmp_path / "rob"), **fields}
    module = load_experiment(experiment)
    config = dataclasses.replace(module.PRESETS["small"], **small).resolved("small")
    assert config.reuse == str(tmp_path / "rob")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--learning-rate 0.5", "recipe is Recipe(optimizer='sgd', learning_rate=0.1,"),
        ("--reduced False", "model is ViTSmall("),
        ("--batch-size 50", "vit-small of rob cannot be reused: recipe"),
        ("--strength 0.5", "vit-small-regularise of rob cannot be reused: objective"),
        ("--augmented-variance 0.2", "vit-small-augment of rob cannot be reused: augment"),
        ("--patch 8", "vit-small-regularise of rob cannot be reused: objective"),
        ("--seed 3", "models of rob cannot be reused: seed is 42 there, 3 here"),
        ("--num-train 1000", "num_train is None there, 1000 here"),
        ("--dataset digits", "dataset is cifar10 there, digits here"),
        ("--epochs 4", "epochs is 8 there, 4 here"),
        ("--evaluate-every 2", "evaluate_every must be a multiple of its 4; got 2"),
    ],
)
def test_models_trained_in_another_way_are_refused(flags, message, capsys, tmp_path):
    write_config(tmp_path / "rob")
    assert main(f"--exp sharpness --preset small --reuse rob {flags}".split()) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("experiment", "changes", "message"),
    [
        ("robustness", {"models": ["resnet"], "intervene_on": ["resnet"]}, "none of vit-small"),
        ("robustness", {"from_another_version": 1}, "from_another_version"),
        ("nothing", {}, "No module named"),
    ],
)
def test_other_runs_are_refused(experiment, changes, message, capsys, tmp_path):
    write_config(tmp_path / "rob", experiment, **changes)
    assert main(["--exp", "sharpness", "--preset", "small", "--reuse", "rob"]) == 2
    assert message in capsys.readouterr().err


def test_a_folder_without_a_run_is_refused(capsys):
    assert main(["--exp", "vision", "--reuse", "nowhere"]) == 2
    assert "nowhere is not the folder of a run" in capsys.readouterr().err
