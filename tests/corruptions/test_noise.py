"""Noise by its moments: NumPy's draws are others, so only the distribution can agree."""

import numpy as np
import pytest
import scipy.stats

from jaxsens import corruptions
from jaxsens.corruptions import noise

GREY = np.full((64, 32, 32, 3), 0.5, np.float32)
SIZE = GREY.size


def assert_moments(values, mean, std, limit=4.5):
    """Mean and standard deviation within `limit` standard errors of the expected ones."""
    values = values.astype(np.float64)
    assert abs(values.mean() - mean) * np.sqrt(values.size) / std < limit
    # For bounded kurtosis; Gaussian and Poisson here are near 3.
    assert abs(values.std() / std - 1) * np.sqrt(2 * values.size) < limit


@pytest.mark.parametrize("severity", [1, 5])
def test_gaussian_noise(apply, severity):
    (sigma,) = corruptions.CONSTANTS["gaussian_noise"][severity - 1]
    noisy = apply(corruptions.corruption("gaussian_noise", severity), GREY)
    assert_moments((noisy - 0.5)[:, :20], 0, sigma)
    assert scipy.stats.kstest((noisy.ravel() - 0.5) / sigma, "norm").pvalue > 1e-4


def test_speckle_noise_grows_with_the_value(apply):
    ramp = GREY * np.linspace(0, 1, 32, dtype=np.float32)[None, :, None, None]
    noisy = apply(noise.SpeckleNoise(0.1), ramp)
    np.testing.assert_array_equal(noisy[:, 0], 0)
    for row in (5, 16, 31):
        value = ramp[0, row, 0, 0]
        assert_moments(noisy[:, row], value, 0.1 * value)


@pytest.mark.parametrize("rate", [500, 50])
@pytest.mark.parametrize("level", [3, 40.37, 128])
def test_shot_noise_is_poisson(apply, rate, level):
    value = level / 255
    noisy = apply(noise.ShotNoise(rate), np.full_like(GREY, value))
    counts = noisy.astype(np.float64) * rate
    np.testing.assert_allclose(counts, counts.round(), atol=1e-3)
    assert_moments(counts, rate * value, np.sqrt(rate * value), limit=5)
    low, high = scipy.stats.poisson.ppf([1e-3, 1 - 1e-3], rate * value).astype(int)
    places = np.clip(counts.round().astype(int) - low, 0, high - low)
    observed = np.bincount(places.ravel(), minlength=high - low + 1)
    cdf = scipy.stats.poisson.cdf(np.arange(low, high), rate * value)
    expected = np.diff(np.concatenate([[0], cdf, [1]])) * SIZE
    assert scipy.stats.chisquare(observed, expected).pvalue > 1e-4


def test_shot_noise_ends(apply):
    np.testing.assert_array_equal(apply(noise.ShotNoise(50), np.zeros_like(GREY)), 0)
    white = apply(noise.ShotNoise(50), np.ones_like(GREY))
    # P(Poisson(50) >= 50) of the values stay white.
    share = scipy.stats.poisson.sf(49, 50)
    assert white.max() == 1
    assert abs((white == 1).mean() - share) < 4.5 * np.sqrt(share * (1 - share) / SIZE)


@pytest.mark.parametrize("severity", [1, 5])
def test_impulse_noise_shares(apply, severity):
    (amount,) = corruptions.CONSTANTS["impulse_noise"][severity - 1]
    noisy = apply(corruptions.corruption("impulse_noise", severity), GREY)
    assert set(np.unique(noisy)) == {0, 0.5, 1}
    for impulse in (0, 1):
        share = (noisy == impulse).mean()
        assert abs(share - amount / 2) < 4.5 * np.sqrt(amount / 2 / SIZE)
    hit = noisy != 0.5
    both = (hit[..., 0] & hit[..., 1]).mean()  # channels are hit independently
    assert abs(both - amount**2) < 4.5 * amount / np.sqrt(SIZE / 3)


def test_impulse_noise_is_that_of_scikit_image(apply):
    util = pytest.importorskip("skimage.util")
    theirs = util.random_noise(GREY, mode="s&p", amount=0.07, rng=0)
    ours = apply(noise.ImpulseNoise(0.07), GREY)
    for impulse in (0, 1):
        difference = (theirs == impulse).mean() - (ours == impulse).mean()
        assert abs(difference) < 4.5 * np.sqrt(2 * 0.035 / SIZE)


@pytest.mark.parametrize(
    ("ours", "mode", "options"),
    [
        (noise.GaussianNoise(0.1), "gaussian", {"var": 0.1**2}),
        (noise.SpeckleNoise(0.2), "speckle", {"var": 0.2**2}),
    ],
)
def test_noise_is_distributed_as_that_of_scikit_image(apply, ours, mode, options):
    util = pytest.importorskip("skimage.util")
    for value in (0.1, 0.5, 0.9):
        image = np.full_like(GREY[:16], value)
        theirs = util.random_noise(image, mode=mode, rng=0, **options)
        # Clipped values are ties, of which the test takes no notice but for a smaller power.
        assert scipy.stats.ks_2samp(apply(ours, image).ravel(), theirs.ravel()).pvalue > 1e-4


def test_without_strength_nothing_changes(apply, floats):
    for nothing in (noise.GaussianNoise(0.0), noise.SpeckleNoise(0.0), noise.ImpulseNoise(0.0)):
        np.testing.assert_array_equal(apply(nothing, floats[:2]), floats[:2])
