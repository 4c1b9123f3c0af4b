"""Whole tiny runs of the image experiments: tables, claims and figures are there and add up."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from jaxsens import (
    Gaussian,
    Patches,
    Perturbation,
    ScatteredPixels,
    SensitivityEstimate,
    Whole,
    data,
    sensitivity,
)
from jaxsens.measurement.sharpness_estimate import SharpnessEstimate
from jaxsens.run import load_experiment, main
from tests.helpers.weights import weights_of


def column(table, name):
    return [row[table["columns"].index(name)] for row in table["rows"]]


def records(folder):
    return list(map(json.loads, (folder / "metrics.jsonl").read_text().splitlines()))


def test_estimators_compare_every_way_with_the_definition(tiny_run):
    results, folder, printed = tiny_run("--exp estimators --models mlp-leaky")
    (table,) = results["tables"]
    assert column(table, "estimator") == [
        "patch grid",
        "random patches",
        "to a tolerance",
        "patch, any place",
        "patch, σ = v",
        "pixels, σ² = v",
        "pixels, σ = v",
    ]
    passes = column(table, "passes")
    assert passes[0] == 10 * (1 + 16 * 5)
    # The draws of an image share its clean pass.
    assert passes[1] == passes[3] == passes[5] == passes[6] == 10 * (1 + 5)
    assert column(table, "ratio")[0] == "1.00"
    assert "the released code's estimator agrees with the definition" in printed
    stages = [record for record in records(folder) if "stage" in record]
    assert len(stages) == 6
    assert results["seconds"] == pytest.approx(sum(r["seconds"] for r in records(folder)))


def test_the_released_code_s_estimator_is_scattered_pixels_with_the_variance_as_sigma():
    estimators = load_experiment("estimators")
    ways = estimators.measuring.ways(estimators.Config().resolved("quick"))
    released = ways[estimators.measuring.RELEASED].perturbation
    assert released == Perturbation(Whole(), ScatteredPixels(4, Gaussian(sigma=5.0)))


@pytest.mark.parametrize(
    ("estimator", "num_positions", "num_draws", "note"),
    [
        ("random-patches", 16, 10 * 5, "S=5 random ones of T=16 patches an image"),
        ("scattered-pixels", 1, 10 * 5, "ScatteredPixels(count=4, noise=Gaussian(sigma=5, "),
    ],
)
def test_the_estimator_can_be_selected(tiny_run, estimator, num_positions, num_draws, note):
    flags = f"--exp vision --models mlp-leaky --estimator {estimator}"
    results, folder, _ = tiny_run(flags)
    text = (folder / "estimates" / "mlp-leaky.json").read_text()
    estimate = SensitivityEstimate.from_json(text)
    assert (estimate.num_positions, estimate.num_draws) == (num_positions, num_draws)
    assert note in results["tables"][0]["note"]
    assert [figure["file"] for figure in results["figures"]] == [
        "figures/training_curves.png",
        "figures/final.png",
        "figures/equal_accuracy.png",
    ]


def test_at_variance_1_nothing_can_be_misread():
    estimators = load_experiment("estimators")
    ways = estimators.measuring.ways(estimators.Config(dataset="cifar10").resolved("paper"))
    assert list(ways) == [
        "random patches",
        "to a tolerance",
        "patch, any place",
        estimators.measuring.RELEASED,
    ]


def test_ablations_change_one_thing_at_a_time():
    ablations = load_experiment("ablations")
    config = ablations.Config(dataset="cifar10").resolved("paper")
    variants = config.variants()
    base = variants.base.model
    assert [each.model.depth for each in variants.depths] == [4, 8, 10]
    assert [each.model.heads for each in variants.heads] == [16, 24, 32]
    for each in (*variants.depths, *variants.heads):
        differing = [
            field.name
            for field in dataclasses.fields(base)
            if field.name not in ("parent", "name")
            and getattr(each.model, field.name) != getattr(base, field.name)
        ]
        assert len(differing) <= 1
        assert each.recipe == variants.base.recipe
    assert variants.adam.model == base
    rate = variants.adam.recipe.rate(steps_per_epoch=10, epochs=50)
    assert [float(rate(10 * epoch)) for epoch in (0, 8)] == pytest.approx([0.002, 0.001])
    assert len(variants.all()) == 7


@pytest.mark.slow
def test_ablations_run(tiny_run):
    results, _, _ = tiny_run("--exp ablations --depths 1 --heads 1 --batch-size 50")
    assert column(results["tables"][0], "model") == [
        "CNN",
        "ViT-small, SGD",
        "ViT-small, Adam",
        "depth 1",
        "heads 1",
    ]


def test_sharpness_pairs_the_noise_and_keeps_the_statistics_still(tiny_run):
    results, folder, printed = tiny_run(
        "--exp sharpness --models mlp-leaky --intervene-on mlp-leaky --num-draws 3"
    )
    of_eval, released, at_equal, _ = results["tables"]
    assert column(of_eval, "model") == column(released, "model") == column(at_equal, "model")
    stored = [
        SharpnessEstimate.from_json((folder / "sharpness" / f"{name}.json").read_text())
        for name in ("mlp-leaky", "mlp-leaky-regularise", "mlp-leaky-released")
    ]
    assert {each.provenance.seed for each in stored} == {stored[0].provenance.seed}
    # Without dropout or batch statistics the released way is the paper's own.
    assert stored[2].l1.mean == pytest.approx(stored[0].l1.mean, rel=1e-5)
    assert "has a lower ShOp than" in printed
    stages = [record["stage"] for record in records(folder) if "stage" in record]
    assert stages[0] == "sharpness/mlp-leaky-released"


def test_the_released_sharpness_switches_dropout_on():
    sharpness = load_experiment("sharpness")
    config = sharpness.Config().resolved("quick")
    model = config.model_specs()[0].model
    x = jax.numpy.ones((2, 8, 8, 1))
    variables = weights_of(model, x)
    noisy = jax.jit(sharpness.measuring.in_training_mode(model))
    one, other = (noisy(variables, x, jax.random.key(seed)) for seed in (0, 1))
    assert float(abs(one - other).max()) > 0


@pytest.mark.slow
def test_the_released_sharpness_takes_the_statistics_of_the_batch():
    sharpness = load_experiment("sharpness")
    config = sharpness.Config(
        dataset="shapes", models=("resnet",), sigma=0.0, num_sharpness=4, batch_size=3
    ).resolved("quick")
    (resnet, *_) = config.model_specs()
    x = np.random.default_rng(0).normal(size=(4, 32, 32, 3)).astype(np.float32)
    variables = weights_of(resnet.model, x[:1])
    assert "batch_stats" in variables
    images = sharpness.Images(x, np.zeros(4, np.int32), x, np.zeros(4, np.int32))
    paper, released = (
        sharpness.measuring.measure_sharpness(config, images, resnet, variables, training=training)
        for training in (False, True)
    )
    # Without noise only the statistics differ: running ones on one side, the batch's on the other.
    assert paper.l1.mean == 0

    @jax.jit
    def change(x):
        with_its_own, _ = resnet.model.apply(variables, x, train=True, mutable=["batch_stats"])
        return abs(with_its_own - resnet.model.apply(variables, x)).sum(axis=1)

    expected = np.concatenate([change(x[:3]), change(x[3:])])
    for changes in released.l1.per_example_draw.T:
        np.testing.assert_allclose(changes, expected, rtol=1e-4)


@pytest.fixture(scope="module")
def estimate_of():
    """`estimate_of(values)`: an estimate with these sensitivities of its examples."""
    made = sensitivity(
        *(lambda _, x: x.reshape(len(x), -1), (), np.zeros((2, 4, 4, 1), np.float32)),
        *(Perturbation(Patches(4), Gaussian(sigma=1.0)), 1),
        key=jax.random.key(0),
    )

    def estimate(values):
        counts = np.ones((len(values), 1), np.int64)
        return dataclasses.replace(made, totals=values[:, None], counts=counts)

    return estimate


def test_what_hardly_matters_is_told_from_what_has_no_effect(estimate_of):
    ablations = load_experiment("ablations")
    variants = ablations.Config().resolved("quick").variants()
    noise = np.random.default_rng(0).normal(0, 0.01, (4, 400))

    def estimated(*means):
        names = [each.name for each in (*variants.depths, variants.reference)]
        values = np.array(means)[:, None] + noise
        return {name: [estimate_of(row)] for name, row in zip(names, values, strict=True)}

    def holds(*means):
        claims = ablations.claims.effect_claims(
            "Depth", variants.depths, variants.reference, estimated(*means)
        )
        return [claim.holds for claim in claims]

    assert holds(0.1, 0.1, 0.1, 0.5) == [True, True]
    assert holds(0.1, 0.15, 0.2, 0.5) == [False, True]
    assert holds(0.1, 0.15, 0.3, 0.4) == [False, False]


def test_an_effect_that_every_seed_shows_is_one(estimate_of):
    ablations = load_experiment("ablations")
    variants = ablations.Config().resolved("quick").variants()
    names = [each.name for each in (*variants.depths, variants.reference)]
    flat = np.tile([-0.01, 0.01], 20)

    def claims(*by_seed):
        found = {
            name: [estimate_of(mean + flat) for mean in means]
            for name, means in zip(names, zip(*by_seed, strict=True), strict=True)
        }
        return ablations.claims.effect_claims("Depth", variants.depths, variants.reference, found)

    none, small = claims((0.1, 0.1, 0.2, 0.5), (0.1, 0.11, 0.201, 0.5), (0.1, 0.1, 0.199, 0.5))
    assert (none.holds, small.holds) == (False, True)
    assert none.values["largest difference by seed"] == pytest.approx([0.1, 0.101, 0.099])
    # What the seeds do not agree on does not show, however many images say so.
    none, small = claims((0.1, 0.1, 0.2, 0.5), (0.2, 0.1, 0.11, 0.5), (0.1, 0.1, 0.2, 0.5))
    assert none.holds
    assert none.num_seeds == small.num_seeds == 3


def test_two_estimators_order_models_alike_where_intervals_tell_them_apart(estimate_of):
    estimators = load_experiment("estimators")
    specs = estimators.Config(models=("mlp-leaky", "cnn")).resolved("quick").model_specs()

    def holds(definition, released):
        found = {
            each.name: {
                name: estimate_of(value + np.tile([-0.01, 0.01], 20))
                for name, value in (
                    (estimators.measuring.DEFINITION, one),
                    (estimators.measuring.RELEASED, other),
                )
            }
            for each, one, other in zip(specs, definition, released, strict=True)
        }
        return [claim.holds for claim in estimators.claims.same_order_claims(specs, found)]

    assert holds((0.1, 0.2), (0.3, 0.6)) == [True]
    assert holds((0.1, 0.2), (0.6, 0.3)) == [False]
    assert holds((0.1, 0.2), (0.3, 0.3)) == [False]
    assert holds((0.1, 0.1), (0.3, 0.6)) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--exp robustness --corruptions foggy", "fog"),
        ("--exp robustness --severity 6", "severity"),
        ("--exp robustness --num-corrupted 0", "num_corrupted must be positive; got 0"),
        ("--exp robustness --models cnn", "shapes has no model cnn"),
        (
            "--exp robustness --corruptions fog fog",
            "corruptions: fog is named twice: fog, fog; name each once",
        ),
        (
            "--exp robustness --models resnet --intervene-on vit-small",
            "intervene_on names vit-small, which is not among the models: resnet",
        ),
        ("--exp vision --optimizer adam", "needs a --learning-rate"),
        ("--exp sharpness --sigma -1", "sigma must be at least 0; got -1.0"),
        ("--exp sharpness --num-draws 1", "num_draws must be at least 2"),
        ("--exp estimators --edit donor", "edit must be gaussian"),
        ("--exp vision --edit donor --estimator scattered-pixels", "edit must be gaussian"),
        ("--exp vision --edit donor --token-noise True", "token_noise adds noise"),
        (
            "--exp vision --estimator scattered-pixels --token-noise True",
            "token_noise needs patches",
        ),
        ("--exp estimators --estimator random-patches", "estimator must be patch-grid"),
        ("--exp ablations --depths 0", "depths must be positive"),
        ("--exp estimators --patch 3", "patch=3 does not divide image side 8"),
    ],
)
def test_bad_arguments_end_with_one_line(arguments, message, capsys, tmp_path):
    assert main(arguments.split()) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert message in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("dataset", "sizes"),
    [
        ("mnist", {"vit-small": 84_206}),
        ("fashion_mnist", {"mlp-leaky": 468_864, "cnn": 600_810, "vit-small": 338_348}),
        (
            "cifar10",
            {
                "densenet": 6_956_426,
                "resnet": 11_173_962,
                "convmixer": 570_634,
                "vit-small": 4_482_482,
                "vit-simple": 1_975_210,
            },
        ),
        ("svhn", {"resnet": 11_173_962, "vit-small": 4_746_674}),
    ],
)
def test_the_paper_preset_trains_models_of_the_paper_s_sizes(dataset, sizes):
    config = load_experiment("vision").Config(dataset=dataset, models=tuple(sizes))
    image = jax.ShapeDtypeStruct((1, *data.spec(dataset).image_shape), np.float32)
    for each in config.resolved("paper").model_specs():
        params = jax.eval_shape(each.model.init, jax.random.key(0), image)["params"]
        assert sum(leaf.size for leaf in jax.tree.leaves(params)) == sizes[each.name]


def test_patches_of_the_experiments_lie_on_the_paper_s_grid():
    vision = load_experiment("vision")
    for dataset, num_positions in (("fashion_mnist", 49), ("cifar10", 64), ("svhn", 64)):
        config = vision.Config(dataset=dataset).resolved("paper")
        assert config.perturbation.grid == Patches(4)
        shape = (28, 28, 1) if dataset == "fashion_mnist" else (32, 32, 3)
        assert config.perturbation.num_positions(shape) == num_positions
