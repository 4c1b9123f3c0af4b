"""SVHN in MATLAB files and as a subset in one .npz file."""

import dataclasses

import numpy as np
import pytest
import scipy.io

import jaxsens.data as data
from jaxsens.data.images import svhn

SPEC = dataclasses.replace(data.spec("svhn"), num_train=12, num_test=5)
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (12, 32, 32, 3), np.uint8)
LABELS = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 3], np.uint8)


def write_mat(folder, split="train", images=IMAGES, labels=LABELS):
    """Writes the official layout: images last axis, labels 1..10 in a column."""
    stored = np.where(labels == 0, 10, labels).astype(labels.dtype)[:, None]
    path = folder / f"{split}_32x32.mat"
    scipy.io.savemat(path, {"X": np.moveaxis(images, 0, -1), "y": stored}, do_compression=True)
    return path


def write_npz(path, **changes):
    arrays = {
        "x_train": IMAGES[:8],
        "y_train": LABELS[:8],
        "x_test": IMAGES[8:],
        "y_test": LABELS[8:],
    } | changes
    np.savez_compressed(path, **{key: value for key, value in arrays.items() if value is not None})


def test_mat_round_trip_with_label_ten_as_zero(tmp_path):
    write_mat(tmp_path)
    images, labels = svhn.read(tmp_path, "train", SPEC)
    np.testing.assert_array_equal(images, IMAGES)
    np.testing.assert_array_equal(labels, LABELS)


def test_npz_of_any_size_through_load(tmp_path):
    (tmp_path / "svhn").mkdir()
    write_npz(tmp_path / "svhn" / "small.npz")
    x, y = data.load("svhn", "test", data_dir=tmp_path)
    np.testing.assert_allclose(x, IMAGES[8:] / 127.5 - 1, atol=1e-6)
    np.testing.assert_array_equal(y, LABELS[8:])
    assert y.dtype == np.int32


def test_elsewhere_only_a_file_called_svhn_is_taken(tmp_path):
    write_npz(tmp_path / "other.npz")
    assert svhn.read(tmp_path, "train", SPEC) is None
    write_npz(tmp_path / "svhn_8.npz")
    assert len(svhn.read(tmp_path, "train", SPEC)[0]) == 8


def test_two_subsets_are_ambiguous(tmp_path):
    for name in ("svhn_a.npz", "svhn_b.npz"):
        write_npz(tmp_path / name)
    with pytest.raises(data.CorruptDataError, match=r"one .npz file, got svhn_a.npz, svhn_b.npz"):
        svhn.read(tmp_path, "train", SPEC)


def test_a_subset_never_stands_in_for_a_missing_official_split(tmp_path):
    write_mat(tmp_path)
    write_npz(tmp_path / "svhn.npz")
    with pytest.raises(data.DatasetNotFoundError, match=r"not test_32x32\.mat"):
        svhn.read(tmp_path, "test", SPEC)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": IMAGES[:9]}, r"X as uint8 of shape \(32, 32, 3, 12\), .*\(32, 32, 3, 9\)"),
        ({"labels": LABELS[:9]}, r"y as uint8 of shape \(12, 1\), .*\(9, 1\)"),
        ({"images": IMAGES / 255}, "got float64"),
        ({"labels": np.where(LABELS == 3, 11, LABELS).astype("u1")}, "got 11 at example 3"),
    ],
)
def test_a_wrong_mat_is_named_with_numbers(tmp_path, changes, message):
    write_mat(tmp_path, **changes)
    with pytest.raises(data.CorruptDataError, match=message):
        svhn.read(tmp_path, "train", SPEC)


@pytest.mark.parametrize("keep", [0, 100, 300, 20_000])
def test_a_truncated_mat_is_named(tmp_path, keep):
    path = write_mat(tmp_path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(data.CorruptDataError, match=r"train_32x32\.mat: expected"):
        svhn.read(tmp_path, "train", SPEC)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_train": None}, "expected an array called y_train, got none"),
        ({"y_train": LABELS[:7]}, r"y_train as uint8 of shape \(8,\), got uint8 of shape \(7,\)"),
        ({"x_train": IMAGES[:8, :28]}, r"\(8, 32, 32, 3\), .*\(8, 28, 32, 3\)"),
        ({"x_train": IMAGES[:8].astype("f4")}, "got float32"),
        ({"x_train": IMAGES[:0], "y_train": LABELS[:0]}, "at least one image"),
        ({"y_train": LABELS[:8] + np.uint8(90)}, "got 90 at example 0"),
        ({"y_train": np.array([{}] * 8, object)}, "allow_pickle=False"),
    ],
)
def test_a_wrong_npz_is_named_with_numbers(tmp_path, changes, message):
    write_npz(tmp_path / "svhn.npz", **changes)
    with pytest.raises(data.CorruptDataError, match=message):
        svhn.read(tmp_path, "train", SPEC)


@pytest.mark.parametrize("keep", [0, 100, 5_000])
def test_a_truncated_npz_is_named(tmp_path, keep):
    path = tmp_path / "svhn.npz"
    write_npz(path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(data.CorruptDataError, match=f"svhn.npz: .*got {keep} bytes"):
        svhn.read(tmp_path, "train", SPEC)
