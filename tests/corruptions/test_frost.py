"""Frost: the pieces are those of the textures, and a bad folder is one clear line."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import jaxsens.data as data
from jaxsens import corruptions
from jaxsens.corruptions import frost

RNG = np.random.default_rng(0)


def textures(*sizes):
    """Red tells the texture, green the row, blue the column."""
    return frost._stack(
        [
            np.stack(
                [np.full(size, 10 * (i + 1)), *np.indices(size)],
                axis=-1,
            ).astype(np.uint8)
            for i, size in enumerate(sizes)
        ]
    )


def test_pieces_are_whole_and_uniform(apply):
    sizes = [(40, 60), (50, 35)]
    black = np.zeros((2000, 32, 32, 3), np.float32)
    pieces = apply(frost.Frost(1.0, 1.0, textures(*sizes)), black) * 255
    pieces = pieces.round().astype(int)
    for axis in (0, 1):
        steps = np.diff(pieces[..., 1 + axis], axis=1 + axis)
        np.testing.assert_array_equal(steps, 1)
    which = pieces[:, 0, 0, 0] // 10 - 1
    assert abs(which.mean() - 0.5) < 4.5 * 0.5 / np.sqrt(2000)
    for i, (height, width) in enumerate(sizes):
        corner = pieces[which == i, 0, 0, 1:]
        # The official range leaves out the last start.
        assert corner.min(axis=0).tolist() == [0, 0]
        assert corner.max(axis=0).tolist() == [height - 33, width - 33]


def test_weights(apply, floats):
    flat = frost._stack([np.full((40, 40, 3), 51, np.uint8)])
    for severity, (a, b) in enumerate(corruptions.CONSTANTS["frost"], start=1):
        frozen = corruptions.corruption("frost", severity, textures=flat)
        expected = np.clip(a * floats[:4] + b * 0.2, 0, 1)
        np.testing.assert_allclose(apply(frozen, floats[:4]), expected, atol=1e-6)


def test_procedural_frost_looks_like_the_photographs():
    made = frost.procedural_frost()
    colours = made.pixels.mean(axis=(1, 2))
    np.testing.assert_allclose(colours, frost._MEANS, atol=4)
    contrasts = made.pixels.astype(float).std(axis=(1, 2)).mean(axis=1)
    np.testing.assert_allclose(contrasts, frost._STDS, rtol=0.15)
    # No two textures are alike, although two have the same colours.
    assert len({texture.tobytes() for texture in made.pixels}) == 5


def test_procedural_frost_does_not_change():
    first = frost.procedural_frost().pixels
    frost.procedural_frost.cache_clear()
    np.testing.assert_array_equal(frost.procedural_frost().pixels, first)


def test_an_image_larger_than_the_texture_is_refused():
    with pytest.raises(ValueError, match=r"larger than the image, 64×64; got sizes \[\[40, 40\]\]"):
        frost.Frost(1.0, 0.2, textures((40, 40)))(jax.random.key(0), jnp.zeros((64, 64, 3)))


def save(path, height=200, width=170, mode="RGB"):
    channels = len(mode)
    image = RNG.integers(0, 256, (height, width, channels), np.uint8)
    Image.fromarray(image).save(path, **({"quality": 100} if path.suffix == ".jpg" else {}))
    return np.asarray(Image.open(path))[..., :3]


def test_every_fifth_pixel_of_the_first_five(tmp_path):
    modes = {"a.png": "RGB", "b.png": "RGBA", "c.jpg": "RGB", "d.PNG": "RGB", "e.jpeg": "RGB"}
    photographs = [save(tmp_path / name, mode=mode) for name, mode in modes.items()]
    save(tmp_path / "f.png")
    (tmp_path / "LICENSE").write_text("not an image")
    loaded = corruptions.load_frost(tmp_path)
    assert loaded.sizes.tolist() == [[40, 34]] * 5
    expected = [photograph[2::5, 2::5] for photograph in photographs]
    np.testing.assert_array_equal(loaded.pixels, expected)


@pytest.mark.parametrize("size", [(200, 170), (323, 485), (351, 527)])
def test_every_fifth_pixel_is_opencvs_resize(tmp_path, size):
    cv2 = pytest.importorskip("cv2")
    photograph = save(tmp_path / "frost1.png", *size)
    expected = cv2.resize(photograph, (0, 0), fx=0.2, fy=0.2)
    np.testing.assert_array_equal(corruptions.load_frost(tmp_path).pixels[0], expected)


def test_a_missing_folder_and_an_empty_one_are_named(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(data.DatasetNotFoundError, match=f"{folder}: expected a folder with"):
            corruptions.load_frost(folder)


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
@pytest.mark.parametrize("damage", [lambda c: b"", lambda c: b"<html>", lambda c: c[: len(c) // 2]])
def test_a_damaged_image_is_named(tmp_path, suffix, damage):
    path = tmp_path / f"frost1{suffix}"
    save(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(data.CorruptDataError, match=f"frost1{suffix}: expected a PNG or JPEG") as e:
        corruptions.load_frost(tmp_path)
    assert "\n" not in str(e.value)


def test_a_small_image_is_named(tmp_path):
    save(tmp_path / "frost1.png", 200, 160)
    with pytest.raises(data.CorruptDataError, match=r"at least 165 pixels.*got 200×160"):
        corruptions.load_frost(tmp_path)


def test_the_real_photographs(root):
    folder = root / "corruptions" / "frost"
    if not folder.is_dir():
        pytest.skip("JAXSENS_DATA has no frost")
    loaded = corruptions.load_frost(folder)
    assert loaded.sizes.tolist() == [[120, 180], [63, 112], [63, 112], [70, 105], [99, 132]]
    for pixels, (height, width), mean in zip(
        loaded.pixels, loaded.sizes, frost._MEANS, strict=True
    ):
        np.testing.assert_allclose(pixels[:height, :width].mean((0, 1)), mean, atol=2)
