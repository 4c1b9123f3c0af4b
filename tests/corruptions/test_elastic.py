"""The elastic transform, given its displacements, against SciPy and OpenCV."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.ndimage as ndimage

from jaxsens import corruptions
from jaxsens.corruptions import elastic, operators

CORNERS = np.array([[26, 26], [26, 6], [6, 6]], np.float32)  # x, y
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("reach", [0.0, 1.0, 2.56])
def test_affine_part_is_scipys(floats, reach):
    moves = RNG.uniform(-reach, reach, (3, 2)).astype(np.float32)
    solved = np.linalg.solve(np.c_[CORNERS, np.ones(3)], CORNERS + moves).T
    backward = np.linalg.inv(np.vstack([solved, [0, 0, 1]]))[:2]
    expected = [
        # SciPy wants (y, x) and a map from output to input.
        ndimage.affine_transform(
            channel, backward[::-1, 1::-1], backward[::-1, 2], order=1, mode="mirror"
        )
        for channel in np.moveaxis(floats[0], -1, 0)
    ]
    ours = elastic.warp_affine(jnp.asarray(floats[0]), jnp.asarray(moves))
    np.testing.assert_allclose(ours, np.moveaxis(expected, 0, -1), atol=1e-5)


def test_affine_part_is_opencvs(floats):
    cv2 = pytest.importorskip("cv2")
    moves = RNG.uniform(-2, 2, (3, 2)).astype(np.float32)
    matrix = cv2.getAffineTransform(CORNERS, CORNERS + moves)
    expected = cv2.warpAffine(floats[0], matrix, (32, 32), borderMode=cv2.BORDER_REFLECT_101)
    ours = elastic.warp_affine(jnp.asarray(floats[0]), jnp.asarray(moves))
    # Before version 5 OpenCV rounds positions to 1/32 of a pixel.
    tolerance = 1e-5 if int(cv2.__version__.split(".")[0]) >= 5 else 1 / 32
    np.testing.assert_allclose(ours, expected, atol=tolerance)


def test_corners_go_where_they_are_sent():
    image = np.zeros((32, 32, 3), np.float32)
    image[6, 26] = 1
    moves = np.array([[0, 0], [2, -3], [0, 0]], np.float32)
    ours = np.asarray(elastic.warp_affine(jnp.asarray(image), jnp.asarray(moves)))
    assert np.unravel_index(ours[..., 0].argmax(), (32, 32)) == (3, 28)
    assert ours.max() == pytest.approx(1, abs=1e-4)


def test_displacement_is_scipys(floats):
    down, right = RNG.uniform(-6, 6, (2, 32, 32)).astype(np.float32)
    y, x = np.mgrid[0:32, 0:32]
    expected = [
        ndimage.map_coordinates(channel, [y + down, x + right], order=1, mode="reflect")
        for channel in np.moveaxis(floats[0], -1, 0)
    ]
    ours = elastic.displace(jnp.asarray(floats[0]), jnp.asarray(down), jnp.asarray(right))
    np.testing.assert_allclose(ours, np.moveaxis(expected, 0, -1), atol=1e-5)


@pytest.mark.parametrize("severity", [2, 3, 4, 5])
def test_smoothing_is_scipys(severity):
    _, sigma, _ = corruptions.CONSTANTS["elastic_transform"][severity - 1]
    field = RNG.uniform(-1, 1, (32, 32))
    expected = ndimage.gaussian_filter(field, 32 * sigma, mode="reflect", truncate=3)
    matrix = operators.gaussian(32, 32 * sigma, truncate=3.0, border="symmetric")
    np.testing.assert_allclose(matrix @ field @ matrix.T, expected, atol=1e-6)


def test_without_strength_nothing_changes(floats):
    ours = elastic.ElasticTransform(0.0, 0.0, 0.0)(jax.random.key(0), jnp.asarray(floats[0]))
    np.testing.assert_allclose(ours, floats[0], atol=1e-5)


@pytest.mark.parametrize(
    ("border", "mode"), [(elastic.mirror, "reflect"), (elastic.symmetric, "symmetric")]
)
def test_borders_are_numpys(border, mode):
    expected = np.pad(np.arange(7), 20, mode=mode)
    np.testing.assert_array_equal(border(jnp.arange(-20, 27), 7), expected)
