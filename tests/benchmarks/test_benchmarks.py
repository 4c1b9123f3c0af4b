"""The benchmarks measure what they say: no timing is asserted anywhere."""

import functools
import importlib
import json
import math
import shutil
import subprocess
import sys
from dataclasses import replace

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from benchmarks import cell, compare, frame, jaxsens_methods, run, sensitivity
from benchmarks.workload import Setting, Workload
from jaxsens.measurement.batching import BatchPlan, byte_budget, make_plan, max_batch_within

# Sides of different lengths and two channels: no layout can be mistaken for another.
SHAPE, WINDOW = (8, 12, 2), (4, 4, 2)
TEXT, TOKEN = (5, 12), (1, 12)
VIT = {"num_classes": 3, "patch": 4, "depth": 2, "heads": 2, "hidden": 12}
TINY = {
    "mlp": Setting("MLP", {"num_classes": 3, "widths": (9, 5)}, SHAPE, WINDOW),
    "cnn": Setting("CNN", {"num_classes": 3, "features": 4, "hidden": 5}, SHAPE, WINDOW),
    "vit": Setting("ViTSmall", VIT, SHAPE, WINDOW),
    "resnet18": Setting("ResNet", {"num_classes": 3, "width": 4, "blocks": (1, 1)}, SHAPE, WINDOW),
    "densenet121": Setting(
        "DenseNet", {"num_classes": 3, "growth": 4, "blocks": (1, 2)}, SHAPE, WINDOW
    ),
    "convmixer": Setting("ConvMixer", {"num_classes": 3, "width": 6, "depth": 2}, SHAPE, WINDOW),
    "lstm": Setting("LSTM", {"vocab_size": 4, "depth": 2, "width": 12}, TEXT, TOKEN),
    "roberta": Setting(
        "RoBERTa",
        {"vocab_size": 4, "depth": 2, "heads": 3, "width": 12, "hidden": 7, "max_positions": 7},
        TEXT,
        TOKEN,
    ),
    "gpt2": Setting(
        "GPT2",
        {"vocab_size": 4, "depth": 2, "heads": 3, "width": 12, "max_positions": 5},
        TEXT,
        TOKEN,
    ),
}


@functools.cache
def workload(name: str) -> Workload:
    """Normal weights without biases to speak of: the model changes its mind easily."""
    setting = TINY[name]
    init = jaxsens_methods.make_model(setting).init
    tree = jax.eval_shape(init, jax.random.key(0), jaxsens_methods.first_input(setting))
    rng = np.random.default_rng(1)

    def draw(path, shape):
        if path.endswith("/var"):
            return rng.uniform(0.5, 1.5, shape)
        spread = math.sqrt(1 / math.prod(shape[:-1])) if path.endswith("kernel") else 0.05
        return rng.normal(1 if path.endswith("scale") else 0, spread, shape)

    weights = {
        path: draw(path, leaf.shape).astype(np.float32)
        for path, leaf in flatten_dict(tree, sep="/").items()
    }
    options = frame.Options(num_images=6, num_samples=20, batch=4)
    return compare.make_workload(setting, weights, options)


# --- The suite ------------------------------------------------------------------------------------


def test_suite_without_torch_prints_the_jaxsens_rows(monkeypatch, tmp_path, capsys):
    # One device, and no time spent on optimising programs that run for a moment.
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0")
    monkeypatch.setattr(sensitivity, "SETTINGS", TINY)
    monkeypatch.setattr(compare, "installed", lambda package: package not in ("torch", "captum"))
    out = tmp_path / "new" / "bench.json"
    arguments = "--models mlp --num-images 3 --num-samples 2 --repeats 2 --threads 1 --json"
    assert run.main([*arguments.split(), str(out)]) == 0

    record = json.loads(out.read_text(), parse_constant=pytest.fail)
    assert [row["method"] for row in record["rows"]] == ["jaxsens-plain", "jaxsens"]
    for row in record["rows"]:
        assert len(row["seconds"]) == 2
        assert row["num_positions"] == 6
        assert row["peak_mb"] > row["work_mb"] > 0
        best = min(row["seconds"])
        assert row["draws_per_second"] * best == pytest.approx(3 * 6 * 2)
        assert row["gflops"] * best == pytest.approx(3 * (6 * 2 + 1) * row["forward_mflops"] / 1e3)
        assert row["of_peak"] <= row["gflops"] / row["matmul_gflops"]
    first, second = record["rows"]
    assert second["same"] == "yes"
    assert second["sensitivity"] == first["sensitivity"]  # the same draws
    assert second["unlike_plain"] == 0
    (verdict,) = record["tables"]["Against the targets"]
    assert verdict["vs_plain"] == pytest.approx(min(first["seconds"]) / min(second["seconds"]))
    assert not {"vs_loop", "vs_torch"} & {*verdict}
    printed = capsys.readouterr().out
    assert "torch is missing" in printed
    assert "machine: " in printed
    assert "captum is missing, so captum could not run" in printed
    assert "| mlp   | jaxsens-plain |" in printed


def test_cells_that_fail_or_differ_are_reported(monkeypatch, capsys):
    def outcome(logit, flips):
        return cell.Outcome(
            device="cpu",
            seconds=[2.0, 1.0],
            compile_seconds=0.1,
            peak_mb=20.0,
            idle_mb=5.0,
            cpu_seconds=1.0,
            page_faults=0,
            matmul_gflops=1.0,
            probed={},
            logits=np.full((4, 3), logit),
            flips=np.full((4, 6), flips),
        )

    outcomes = {"loop": outcome(0.5, 5), "batched": outcome(0.6, 5), "default": outcome(0.5, 9)}

    def launch(factory, *_args, **_kwargs):
        name = factory.partition(":")[2]
        if name not in outcomes:
            raise cell.CellError("killed by signal 9; 9 often means out of memory")
        return outcomes[name]

    monkeypatch.setattr(sensitivity, "SETTINGS", TINY)
    monkeypatch.setattr(compare, "installed", lambda package: True)
    monkeypatch.setattr(compare, "prepare", lambda *_: ({}, 1.0))
    monkeypatch.setattr(cell, "launch", launch)
    assert run.main(["--models", "mlp", "--repeats", "2"]) == 1
    printed = capsys.readouterr().out
    assert "mlp torch-batched does not measure what torch-loop measures" in printed
    assert "mlp jaxsens does not measure what torch-loop measures" in printed
    assert "mlp jaxsens-plain failed: killed by signal 9" in printed


def test_unknown_names_are_refused(capsys):
    assert run.main(["--models", "mpl"]) == 2
    assert "unknown model 'mpl'; choose from mlp, cnn, vit," in capsys.readouterr().err
    assert run.main(["--methods", "tf"]) == 2
    assert "unknown method 'tf'" in capsys.readouterr().err
    assert run.main(["--suite", "scaling", "--models", "vit8"]) == 2
    assert "unknown model 'vit8'; choose from mlp, cnn, gpt2" in capsys.readouterr().err
    assert run.main(["--suite", "tolerance", "--methods", "jaxsens"]) == 2
    assert "takes no methods" in capsys.readouterr().err


def test_a_cell_says_why_it_failed(tmp_path):
    work = workload("mlp")
    work.save(tmp_path / "workload.npz")
    with pytest.raises(cell.CellError, match=r"exit status 1: AttributeError.*nothing"):
        cell.launch(
            "benchmarks.cell:nothing",
            tmp_path / "workload.npz",
            work.spec(),
            num_threads=1,
            repeats=1,
            seed=0,
        )


def test_frame_imports_neither_side():
    # What the parent process imports, PyTorch's cells import too: their memory must be their own.
    code = "import sys, benchmarks.run, benchmarks.cell; print({'jax', 'torch'} & {*sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cell.ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


def test_workload_survives_the_way_to_the_cell(tmp_path):
    work = workload("mlp")
    work.save(tmp_path / "w.npz")
    again = Workload.load(tmp_path / "w.npz", json.loads(json.dumps(work.spec())))
    assert again.setting == work.setting
    np.testing.assert_array_equal(again.x, work.x)
    assert again.weights.keys() == work.weights.keys()


def test_all_at_once_is_one_pass_per_image():
    work = workload("cnn")
    example = jax.ShapeDtypeStruct(SHAPE, work.x.dtype)
    apply = jaxsens_methods.apply_function(work.setting)
    budget = byte_budget(jaxsens_methods._one_image_bytes(work), "cpu")
    max_batch = max_batch_within(
        budget.widest, apply, jaxsens_methods.variables(work.weights), example
    )
    assert make_plan(max_batch, num_pairs=6 * 20) == BatchPlan(chunk=256, group=1, block=120)


def test_forward_flops_of_an_mlp_are_its_products():
    products = 2 * (math.prod(SHAPE) * 9 + 9 * 5 + 5 * 3)
    flops = jaxsens_methods.forward_flops(TINY["mlp"], workload("mlp").weights)
    # Biases and activations come on top.
    assert products < flops < products + 10 * (9 + 5)


def test_forward_flops_count_every_turn_of_a_loop():
    short, weights = TINY["lstm"], workload("lstm").weights
    long = replace(short, shape=(10, 12))
    head = 2 * 12 * 2
    flops = [jaxsens_methods.forward_flops(setting, weights) - head for setting in (short, long)]
    assert flops[1] == pytest.approx(2 * flops[0], rel=0.02)


def test_calibrated_networks_have_their_own_statistics():
    setting = TINY["resnet18"]
    weights = jaxsens_methods.random_weights(setting, seed=3)
    x = np.random.default_rng(3).uniform(-1, 1, (16, *SHAPE)).astype(np.float32)
    apply = jax.jit(jaxsens_methods.apply_function(setting))
    logits = np.asarray(apply(jaxsens_methods.variables(weights), x))
    np.testing.assert_allclose(logits.mean(axis=0), 0, atol=1e-4)
    assert len(set(logits.argmax(axis=1))) > 1


# --- Its statistics and its table -----------------------------------------------------------------


def test_noise_variance_is_that_of_repeated_measurements():
    rng = np.random.default_rng(0)
    p = rng.uniform(size=(7, 5))
    draws = rng.binomial(10, p, size=(4000, 7, 5))
    expected = (p * (1 - p)).sum() / 10 / 35**2
    estimates = [compare.noise_variance(flips, 10) for flips in draws]
    assert np.mean(estimates) == pytest.approx(expected, rel=0.01)
    assert np.var(draws.mean(axis=(1, 2)) / 10) == pytest.approx(expected, rel=0.1)


def test_z_score_at_its_limits():
    some, none, every = np.array([[2, 3]]), np.zeros((1, 2)), np.full((1, 2), 5)
    assert compare.z_score(some, some, 5) == 0
    assert compare.z_score(none, none, 5) == 0
    assert compare.z_score(every, none, 5) == np.inf
    assert np.isnan(compare.z_score(some, some, 1))


def test_table_is_aligned_and_dashes_what_is_missing():
    columns = (frame.Column("model", "m"), frame.Column("ms", "t", "{:.1f}".format))
    rows = [{"m": "mlp", "t": 3.14}, {"m": "cnn"}, {"m": "vit", "t": float("nan")}]
    assert frame.markdown_table(columns, rows).splitlines() == [
        "| model |  ms |",
        "| ----- | --: |",
        "| mlp   | 3.1 |",
        "| cnn   |   – |",
        "| vit   |   – |",
    ]


# --- Parity with PyTorch --------------------------------------------------------------------------


@pytest.fixture
def torch_reference():
    pytest.importorskip("torch")
    return importlib.import_module("benchmarks.torch_reference")


def factories(torch_reference):
    """PyTorch's ways to measure, and captum's where it is installed."""
    found = [torch_reference.loop, torch_reference.batched, torch_reference.vmapped]
    if compare.installed("captum"):
        found.append(importlib.import_module("benchmarks.captum_method").ablation)
    return found


@pytest.mark.parametrize("name", TINY)
def test_torch_has_the_same_logits(torch_reference, name):
    work = workload(name)
    ours, theirs = jaxsens_methods.default(work, 1), torch_reference.loop(work, 1)
    np.testing.assert_allclose(theirs.logits(work.x), ours.logits(work.x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["mlp", "gpt2"])
def test_torch_finds_the_same_sensitivity(torch_reference, name):
    work = workload(name)
    ours = jaxsens_methods.default(work, 1).flips(work.x, seed=0)
    assert 0 < ours.sum() < ours.size * work.num_samples
    for factory in factories(torch_reference):
        theirs = factory(work, 1).flips(work.x, seed=0)
        assert abs(compare.z_score(theirs, ours, work.num_samples)) < 4


@pytest.mark.parametrize("name", ["cnn", "vit", "convmixer", "roberta"])
def test_edits_vmapped_in_torch_flip_as_in_a_batch(torch_reference, name):
    work = workload(name)
    batched, vmapped = (
        make(work, 1).flips(work.x, seed=0)
        for make in (torch_reference.batched, torch_reference.vmapped)
    )
    np.testing.assert_array_equal(vmapped, batched)


@pytest.mark.slow  # torch.compile calls a C++ compiler
@pytest.mark.filterwarnings("ignore")  # torch's compiler warns of its own modules and settings
def test_compiled_torch_flips_as_eager_torch(torch_reference):
    if not any(map(shutil.which, ("g++", "clang++"))):
        pytest.skip("torch.compile needs a C++ compiler")
    work = workload("cnn")
    pairs = [
        (torch_reference.loop, torch_reference.compiled_loop),
        (torch_reference.batched, torch_reference.compiled_batched),
    ]
    for eager, compiled in pairs:
        expected = eager(work, 1).flips(work.x, seed=0)
        np.testing.assert_array_equal(compiled(work, 1).flips(work.x, seed=0), expected)


@pytest.mark.parametrize("name", ["vit", "roberta", "gpt2"])
def test_torch_with_all_tokens_has_the_same_logits(torch_reference, name):
    work = workload(name)
    few = torch_reference.loop(work, 1).logits(work.x)
    every = torch_reference.loop_all_tokens(work, 1).logits(work.x)
    np.testing.assert_allclose(every, few, atol=1e-5)


@pytest.mark.parametrize("position", range(6))
def test_position_means_the_same_window_in_torch(torch_reference, position):
    """A model that sees one window alone is sensitive there and nowhere else."""
    work = workload("mlp")
    row, column, _ = jaxsens_methods.perturbation(work.setting).grid.start(position, SHAPE)
    seen = np.zeros(SHAPE, np.float32)
    seen[row : row + 4, column : column + 4] = 1
    name = "params/Dense_0/kernel"
    weights = {**work.weights, name: work.weights[name] * seen.reshape(-1, 1)}
    work = Workload(work.setting, work.x, weights, work.num_samples, work.batch)
    for factory in factories(torch_reference):
        flips = factory(work, 1).flips(work.x, 0)
        assert np.flatnonzero(flips.sum(axis=0)).tolist() == [position]


@pytest.mark.parametrize("name", ["lstm", "roberta", "gpt2"])
def test_torch_sees_padding_as_flax_does(torch_reference, name):
    torch = pytest.importorskip("torch")
    work = workload(name)
    mask = np.arange(5)[None] < np.array([5, 4, 3, 2, 1, 5])[:, None]
    network = torch_reference.make_model(work.setting, work.weights)
    with torch.inference_mode():
        theirs = network(torch.tensor(work.x), torch.tensor(mask)).numpy()
    apply = jax.jit(jaxsens_methods.apply_function(work.setting))
    ours = apply(jaxsens_methods.variables(work.weights), work.x, mask)
    np.testing.assert_allclose(theirs, ours, atol=1e-5, rtol=1e-5)


def test_loop_says_what_a_full_batch_gains(torch_reference):
    work = workload("mlp")
    assert torch_reference.loop(work, 1).probe(work.x) == {}  # its batch of 4 is full
    probed = torch_reference.loop(replace(work, batch=50), 1).probe(work.x)
    assert probed["batch_gain"] > 0


def test_captum_finds_the_same_flips_however_it_is_tuned(torch_reference):
    pytest.importorskip("captum")
    captum_method = importlib.import_module("benchmarks.captum_method")
    work = workload("cnn")
    method = captum_method.ablation(work, 1)
    untuned = method.flips(work.x, seed=0)
    method.tune(work.x)
    assert method.probe(work.x)["perturbations_per_eval"] in (1, 4, 6)
    np.testing.assert_array_equal(method.flips(work.x, seed=0), untuned)
    every = captum_method.CaptumMethod(
        work, 1, functools.partial(captum_method.captum_flips, perturbations_per_eval=4)
    )
    np.testing.assert_array_equal(every.flips(work.x, seed=0), untuned)
