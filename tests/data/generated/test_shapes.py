"""The generated shapes: the same images every time, each class equally often, all different."""

import numpy as np

import jaxsens.data as data
from jaxsens.data.generated import shapes


def test_sizes_range_and_classes():
    x, y = data.load("shapes", "test")
    assert (x.shape, x.dtype, y.shape, y.dtype) == ((500, 32, 32, 3), "f4", (500,), "i4")
    assert x.min() >= -1
    assert x.max() <= 1
    assert np.bincount(y).tolist() == [50] * 10


def test_every_read_gives_the_same_images_and_the_splits_share_none():
    spec = data.spec("shapes")
    first, again = (shapes.make("test", spec)[0] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    train = shapes.make("train", spec)[0]
    both = np.concatenate([train, first]).reshape(2500, -1)
    assert len(np.unique(both, axis=0)) == 2500


def test_the_shape_can_be_seen_on_its_ground():
    x, _ = data.load("shapes", "test")
    border = np.concatenate([x[:, 0], x[:, -1], x[:, :, 0], x[:, :, -1]], axis=1)
    # Noise alone is ±0.1 and the gradient ±0.2: something else differs from the border's mean.
    contrast = np.abs(x - border.mean(axis=1)[:, None, None]).max(axis=(1, 2, 3))
    assert contrast.min() > 0.35


def test_a_mean_image_of_a_class_is_told_apart_from_the_others():
    # Colours are random, so shapes are compared by how far a pixel is from the border's colour.
    x, y = data.load("shapes", "train")
    border = np.concatenate([x[:, 0], x[:, -1]], axis=1).mean(axis=1)
    drawn = np.abs(x - border[:, None, None]).max(axis=-1) > 0.35
    means = np.stack([drawn[y == label].mean(axis=0) for label in range(10)])
    distance = np.abs(means[:, None] - means[None]).mean(axis=(2, 3))
    assert distance[~np.eye(10, dtype=bool)].min() > 0.005
