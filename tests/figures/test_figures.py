"""The figures show the numbers they are given, in both formats, with the same bytes every time."""

import itertools
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest

from jaxsens import figures
from jaxsens.figures import Curve

ROOT = Path(__file__).resolve().parents[2]


def curve(label: str = "ViT", paper: float | None = 0.05) -> Curve:
    return Curve(
        label, [1, 2, 3], [0.5, 0.8, 0.9], [0.1, 0.2, 0.3], [0.05, 0.1, 0.2], [0.2, 0.3, 0.4], paper
    )


def some_maps() -> dict[str, np.ndarray]:
    return {"ViT": np.full((2, 2, 4), 0.25), "CNN": np.linspace(0, 0.5, 16).reshape(2, 2, 4)}


def some_images(channels: int = 1) -> np.ndarray:
    return np.linspace(-1, 1, 2 * 4 * 8 * channels).reshape(2, 4, 8, channels)


DRAWINGS = {
    "curves": lambda: figures.training_curves([curve(), curve("CNN", None)]),
    "bars": lambda: figures.bars(["a", "b"], [0.1, 0.2], [0.0, 0.1], [0.2, 0.4], [0.3, None]),
    "maps": lambda: figures.patch_heatmaps(some_images(), some_maps(), row_labels=["0", "1"]),
    "growth": lambda: figures.growth({"n": {"loop": ([1, 2], [3.0, 4.0])}}, ylabel="Seconds"),
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_saved_twice_gives_the_same_bytes(tmp_path, name):
    first = figures.save(DRAWINGS[name](), tmp_path / "new" / "figures", name)
    with matplotlib.rc_context({"font.size": 30, "savefig.dpi": 10, "axes.facecolor": "red"}):
        second = figures.save(DRAWINGS[name](), str(tmp_path / "again"), name)
    assert first == tmp_path / "new" / "figures" / f"{name}.png"
    for suffix, magic in ((".png", b"\x89PNG"), (".pdf", b"%PDF"), (".csv", b"panel,")):
        content = first.with_suffix(suffix).read_bytes()
        assert content.startswith(magic)
        assert content == second.with_suffix(suffix).read_bytes()
    assert sorted(path.suffix for path in first.parent.iterdir()) == [".csv", ".pdf", ".png"]
    assert {path.stem for path in first.parent.iterdir()} == {name}
    assert b"CreationDate" not in first.with_suffix(".pdf").read_bytes()


def test_one_figure_saved_twice_gives_the_same_bytes(tmp_path):
    fig = DRAWINGS["curves"]()
    paths = [figures.save(fig, tmp_path, name) for name in ("a", "b")]
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_pyplot_and_rc_params_stay_untouched():
    code = (
        "import sys, matplotlib; before = dict(matplotlib.rcParams)\n"
        "from jaxsens import figures as f\n"
        "f.bars(['a'], [0.1], [0.0], [0.2])\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "assert dict(matplotlib.rcParams) == before\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_curves_show_their_numbers():
    left, right = figures.training_curves([curve(), curve("CNN", 0.7)]).axes
    np.testing.assert_array_equal(left.lines[1].get_ydata(), [0.5, 0.8, 0.9])
    np.testing.assert_array_equal(right.lines[0].get_ydata(), [0.1, 0.2, 0.3])
    band = right.collections[0].get_paths()[0].vertices
    assert {(1.0, 0.05), (3.0, 0.2), (3.0, 0.4)} <= set(map(tuple, band.tolist()))
    colours = [line.get_color() for line in left.lines]
    assert colours == list(figures.PALETTE[:2])
    assert right.get_ylim()[0] == 0
    assert right.get_ylim()[1] > 0.7  # the paper's value is inside
    legend = [text.get_text() for text in left.figure.legends[0].get_texts()]
    assert legend == ["ViT", "CNN", "paper, end of training"]


def test_a_single_epoch_and_many_models_can_be_drawn(tmp_path):
    point = [Curve(f"model {i}", [1], [1.0], [0.0], [0.0], [0.0]) for i in range(9)]
    figures.save(figures.training_curves(point), tmp_path, "point")


def test_curve_takes_arrays_and_refuses_unequal_lengths():
    values = np.float32([0.1, 0.2])
    assert figures.training_curves([Curve("a", np.arange(2), values, values, values, values)])
    with pytest.raises(ValueError, match=r"'a': expected 2 values of high.*got 1"):
        Curve("a", [1, 2], [0.1, 0.2], [0.1, 0.2], [0.1, 0.2], [0.1])
    with pytest.raises(ValueError, match="at least 1"):
        Curve("a", [], [], [], [], [])
    with pytest.raises(ValueError, match="at least one curve"):
        figures.training_curves([])


def test_bars_show_their_numbers():
    (axes,) = DRAWINGS["bars"]().axes
    assert [bar.get_height() for bar in axes.patches] == [0.1, 0.3, 0.2]
    assert [text.get_text() for text in axes.texts] == ["0.100", "0.300", "0.200"]
    assert axes.get_ylim()[1] > 0.4
    (no_paper,) = figures.bars(["a"], np.float64([0.1]), [0.0], [0.2]).axes
    assert len(no_paper.patches) == 1
    assert not no_paper.figure.legends


def test_bars_refuse_what_does_not_fit():
    with pytest.raises(ValueError, match=r"as labels, got \[2, 1, 1, 1, 2\]"):
        figures.bars(["a", "b"], [0.1], [0.0], [0.2])
    with pytest.raises(ValueError, match=r"b: expected low <= value <= high, got 0.3, 0.2, 0.4"):
        figures.bars(["a", "b"], [0.1, 0.2], [0.0, 0.3], [0.2, 0.4])


@pytest.mark.parametrize("channels", [1, 3])
def test_heatmaps_share_one_scale_and_colour_whole_patches(channels):
    white = np.ones((2, 4, 8, channels))
    fig = figures.patch_heatmaps(jnp.asarray(white, jnp.float32), some_maps())
    *panels, bar = fig.axes
    assert bar.get_ylim() == (0.0, 0.5)
    assert [axes.get_title() for axes in panels] == ["image", "ViT", "CNN", "", "", ""]
    vit, cnn = (panels[k].images[0].get_array() for k in (1, 2))
    assert len(np.unique(vit.reshape(-1, 3), axis=0)) == 1
    np.testing.assert_array_equal(cnn[:2, :2], np.broadcast_to(cnn[0, 0], (2, 2, 3)))
    assert len(np.unique(cnn.reshape(-1, 3), axis=0)) == 8


def test_all_zero_maps_can_be_drawn(tmp_path):
    fig = figures.patch_heatmaps(some_images(3), {"ViT": np.zeros((2, 1, 1))})
    figures.save(fig, tmp_path, "zero")


@pytest.mark.parametrize(
    ("images", "maps", "labels", "match"),
    [
        (some_images(2), some_maps(), None, "1 or 3 channels"),
        (127 * some_images(), some_maps(), None, r"in \[-1, 1\], got values from -127 to 127"),
        (np.nan * some_images(), some_maps(), None, r"in \[-1, 1\]"),
        (some_images(), {}, None, "at least one map"),
        (some_images(), {"a": -some_maps()["ViT"]}, None, "'a': expected .* values >= 0"),
        (some_images(), some_maps(), ["one"], "expected 2 row labels, got 1"),
    ],
)
def test_heatmaps_refuse_what_does_not_fit(images, maps, labels, match):
    with pytest.raises(ValueError, match=match):
        figures.patch_heatmaps(images, maps, row_labels=labels)


def test_grouped_bars_stand_side_by_side_at_their_values():
    series = {"a": [(0.1, 0.05, 0.2), (0.3, 0.2, 0.4)], "b": [(0.2, 0.1, 0.3), (0.6, 0.5, 0.7)]}
    axes = figures.grouped_bars(["ViT", "CNN"], series).axes[0]
    heights = [patch.get_height() for patch in axes.patches]
    assert heights == [0.1, 0.3, 0.2, 0.6]
    lefts = sorted((patch.get_x(), patch.get_width()) for patch in axes.patches)
    assert all(x + w <= y for (x, w), (y, _) in itertools.pairwise(lefts))
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["ViT", "CNN"]


@pytest.mark.parametrize(
    ("groups", "series", "message"),
    [
        ([], {"a": []}, "expected groups and series"),
        (["ViT"], {}, "expected groups and series"),
        (["ViT"], {"a": []}, "a: expected 1 values, got 0"),
        (["ViT"], {"a": [(0.5, 0.6, 0.7)]}, "a: expected low <= value <= high"),
    ],
)
def test_grouped_bars_refuse_what_they_cannot_draw(groups, series, message):
    with pytest.raises(ValueError, match=message):
        figures.grouped_bars(groups, series)


def test_panels_draw_every_model_in_every_panel():
    curves = {name: ([0, 5], [[0.1, 0.2 + i], [0.3, 0.4 + i]]) for i, name in enumerate("ab")}
    fig = figures.panels(["fog", "snow"], curves)
    drawn = [[list(line.get_ydata()) for line in axes.lines] for axes in fig.axes]
    assert drawn == [[[0.1, 0.2], [0.1, 1.2]], [[0.3, 0.4], [0.3, 1.4]]]


def test_panels_show_the_bands_they_are_given():
    bands = {"m": [([0.0, 0.1], [0.2, 0.3]), ([0.2, 0.3], [0.4, 0.9])]}
    fig = figures.panels(["a", "b"], {"m": ([0, 5], [[0.1, 0.2], [0.3, 0.4]])}, bands=bands)
    first, second = (set(map(tuple, a.collections[0].get_paths()[0].vertices)) for a in fig.axes)
    assert {(0.0, 0.0), (5.0, 0.3)} <= first
    assert {(0.0, 0.2), (5.0, 0.9)} <= second


def test_panels_fill_incomplete_rows_with_nothing():
    fig = figures.panels(list("abcdefg"), {"m": ([0], [[0.5]] * 7)}, num_columns=5)
    assert len(fig.axes) == 7


@pytest.mark.parametrize(
    ("titles", "curves", "message"),
    [
        ([], {"m": ([0], [])}, "expected titles and curves"),
        (["fog"], {"m": ([0, 1], [[0.5]])}, "m: expected 1 rows of 2 values"),
        (["fog", "snow"], {"m": ([0], [[0.5]])}, "m: expected 2 rows of 1 values"),
    ],
)
def test_panels_refuse_incomplete_curves(titles, curves, message):
    with pytest.raises(ValueError, match=message):
        figures.panels(titles, curves)


def test_bands_share_the_vertical_axis_and_show_every_interval():
    def band(x, top):
        return figures.Band(x, [0.1, 0.2], [0.05, 0.1], [0.2, top])

    fig = figures.bands(
        {"From the end": {"a": band([-1, 0], 0.3), "b": band([-1, 0], 0.8)},
         "From the beginning": {"a": band([1, 2], 0.4)}}
    )  # fmt: skip
    assert [axes.get_xlabel() for axes in fig.axes] == ["From the end", "From the beginning"]
    assert [len(axes.collections) for axes in fig.axes] == [2, 1]
    for axes in fig.axes:
        assert axes.get_ylim() == (0.0, pytest.approx(1.06 * 0.8))
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["a", "b"]


def test_bands_refuse_what_they_cannot_draw():
    with pytest.raises(ValueError, match=r"as many y, low and high as x, at least 1, got \[2, 1"):
        figures.Band([0, 1], [0.1], [0.0], [0.2])
    for panels in ({}, {"Place": {}}):
        with pytest.raises(ValueError, match="at least one panel"):
            figures.bands(panels)


def test_a_scatter_has_a_point_for_each_label():
    points = [(0.1, 0.0, 0.2), (0.3, 0.2, 0.4)]
    fig = figures.scatter(["a", "b"], points, points, xlabel="S", ylabel="mCE")
    assert [c.get_label() for c in fig.axes[0].containers] == ["a", "b"]
    with pytest.raises(ValueError, match="as many points as labels, got 1, 2 and 2"):
        figures.scatter(["a"], points, points, xlabel="S", ylabel="mCE")


def test_growth_keeps_a_colour_for_a_way_and_draws_proportion():
    loop, batched = ([1, 10], [0.1, 1.0]), ([1, 10], [0.2, 0.3])
    fig = figures.growth(
        {"n": {"loop": loop, "batched": batched}, "S": {"batched": batched}}, ylabel="s"
    )
    first, second = fig.axes
    assert [axes.get_xlabel() for axes in fig.axes] == ["n", "S"]
    assert first.get_xscale() == first.get_yscale() == "log"
    proportional, drawn_loop, drawn_batched = first.get_lines()
    np.testing.assert_array_equal(drawn_loop.get_ydata(), [0.1, 1.0])
    np.testing.assert_allclose(proportional.get_ydata(), [0.1, 1.0])
    assert second.get_lines()[1].get_color() == drawn_batched.get_color() != drawn_loop.get_color()
    (legend,) = fig.legends
    assert [text.get_text() for text in legend.get_texts()] == ["loop", "batched", "in proportion"]


@pytest.mark.parametrize(
    ("panels", "message"),
    [
        ({}, "at least one line, got 0 panels"),
        ({"n": {"a": ([1, 2], [1.0])}}, r"as many positive sizes as costs, got \[1, 2\] and"),
        ({"n": {"a": ([0, 2], [1.0, 2.0])}}, "as many positive sizes"),
    ],
)
def test_growth_refuses_what_has_no_logarithm(panels, message):
    with pytest.raises(ValueError, match=message):
        figures.growth(panels, ylabel="Seconds")
