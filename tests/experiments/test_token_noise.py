"""Noise that one token of a vision transformer alone sees."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments._common import reuse
from experiments._common.training_records import training_records
from experiments._images.models import ModelSpec
from experiments._images.paper import SETTINGS, ModelSetting
from experiments._images.token_noise import (
    OwnPatch,
    TokensOfImages,
    measured_tokens,
    one_token_specs,
)
from jaxsens import Gaussian, Patches, Perturbation, sensitivity
from jaxsens.models import MLP, ViTSimple, ViTSmall
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.run import load_experiment
from jaxsens.training.trainer import Recipe

SIZE = {"depth": 1, "heads": 2, "hidden": 12, "width": 8, "head_dim": 4}
SMALL, PLAIN, SIMPLE = (
    ViTSmall(3, 2, **SIZE),
    ViTSmall(3, 2, **SIZE, shifts=False),
    ViTSimple(3, 2, **SIZE),
)
IMAGES = np.random.default_rng(0).normal(size=(5, 4, 4, 2)).astype(np.float32)
NOISE = Gaussian(variance=4.0)
KEY = jax.random.key(1)


def spec_of(model):
    return ModelSpec("vit", "ViT", model, Recipe("sgd", 0.1, 1, "constant"), 0)


def weights_of(model):
    variables = jax.jit(model.init)(jax.random.key(0), IMAGES)
    # Larger, so that noise changes predictions.
    return jax.tree.map(lambda leaf: 3 * leaf if leaf.ndim > 1 else leaf, variables)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (SMALL, ["own-token@vit", "embedding@vit"]),
        (PLAIN, ["embedding@vit"]),
        (SIMPLE, ["embedding@vit"]),
        (MLP(3), []),
    ],
)
def test_what_has_tokens_is_measured_at_one_of_them(model, expected):
    found = one_token_specs(spec_of(model))
    assert [spec.name for spec in found] == expected
    assert {spec.training for spec in found} <= {"vit"}
    assert [spec.field for spec in found] == [name.partition("@")[0] for name in expected]


@pytest.mark.parametrize("model", [SMALL, PLAIN, SIMPLE])
def test_a_patch_s_own_row_gets_what_noise_on_its_pixels_gives_it(model):
    pixels, row = Perturbation(Patches(2), NOISE), OwnPatch(model, NOISE)
    rows = model.patch_rows(jnp.asarray(IMAGES))
    for position in range(4):
        edited = pixels(KEY, jnp.asarray(IMAGES[0]), position)
        expected = model.patch_rows(edited[None])[0, position]
        found = row(KEY, rows[0, position : position + 1])
        np.testing.assert_array_equal(found[0], expected)


@pytest.mark.parametrize("model", [PLAIN, pytest.param(SIMPLE, marks=pytest.mark.slow)])
def test_where_tokens_see_their_own_patch_alone_both_definitions_are_one(model):
    variables = weights_of(model)
    of_pixels = sensitivity(
        model.apply, variables, IMAGES, Perturbation(Patches(2), NOISE), 3, key=KEY
    )
    spec = dataclasses.replace(spec_of(model), noise_on="own-token")
    of_rows = sensitivity(*measured_tokens(spec, variables, IMAGES, NOISE), 3, key=KEY)
    assert 0 < of_pixels.mean < 1
    np.testing.assert_array_equal(of_rows.totals, of_pixels.totals)


def test_rows_and_embeddings_are_made_when_they_are_asked_for(monkeypatch):
    monkeypatch.setattr("experiments._images.token_noise._BLOCK", 2)
    variables = weights_of(SMALL)
    for spec in one_token_specs(spec_of(SMALL)):
        found = TokensOfImages(spec, variables, IMAGES)
        whole = SMALL.patch_rows(jnp.asarray(IMAGES))
        if spec.noise_on == "embedding":
            whole = SMALL.apply(variables, jnp.asarray(IMAGES), method="embed")
        assert (found.shape, found.dtype, len(found)) == (whole.shape, np.float32, 5)
        np.testing.assert_allclose(found[:5], whole, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(found[np.array([4, 1, 2])], found[:5][[4, 1, 2]])


def test_presets_measure_it_where_patches_get_noise():
    vision = load_experiment("vision")

    def filled(preset, **fields):
        return vision.Config(**fields).filled(preset)

    assert not filled("quick").token_noise
    assert filled("quick").models[-1] == "vit-small"
    assert filled("quick", token_noise=True).models[-1] == "vit-plain"
    assert filled("small", dataset="fashion_mnist").models[-1] == "vit-plain"
    assert filled("small", dataset="cifar10", models=("vit-simple",)).models == ("vit-simple",)
    assert not filled("small", dataset="mnist").token_noise
    assert not filled("small", estimator="scattered-pixels").token_noise
    small, plain = filled("small").model_specs()[-2:]
    assert plain.model == small.model.clone(shifts=False)
    assert (plain.recipe, plain.key_index) == (small.recipe, small.key_index)


@pytest.mark.slow
def test_a_run_has_rows_curves_and_claims_of_it(tiny_run, monkeypatch):
    small = ModelSetting(lambda: ViTSmall(10, 2, **SIZE), 0.1)
    monkeypatch.setitem(SETTINGS["digits"].models, "vit-small", small)
    results, folder, _ = tiny_run(
        "--exp vision --models mlp-leaky vit-small vit-plain --token-noise True --num-samples 2"
    )
    labels = [row[0] for row in results["tables"][0]["rows"]]
    assert labels == [
        "MLP-LeakyReLU",
        "ViT-small",
        "ViT-small, own token",
        "ViT-small, embedding",
        "ViT without shifts",
        "ViT without shifts, embedding",
    ]
    curves = (folder / "figures" / "training_curves.png").stat().st_size
    assert curves > 5_000
    names = {"own-token@vit-small", "embedding@vit-small", "embedding@vit-plain"}
    assert names < results["values"].keys()
    statements = [claim["statement"] for claim in results["claims"]]
    expected = "ViT-small is less sensitive where a patch's own token alone sees the noise"
    assert expected in statements
    assert "ViT-small, own token is less sensitive than MLP-LeakyReLU" in statements
    assert "ViT without shifts is less sensitive than ViT-small" in statements
    config = load_experiment("vision").Config(**reuse.config_of(str(folder))[1])
    stored = json.loads((folder / "config.json").read_text())["config"]
    run = RunFolder.read(folder, "vision", stored)
    for spec in config.model_specs():
        for each in config.others(spec):
            last = training_records(run, each)[-1]
            assert last["sensitivity"]["mean"] == results["values"][each.name]["mean"]
            assert last["train_accuracy"] == training_records(run, spec)[-1]["train_accuracy"]
