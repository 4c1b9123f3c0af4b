"""Blurs against SciPy, scikit-image and OpenCV; glass and motion against their definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.ndimage as ndimage

from jaxsens import corruptions
from jaxsens.corruptions import blur
from jaxsens.corruptions.motion import motion_blur

SEVERITIES = corruptions.SEVERITIES
ATOL = 2e-6


def constants(name, severity):
    return corruptions.CONSTANTS[name][severity - 1]


@pytest.mark.parametrize("severity", SEVERITIES)
def test_gaussian_blur_is_scipys(apply, floats, severity):
    (sigma,) = constants("gaussian_blur", severity)
    expected = ndimage.gaussian_filter(floats, (0, sigma, sigma, 0), mode="nearest")
    ours = apply(corruptions.corruption("gaussian_blur", severity), floats)
    np.testing.assert_allclose(ours, expected, atol=ATOL)


def test_gaussian_blur_is_scikit_images(apply, floats):
    filters = pytest.importorskip("skimage.filters")
    expected = [filters.gaussian(image, sigma=0.7, channel_axis=-1) for image in floats[:4]]
    np.testing.assert_allclose(apply(blur.GaussianBlur(0.7), floats[:4]), expected, atol=ATOL)


def official_disk(radius, alias_sigma):
    """17×17, smoothed by SciPy over 3×3 pixels."""
    y, x = np.mgrid[-8:9, -8:9]
    inside = (x**2 + y**2 <= radius**2).astype(float)
    # truncate·σ + 1/2 in [1, 2) makes the window three pixels wide.
    return ndimage.gaussian_filter(
        inside / inside.sum(), alias_sigma, truncate=0.6 / alias_sigma, mode="constant"
    )


@pytest.mark.parametrize("severity", SEVERITIES)
def test_defocus_blur_is_a_disk(apply, floats, severity):
    kernel = official_disk(*constants("defocus_blur", severity))
    expected = ndimage.correlate(floats, kernel[None, :, :, None], mode="mirror")
    ours = apply(corruptions.corruption("defocus_blur", severity), floats)
    np.testing.assert_allclose(ours, expected, atol=ATOL)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_defocus_blur_is_opencvs(apply, floats, severity):
    cv2 = pytest.importorskip("cv2")
    radius, alias_sigma = constants("defocus_blur", severity)
    y, x = np.mgrid[-8:9, -8:9]
    inside = (x**2 + y**2 <= radius**2).astype(np.float32)
    kernel = cv2.GaussianBlur(inside / inside.sum(), (3, 3), alias_sigma)
    expected = [cv2.filter2D(image, -1, kernel) for image in floats[:4]]
    ours = apply(corruptions.corruption("defocus_blur", severity), floats[:4])
    np.testing.assert_allclose(ours, expected, atol=ATOL)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_zoom_blur_is_scipys(apply, floats, severity):
    factors = np.arange(*constants("zoom_blur", severity))
    assert len(factors) == (7, 12, 16, 21, 26)[severity - 1]

    def zoomed(image, factor):
        kept = int(np.ceil(32 / factor))
        top = (32 - kept) // 2
        middle = image[top : top + kept, top : top + kept]
        large = ndimage.zoom(middle, (factor, factor, 1), order=1)
        trim = (len(large) - 32) // 2
        return large[trim : trim + 32, trim : trim + 32]

    expected = [
        (image + sum(zoomed(image, factor) for factor in factors)) / (len(factors) + 1)
        for image in floats[:3]
    ]
    ours = apply(corruptions.corruption("zoom_blur", severity), floats[:3])
    np.testing.assert_allclose(ours, expected, atol=ATOL)


def test_glass_copies_as_the_official_loop_does():
    """Assigning two rows of an array to each other copies the first: NumPy's rows are views."""
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (32, 32, 3), np.uint8)
    up, left = rng.integers(0, 2, (2, 30, 30, 1)).astype(bool)
    expected = image.copy()
    for h in range(31, 1, -1):
        for w in range(31, 1, -1):
            a, b = h - up[h - 2, w - 2, 0], w - left[h - 2, w - 2, 0]
            expected[h, w], expected[a, b] = expected[a, b], expected[h, w]
    ours = blur.copy_neighbours(
        jnp.asarray(image / 255, jnp.float32), jnp.asarray(up), jnp.asarray(left)
    )
    np.testing.assert_array_equal(np.asarray(ours * 255).round(), expected)


def test_glass_without_blur_only_moves_pixels(apply, pictures, floats):
    # σ = 0.05 blurs nothing: its window is a single pixel.
    glass = (apply(corruptions.corruption("glass_blur", 1), floats) * 255).round()
    same = np.zeros(glass.shape[:3], bool)
    for a in range(2):
        for b in range(2):
            same |= (glass == np.roll(pictures, (a, b), axis=(1, 2))).all(axis=-1)
    assert same[:, 2:, 2:].all()
    np.testing.assert_array_equal(glass[:, :2], pictures[:, :2])
    np.testing.assert_array_equal(glass[:, :, :2], pictures[:, :, :2])


def test_glass_moves_are_uniform(apply):
    y, x = np.mgrid[0:32, 0:32].astype(np.float32)
    place = np.stack([y, x, 0 * x], axis=-1)[None].repeat(16, axis=0) / 255
    moves = (place - apply(blur.GlassBlur(0.05, 1, 1), place))[:, 2:, 2:, :2] * 255
    index = (moves[..., 0] * 2 + moves[..., 1]).round().astype(int)
    shares = np.bincount(index.ravel(), minlength=4) / index.size
    assert (np.abs(shares - 0.25) < 4.5 * np.sqrt(0.25 * 0.75 / index.size)).all()


def test_glass_further_away_is_refused():
    with pytest.raises(ValueError, match=r"max_delta=1.*got 2"):
        blur.GlassBlur(0.4, 2, 1)


@pytest.mark.parametrize("angle", [0, 30, -45, 45, -100, 17.3])
def test_motion_blur_is_a_half_gaussian_on_a_line(floats, angle):
    radius, sigma = 6.0, 2.0
    kernel = np.zeros((25, 25))
    for i in range(13):
        right, down = (int(np.ceil(i * f(np.deg2rad(angle)) - 0.5)) for f in (np.cos, np.sin))
        kernel[12 + down, 12 + right] += np.exp(-(i**2) / (2 * sigma**2))
    kernel /= kernel.sum()
    expected = ndimage.correlate(floats[0], kernel[:, :, None], mode="nearest")
    ours = motion_blur(jnp.asarray(floats[0]), radius, sigma, jnp.float32(angle))
    np.testing.assert_allclose(ours, expected, atol=ATOL)


def test_motion_blur_angles_are_uniform(apply):
    """A single white pixel leaves its trail; its slope tells the angle."""
    dot = np.zeros((400, 32, 32, 3), np.float32)
    dot[:, 16, 24] = 1
    trail = apply(corruptions.corruption("motion_blur", 5), dot)[..., 0].astype(np.float64)
    y, x = np.mgrid[0:32, 0:32]
    down, back = ((trail * d).sum((1, 2)) / trail.sum((1, 2)) for d in (y - 16, 24 - x))
    assert (back > 0).all()
    angles = np.rad2deg(np.arctan2(-down, back))
    assert np.abs(angles).max() < 47
    assert abs(angles.mean()) < 4.5 * (90 / np.sqrt(12)) / 20
    assert abs(angles.std() - 90 / np.sqrt(12)) < 3


@pytest.mark.parametrize(
    "name", ["gaussian_blur", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur"]
)
def test_a_flat_image_stays_flat(apply, name):
    flat = np.full((4, 32, 32, 3), 100 / 255, np.float32)
    ours = apply(corruptions.corruption(name, 5), flat)
    np.testing.assert_allclose(ours, flat, atol=1e-6)


def test_other_sizes_blur_too(floats):
    image = jnp.asarray(floats[0][:24, :20])
    for name in ("gaussian_blur", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur"):
        ours = jax.eval_shape(corruptions.corruption(name, 1), jax.random.key(0), image)
        assert ours.shape == (24, 20, 3)
