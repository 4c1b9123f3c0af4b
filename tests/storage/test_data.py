"""Datasets in an object store are read as those on a disk are."""

import dataclasses
import gzip
import importlib.util
from pathlib import Path

import numpy as np
import pytest

import jaxsens.data as data
from jaxsens.core.storage import located
from jaxsens.data.errors import CorruptDataError, DatasetNotFoundError
from jaxsens.data.images import cifar10, idx
from jaxsens.data.sources import files
from jaxsens.data.sources.folders import download_roots, search_roots
from jaxsens.data.text import load_text

DATA = "gs://bucket/data"


def put(server, root):
    """Makes an object of every file below a folder."""
    for path in root.rglob("*"):
        if path.is_file():
            server.change(f"data/{path.relative_to(root).as_posix()}", path.read_bytes(), None)


def test_images(server, tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (4, 28, 28), np.uint8)
    for kind, array in (("images-idx3", images), ("labels-idx1", np.arange(4, dtype=np.uint8))):
        header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
        (tmp_path / f"train-{kind}-ubyte.gz").write_bytes(gzip.compress(header + array.tobytes()))
    (tmp_path / "cifar-10-batches-bin").mkdir()
    (tmp_path / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(bytes(range(4)) * 3073)
    put(server, tmp_path)
    for reader, name, split in ((idx, "mnist", "train"), (cifar10, "cifar10", "test")):
        spec = dataclasses.replace(data.spec(name), num_train=4, num_test=4)
        for found, expected in zip(
            reader.read(located(DATA), split, spec), reader.read(tmp_path, split, spec), strict=True
        ):
            np.testing.assert_array_equal(found, expected)
        assert reader.read(located("gs://bucket/nothing"), split, spec) is None


def test_texts(server, tmp_path):
    (tmp_path / "sst2").mkdir()
    (tmp_path / "sst2" / "train.tsv").write_text("sentence\tlabel\nas ever\t1\nnot so\t0\n")
    put(server, tmp_path)
    found = load_text("sst2", "train", DATA)
    assert found.first == load_text("sst2", "train", tmp_path).first
    np.testing.assert_array_equal(found.labels, [1, 0])


def test_what_is_not_a_file_is_named(server):
    server.change("data/folder/file", b"content", None)
    root = located(DATA)
    assert files.listed(root) == [root / "folder"]
    assert files.size_of(root / "folder" / "file") == 7
    with pytest.raises(CorruptDataError, match="gs://bucket/data/folder: expected a file, got a f"):
        files.read_bytes(root / "folder", 10)
    with pytest.raises(DatasetNotFoundError, match="gs://bucket/data/none is not there"):
        files.read_bytes(root / "none", 10)
    with pytest.raises(CorruptDataError, match="expected at most 3 bytes, got 7"):
        files.read_bytes(root / "folder" / "file", 3)


def test_nothing_is_downloaded_into_a_store(server, monkeypatch, tmp_path):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    assert search_roots(DATA)[:2] == [located(DATA), tmp_path]
    assert download_roots(DATA) == [tmp_path]


@pytest.mark.slow
def test_prepared_folders(server, tmp_path):
    path = Path(__file__).parents[1] / "data" / "sources" / "test_tfds.py"
    spec = importlib.util.spec_from_file_location("prepares_tfds", path)
    tiny = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tiny)
    tiny.prepare(tmp_path, "parquet")
    put(server, tmp_path)
    for found, expected in zip(
        data.load("mnist", "train", DATA), data.load("mnist", "train", tmp_path), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
