"""What the suites of the benchmark make of their cells: no timing is asserted anywhere."""

import importlib
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import (
    compare,
    foreign,
    frame,
    many_runs,
    models,
    occlusion,
    pytorch,
    scaling,
    targets,
    tolerance,
    worst_case,
)
from benchmarks.workload import Setting

MLP = Setting("MLP", {"num_classes": 3, "widths": (9, 5)}, (8, 8, 2), (4, 4, 2))


@pytest.mark.slow
def test_scaling_measures_every_axis_and_draws_it(monkeypatch, tmp_path, one_process):
    windows = ((MLP.shape, (8, 8, 2)), (MLP.shape, MLP.window))
    small = scaling.Range(2, windows, ({"widths": (3, 5)}, {"widths": (9, 5)}), (1, 5), (1, 2))
    monkeypatch.setattr(scaling, "SETTINGS", {"mlp": MLP})
    monkeypatch.setattr(scaling, "RANGES", {"mlp": small})
    result = scaling.run(
        frame.Options(models=("mlp",), methods=("jaxsens",), repeats=1, threads=1, figures=tmp_path)
    )
    assert result.agree
    (table,), cells = result.tables, result.rows
    grown = table.rows
    assert {row["along"]: row["sizes"] for row in grown if row["along"] != "model"} == {
        "T": [1, 4],
        "S": [1, 5],
        "n": [1, 2],
    }
    small_model, large_model = grown[3]["sizes"]
    assert small_model < large_model
    assert len(cells) == 8
    assert (tmp_path / "scaling-mlp.png").exists()


def test_growth_is_the_exponent():
    sizes = (1, 4, 16)
    rows = [{"method": "loop", "num_samples": k, "seconds": [9.0, 0.1 * k**0.5]} for k in sizes]
    failed = {"method": "loop", "error": "killed"}
    (found,) = scaling.growth("mlp", "S", [*rows, failed])
    assert found["growth"] == pytest.approx(0.5)
    assert (found["from"], found["to"]) == (1, 16)


def test_tolerance_is_compared_with_the_exhaustive_measurement(monkeypatch, one_process):
    monkeypatch.setattr(tolerance, "SETTINGS", {"mlp": MLP})
    result = tolerance.run(
        frame.Options(
            models=("mlp",), num_images=300, num_samples=20, tolerances=(0.05, 1e-6), repeats=1
        )
    )
    exhaustive, loose, strict, fixed, _ = result.rows
    assert exhaustive["num_passes"] == 300 * (4 * 20 + 1)
    assert loose["positions"] == "random"
    assert loose["half_width"] <= 0.05
    assert loose["share"] < 1
    assert abs(loose["z"]) < 4
    assert strict["positions"] == "all"
    assert strict["difference"] == 0  # the same draws, after a pilot
    assert strict["share"] > 1
    assert fixed["half_width"] <= 0.05


def test_occlusion_maps_of_all_methods_agree(monkeypatch, one_process):
    monkeypatch.setattr(occlusion, "SETTINGS", {"mlp": MLP})
    monkeypatch.setattr(occlusion, "NUM_IMAGES", {("mlp", "tiled"): 3, ("mlp", "sliding"): 2})
    options = frame.Options(methods=("jaxsens-plain", "jaxsens"), repeats=2, threads=1)
    result = occlusion.run(options)
    assert result.agree, result.notes
    assert [row["num_positions"] for row in result.rows] == [4, 4, 25, 25]
    assert [row["num_images"] for row in result.rows] == [3, 3, 2, 2]
    rows = occlusion.against(
        [{"method": "captum", "ms_per_image": 6.0}, {"method": "jaxsens", "ms_per_image": 2.0}]
    )
    assert rows[1]["vs_captum"] == 3.0
    assert "vs_captum" not in rows[0]


def test_maps_that_differ_are_reported(monkeypatch, one_process):
    monkeypatch.setattr(occlusion, "SETTINGS", {"mlp": MLP})
    monkeypatch.setattr(occlusion, "NUM_IMAGES", {("mlp", "tiled"): 2})
    monkeypatch.setattr(occlusion, "SAME_WITHIN", -1.0)
    result = occlusion.run(frame.Options(methods=("jaxsens",), repeats=1, threads=1))
    assert not result.agree
    assert "the map of jaxsens differs by 0.0e+00" in result.notes[-1]


def test_verdicts_follow_from_the_seconds():
    rows = [
        {"model": "cnn", "method": "torch-loop", "seconds": [50.0, 40.0], "batch_gain": 2.0},
        {"model": "cnn", "method": "captum", "seconds": [22.0]},
        {"model": "cnn", "method": "jaxsens-plain", "seconds": [12.0]},
        {"model": "cnn", "method": "jaxsens", "seconds": [4.0, 5.0]},
        {"model": "new", "method": "torch-loop", "seconds": [1.0]},
        {"model": "new", "method": "jaxsens-plain", "error": "killed"},
        {"model": "new", "method": "jaxsens", "seconds": [1.0]},
        {"model": "mlp", "method": "jaxsens", "error": "killed"},
        {"model": "roberta", "method": "jaxsens-plain", "seconds": [1.0]},
        {"model": "roberta", "method": "jaxsens", "seconds": [2.0], "reuse": False},
    ]
    cnn, new, alike = targets.verdicts(rows)
    assert alike["plain_verdict"] == "the same program"
    assert (cnn["best_torch"], cnn["vs_torch"]) == ("captum", 5.5)
    assert cnn["torch_verdict"] == "short by 8%"
    assert cnn["vs_loop"] == 10
    assert cnn["vs_full_batch"] == 5
    assert cnn["vs_plain"] == 3
    assert cnn["plain_verdict"] == "short by 50%"
    assert (new["torch_target"], new["torch_verdict"]) == (1.0, "reached")
    assert "vs_plain" not in new
    assert "vs_torch" not in alike


def test_every_target_is_a_model():
    assert targets.TARGETS.keys() <= models.SETTINGS.keys()


MANY = frame.Options(
    suite="many-runs", lengths=(3,), batches=(8,), steps=2, lanes=3, block=2, repeats=2, threads=1
)


def test_many_runs_without_torch_has_the_row_of_jaxsens(monkeypatch, one_process):
    monkeypatch.setattr(compare, "installed", lambda package: False)
    result = many_runs.run(MANY)
    (row,) = result.rows
    assert result.agree
    assert row["num_runs"] == 3
    assert row["num_inputs"] == 8
    assert row["steps_per_second"] * min(row["seconds"]) == pytest.approx(3 * 2)
    assert row["runs_per_hour"] == pytest.approx(1.2 * row["steps_per_second"])
    assert "torch is missing, so there is nothing to compare with" in result.notes


def test_many_runs_in_torch_train_a_network_of_the_same_size(one_process):
    pytest.importorskip("torch")
    result = many_runs.run(replace(MANY, methods=("torch", "jaxsens")))
    theirs, ours = result.rows
    assert result.agree
    assert theirs["num_parameters"] == ours["num_parameters"]
    assert theirs["num_runs"] == 1
    assert ours["vs_torch"] == ours["steps_per_second"] / theirs["steps_per_second"]


def test_weighted_inputs_have_the_loss_of_the_draws():
    lane_runs = importlib.import_module("benchmarks.lane_runs")
    task = lane_runs.Parity(lane_runs.BitTransformer(3, 8), batch=20)
    lane, step = jax.random.key(0), jnp.int32(4)
    params = jax.jit(task.init)(lane)
    key = jax.random.fold_in(jax.random.fold_in(lane, 1), step)
    bits = (np.asarray(jax.random.randint(key, (20,), 0, 8))[:, None] >> np.arange(3)) & 1
    outputs = np.asarray(jax.jit(task.model.apply)(params, jnp.asarray(bits)))
    expected = np.mean((outputs - bits.sum(axis=1) % 2) ** 2)
    assert task.num_inputs == 8
    np.testing.assert_allclose(jax.jit(task.loss)(params, lane, step), expected, rtol=1e-5)


def test_ratios_are_within_a_length_and_batch():
    rows = [
        {"method": "torch", "steps_per_second": 2.0},
        {"method": "jaxsens", "steps_per_second": 10.0},
    ]
    theirs, ours = many_runs.against(rows)
    assert theirs["vs_torch"] is None
    assert ours["vs_torch"] == 5
    assert ours["vs_processes"] is None


WORST = frame.Options(
    suite="worst-case", words=(7,), widths=(6,), starts=3, ascent_steps=8, repeats=1, threads=1
)


def test_every_method_climbs_to_the_same_change(one_process):
    pytest.importorskip("torch")
    result = worst_case.run(WORST)
    assert result.agree, result.notes
    assert [row["method"] for row in result.rows] == ["torch", "jaxsens-plain", "jaxsens"]
    changes = [row["change"] for row in result.rows]
    np.testing.assert_allclose(changes, changes[0], rtol=1e-3)
    theirs, plain, ours = result.rows
    assert ours["vs_torch"] == theirs["ms_per_step"] / ours["ms_per_step"]
    assert ours["vs_plain"] == plain["ms_per_step"] / ours["ms_per_step"]
    assert theirs["vs_torch"] is None
    assert ours["ms_per_step"] == pytest.approx(1e3 * min(ours["seconds"]) / (2 * 3 * 8))


def test_methods_that_find_different_changes_disagree(monkeypatch):
    found = {"torch": 1.0, "jaxsens-plain": 1.0, "jaxsens": 1.1}
    by_side = {side: found[method] for method, side in worst_case.SIDES.items()}

    def run_cell(settings, factory, folder):
        return {"seconds": [2.0, 1.0], "change": by_side.get(factory)}

    monkeypatch.setattr(worst_case, "run_cell", run_cell)
    monkeypatch.setattr(compare, "installed", lambda package: package != "torch")
    result = worst_case.run(WORST)
    assert not result.agree
    assert "n=7 d=6: the methods found different changes, [1.0, 1.1]" in result.notes
    assert "torch is missing, so there is nothing to compare with" in result.notes


PYTORCH = frame.Options(suite="pytorch", num_images=2, num_samples=2, repeats=1, threads=1)


def test_a_module_of_pytorch_is_measured_by_every_method(one_process):
    pytest.importorskip("torch")
    result = pytorch.run(PYTORCH)
    assert result.agree, result.notes
    assert [row["method"] for row in result.rows] == list(pytorch.METHODS)
    loop, batched, plain, ours = result.rows
    assert ours["vs_torch"] == min(loop["best"], batched["best"]) / ours["best"]
    assert loop["vs_torch"] is None
    assert [row["reuse"] for row in (loop, plain, ours)] == [None, "no", "yes"]
    # The same keys: reuse does not change a flip.
    assert plain["sensitivity"] == ours["sensitivity"]


def test_a_module_measured_differently_is_named():
    rows = [
        {"method": "torch-loop", "sensitivity": 0.20, "noise": 0.003},
        {"method": "torch-batched", "sensitivity": 0.21, "noise": 0.003},
        {"method": "jaxsens", "sensitivity": 0.25, "noise": 0.004},
    ]
    (line,) = pytorch.disagreements(rows)
    assert line == "jaxsens measured 0.2500, torch-loop 0.2000: 10.0 standard errors apart"


FOREIGN = frame.Options(suite="foreign", num_samples=1, threads=1)


def test_a_model_of_another_package_is_counted_and_drawn_with_and_without_reuse(one_process):
    result = foreign.run(replace(FOREIGN, models=("scikit-learn MLP",)))
    assert result.agree, result.notes
    (row,) = result.rows
    assert row["num_draws"] == 2 * row["num_positions"]
    assert row["differ"] == 0
    assert row["plain"] == row["as_written"] == row["vs_plain"] * row["edit"]
    assert row["reuse"] == "yes"


def test_draws_that_differ_and_packages_that_are_missing_are_named(monkeypatch):
    found = {"differ": 3, "self_check": "passed"}
    monkeypatch.setattr(foreign, "installed", lambda package: package != "keras")
    monkeypatch.setattr(foreign, "counted", lambda model, options: found)
    result = foreign.run(replace(FOREIGN, models=("nnx CNN", "Keras GRU")))
    assert not result.agree
    assert result.notes == [
        "Keras GRU is left out: keras is missing",
        "nnx CNN: 3 draws differ with reuse, self check passed",
    ]
    with pytest.raises(frame.UsageError, match="takes no methods"):
        foreign.run(replace(FOREIGN, methods=("torch",)))
