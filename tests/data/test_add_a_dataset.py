"""The page that says how to add a dataset: its code runs, and the registries refuse mistakes."""

import re
from pathlib import Path

import numpy as np
import pytest

from jaxsens import data
from jaxsens.data import registry
from jaxsens.data.text import spec as text_specs

PAGE = Path(__file__).parents[2] / "docs" / "developers" / "add_a_dataset.md"
BLANK = data.DatasetSpec("blank", "Blank pages", (4, 4, 1), 2, num_train=3, num_test=1)


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch):
    """What a test registers is gone after it."""
    for module, name in ((registry, "_SPECS"), (registry, "_GETTERS"), (text_specs, "_SPECS")):
        monkeypatch.setattr(module, name, dict(getattr(module, name)))


def test_the_code_of_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    assert len(blocks) == 5
    names: dict = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert data.spec("stars").title == "Stars"
    assert "stars" not in data.NAMES


def blank(split, spec):
    return np.zeros((spec.num_examples(split), 4, 4, 1), np.uint8), np.zeros(3, int)


def test_a_dataset_without_files(tmp_path):
    data.register(BLANK, make=blank)
    x, y = data.load("blank", "train")
    assert (x.shape, y.tolist()) == ((3, 4, 4, 1), [0, 0, 0])


def test_the_same_facts_may_be_registered_again_and_others_not():
    data.register(BLANK, make=blank)
    data.register(BLANK, make=lambda split, spec: (blank(split, spec)[0], np.ones(3, int)))
    assert data.load("blank", "train")[1].tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="there is another dataset 'mnist' already"):
        data.register(data.DatasetSpec("mnist", "Mine", (4, 4, 1), 2, 3, 1), make=blank)
    with pytest.raises(ValueError, match="there is another text dataset 'mrpc'"):
        data.register_text(data.TextSpec("mrpc", "Mine", 1, 1, ("no", "yes")))


def test_exactly_one_way_to_read():
    with pytest.raises(ValueError, match=r"blank: expected read= .* or make= .*, got neither"):
        data.register(BLANK)
    with pytest.raises(ValueError, match="got both"):
        data.register(BLANK, make=blank, read=lambda folder, split, spec: None)
    with pytest.raises(ValueError, match="unknown dataset 'blank'"):
        data.spec("blank")


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (np.zeros((3, 4, 4), np.uint8), np.zeros(3, int), r"uint8 images of shape \(3, 4, 4, 1\)"),
        (np.zeros((2, 4, 4, 1), np.uint8), np.zeros(3, int), r"got uint8 of shape \(2, 4, 4, 1\)"),
        (np.zeros((3, 4, 4, 1)), np.zeros(3, int), "one for each label, got float64"),
        (np.zeros((3, 4, 4, 1), np.uint8), np.full(3, 2), "blank train: expected labels 0..1"),
    ],
)
def test_what_a_reader_returns_is_checked(images, labels, message, types_unchecked):
    data.register(BLANK, make=lambda split, spec: (images, labels))
    with pytest.raises(ValueError, match=message):
        data.load("blank", "train")


def test_without_a_name_in_tfds_nothing_is_said_of_it(tmp_path):
    data.register(BLANK, read=lambda folder, split, spec: None)
    with pytest.raises(data.DatasetNotFoundError) as caught:
        data.load("blank", "train", tmp_path)
    assert "TFDS" not in str(caught.value)
    assert "network" not in str(caught.value)
    assert "into DIR/blank and pass --data-dir DIR" in str(caught.value)
