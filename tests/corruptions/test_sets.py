"""Whole sets: chunks do not matter, bytes are those of the official files, sources are named."""

import jax
import numpy as np
import pytest

import jaxsens.data as data
from jaxsens import corruptions
from jaxsens.corruptions import frost, sets
from jaxsens.data import registry
from jaxsens.data.images import cifar10c

KEY = jax.random.key(0)
LABELS = np.arange(48, dtype=np.int32) % 10


@pytest.mark.parametrize("name", ["shot_noise", "motion_blur", "frost", "jpeg_compression"])
def test_any_chunk_gives_the_same(name, pictures):
    whole = corruptions.corrupt(pictures[:7], name, 2, key=KEY)
    for chunk in (1, 3, 100):
        parts = corruptions.corrupt(pictures[:7], name, 2, key=KEY, chunk=chunk)
        np.testing.assert_array_equal(parts, whole)


def test_image_i_draws_from_fold_in_i(pictures):
    whole = corruptions.corrupt(pictures[:3], "gaussian_noise", 5, key=KEY)
    noise = corruptions.corruption("gaussian_noise", 5)
    image = pictures[2].astype(np.float32) / 255
    expected = np.asarray(noise(jax.random.fold_in(KEY, 2), jax.numpy.asarray(image)))
    np.testing.assert_allclose(whole[2] / 255, expected, atol=1.01 / 255)
    assert (whole[0] != whole[1]).any()


def test_bytes_are_cut_off_not_rounded(pictures):
    images = pictures[:4]
    mean = images.mean(axis=(1, 2), keepdims=True)
    exact = (images - mean) * 0.75 + mean
    ours = corruptions.corrupt(images, "contrast", 1, key=KEY)
    far_from_an_edge = np.abs(exact - exact.round()) > 0.01
    np.testing.assert_array_equal(ours[far_from_an_edge], exact[far_from_an_edge].astype(np.uint8))


def test_all_bytes_survive_an_identity():
    every = np.arange(256, dtype=np.uint8)[:, None, None, None]
    flat = np.broadcast_to(every, (256, 32, 32, 3))
    np.testing.assert_array_equal(corruptions.corrupt(flat, "contrast", 5, key=KEY), flat)
    np.testing.assert_array_equal(corruptions.corrupt(flat, "defocus_blur", 3, key=KEY), flat)


def test_one_compilation_for_a_set(pictures):
    before = sets._corrupt_chunk._cache_size()
    for _ in range(2):
        corruptions.corrupt(pictures[:23], "brightness", 2, key=KEY, chunk=5)
    assert sets._corrupt_chunk._cache_size() == before + 1


def test_no_images_are_no_error():
    empty = np.zeros((0, 32, 32, 3), np.uint8)
    assert corruptions.corrupt(empty, "fog", 1, key=KEY).shape == (0, 32, 32, 3)


@pytest.mark.parametrize(
    "images", [np.zeros((2, 32, 32, 3), "f4"), np.zeros((2, 28, 28, 1), "u1"), np.zeros(3, "u1")]
)
def test_what_is_no_set_of_bytes_is_refused(images):
    with pytest.raises(ValueError, match=r"uint8 \(n, H, W, 3\), got .*to_uint8"):
        corruptions.corrupt(images, "fog", 1, key=KEY)


def test_a_chunk_of_nothing_is_refused(pictures):
    with pytest.raises(ValueError, match="chunk >= 1, got 0"):
        corruptions.corrupt(pictures, "fog", 1, key=KEY, chunk=0)


def test_to_uint8_is_the_inverse_of_loading():
    every = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
    np.testing.assert_array_equal(corruptions.to_uint8(registry.to_unit_range(every, 255)), every)


@pytest.mark.parametrize("bad", [-1.01, 1.5, 255.0, np.nan])
def test_to_uint8_refuses_another_range(bad):
    with pytest.raises(ValueError, match=r"expected images in \[-1, 1\]"):
        corruptions.to_uint8(np.full((1, 2, 2, 3), bad, np.float32))


def write_official(folder, monkeypatch):
    monkeypatch.setattr(cifar10c, "NUM_IMAGES", 4)
    folder.mkdir()
    images = np.arange(20, dtype=np.uint8)[:, None, None, None] + np.zeros((32, 32, 3), np.uint8)
    np.save(folder / "fog.npy", images)
    np.save(folder / "labels.npy", np.arange(20, dtype=np.uint8) % 4)


@pytest.mark.parametrize("name", ["CIFAR-10-C", "cifar10c"])
@pytest.mark.parametrize("how", ["argument", "environment", "itself"])
def test_official_files_come_first(tmp_path, monkeypatch, pictures, name, how):
    write_official(tmp_path / name, monkeypatch)
    if how == "environment":
        monkeypatch.setenv("JAXSENS_DATA", str(tmp_path))
    data_dir = {"argument": tmp_path, "environment": None, "itself": tmp_path / name}[how]
    found = corruptions.load("fog", 2, clean=(pictures, LABELS), key=KEY, data_dir=data_dir)
    assert (found.source, found.detail) == ("CIFAR-10-C", str(tmp_path / name))
    assert (found.name, found.severity) == ("fog", 2)
    assert found.images[:, 0, 0, 0].tolist() == [4, 5, 6, 7]
    assert found.labels.tolist() == [0, 1, 2, 3]


def test_a_half_present_official_copy_is_not_skipped(tmp_path, monkeypatch, pictures):
    write_official(tmp_path / "CIFAR-10-C", monkeypatch)
    with pytest.raises(data.DatasetNotFoundError, match=r"snow\.npy is not there"):
        corruptions.load("snow", 2, clean=(pictures, LABELS), key=KEY, data_dir=tmp_path)


def test_an_unknown_name_is_refused_also_beside_official_files(tmp_path, monkeypatch):
    write_official(tmp_path / "CIFAR-10-C", monkeypatch)
    with pytest.raises(ValueError, match=r"unknown corruption 'fogg'.*did you mean 'fog'"):
        corruptions.load("fogg", 2, data_dir=tmp_path)
    # Only the official files have it.
    with pytest.raises(data.DatasetNotFoundError, match=r"spatter\.npy is not there"):
        corruptions.load("spatter", 2, data_dir=tmp_path)


def test_official_labels_must_be_those_of_the_clean_images(tmp_path, monkeypatch, pictures):
    write_official(tmp_path / "CIFAR-10-C", monkeypatch)
    other = pictures[:3], np.array([0, 2, 1], np.int32)
    with pytest.raises(data.CorruptDataError, match=r"2 of the first 3 labels are not those of"):
        corruptions.load("fog", 2, clean=other, key=KEY, data_dir=tmp_path)


def test_otherwise_they_are_regenerated(tmp_path, pictures):
    found = corruptions.load("fog", 2, clean=(pictures, LABELS), key=KEY, data_dir=tmp_path)
    assert (found.source, found.detail) == ("CIFAR-10-C style, regenerated", "")
    expected = corruptions.corrupt(pictures, "fog", 2, key=KEY)
    np.testing.assert_array_equal(found.images, expected)
    np.testing.assert_array_equal(found.labels, LABELS)


def test_where_the_frost_comes_from_is_said(tmp_path, pictures):
    from PIL import Image

    clean = pictures[:2], LABELS[:2]
    made = corruptions.load("frost", 1, clean=clean, key=KEY)
    assert made.detail == "procedural frost textures"
    given = corruptions.load("frost", 1, clean=clean, key=KEY, textures=frost.procedural_frost())
    assert given.detail == "frost textures as given"
    np.testing.assert_array_equal(given.images, made.images)
    folder = tmp_path / "corruptions" / "frost"
    folder.mkdir(parents=True)
    Image.new("RGB", (300, 200), (0, 0, 0)).save(folder / "frost1.png")
    found = corruptions.load("frost", 1, clean=clean, key=KEY, data_dir=tmp_path)
    assert found.detail == f"frost photographs of {folder}"
    np.testing.assert_array_equal(found.images, clean[0])  # black ice at full image weight


def test_neither_files_nor_images(tmp_path):
    with pytest.raises(data.DatasetNotFoundError, match=r"no CIFAR-10-C or cifar10c folder.*clea"):
        corruptions.load("fog", 1, data_dir=tmp_path)
