"""Maps of examples: the values are the estimate's, the choice is bounded, files are read back."""

import base64
import dataclasses
import io

import numpy as np
import pytest
from PIL import Image

from jaxsens.measurement import SensitivityEstimate
from jaxsens.measurement.estimate import Provenance
from jaxsens.reporting import example_maps
from jaxsens.reporting.example_maps import ExampleMap, ExampleMaps, image_maps, text_maps

PROVENANCE = Provenance(
    metric="label_flip", perturbation="", num_samples=2, exact=False, positions="all",
    tolerance=None, seed=(0, 0), precision="float32", device="cpu", num_devices=1, seconds=1.0,
    num_passes=1, exhaustive_passes=1,
)  # fmt: skip


def estimate(totals, counts=None):
    totals = np.asarray(totals, np.float64)
    counts = np.full(totals.shape, 2) if counts is None else np.asarray(counts)
    return SensitivityEstimate(totals, counts, (0.0, 1.0), PROVENANCE)


def pixels_of(uri):
    data = base64.b64decode(uri.removeprefix("data:image/png;base64,"))
    return np.asarray(Image.open(io.BytesIO(data)))


def test_an_image_has_the_values_of_the_estimate_and_the_picture_that_was_measured():
    pictures = np.linspace(-1, 1, 3 * 4 * 4).reshape(3, 4, 4, 1).astype(np.float32)
    found = {"A": estimate([[0, 0, 0, 0], [2, 1, 0, 0], [0, 0, 0, 1]])}
    maps = image_maps("T", pictures, found, (2, 2), note="noise")
    # The most sensitive first.
    assert [each.label for each in maps.examples] == ["image 1", "image 2", "image 0"]
    assert maps.examples[0].values == {"A": (1.0, 0.5, 0.0, 0.0)}
    assert maps.examples[0].means == {"A": 0.375}
    expected = np.round((pictures[1, ..., 0].astype(float) + 1) * 127.5)
    np.testing.assert_array_equal(pixels_of(maps.examples[0].picture), expected)
    assert (maps.layout, maps.note, maps.largest) == ((2, 2), "noise", 1.0)


def test_a_text_has_as_many_values_as_tokens_and_none_where_nothing_was_measured():
    found = {"A": estimate([[1, 2, 0], [2, 0, 0]], [[2, 2, 0], [2, 0, 0]])}
    maps = text_maps("T", [["a", " b"], ["c", " d", " e"]], found, labels=["one", "two"])
    assert maps.examples == (
        ExampleMap("two", {"A": (1.0, None, None)}, tokens=("c", " d", " e")),
        ExampleMap("one", {"A": (0.5, 1.0)}, tokens=("a", " b")),
    )


@pytest.mark.parametrize(("num_positions", "expected"), [(4, 24), (1_000, 10), (20_000, 1)])
def test_the_number_of_examples_is_bounded_and_spans_the_whole_ranking(num_positions, expected):
    totals = np.zeros((50, num_positions))
    totals[:, 0] = np.arange(50) % 3
    found = {"A": estimate(totals), "B": estimate(np.zeros((50, num_positions)))}
    maps = text_maps("T", [["a"] * num_positions] * 50, found)
    assert len(maps.examples) == expected
    means = [each.means["A"] for each in maps.examples]
    assert means == sorted(means, reverse=True)
    assert means[0] == pytest.approx(1 / num_positions, abs=1e-12)
    assert expected == 1 or means[-1] == 0


def test_large_pictures_are_made_smaller():
    pictures = np.zeros((1, 256, 128, 3), np.uint8)
    maps = image_maps("T", pictures, {"A": estimate([[0] * 4])}, (2, 2))
    assert pixels_of(maps.examples[0].picture).shape == (96, 48, 3)


def test_examples_that_a_model_was_not_measured_on_are_left_out():
    found = {
        "A": estimate([[1, 1], [0, 0]], [[2, 2], [0, 2]]),
        "B": estimate([[0, 0], [1, 0]], [[0, 0], [2, 2]]),
    }
    assert [e.label for e in text_maps("T", [["a", "b"]] * 2, found).examples] == ["text 1"]


def test_maps_are_read_back_from_the_folder(tmp_path):
    assert example_maps.read_maps(tmp_path) == ()
    found = {"A": estimate([[0, 1, 0, 2]])}
    maps = (
        image_maps("T", np.zeros((1, 4, 4, 3), np.uint8), found, (2, 2)),
        text_maps("U", [["<s>", " σ"]], {"A": estimate([[0, 1]], [[2, 0]])}),
    )
    example_maps.write_maps(tmp_path, *maps)
    assert example_maps.read_maps(tmp_path) == maps


@pytest.mark.parametrize("text", ["", "{}x", '[{"title": 1}]', '[{"examples": 1, "layout": 1}]'])
def test_a_damaged_file_is_named(tmp_path, text):
    (tmp_path / "maps.json").write_text(text)
    with pytest.raises(ValueError, match=r"maps\.json is not what this version"):
        example_maps.read_maps(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"examples": ()}, "at least one example, got none"),
        ({"layout": (1, 3)}, "expected 3 values of each of A, got 2 of A"),
        ({"layout": (1, 2)}, "picture and layout"),
    ],
)
def test_maps_that_do_not_fit_are_refused(changes, message):
    text = ExampleMap("text 0", {"A": (0.0, 0.5)}, tokens=("a", "b"))
    maps = ExampleMaps("T", (text,))
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(maps, **changes)


def test_other_numbers_of_examples_are_refused():
    with pytest.raises(ValueError, match="expected 1 measured examples of A, as many as are given"):
        text_maps("T", [["a"]], {"A": estimate([[0], [1]])})
    with pytest.raises(ValueError, match="at least one model"):
        text_maps("T", [["a"]], {})
    with pytest.raises(ValueError, match=r"shape \(1, 4, 4, 2\)"):
        image_maps("T", np.zeros((1, 4, 4, 2), np.uint8), {"A": estimate([[0]])}, (1, 1))
