"""The suite "training" trains the same network on the same batches on every side: no timing."""

import importlib
import json

import numpy as np
import pytest

from benchmarks import frame, jaxsens_training, page, training, training_cell
from benchmarks.workload import Setting, load_arrays

SHAPE, TEXT = (8, 12, 2), (5, 12)
TINY = {
    "cnn": Setting("CNN", {"num_classes": 3, "features": 4, "hidden": 5}, SHAPE),
    "resnet": Setting("ResNet", {"num_classes": 3, "width": 4, "blocks": (1, 1)}, SHAPE),
    "vit": Setting(
        "ViTSmall", {"num_classes": 3, "patch": 4, "depth": 2, "heads": 2, "hidden": 12}, SHAPE
    ),
    "gpt2": Setting(
        "GPT2",
        {"vocab_size": 4, "depth": 1, "heads": 3, "width": 12, "max_positions": 5},
        TEXT,
        (1, 12),
    ),
}
STEPS, BATCH = 3, 4


@pytest.mark.parametrize(
    "model", [pytest.param(m, marks=pytest.mark.slow) if m == "vit" else m for m in TINY]
)
def test_both_sides_have_the_losses_of_one_training(monkeypatch, one_process, model):
    pytest.importorskip("torch")
    monkeypatch.setattr(training, "SETTINGS", {model: training.Stretch(TINY[model], STEPS)})
    for side in ("benchmarks.jaxsens_training", "benchmarks.torch_training"):
        monkeypatch.setattr(importlib.import_module(side), "RATE", 0.1)
    result = training.run(
        frame.Options(
            suite="training", methods=("torch", "jaxsens"), batch=BATCH, repeats=1, threads=1
        )
    )
    assert result.agree, result.notes
    theirs, ours = result.rows
    assert ours["loss_difference"] < 1e-4
    assert len(ours["losses"]) == STEPS
    assert len(set(theirs["losses"])) == STEPS
    (verdict,) = result.tables[0].rows
    assert verdict["best_torch"] == "torch"
    assert verdict["ratio"] == ours["ratio"]


def test_without_torch_the_row_of_jaxsens_is_left(monkeypatch, one_process):
    monkeypatch.setattr(training, "SETTINGS", {"cnn": training.Stretch(TINY["cnn"], STEPS)})
    monkeypatch.setattr(training, "installed", lambda package: False)
    result = training.run(frame.Options(suite="training", batch=BATCH, repeats=2, threads=1))
    (row,) = result.rows
    assert result.agree
    assert row["method"] == "jaxsens"
    assert len(row["seconds"]) == 2 * training.ROUNDS
    assert row["ms_per_step"] == pytest.approx(1e3 * min(row["seconds"]) / STEPS)
    left_out = [note for note in result.notes if "was left out" in note]
    assert [note.split()[0] for note in left_out] == ["torch", "torch-compile"]
    assert not result.tables[0].rows


def test_without_a_compiler_torch_compile_is_left_out(monkeypatch):
    monkeypatch.setattr(training, "installed", lambda package: True)
    monkeypatch.setattr(training.shutil, "which", lambda name: None)
    assert "C++ compiler" in training.why_not("torch-compile")
    assert training.why_not("torch") is None
    assert training.why_not("jaxsens") is None


def test_the_order_is_the_trainers_own(tmp_path):
    job = {
        "setting": {"architecture": "MLP", "sizes": {"num_classes": 2}, "shape": [2, 2, 1]},
        "steps": 5,
        "batch": 3,
        "seed": 1,
        "arrays": str(tmp_path / "arrays.npz"),
    }
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job))
    jaxsens_training.main(str(path))
    order = load_arrays(tmp_path / "arrays.npz")["order"]
    assert order.shape == (5, 3)
    assert sorted(order.flatten()) == list(range(15))


def test_another_training_is_noticed():
    rows = [
        {"method": "torch", "ms_per_step": 3.0, "losses": [2.0, 1.5]},
        {"method": "torch-compile", "error": "killed"},
        {"method": "jaxsens", "ms_per_step": 2.0, "losses": [2.0, 1.49]},
    ]
    _, _, ours = training.agreed(rows)
    assert ours["ratio"] == 1.5
    assert ours["same"] == "NO"
    assert ours["loss_difference"] == pytest.approx(0.01)


def test_verdicts_are_against_the_fastest_torch():
    rows = [
        {"model": "cnn", "method": "torch", "ms_per_step": 4.0},
        {"model": "cnn", "method": "torch-compile", "ms_per_step": 3.0},
        {"model": "cnn", "method": "jaxsens", "ms_per_step": 4.0},
        {"model": "mlp", "method": "torch", "ms_per_step": 2.0},
        {"model": "mlp", "method": "jaxsens", "ms_per_step": 2.0},
        {"model": "vit", "method": "torch", "error": "killed"},
        {"model": "vit", "method": "jaxsens", "ms_per_step": 2.0},
    ]
    cnn, mlp = training.verdicts(rows)
    assert (cnn["best_torch"], cnn["ratio"], cnn["verdict"]) == (
        "torch-compile",
        0.75,
        "short by 25%",
    )
    assert mlp["verdict"] == "reached"
    assert page._against_torch(cnn) == "**0.75×**"
    assert page._against_torch(mlp) == "1.00×"


def test_stretches_that_are_not_finite_are_no_training():
    with pytest.raises(RuntimeError, match="the loss is nan"):
        training_cell.measure(lambda job: lambda: np.array([1.0, np.nan]), None, 1)
