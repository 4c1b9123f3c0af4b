"""The CSV of a figure has the numbers that it was drawn from."""

import csv
import io

import numpy as np
from matplotlib.figure import Figure

from jaxsens import figures
from jaxsens.figures import Band, Curve, csv_of


def rows_of(fig):
    return list(csv.DictReader(io.StringIO(csv_of(fig))))


def test_curves_have_their_bands_and_the_papers_values():
    first = Curve("ViT", [1, 2], [0.5, 0.9], [0.1, 0.2], [0.05, 0.1], [0.15, 0.3], paper=0.07)
    second = Curve("CNN", [1, 2], [0.6, 0.8], [0.1, 0.2], [0.0, 0.2], [0.2, 0.2])
    rows = rows_of(figures.training_curves([first, second]))
    numbers = ("x", "y", "low", "high")
    found = {
        (row["panel"], row["series"], *(row[name] and float(row[name]) for name in numbers))
        for row in rows
    }
    left, right = "Train accuracy; Epoch", "Sensitivity; Epoch"
    assert found == {
        (left, "ViT", 1, 0.5, "", ""),
        (left, "ViT", 2, 0.9, "", ""),
        (left, "CNN", 1, 0.6, "", ""),
        (left, "CNN", 2, 0.8, "", ""),
        (right, "ViT", 1, 0.1, 0.05, 0.15),
        (right, "ViT", 2, 0.2, 0.1, 0.3),
        (right, "CNN", 1, 0.1, 0.0, 0.2),
        (right, "CNN", 2, 0.2, 0.2, 0.2),
        (right, "ViT, paper", "", 0.07, "", ""),
    }
    assert len(rows) == len(found)


def test_grouped_bars_have_their_groups_and_intervals():
    series = {"patch": [(0.1, 0.0, 0.2), (0.3, 0.2, 0.4)], "pixel": [(0.1, 0.1, 0.1), (0, 0, 1)]}
    rows = rows_of(figures.grouped_bars(["ViT", "a CNN"], series))
    found = [(r["series"], r["x"], *(float(r[k]) for k in ("y", "low", "high"))) for r in rows]
    assert [row[:2] for row in found] == [
        ("patch", "ViT"),
        ("patch", "a CNN"),
        ("pixel", "ViT"),
        ("pixel", "a CNN"),
    ]
    expected = [numbers for each in series.values() for numbers in each]
    np.testing.assert_allclose([row[2:] for row in found], expected, atol=1e-12)


def test_points_have_intervals_in_both_directions():
    fig = figures.scatter(["A"], [(0.5, 0.25, 1.0)], [(2.0, 1.0, 4.0)], xlabel="S", ylabel="mCE")
    (row,) = rows_of(fig)
    names = ("x", "x_low", "x_high", "y", "low", "high")
    assert [float(row[name]) for name in names] == [0.5, 0.25, 1, 2, 1, 4]
    assert (row["panel"], row["series"]) == ("mCE; S", "A")


def test_heat_maps_have_the_numbers_behind_their_colours():
    maps = {"ViT": np.arange(4.0).reshape(1, 2, 2), "CNN": np.ones((1, 2, 2))}
    rows = rows_of(figures.patch_heatmaps(np.zeros((1, 4, 4, 1)), maps, row_labels=["a 7"]))
    assert len(rows) == 8
    assert [(r["series"], r["x"], r["y"], float(r["value"])) for r in rows[:4]] == [
        ("ViT, a 7", "0", "0", 0.0),
        ("ViT, a 7", "1", "0", 1.0),
        ("ViT, a 7", "0", "1", 2.0),
        ("ViT, a 7", "1", "1", 3.0),
    ]


def test_figures_drawn_elsewhere_are_read_too():
    fig = Figure()
    left, right = fig.subplots(1, 2)
    image = left.imshow([[0.1, 0.2]])
    left.set_xticks([0, 1], ["low", "high"])
    left.set_yticks([0], ["0.5"])
    fig.colorbar(image, ax=left)
    right.axhline(0.5, color="red", label="guide")
    right.errorbar([1, 2], [3.0, 4.0], [0.5, 0.25], fmt="none", color="blue", label="alone")
    rows = rows_of(fig)
    assert [(r["x"], r["y"], r["value"]) for r in rows[:2]] == [
        ("low", "0.5", "0.1"),
        ("high", "0.5", "0.2"),
    ]
    assert [(r["series"], r["x"], r["low"], r["high"]) for r in rows[2:4]] == [
        ("alone", "1.0", "2.5", "3.5"),
        ("alone", "2.0", "3.75", "4.25"),
    ]
    assert [(r["series"], r["y"]) for r in rows[4:]] == [("guide", "0.5")]


def test_panels_without_names_of_their_own_are_numbered():
    band = Band([0], [0.1], [0.0], [0.2])
    fig = figures.panels(["fog", "fog"], {"A": ([0], [[1.0], [2.0]])}, xlabel="", ylabel="")
    assert [row["panel"] for row in rows_of(fig)] == ["fog (1)", "fog (2)"]
    (row,) = rows_of(figures.bands({"Place": {"A": band}}))
    assert row == {
        "panel": "Sensitivity; Place",
        "series": "A",
        "x": "0.0",
        "y": "0.1",
        "low": "0.0",
        "high": "0.2",
    }


def test_an_empty_figure_has_no_numbers_and_no_file(tmp_path):
    assert csv_of(Figure()) == ""
    figures.save(Figure(), tmp_path, "empty")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.pdf", "empty.png"]
