"""Colour changes against scikit-image and the standard library's colorsys."""

import colorsys

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens import corruptions
from jaxsens.corruptions import color

# Ties, greys, black, white and primaries beside random colours.
SPECIAL = [[0, 0, 0], [1, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, 1]]
COLOURS = np.concatenate(
    [SPECIAL, [[0.5] * 3], [[0.2, 0.7, 0.7]], np.random.default_rng(0).random((22, 3))]
).astype(np.float32)[None]


def test_hsv_is_that_of_colorsys():
    ours = np.stack([np.asarray(part) for part in color.rgb_to_hsv(jnp.asarray(COLOURS))], -1)
    expected = np.array([[colorsys.rgb_to_hsv(*map(float, rgb)) for rgb in COLOURS[0]]])
    turn = np.abs(ours[..., 0] - expected[..., 0])
    np.testing.assert_allclose(np.minimum(turn, 1 - turn), 0, atol=1e-6)  # hue is a circle
    np.testing.assert_allclose(ours[..., 1:], expected[..., 1:], atol=1e-6)


def test_hsv_and_back():
    back = color.hsv_to_rgb(*color.rgb_to_hsv(jnp.asarray(COLOURS)))
    np.testing.assert_allclose(back, COLOURS, atol=1e-6)


@pytest.mark.parametrize("severity", corruptions.SEVERITIES)
@pytest.mark.parametrize(("name", "channel"), [("brightness", 2), ("saturate", 1)])
def test_brightness_and_saturate_are_scikit_images(apply, floats, name, channel, severity):
    skcolor = pytest.importorskip("skimage.color")
    first, second = (1, *corruptions.CONSTANTS[name][severity - 1])[-2:]
    hsv = skcolor.rgb2hsv(floats.astype(np.float64))
    hsv[..., channel] = np.clip(first * hsv[..., channel] + second, 0, 1)
    ours = apply(corruptions.corruption(name, severity), floats)
    np.testing.assert_allclose(ours, skcolor.hsv2rgb(hsv), atol=2e-6)


@pytest.mark.parametrize("severity", corruptions.SEVERITIES)
def test_contrast_scales_the_deviation(apply, floats, severity):
    (factor,) = corruptions.CONSTANTS["contrast"][severity - 1]
    ours = apply(corruptions.corruption("contrast", severity), floats)
    np.testing.assert_allclose(ours.mean((1, 2)), floats.mean((1, 2)), atol=1e-5)
    np.testing.assert_allclose(ours.std((1, 2)), factor * floats.std((1, 2)), atol=1e-5)


@pytest.mark.parametrize("severity", corruptions.SEVERITIES)
def test_contrast_is_the_formula_pixel_by_pixel(apply, floats, severity):
    (factor,) = corruptions.CONSTANTS["contrast"][severity - 1]
    mean = floats.mean((1, 2), keepdims=True, dtype=np.float64)
    expected = np.clip((floats - mean) * factor + mean, 0, 1)
    ours = apply(corruptions.corruption("contrast", severity), floats)
    np.testing.assert_allclose(ours, expected, atol=2e-6)


def test_saturate_turns_grey_red_where_it_adds(apply):
    grey = np.full((1, 32, 32, 3), 0.5, np.float32)
    ours = apply(corruptions.corruption("saturate", 5), grey)[0, 0, 0]
    np.testing.assert_allclose(ours, [0.5, 0.4, 0.4], atol=1e-6)
