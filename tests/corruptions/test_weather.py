"""Snow and fog: the fractal against its definition, the rest by what must always hold."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import ndimage

from jaxsens import corruptions
from jaxsens.corruptions import weather
from jaxsens.corruptions.base import normal, uniform


def diamond_square(offsets, side, decay):
    """Point by point from the definition; `offsets` holds centres, across, down of each level."""
    heights, step, amplitude, first = np.zeros((side, side)), side, 1.0, 0
    while step > 1:
        half, n = step // 2, side // step
        level = offsets[first : first + 3 * n * n].reshape(3, n, n) * amplitude
        at = lambda y, x: heights[y % side, x % side]  # noqa: E731
        corners = [(0, 0), (0, step), (step, 0), (step, step)]
        around = [(-half, 0), (half, 0), (0, -half), (0, half)]
        for kind, (dy, dx, near) in enumerate(
            [
                (half, half, [(a - half, b - half) for a, b in corners]),
                (0, half, around),
                (half, 0, around),
            ]
        ):
            for i in range(n):
                for j in range(n):
                    y, x = i * step + dy, j * step + dx
                    mean = sum(at(y + a, x + b) for a, b in near) / 4
                    heights[y, x] = mean + level[kind, i, j]
        step, amplitude, first = half, amplitude / decay**2, first + 3 * n * n
    heights -= heights.min()
    return heights / heights.max()


@functools.cache
def plasmas(decay):
    keys = jax.random.split(jax.random.key(0), 20)
    return np.asarray(jax.jit(jax.vmap(lambda k: weather.plasma_fractal(k, 32, decay)))(keys))


@pytest.mark.parametrize("decay", [1.75, 3.0])
def test_plasma_is_diamond_square(decay):
    key = jax.random.split(jax.random.key(0), 20)[5]
    offsets = 2 * np.asarray(uniform(key, 32 * 32 - 1), np.float64) - 1
    np.testing.assert_allclose(plasmas(decay)[5], diamond_square(offsets, 32, decay), atol=1e-5)


def test_plasma_fills_the_unit_interval():
    maps = plasmas(2.0)
    np.testing.assert_array_equal(maps.min((1, 2)), 0)
    np.testing.assert_allclose(maps.max((1, 2)), 1, atol=1e-6)


def test_a_larger_decay_is_smoother():
    rough = [np.abs(np.diff(plasmas(decay))).mean() for decay in (1.75, 2.0, 3.0)]
    assert rough == sorted(rough, reverse=True)


def test_fog_is_the_plasma_rescaled(floats):
    key, plasma = jax.random.split(jax.random.key(0), 20)[3], plasmas(2.0)[3, ..., None]
    top = floats[0].max()
    expected = (floats[0] + 0.75 * plasma) * top / (top + 0.75)
    ours = jax.jit(weather.Fog(0.75, 2.0))(key, floats[0])
    np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_fog_over_a_black_image_is_black(apply):
    black = np.zeros((4, 32, 32, 3), np.float32)
    np.testing.assert_array_equal(apply(corruptions.corruption("fog", 5), black), 0)


def test_fog_on_a_size_that_is_no_power_of_two():
    fog = jax.eval_shape(weather.Fog(1.0, 2.0), jax.random.key(0), jnp.ones((28, 40, 3)))
    assert fog.shape == (28, 40, 3)


@pytest.mark.parametrize("severity", [1, 5])
def test_snow_only_brightens(corrupted, pictures, severity):
    assert (corrupted("snow", severity) >= pictures).all()


def test_snow_falls_twice_turned_by_half(apply):
    # On black the whitened image is flat, and what remains is the two layers.
    black = np.zeros((4, 32, 32, 3), np.float32)
    snow = apply(corruptions.corruption("snow", 5), black)
    np.testing.assert_allclose(snow, snow[:, ::-1, ::-1], atol=1e-6)
    assert snow.max() > snow.min()


def test_without_flakes_snow_is_a_mix_with_bright_grey(floats):
    snow = dataclasses.replace(corruptions.corruption("snow", 5), threshold=1e9)
    grey = floats[0] @ np.array([[0.299], [0.587], [0.114]], np.float32)
    expected = 0.8 * floats[0] + 0.2 * np.maximum(floats[0], 1.5 * grey + 0.5)
    ours = jax.jit(snow)(jax.random.key(0), floats[0])
    np.testing.assert_allclose(ours, np.clip(expected, 0, 1), atol=1e-6)


@pytest.mark.parametrize("severity", [1])
def test_snow_streaks_are_steep(severity):
    snow = corruptions.corruption("snow", severity)
    keys = jax.random.split(jax.random.key(0), 50)
    layers = np.asarray(jax.jit(jax.vmap(lambda key: snow.layer(key, 32, 32)))(keys))[..., 0]
    assert layers.min() >= 0
    assert layers.max() <= 1
    down, across = (np.abs(np.diff(layers, axis=axis)).mean() for axis in (1, 2))
    assert down < 0.8 * across


@pytest.mark.parametrize("severity", [1, 3])
def test_a_layer_of_snow_is_noise_zoomed_cut_off_and_blurred(severity):
    loc, scale, zoom, threshold, radius, sigma, _ = corruptions.CONSTANTS["snow"][severity - 1]
    key = jax.random.key(4)
    noise_key, angle_key = jax.random.split(key)
    noise = loc + scale * np.asarray(normal(noise_key, 32, 32), np.float64)
    kept = int(np.ceil(32 / zoom))
    top = (32 - kept) // 2
    enlarged = ndimage.zoom(noise[top : top + kept, top : top + kept], zoom, order=1)
    trim = (len(enlarged) - 32) // 2
    flakes = enlarged[trim : trim + 32, trim : trim + 32]
    specks = np.floor(255 * np.clip(np.where(flakes < threshold, 0, flakes), 0, 1))
    theta = np.deg2rad(-135 + 90 * float(uniform(angle_key)))
    taps = np.arange(2 * int(radius) + 1)
    weights = np.exp(-0.5 * (taps / sigma) ** 2)
    rows, columns = np.mgrid[:32, :32]
    expected = sum(
        weight * specks[np.clip(rows + down, 0, 31), np.clip(columns + right, 0, 31)]
        for weight, right, down in zip(
            weights / weights.sum(),
            np.ceil(taps * np.cos(theta) - 0.5).astype(int),
            np.ceil(taps * np.sin(theta) - 0.5).astype(int),
            strict=True,
        )
    )
    ours = 255 * np.asarray(corruptions.corruption("snow", severity).layer(key, 32, 32))[..., 0]
    # Half a level for the last rounding, and one where a speck is cut off on the other side.
    np.testing.assert_allclose(ours, expected, atol=1.01)
    assert np.abs(ours - expected).mean() < 0.5
