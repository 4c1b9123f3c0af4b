"""The real files, if JAXSENS_DATA points at them: known first labels and pixel statistics."""

import os
from pathlib import Path

import numpy as np
import pytest

import jaxsens.data as data

# Read here, before the fixture that hides it from the other tests.
ROOT = os.environ.get("JAXSENS_DATA", "")
pytestmark = pytest.mark.skipif(not ROOT, reason="JAXSENS_DATA is not set")


def load(name, split):
    try:
        return data.load(name, split, data_dir=ROOT)
    except data.DatasetNotFoundError:
        pytest.skip(f"JAXSENS_DATA has no {name}")


@pytest.mark.parametrize(
    ("name", "split", "first_labels"),
    [
        ("mnist", "train", [5, 0, 4, 1, 9]),
        ("mnist", "test", [7, 2, 1, 0, 4]),
        ("fashion_mnist", "train", [9, 0, 0, 3, 0]),
        ("fashion_mnist", "test", [9, 2, 1, 1, 6]),
        ("cifar10", "train", [6, 9, 9, 4, 1]),
        ("cifar10", "test", [3, 8, 8, 0, 6]),
    ],
)
def test_first_labels(name, split, first_labels):
    x, y = load(name, split)
    assert y[:5].tolist() == first_labels
    assert x.shape[1:] == data.spec(name).image_shape
    assert (x.min(), x.max()) == (-1, 1)


# Means and standard deviations over pixels in [0, 1] as commonly quoted for the training sets.
@pytest.mark.parametrize(
    ("name", "mean", "std"),
    [
        ("mnist", [0.1307], [0.3081]),
        ("fashion_mnist", [0.2860], [0.3530]),
        ("cifar10", [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]),
    ],
)
def test_pixel_statistics(name, mean, std):
    x, _ = load(name, "train")
    # Fewer than all CIFAR-10 batches shift the mean by a little.
    tolerance = 1e-4 if len(x) == data.spec(name).num_train else 3e-3
    x = x.reshape(-1, x.shape[-1])
    first, second = (moment.mean(0, np.float64) for moment in (x, np.square(x)))
    np.testing.assert_allclose(first / 2 + 0.5, mean, atol=tolerance)
    np.testing.assert_allclose(np.sqrt(second - first**2) / 2, std, atol=tolerance)


def test_svhn_has_all_digits():
    for split in ("train", "test"):
        x, y = load("svhn", split)
        assert np.unique(y).tolist() == list(range(10))
        assert x.shape == (len(y), 32, 32, 3)


def test_fashion_mnist_is_not_taken_for_mnist():
    load("fashion_mnist", "test")
    with pytest.raises(data.CorruptDataError, match="got those of fashion_mnist"):
        data.load("mnist", "test", data_dir=Path(ROOT) / "fashion_mnist")


@pytest.mark.parametrize("split", ["train", "test"])
def test_fashion_mnist_images_with_mnist_labels_are_named(tmp_path, split):
    for name in ("mnist", "fashion_mnist"):
        load(name, split)
    prefix = {"train": "train", "test": "t10k"}[split]
    for name, kind in (("fashion_mnist", "images-idx3"), ("mnist", "labels-idx1")):
        [source] = (Path(ROOT) / name).glob(f"{prefix}-{kind}-ubyte*")
        (tmp_path / source.name).symlink_to(source.resolve())
    with pytest.warns(UserWarning, match="images of mnist, got those of fashion_mnist"):
        data.load("mnist", split, data_dir=tmp_path)


def test_the_test_batch_of_cifar10_among_those_to_train_on_is_named(tmp_path):
    load("cifar10", "test")
    [source] = Path(ROOT).glob("cifar10/**/test_batch.bin")
    (tmp_path / "data_batch_5.bin").symlink_to(source.resolve())
    with pytest.warns(UserWarning, match=r"data_batch_5\.bin: .* a copy of test_batch\.bin"):
        data.load("cifar10", "train", data_dir=tmp_path)
