"""The experiment `robustness`: corrupted images, what is claimed of them, and a tiny run."""

import dataclasses

import jax
import numpy as np
import pytest

from jaxsens import Gaussian, Patches, Perturbation, sensitivity
from jaxsens.core.intervals import mean_interval
from jaxsens.data.images import cifar10c
from jaxsens.run import load_experiment, main


def column(table, name):
    return [row[table["columns"].index(name)] for row in table["rows"]]


def test_robustness_tests_every_model_on_every_corruption(tiny_run):
    results, folder, _ = tiny_run(
        "--exp robustness --models mlp-leaky --intervene-on mlp-leaky --num-corrupted 30 "
        "--corruptions gaussian_noise contrast --severity 5 --other-severities 1"
    )
    errors, accuracies, severities, at_equal, _ = results["tables"]
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
    milder = np.load(folder / "corrupted" / "mlp-leaky-severity-1.npy")
    np.testing.assert_array_equal(milder[0], outcomes[0])
    for column_name, table in (("severity 5", outcomes), ("severity 1", milder)):
        assert column(severities, column_name)[0].split()[0] == f"{1 - table[1:].mean():.4f}"
    assert column(at_equal, "model") == column(errors, "model")
    for table in (errors, accuracies, severities):
        assert "subset of 100 images (its training split has 2,000); models" in table["note"]
    assert "exact over all orders" in errors["note"]


def test_transformers_are_compared_on_every_corruption_and_on_average():
    robustness = load_experiment("robustness")
    config = robustness.Config(models=("vit-small", "resnet"), interventions=())
    # Of 40 images the ViT errs on 10 under every corruption, the ResNet on 20 under four of five.
    vit, resnet = np.zeros((5, 40), bool), np.zeros((5, 40), bool)
    vit[:, :10], resnet[:4, :20] = True, True
    specs = config.resolved("quick").model_specs()
    (claim,) = robustness.claims.transformer_claims(specs, {"vit-small": [vit], "resnet": [resnet]})
    assert claim.holds
    start = "on 4 of 5; mean error 0.2500 against 0.4000, less by 0.1500, 95 % interval "
    low, high = map(float, claim.measured.removeprefix(start).split(" to "))
    # Image by image -0.2, 0.8 and 0; skewed to the right, so longer above than below.
    gains = np.concatenate([np.full(10, -0.2), np.full(10, 0.8), np.zeros(20)])
    assert (low, high) == pytest.approx(mean_interval(gains, (-1.0, 1.0)).ends, abs=1e-4)
    error = 2.0227 * gains.std(ddof=1) / np.sqrt(40)
    assert high - low == pytest.approx(2 * error, rel=0.05)


def test_over_seeds_a_transformer_must_win_on_almost_all_corruptions_each_time():
    robustness = load_experiment("robustness")
    config = robustness.Config(models=("vit-small", "resnet"), interventions=())
    specs = config.resolved("quick").model_specs()
    better, worse = np.zeros((5, 40), bool), np.ones((5, 40), bool)
    errors = {"vit-small": [better, better], "resnet": [worse, worse]}
    (always,) = robustness.claims.transformer_claims(specs, errors)
    assert always.holds
    assert always.values["corruptions on which it is more accurate, by seed"] == [5, 5]
    errors = {"vit-small": [better, worse], "resnet": [worse, better]}
    (once,) = robustness.claims.transformer_claims(specs, errors)
    assert not once.holds
    assert once.interval == (0, 5)


def test_gains_by_seed_decide():
    robustness = load_experiment("robustness")
    config = robustness.Config(models=("resnet",), interventions=("augment",)).resolved("quick")
    ((changed, base),) = config.pairs(config.model_specs())
    all_wrong = np.ones((2, 10), bool)
    some_right = [all_wrong.copy() for _ in range(3)]
    for num, table in zip((2, 3, 4), some_right, strict=True):
        table[:, :num] = False
    errors = {base.name: [all_wrong] * 3, changed.name: some_right}
    claim = robustness.claims.accuracy_claim(changed, base, errors)
    assert claim.values["mean gain in accuracy by seed"] == pytest.approx([0.2, 0.3, 0.4])
    # Student's t for three seeds: 0.3 ± 4.303 · 0.1/√3.
    assert claim.interval == pytest.approx((0.0516, 0.5484), abs=1e-3)
    assert claim.holds
    alone = {name: tables[:1] for name, tables in errors.items()}
    assert robustness.claims.accuracy_claim(changed, base, alone).num_seeds == 1


def test_many_trainings_have_a_correlation_given_clean_accuracy():
    robustness = load_experiment("robustness")
    specs = robustness.Config(models=("resnet",), interventions=()).resolved("quick").model_specs()
    made = sensitivity(
        *(lambda _, x: x.reshape(len(x), -1), (), np.zeros((2, 4, 4, 1), np.float32)),
        *(Perturbation(Patches(4), Gaussian(sigma=1.0)), 1),
        key=jax.random.key(0),
    )

    def estimate(mean):
        counts = np.ones((4, 1), np.int64)
        return dataclasses.replace(made, totals=np.full((4, 1), mean), counts=counts)

    def found(num_seeds):
        estimates = [estimate(seed / num_seeds) for seed in range(num_seeds)]
        recognised = [np.arange(12).reshape(2, 6) >= seed for seed in range(num_seeds)]
        args = {specs[0].name: estimates}, {specs[0].name: recognised}
        return robustness.correlations.rank_correlations(specs, *args)

    claims = robustness.correlations.correlation_claims(found(12), 6)
    assert [claim.values["models"] for claim in claims] == [1, 12, 12]
    assert "given clean accuracy" in claims[-1].statement
    assert found(11).given_clean is None
    assert len(robustness.correlations.correlation_claims(found(1), 6)) == 1


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
