"""Pixelation and JPEG against Pillow."""

import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, features

from jaxsens import corruptions
from jaxsens.corruptions import digital


def through_pillow(image, quality):
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file))


@pytest.mark.parametrize("severity", corruptions.SEVERITIES)
def test_pixelate_is_pillows_to_the_bit(corrupted, pictures, severity):
    (factor,) = corruptions.CONSTANTS["pixelate"][severity - 1]
    side, box = int(32 * factor), Image.Resampling.BOX
    expected = [
        np.asarray(Image.fromarray(image).resize((side, side), box).resize((32, 32), box))
        for image in pictures
    ]
    np.testing.assert_array_equal(corrupted("pixelate", severity), expected)


@pytest.mark.parametrize("severity", corruptions.SEVERITIES)
def test_jpeg_is_pillows(corrupted, pictures, severity):
    (quality,) = corruptions.CONSTANTS["jpeg_compression"][severity - 1]
    expected = np.stack([through_pillow(image, quality) for image in pictures]).astype(int)
    error = np.abs(corrupted("jpeg_compression", severity) - expected)
    # A coefficient that libjpeg's integer transform rounds the other way shows in a whole block.
    assert error.mean() < 0.5
    assert (error == 0).mean() > 0.8
    assert 10 * np.log10(255**2 / np.square(error).mean()) > 45
    # The compression itself is an order of magnitude larger.
    assert np.abs(pictures - expected).mean() > 8 * error.mean()


@pytest.mark.parametrize("quality", [1, 25, 50, 75, 95, 100])
def test_quantisation_tables_are_pillows(quality):
    file = io.BytesIO()
    Image.new("RGB", (16, 16)).save(file, "JPEG", quality=quality)
    tables = Image.open(file).quantization
    for index, steps in enumerate((digital._LUMA_STEPS, digital._CHROMA_STEPS)):
        expected = np.reshape(tables[index], (8, 8))
        np.testing.assert_array_equal(digital.quantisation(steps, quality), expected)


def test_a_flat_grey_survives_jpeg(apply):
    grey = np.full((4, 32, 32, 3), 128 / 255, np.float32)
    ours = apply(corruptions.corruption("jpeg_compression", 5), grey)
    np.testing.assert_allclose(ours, grey, atol=1e-6)


def test_jpeg_names_sizes_it_cannot_take():
    with pytest.raises(ValueError, match="multiples of 16; got 28×30; pad to 32×32"):
        digital.JpegCompression(50)(jax.random.key(0), jnp.zeros((28, 30, 3)))


def test_pillow_has_jpeg():
    assert features.check("jpg")
