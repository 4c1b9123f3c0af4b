"""All corruptions: constants, purity, range, and what grows with severity and what does not."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens import corruptions

RANDOM = {
    "gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "glass_blur", "motion_blur",
    "snow", "frost", "fog", "elastic_transform",
}  # fmt: skip
# Steps from one severity to the next at which the mean change does not grow: see the module.
NOT_GROWING = {
    "glass_blur": {(1, 2), (2, 3), (4, 5)},
    "motion_blur": {(3, 4)},
    "frost": {(3, 4), (4, 5)},
    "elastic_transform": {(1, 2), (2, 3), (3, 4), (4, 5)},
    "saturate": {(2, 3)},
}
each = pytest.mark.parametrize("name", corruptions.NAMES)


def test_constants_are_the_official_ones(root):
    path = root / "corruptions" / "cifar10c_constants.json"
    if not path.is_file():
        pytest.skip("JAXSENS_DATA has no constants")
    content = json.loads(path.read_text())
    official = content.pop("extra")
    for name in set(corruptions.NAMES) - set(official):
        official[name] = next(iter(content[name].values()))
    assert set(official) == set(corruptions.NAMES)
    for name, rows in official.items():
        assert (
            np.array(rows).reshape(5, -1).tolist() == np.array(corruptions.CONSTANTS[name]).tolist()
        ), name


def test_there_are_fifteen_and_three():
    assert len(corruptions.NAMES) == 18
    assert {len(rows) for rows in corruptions.CONSTANTS.values()} == {5}


@each
def test_a_corruption_is_a_hashable_value(name):
    first, second = (corruptions.corruption(name, 3) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    assert first != corruptions.corruption(name, 5)


@each
def test_range_and_type(name, corrupted, pictures):
    for severity in corruptions.SEVERITIES:
        images = corrupted(name, severity)
        assert (images.dtype, images.shape) == (np.uint8, pictures.shape)
        assert (images != pictures).any()


@each
def test_extreme_pictures_stay_in_range(name, apply):
    rng = np.random.default_rng(0)
    noise, binary = rng.random((32, 32, 3)), rng.integers(0, 2, (32, 32, 3))
    extreme = np.stack([0 * noise, np.ones_like(noise), noise, binary]).astype(np.float32)
    images = apply(corruptions.corruption(name, 5), extreme)
    assert np.isfinite(images).all()
    assert images.min() >= 0
    assert images.max() <= 1


@each
def test_only_the_key_decides(name, apply, floats):
    kind = corruptions.corruption(name, 5)
    first, again, other = (apply(kind, floats[:4], seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any() == (name in RANDOM)


@each
def test_one_by_one_is_all_at_once(name, apply, floats):
    kind = corruptions.corruption(name, 5)
    keys = jax.random.split(jax.random.key(0), 4)
    single = jax.jit(kind)
    singly = [single(key, image) for key, image in zip(keys, floats[:4], strict=True)]
    # Where a value falls on the edge of a level, float32's order of summation decides.
    difference = np.abs(apply(kind, floats[:4]) - np.stack(singly))
    assert (difference > 1e-5).mean() < 1e-3


@each
def test_growth_with_severity(name, corrupted, pictures):
    distance = [
        np.abs(corrupted(name, severity).astype(float) - pictures).mean()
        for severity in corruptions.SEVERITIES
    ]
    steps = {(s, s + 1) for s in range(1, 5) if distance[s] <= distance[s - 1]}
    assert steps <= NOT_GROWING.get(name, set()), np.round(distance, 2)
    # The exceptions are real and not only noise, but for steps that change next to nothing.
    if name in ("frost", "elastic_transform", "saturate"):
        assert steps, np.round(distance, 2)


def test_severities_that_hardly_differ(corrupted, pictures):
    """Motion blur 3 and 4 have the same σ, glass blur 1, 2 and 3 the same copies."""

    def distance(name, severity):
        return np.abs(corrupted(name, severity).astype(float) - pictures).mean()

    assert distance("motion_blur", 4) == pytest.approx(distance("motion_blur", 3), rel=0.1)
    assert distance("glass_blur", 3) == pytest.approx(distance("glass_blur", 1), rel=0.2)
    assert distance("glass_blur", 5) > 1.2 * distance("glass_blur", 3)


def test_unknown_names_and_severities_are_named():
    with pytest.raises(ValueError, match=r"unknown corruption 'gausian_noise'.*'gaussian_n"):
        corruptions.corruption("gausian_noise", 1)
    for severity in (0, 6):
        with pytest.raises(ValueError, match=f"severity of 1, 2, 3, 4 or 5; got {severity}"):
            corruptions.corruption("fog", severity)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((28, 28, 1), "f4"), ((28, 28), "f4"), ((32, 32, 3), "u1"), ((2, 32, 32, 3), "f4")],
)
def test_what_is_no_colour_image_is_refused(shape, dtype):
    with pytest.raises(ValueError, match=r"Contrast needs a float32 image \(H, W, 3\)"):
        corruptions.corruption("contrast", 1)(jax.random.key(0), jnp.zeros(shape, dtype))
