"""IDX files: what is written comes back, and every kind of damage is named."""

import dataclasses
import gzip
import zlib

import numpy as np
import pytest

import jaxsens.data as data
from jaxsens.data.images import idx

SPEC = dataclasses.replace(data.spec("mnist"), num_train=20, num_test=5)
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (20, 28, 28), np.uint8)
LABELS = RNG.integers(0, 10, 20, np.uint8)


def encode(array, magic=None):
    magic = bytes([0, 0, 8, array.ndim]) if magic is None else magic
    return magic + np.array(array.shape, ">i4").tobytes() + array.tobytes()


def write(folder, images=None, labels=None, dot="-", gz=False):
    suffix = ".gz" if gz else ""
    for kind, axes, content in (
        ("images", 3, encode(IMAGES) if images is None else images),
        ("labels", 1, encode(LABELS) if labels is None else labels),
    ):
        path = folder / f"train-{kind}{dot}idx{axes}-ubyte{suffix}"
        path.write_bytes(gzip.compress(content) if gz else content)


@pytest.mark.parametrize("dot", ["-", "."])
@pytest.mark.parametrize("gz", [False, True])
def test_round_trip(tmp_path, dot, gz):
    write(tmp_path, dot=dot, gz=gz)
    images, labels = idx.read(tmp_path, "train", SPEC)
    np.testing.assert_array_equal(images, IMAGES[..., None])
    np.testing.assert_array_equal(labels, LABELS)


def test_a_folder_without_idx_files_is_none(tmp_path):
    (tmp_path / "readme").write_text("train")
    assert idx.read(tmp_path, "train", SPEC) is None
    assert idx.read(tmp_path / "missing", "train", SPEC) is None


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"images": encode(IMAGES, b"\0\0\x0d\x03")}, "magic 00000803, got 00000d03"),
        ({"images": b""}, "got an empty file"),
        ({"images": encode(IMAGES)[:9]}, "header of 16 bytes, got 9"),
        ({"images": encode(IMAGES)[:-3]}, "expected 15680 bytes after the header, got 15677"),
        ({"labels": encode(LABELS) + b"\0"}, "expected 20 bytes after the header, got 21"),
        ({"labels": encode(LABELS[:-1])}, r"expected an array of shape \(20,\), got \(19,\)"),
        ({"images": encode(IMAGES[:, 1:])}, r"shape \(20, 28, 28\), got \(20, 27, 28\)"),
        ({"labels": encode(np.where(np.arange(20) == 4, 10, LABELS).astype("u1"))}, "10 at exam"),
    ],
)
def test_damage_is_named_with_numbers(tmp_path, damage, message):
    write(tmp_path, **damage)
    with pytest.raises(data.CorruptDataError, match=message) as caught:
        idx.read(tmp_path, "train", SPEC)
    assert f"train-{next(iter(damage))}-idx" in str(caught.value)


@pytest.mark.parametrize(
    "damage", [lambda c: c[:-9], lambda c: b"<html>", lambda c: c[:20] + c[30:]]
)
def test_bad_gzip(tmp_path, damage):
    write(tmp_path, gz=True)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(data.CorruptDataError, match=r"train-images-idx3-ubyte\.gz: .*gzip"):
        idx.read(tmp_path, "train", SPEC)


@pytest.mark.parametrize("kind", ["images-idx3", "labels-idx1"])
def test_a_missing_file_is_named(tmp_path, kind):
    write(tmp_path)
    (tmp_path / f"train-{kind}-ubyte").unlink()
    with pytest.raises(data.DatasetNotFoundError, match=f"expected train-{kind}-ubyte"):
        idx.read(tmp_path, "train", SPEC)


def test_a_missing_split_is_named(tmp_path):
    write(tmp_path)
    with pytest.raises(data.DatasetNotFoundError, match="expected t10k-images-idx3-ubyte"):
        idx.read(tmp_path, "test", SPEC)


def test_fashion_mnist_is_not_taken_for_mnist(tmp_path, monkeypatch):
    monkeypatch.setitem(idx._LABELS_CRC32, zlib.crc32(LABELS), "fashion_mnist")
    write(tmp_path)
    with pytest.raises(data.CorruptDataError, match="labels of mnist, got those of fashion_mnist"):
        idx.read(tmp_path, "train", SPEC)


def test_official_sizes_are_required(tmp_path):
    write(tmp_path)
    with pytest.raises(data.CorruptDataError, match=r"\(60000, 28, 28\), got \(20, 28, 28\)"):
        data.load("mnist", "train", data_dir=tmp_path)


def test_images_of_another_dataset_beside_these_labels_are_named(tmp_path, monkeypatch):
    write(tmp_path)
    idx.read(tmp_path, "train", SPEC)  # unknown images are fine
    monkeypatch.setitem(idx._IMAGES_CRC32, zlib.crc32(IMAGES), "fashion_mnist")
    with pytest.warns(UserWarning, match="images of mnist, got those of fashion_mnist, to which"):
        idx.read(tmp_path, "train", SPEC)
    monkeypatch.setitem(idx._IMAGES_CRC32, zlib.crc32(IMAGES), "mnist")
    idx.read(tmp_path, "train", SPEC)
