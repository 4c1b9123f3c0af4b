"""The matrices against SciPy and Pillow, for sizes and factors beyond those of CIFAR-10-C."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.ndimage as ndimage
from PIL import Image

from jaxsens.corruptions import operators

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(("border", "mode"), [("edge", "nearest"), ("symmetric", "reflect")])
@pytest.mark.parametrize("sigma", [0.0, 0.05, 0.3, 1.0, 6.4])
@pytest.mark.parametrize("truncate", [3.0, 4.0])
def test_gaussian(border, mode, sigma, truncate):
    signal = RNG.random(23)
    expected = ndimage.gaussian_filter(signal, sigma, mode=mode, truncate=truncate)
    matrix = operators.gaussian(23, sigma, truncate=truncate, border=border)
    np.testing.assert_allclose(matrix @ signal, expected, atol=1e-6)


@pytest.mark.parametrize("factor", [1.0, 1.01, 1.25, 1.75, 2.25, 4.0])
@pytest.mark.parametrize("size", [28, 32])
def test_clipped_zoom(size, factor):
    signal = RNG.random(size)
    kept = int(np.ceil(size / factor))
    top = (size - kept) // 2
    large = ndimage.zoom(signal[top : top + kept], factor, order=1)
    trim = (len(large) - size) // 2
    matrix = operators.clipped_zoom(size, factor)
    np.testing.assert_allclose(matrix @ signal, large[trim : trim + size], atol=1e-6)


@pytest.mark.parametrize(("size_in", "size_out"), [(32, 30), (32, 11), (20, 32), (9, 9), (64, 16)])
def test_box(size_in, size_out):
    row = RNG.integers(0, 256, (1, size_in), np.uint8)
    expected = Image.fromarray(row).resize((size_out, 1), Image.Resampling.BOX)
    ours = operators.box(size_in, size_out) @ row[0]
    np.testing.assert_allclose(ours, np.asarray(expected)[0], atol=0.501)


def test_separable_is_rows_then_columns():
    rows, columns = (RNG.random(shape).astype(np.float32) for shape in ((5, 4), (7, 6)))
    image = RNG.random((4, 6, 3)).astype(np.float32)
    expected = np.stack([rows @ image[..., c] @ columns.T for c in range(3)], axis=-1)
    ours = operators.separable(rows, columns, jnp.asarray(image))
    np.testing.assert_allclose(ours, expected, rtol=1e-5)
