"""CIFAR-10's binary batches: the planes end up as channels, and absent batches are allowed."""

import dataclasses
import logging
import zlib

import numpy as np
import pytest

import jaxsens.data as data
from jaxsens.data.errors import UnusableSourceError
from jaxsens.data.images import cifar10

SPEC = dataclasses.replace(data.spec("cifar10"), num_train=20, num_test=6)
RNG = np.random.default_rng(0)


def write_batch(path, num_rows):
    """Writes a batch and returns what should be read: images (n, 32, 32, 3) and labels (n,)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = RNG.integers(0, 256, (num_rows, 3073), np.uint8)
    rows[:, 0] %= 10
    path.write_bytes(rows.tobytes())
    planes = [rows[:, 1 + 1024 * c : 1025 + 1024 * c].reshape(-1, 32, 32) for c in range(3)]
    return np.stack(planes, axis=-1), rows[:, 0]


@pytest.mark.parametrize("subfolder", ["cifar-10-batches-bin", "."])
def test_round_trip(tmp_path, subfolder):
    expected = [write_batch(tmp_path / subfolder / f"data_batch_{i}.bin", 4) for i in range(1, 6)]
    images, labels = cifar10.read(tmp_path, "train", SPEC)
    np.testing.assert_array_equal(images, np.concatenate([batch[0] for batch in expected]))
    np.testing.assert_array_equal(labels, np.concatenate([batch[1] for batch in expected]))


def test_absent_train_batches_are_left_out_and_counted(tmp_path, caplog):
    expected = [write_batch(tmp_path / f"data_batch_{i}.bin", 4) for i in (2, 4)]
    with caplog.at_level(logging.INFO, logger="jaxsens"):
        images, labels = cifar10.read(tmp_path, "train", SPEC)
    np.testing.assert_array_equal(labels, np.concatenate([batch[1] for batch in expected]))
    assert len(images) == 8
    assert "2 of 5 batches" in caplog.text
    assert "8 examples" in caplog.text


def test_full_size_through_load(tmp_path):
    rows = np.zeros((10_000, 3073), np.uint8)
    rows[:, 0], rows[:, 2049:] = 9, 255  # label 9, pure blue
    folder = tmp_path / "cifar10" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    (folder / "test_batch.bin").write_bytes(rows.tobytes())
    x, y = data.load("cifar10", "test", data_dir=tmp_path)
    assert (x.shape, x.dtype, y.dtype) == ((10_000, 32, 32, 3), "f4", "i4")
    assert (x == np.array([-1, -1, 1], np.float32)).all()
    assert (y == 9).all()


def test_nothing_there_is_none(tmp_path):
    assert cifar10.read(tmp_path, "train", SPEC) is None


@pytest.mark.parametrize(
    ("present", "split", "missing"),
    [
        ("test_batch.bin", "train", "data_batch_1.bin"),
        ("data_batch_1.bin", "test", "test_batch.bin"),
    ],
)
def test_a_missing_split_is_named(tmp_path, present, split, missing):
    write_batch(tmp_path / present, 4)
    with pytest.raises(data.DatasetNotFoundError, match=f"none of the {split} split.*{missing}"):
        cifar10.read(tmp_path, split, SPEC)


@pytest.mark.parametrize("change", [-1, 1, 3073])
def test_wrong_size_is_named_with_numbers(tmp_path, change):
    path = tmp_path / "test_batch.bin"
    write_batch(path, 7)
    path.write_bytes(path.read_bytes()[: 6 * 3073 + change])
    with pytest.raises(
        data.CorruptDataError,
        match=rf"test_batch.bin: expected 18438 bytes \(6 rows of 3073\), got {18438 + change}",
    ):
        cifar10.read(tmp_path, "test", SPEC)


def test_a_label_out_of_range_is_named(tmp_path):
    path = tmp_path / "test_batch.bin"
    write_batch(path, 6)
    content = bytearray(path.read_bytes())
    content[2 * 3073] = 77
    path.write_bytes(content)
    with pytest.raises(data.CorruptDataError, match=r"0\.\.9, got 77 at example 2"):
        cifar10.read(tmp_path, "test", SPEC)


def test_pickles_are_not_opened(tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "data_batch_1").write_bytes(b"would fail if it were opened")
    with pytest.raises(UnusableSourceError, match="pickles"):
        cifar10.read(tmp_path, "train", SPEC)


def test_a_batch_that_is_a_copy_of_another_is_named(tmp_path, monkeypatch):
    for i in range(1, 4):
        write_batch(tmp_path / f"data_batch_{i}.bin", 4)
    cifar10.read(tmp_path, "train", SPEC)  # unknown batches are fine
    content = (tmp_path / "data_batch_2.bin").read_bytes()
    with monkeypatch.context() as patch:
        patch.setitem(cifar10._CRC32, zlib.crc32(content), "test_batch.bin")
        with pytest.warns(UserWarning, match=r"data_batch_2\.bin: .* a copy of test_batch\.bin"):
            cifar10.read(tmp_path, "train", SPEC)
    (tmp_path / "data_batch_3.bin").write_bytes(content)
    with pytest.warns(UserWarning, match=r"data_batch_3\.bin: .* a copy of data_batch_2\.bin"):
        cifar10.read(tmp_path, "train", SPEC)
