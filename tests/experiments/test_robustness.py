"""The experiment `robustness`: corrupted images, what is claimed of them, and a tiny run."""

import dataclasses

import numpy as np
import pytest

from jaxsens.core.intervals import mean_interval
from jaxsens.data.images import cifar10c
from jaxsens.run import load_experiment, main


def column(table, name):
    return [row[table["columns"].index(name)] for row in table["rows"]]


def test_robustness_tests_every_model_on_every_corruption(tiny_run):
    results, folder, _ = tiny_run(
        "--exp robustness --models mlp-leaky --intervene-on mlp-leaky --num-corrupted 30 "
        "--corruptions gaussian_noise contrast --severity 5"
    )
    errors, accuracies, _ = results["tables"]
    assert column(errors, "model") == [
        "MLP-LeakyReLU",
        "MLP-LeakyReLU + reg.",
        "MLP-LeakyReLU + aug.",
    ]
    assert column(accuracies, "corruption") == ["clean", "gaussian noise", "contrast"]
    assert "CIFAR-10-C style, regenerated" in errors["note"]
    outcomes = np.load(folder / "corrupted" / "mlp-leaky.npy")
    assert outcomes.shape == (3, 30)
    value = results["values"]["mlp-leaky"]["mean_corruption_error"]
    assert value == pytest.approx(1 - outcomes[1:].mean())
    assert column(errors, "mean corr. error")[0] == f"{value:.4f}"
    cells = column(accuracies, "MLP-LeakyReLU")
    assert [cell.split()[0] for cell in cells] == [f"{row.mean():.3f}" for row in outcomes]
    assert column(errors, "clean accuracy")[0] == cells[0]
    for table in results["tables"]:
        assert "subset of 100 images (its training split has 2,000); models" in table["note"]
    assert "exact over all orders" in errors["note"]


def test_transformers_are_compared_on_every_corruption_and_on_average():
    robustness = load_experiment("robustness")
    config = robustness.Config(models=("vit-small", "resnet"), interventions=())
    # Of 40 images the ViT errs on 10 under every corruption, the ResNet on 20 under four of five.
    vit, resnet = np.zeros((5, 40), bool), np.zeros((5, 40), bool)
    vit[:, :10], resnet[:4, :20] = True, True
    specs, errors = config.resolved("quick").model_specs(), {"vit-small": vit, "resnet": resnet}
    (claim,) = robustness.claims.transformer_claims(specs, errors)
    assert claim.holds
    start = "on 4 of 5; mean error 0.2500 against 0.4000, less by 0.1500, 95 % interval "
    low, high = map(float, claim.measured.removeprefix(start).split(" to "))
    # Image by image -0.2, 0.8 and 0; skewed to the right, so longer above than below.
    gains = np.concatenate([np.full(10, -0.2), np.full(10, 0.8), np.zeros(20)])
    assert (low, high) == pytest.approx(mean_interval(gains, (-1.0, 1.0)).ends, abs=1e-4)
    error = 2.0227 * gains.std(ddof=1) / np.sqrt(40)
    assert high - low == pytest.approx(2 * error, rel=0.05)


def test_a_corruption_draws_the_same_whichever_are_asked_for():
    robustness = load_experiment("robustness")
    some = ("contrast", "gaussian_noise")
    config = robustness.Config(corruptions=some, num_corrupted=3).resolved("quick")
    both = robustness.load(config, None).tests["gaussian_noise"].images
    alone = dataclasses.replace(config, corruptions=some[1:])
    np.testing.assert_array_equal(robustness.load(alone, None).tests[some[1]].images, both)
    # The keys of a default run are those it always had.
    assert " ".join(robustness.config.KEY_ORDER[:15]) == (
        "gaussian_noise shot_noise impulse_noise gaussian_blur glass_blur motion_blur zoom_blur "
        "snow frost fog brightness contrast elastic_transform pixelate jpeg_compression"
    )


def test_official_files_are_tested_on_the_rows_of_their_severity(tmp_path, monkeypatch):
    robustness, num = load_experiment("robustness"), 6
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-1, 1, (num, 32, 32, 3)).astype(np.float32), np.arange(num, dtype=np.int32)
    fake = robustness.loading.loading.Images(x, y, x, y)
    monkeypatch.setattr(robustness.loading.loading, "load", lambda config, data_dir: fake)
    monkeypatch.setattr(cifar10c, "NUM_IMAGES", num)
    official = rng.integers(0, 256, (5 * num, 32, 32, 3), np.uint8)
    (tmp_path / "CIFAR-10-C").mkdir()
    np.save(tmp_path / "CIFAR-10-C" / "fog.npy", official)
    np.save(tmp_path / "CIFAR-10-C" / "labels.npy", np.tile(y, 5))
    config = robustness.Config(
        dataset="cifar10", corruptions=("fog",), severity=2, num_corrupted=4
    ).resolved("small")
    loaded = robustness.load(config, tmp_path)
    assert loaded.tests["fog"].source == "CIFAR-10-C"
    np.testing.assert_array_equal(loaded.tests["fog"].images, official[num : num + 4])
    np.testing.assert_array_equal(loaded.tests["fog"].labels, y[:4])
    assert len(loaded.clean[1]) == 4


@pytest.mark.parametrize(
    ("there", "message"),
    [
        ({"labels": b"not an array"}, "fog.npy is not there; get CIFAR-10-C.tar"),
        ({"fog": b"not an array", "labels": b""}, "fog.npy: expected a .npy file of plain numbers"),
    ],
)
def test_missing_or_damaged_official_files_end_with_one_line_before_anything_is_created(
    there, message, capsys, tmp_path, monkeypatch
):
    # CIFAR-10 itself is not here: a fake, so that the corrupted files are looked at.
    robustness = load_experiment("robustness")
    fake = robustness.loading.loading.Images(
        *(np.zeros((4, 32, 32, 3), np.float32), np.zeros(4, np.int32)),
        *(np.zeros((4, 32, 32, 3), np.float32), np.zeros(4, np.int32)),
    )
    monkeypatch.setattr(robustness.loading.loading, "load", lambda config, data_dir: fake)
    (tmp_path / "data" / "CIFAR-10-C").mkdir(parents=True)
    for name, content in there.items():
        (tmp_path / "data" / "CIFAR-10-C" / f"{name}.npy").write_bytes(content)
    command = "--exp robustness --dataset cifar10 --corruptions fog --data-dir data --workdir run"
    assert main(command.split()) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert message in err
    assert not (tmp_path / "run").exists()
