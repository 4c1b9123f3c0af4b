"""What notebooks show of estimates: the numbers, and pictures that need nothing but themselves."""

import re
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure

import jaxsens
from jaxsens.measurement.estimate import Provenance, SensitivityEstimate


def estimate(values, layout, metric="label_flip", bounds=(0.0, 1.0)):
    values = np.asarray(values, float)
    provenance = Provenance(
        metric=metric, perturbation="noise <b>", num_samples=1, exact=False, positions="all",
        tolerance=None, seed=(0, 0), precision="highest", device="cpu", num_devices=1,
        seconds=1.0, num_passes=1, exhaustive_passes=1, layout=layout,
    )  # fmt: skip
    return SensitivityEstimate(values, np.ones(values.shape, int), bounds, provenance)


PATCHES = estimate(np.linspace(0, 1, 24).reshape(4, 6), (2, 3))
TOKENS = estimate([[0.1, -0.2, 0.3], [0.0, 0.0, -0.5]], (3,), "logit_drop", (-np.inf, np.inf))
IMAGES = np.linspace(-1, 1, 4 * 8 * 12).reshape(4, 8, 12, 1)


def test_a_notebook_shows_the_number_its_interval_and_a_map():
    page = PATCHES._repr_html_()
    low, high = PATCHES.ci()
    assert str(PATCHES) in page
    assert f"95 % CI {low:.4g} to {high:.4g}" in page
    assert page.count("<rect") == 6
    assert "noise &lt;b&gt;" in page
    assert f"row 1, column 2: {PATCHES.per_position[5]:.4g}" in page
    assert not re.search(r"<script|<img|<link|url\(|src=|href=", page)


def test_tokens_are_a_curve_and_long_sides_are_pooled():
    page = TOKENS._repr_html_()
    assert "<polyline" in page
    assert "<rect" not in page
    large = estimate(np.random.default_rng(0).random((1, 60 * 100)), (60, 100))
    assert large._repr_html_().count("<rect") == 48 * 48


def test_an_estimate_without_a_layout_is_a_curve():
    old = replace(PATCHES, provenance=replace(PATCHES.provenance, layout=()))
    assert old.layout == (6,)
    assert "<polyline" in old._repr_html_()
    again = SensitivityEstimate.from_json(PATCHES.to_json())
    assert again.layout == (2, 3)


def test_the_mean_map_has_the_layout_of_the_grid():
    (image,) = PATCHES.plot().axes[0].images
    np.testing.assert_array_equal(image.get_array(), PATCHES.per_position.reshape(2, 3))
    assert image.norm.vmin == 0
    (line, _) = TOKENS.plot().axes[0].lines
    np.testing.assert_array_equal(line.get_ydata(), TOKENS.per_position)


@pytest.mark.parametrize("images", [IMAGES, np.repeat(IMAGES, 3, 3).transpose(0, 3, 1, 2)])
def test_maps_lie_over_the_images_that_change_most(images):
    fig = PATCHES.plot(images, examples=None)
    labels = [axes.get_ylabel() for axes in fig.axes if axes.get_ylabel().startswith("example")]
    assert labels == ["example 3", "example 2", "example 1", "example 0"]
    heat = fig.axes[1].images[1]
    np.testing.assert_array_equal(heat.get_array(), PATCHES.per_example_position[3].reshape(2, 3))
    assert heat.get_extent() == [-0.5, 11.5, 7.5, -0.5]


def test_words_are_coloured_by_their_value():
    fig = TOKENS.plot(tokens=[["a", "$b$", "c" * 99], ["d", "e"]], examples=[0, 1])
    assert isinstance(fig, Figure)
    texts = {text.get_text(): text for text in fig.axes[0].texts}
    assert {"a", r"\$b\$", "d", "e", "c" * 45 + "…"} < set(texts)
    red, _, blue, _ = texts["a"].get_bbox_patch().get_facecolor()
    assert red > blue
    red, _, blue, _ = texts[r"\$b\$"].get_bbox_patch().get_facecolor()
    assert blue > red
    fig.canvas.draw()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"x": IMAGES[:2]}, r"of n = 4 examples; got shape \(2, 8, 12, 1\)"),
        ({"x": np.zeros((4, 8, 12, 2))}, "1 or 3 channels"),
        ({"examples": [0]}, "with x= "),
        ({"x": IMAGES, "examples": [4]}, "from 0 to 3; got 4"),
        ({"x": IMAGES, "examples": "all"}, "from 0 to 3"),
        ({"tokens": [["a"]]}, "of n = 4 examples; got 1"),
        ({"tokens": [["a"] * 7] * 4}, "tokens of example 3 are 7"),
        ({"x": IMAGES, "tokens": [["a"]] * 4}, "got both"),
    ],
)
def test_what_does_not_fit_is_one_line(arguments, said, types_unchecked):
    with pytest.raises(ValueError, match=said):
        PATCHES.plot(**arguments)
    with pytest.raises(ValueError, match="rows and columns"):
        TOKENS.plot(np.zeros((2, 4, 4, 1)))


def test_an_explanation_is_a_table_and_its_sentence():
    noise = jaxsens.Perturbation(jaxsens.Tokens(), jaxsens.Gaussian(sigma=1.0))
    weights = jnp.ones((4, 8)), jnp.ones((8, 2))
    found = jaxsens.explain(
        lambda w, x: jnp.tanh(x @ w[0]).mean(axis=1) @ w[1], weights, jnp.ones((1, 6, 4)), noise
    )
    page = found._repr_html_()
    assert page.count("<tr>") == 1 + len(found.steps)
    assert "operations a forward pass" in page
    assert "← the window becomes dense" in page
    assert all(f"<td>{step.name}</td>" in page for step in found.steps)


def test_merged_estimates_keep_their_layout():
    assert PATCHES.merge(PATCHES).layout == (2, 3)
    assert PATCHES.most_changed(2).tolist() == [3, 2]
