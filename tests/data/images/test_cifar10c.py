"""The official files of CIFAR-10-C: rows by severity, and every kind of damage named."""

import numpy as np
import pytest

import jaxsens.data as data
from jaxsens.data.images import cifar10c

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (20, 32, 32, 3), np.uint8)
LABELS = RNG.integers(0, 10, 20).astype(np.uint8)


@pytest.fixture
def small(monkeypatch):
    """Files of four images per severity."""
    monkeypatch.setattr(cifar10c, "NUM_IMAGES", 4)


def write(folder, images=IMAGES, labels=LABELS):
    np.save(folder / "fog.npy", images)
    np.save(folder / "labels.npy", labels)


@pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
def test_a_severity_is_its_rows(tmp_path, small, severity):
    write(tmp_path)
    images, labels = cifar10c.read(tmp_path, "fog", severity)
    rows = slice(4 * severity - 4, 4 * severity)
    np.testing.assert_array_equal(images, IMAGES[rows])
    np.testing.assert_array_equal(labels, LABELS[rows])
    assert (images.dtype, labels.dtype) == (np.uint8, np.int32)
    assert not isinstance(images, np.memmap)
    assert images.flags.writeable


def test_the_official_size(tmp_path):
    # Sparse: only what is written takes room on the disk.
    images = np.lib.format.open_memmap(
        tmp_path / "fog.npy", mode="w+", dtype=np.uint8, shape=(50_000, 32, 32, 3)
    )
    images[[9_999, 10_000, 19_999, 20_000]] = np.array([1, 2, 3, 4], np.uint8)[:, None, None, None]
    images.flush()
    np.save(tmp_path / "labels.npy", np.tile(np.arange(10, dtype=np.uint8), 5_000))
    found, labels = cifar10c.read(tmp_path, "fog", 2)
    assert found.shape == (10_000, 32, 32, 3)
    assert (found[0] == 2).all()
    assert (found[-1] == 3).all()
    assert not found[1:-1].any()
    np.testing.assert_array_equal(labels, np.arange(10_000) % 10)


@pytest.mark.parametrize("severity", [0, 6, -1])
def test_an_unknown_severity_is_named(tmp_path, severity):
    with pytest.raises(ValueError, match=f"1, 2, 3, 4 or 5; got {severity}"):
        cifar10c.read(tmp_path, "fog", severity)


@pytest.mark.parametrize("missing", ["fog", "labels"])
def test_a_missing_file_is_named(tmp_path, small, missing):
    write(tmp_path)
    (tmp_path / f"{missing}.npy").unlink()
    left = {"fog": "labels", "labels": "fog"}[missing]
    with pytest.raises(
        data.DatasetNotFoundError, match=rf"{missing}\.npy is not there; .*zenodo.*: {left}\.npy\)"
    ):
        cifar10c.read(tmp_path, "fog", 1)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"images": IMAGES[:-1]}, r"fog\.npy: expected .*shape \(20, 32, 32, 3\), got \(19, 32,"),
        ({"images": IMAGES[..., :1]}, r"fog\.npy: expected .*got \(20, 32, 32, 1\)"),
        ({"images": IMAGES.astype("f4")}, r"fog\.npy: expected uint8, got float32"),
        ({"labels": LABELS[:-1]}, r"labels\.npy: expected .*shape \(20,\), got \(19,\)"),
        ({"labels": LABELS.astype("f4")}, r"labels\.npy: expected integers, got float32"),
        ({"labels": LABELS * 0 + 10}, r"labels\.npy: expected labels 0\.\.9, got 10 at example 0"),
    ],
)
def test_wrong_content_is_named(tmp_path, small, damage, message):
    write(tmp_path, **damage)
    with pytest.raises(data.CorruptDataError, match=message):
        cifar10c.read(tmp_path, "fog", 1)


@pytest.mark.parametrize(
    "damage",
    [lambda c: b"", lambda c: b"<html>404</html>", lambda c: c[:50], lambda c: c[:-1]],
    ids=["empty", "html", "header cut", "truncated"],
)
@pytest.mark.parametrize("name", ["fog", "labels"])
def test_a_damaged_file_is_one_line(tmp_path, small, name, damage):
    write(tmp_path)
    path = tmp_path / f"{name}.npy"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(
        data.CorruptDataError, match=rf"{name}\.npy: expected a \.npy file.*zenodo.* again"
    ) as caught:
        cifar10c.read(tmp_path, "fog", 1)
    assert "\n" not in str(caught.value)


class _Trap:
    def __reduce__(self):
        return pytest.fail, ("unpickled",)


@pytest.mark.parametrize("as_npy", [True, False])
def test_nothing_is_unpickled(tmp_path, small, as_npy):
    import pickle

    write(tmp_path)
    if as_npy:
        np.save(tmp_path / "fog.npy", np.array([_Trap()], dtype=object), allow_pickle=True)
    else:
        (tmp_path / "fog.npy").write_bytes(pickle.dumps(_Trap()))
    with pytest.raises(data.CorruptDataError, match=r"fog\.npy: expected a \.npy file of plain"):
        cifar10c.read(tmp_path, "fog", 1)


def test_find(tmp_path):
    assert cifar10c.find(tmp_path) is None
    for name in ("cifar10c", "CIFAR-10-C"):
        (tmp_path / name).mkdir()
        assert cifar10c.find(tmp_path / name) == tmp_path / name
    assert cifar10c.find(tmp_path) == tmp_path / "CIFAR-10-C"
