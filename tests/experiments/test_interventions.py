"""Interventions: the paper's numbers, both forms, both patches, both augmentations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens import Gaussian, OverlappingPatches, Patches
from jaxsens.run import load_experiment

Config = load_experiment("robustness").Config
KEY = jax.random.key(0)


def model_specs(**fields):
    config = Config(models=("vit-small", "resnet"), **fields).resolved("quick")
    return {spec.name: spec for spec in config.model_specs()}


def test_the_paper_s_settings_are_the_default():
    found = model_specs(dataset="cifar10")
    assert list(found) == [
        "vit-small",
        "vit-small-regularise",
        "vit-small-augment",
        "resnet",
    ]
    objective = found["vit-small-regularise"].objective
    assert (objective.strength, objective.form) == (0.25, "additive")
    assert objective.perturbation.grid == Patches(4)
    assert objective.perturbation.edit == Gaussian(variance=1.0)
    assert found["vit-small-augment"].augment.variance == 0.1
    rates = [each.recipe.learning_rate for each in found.values()]
    assert rates == [0.1, 0.16, 0.2, 0.001]


def test_an_intervention_changes_nothing_else():
    found = model_specs()
    base = found["vit-small"]
    for name in ("vit-small-regularise", "vit-small-augment"):
        changed = found[name]
        assert (changed.model, changed.key_index) == (base.model, base.key_index)
        assert changed.recipe == base.recipe
    assert found["vit-small-augment"].objective is base.objective
    assert found["vit-small-regularise"].augment is None


def test_the_released_code_s_variants_can_be_asked_for():
    fields = {"form": "convex", "regularised_patch": "free", "strength": 0.5}
    objective = model_specs(**fields)["vit-small-regularise"].objective
    assert (objective.strength, objective.form) == (0.5, "convex")
    assert objective.perturbation.grid == OverlappingPatches(4)


def test_any_model_can_be_intervened_on():
    found = model_specs(intervene_on=("resnet",), interventions=("augment",))
    assert list(found) == ["vit-small", "resnet", "resnet-augment"]


def test_augmentation_doubles_or_replaces_and_keeps_the_labels():
    x, y = jnp.zeros((500, 4, 4, 1)), jnp.arange(500)
    doubled = model_specs()["vit-small-augment"].augment
    more_x, more_y = doubled(KEY, x, y)
    assert more_x.shape == (1000, 4, 4, 1)
    assert not np.asarray(more_x[:500]).any()
    np.testing.assert_array_equal(more_y, np.tile(np.arange(500), 2))
    # 8,000 draws of variance 0.1: its standard error is 0.1·√(2/8000).
    assert abs(float(more_x[500:].var()) - 0.1) < 4 * 0.1 * np.sqrt(2 / 8000)
    replaced = model_specs(augmented_images="replaced")["vit-small-augment"].augment
    only_x, only_y = replaced(KEY, x, y)
    np.testing.assert_array_equal(only_x, more_x[500:])
    np.testing.assert_array_equal(only_y, y)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"strength": -1.0}, "strength must be at least 0"),
        ({"form": "convex", "strength": 2.0}, "strength must be between 0 and 1"),
        ({"intervene_on": ("cnn",)}, "shapes has no model cnn"),
        ({"interventions": ("augment", "augment")}, "named twice"),
        ({"regularised_variance": -1.0}, "regularised_variance must be at least 0; got -1.0"),
    ],
)
def test_bad_values_are_refused_before_anything_starts(fields, message):
    with pytest.raises(ValueError, match=message):
        Config(**fields)


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        ((), ("vit-small",)),
        (("resnet", "vit-small"), ("vit-small",)),
        (("resnet", "mlp-leaky"), ("resnet", "mlp-leaky")),
    ],
)
def test_the_vit_is_intervened_on_if_it_is_there_else_all(models, expected):
    assert Config(models=models).resolved("quick").intervene_on == expected
