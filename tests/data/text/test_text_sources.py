"""Where a text dataset is looked for: files, a prepared TFDS folder, a download; the real data."""

import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import jaxsens.data as data
from jaxsens.data.errors import UnusableSourceError
from jaxsens.data.sources import download
from jaxsens.data.sources import tfds as reader
from jaxsens.data.text import TEXT_NAMES, TEXT_SPLITS, fetch, load_text, text_spec

# Read here, before the fixture that hides it from the other tests.
REAL = os.environ.get("JAXSENS_DATA", "")
FILES = [name for name in TEXT_NAMES if text_spec(name).first]


def write_qqp(root, row):
    (root / "qqp").mkdir(parents=True)
    content = f"id\tquestion1\tquestion2\tis_duplicate\n{row}\n"
    (root / "qqp" / "train.tsv").write_text(content)


@pytest.mark.parametrize(
    ("name", "split", "message"),
    [
        ("mrcp", "train", "unknown text dataset 'mrcp': .*did you mean 'mrpc'"),
        ("mrpc", "dev", "unknown split 'dev': expected one of train, validation"),
    ],
)
def test_a_typo_gets_the_nearest_name(name, split, message):
    with pytest.raises(ValueError, match=message):
        load_text(name, split)


@pytest.mark.parametrize("name", FILES)
def test_without_data_and_network_one_message_says_it_all(tmp_path, name):
    with pytest.raises(data.DatasetNotFoundError) as caught:
        load_text(name, "train", tmp_path)
    spec, message = text_spec(name), str(caught.value)
    for part in (
        *(spec.title, repr(name), str(tmp_path), "/tensorflow_datasets"),
        *(spec.tfds_names[0], spec.files, "--data-dir", "JAXSENS_DATA"),
        "the download needs a network",
    ):
        assert part in message
    assert "\n" not in message
    assert caught.value.__context__ is None
    assert list(tmp_path.iterdir()) == []


def test_a_missing_split_is_named(tmp_path):
    write_qqp(tmp_path, "1\tA\tB\t0")
    expected = r"not the validation split: expected dev\.tsv or validation\.tsv"
    with pytest.raises(data.DatasetNotFoundError, match=expected):
        load_text("qqp", "validation", tmp_path)


def test_data_dir_goes_before_the_environment(tmp_path, monkeypatch):
    write_qqp(tmp_path / "a", "1\tA\tB\t0")
    write_qqp(tmp_path / "b", "1\tC\tD\t0")
    monkeypatch.setenv("JAXSENS_DATA", str(tmp_path / "b"))
    assert load_text("qqp", "train").first == ("C",)
    assert load_text("qqp", "train", str(tmp_path / "a")).first == ("A",)


def test_importing_imports_no_tensorflow():
    loaded = "[m for m in sys.modules if m.startswith('tensorflow')]"
    code = f"import sys, jaxsens.data.text, jaxsens.text.tokenization; print({loaded})"
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


# -------------------------------------------------------------------------------------- download


@pytest.mark.parametrize("name", FILES)
def test_tfds_knows_the_official_files(name):
    pytest.importorskip("tensorflow_datasets")
    found = fetch.addresses(text_spec(name))
    assert {info.filename for info in found.values()} == set(text_spec(name).archive_files)
    assert all(url.startswith("http") for url in found)
    assert not any("firebase" in url for url in found)
    assert all(len(info.checksum) == 64 and info.size > 0 for info in found.values())


def test_a_download_is_unpacked_read_and_found_again(tmp_path, monkeypatch):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        header = "index\tsentence1\tsentence2\tlabel\n"
        file.writestr("RTE/train.tsv", f"{header}0\tA\tB\tentailment\n")
        file.writestr("RTE/dev.tsv", f"{header}0\tC\tD\tnot_entailment\n")
        file.writestr("__MACOSX/RTE/train.tsv", "not a table")
        file.writestr("RTE/test.tsv", "not needed")

    def fetched(infos, folder):
        assert [info.filename for info in infos.values()] == ["RTE.zip"]
        folder.mkdir()
        (folder / "RTE.zip").write_bytes(archive.getvalue())

    pytest.importorskip("tensorflow_datasets")
    monkeypatch.setattr(download, "fetch", fetched)
    assert load_text("rte", "train", tmp_path).first == ("A",)
    assert {path.name for path in (tmp_path / "rte").iterdir()} == {"train.tsv", "dev.tsv"}
    monkeypatch.setattr(download, "fetch", lambda *_: pytest.fail("downloaded twice"))
    assert load_text("rte", "validation", tmp_path).first == ("C",)


@pytest.mark.parametrize("content", [None, b"not a zip"])
def test_a_failed_download_is_one_line(tmp_path, monkeypatch, content):
    def broken(infos, folder):
        if content is None:
            raise ConnectionError("reset by peer\nand a wall of text")
        folder.mkdir()
        (folder / "RTE.zip").write_bytes(content)

    pytest.importorskip("tensorflow_datasets")
    monkeypatch.setattr(download, "fetch", broken)
    with pytest.raises(data.DatasetNotFoundError, match="the download failed") as caught:
        load_text("rte", "train", tmp_path)
    assert "wall" not in str(caught.value)


# --------------------------------------------------------------------------- prepared by TFDS


FORMATS = [
    pytest.param(name, marks=pytest.mark.skipif(not found, reason=f"{name} needs a package"))
    for name, found in (
        ("array_record", importlib.util.find_spec("array_record")),
        ("parquet", importlib.util.find_spec("pyarrow")),
    )
]
PREPARED = {
    "train": [("A one", "B one", 1), ("A two", "B zwei ü", 0), ("A 3", "B 3", 1)],
    "validation": [("A four", "B four", 0)],
}


def prepare(root, file_format, examples=PREPARED):
    tfds = pytest.importorskip("tensorflow_datasets")
    with tfds.core.registered.skip_registration():

        class Tiny(tfds.core.GeneratorBasedBuilder):
            """The features of glue/mrpc with a handful of examples."""

            name = "glue"
            VERSION = tfds.core.Version("2.0.0")
            BUILDER_CONFIGS = [tfds.core.BuilderConfig(name="mrpc", version=VERSION)]  # noqa: RUF012

            def _info(self):
                features = {
                    "sentence1": tfds.features.Text(),
                    "sentence2": tfds.features.Text(),
                    "label": tfds.features.ClassLabel(names=["not_equivalent", "equivalent"]),
                    "idx": np.int32,
                }
                return tfds.core.DatasetInfo(
                    builder=self, features=tfds.features.FeaturesDict(features)
                )

            def _split_generators(self, dl_manager):
                return {split: self._generate_examples(split) for split in examples}

            def _generate_examples(self, split):
                for i, (first, second, label) in enumerate(examples[split]):
                    yield i, {"sentence1": first, "sentence2": second, "label": label, "idx": i}

        with reader.quiet():
            Tiny(data_dir=root, config="mrpc", file_format=file_format).download_and_prepare()
    return root / "glue" / "mrpc" / "2.0.0"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("tfds"), "array_record").parents[2]


@pytest.fixture
def root(prepared, tmp_path):
    return shutil.copytree(prepared, tmp_path / "tfds")


@pytest.mark.parametrize("file_format", FORMATS)
def test_prepared_folders_are_read_without_tensorflow(tmp_path, file_format, capfd):
    prepare(tmp_path, file_format)
    for split, expected in PREPARED.items():
        texts = load_text("mrpc", split, tmp_path)
        rows = zip(texts.first, texts.second, texts.labels.tolist(), strict=True)
        assert sorted(rows) == sorted(expected)
        assert texts.labels.dtype == np.int32
    assert capfd.readouterr() == ("", "")
    assert "tensorflow" not in sys.modules


def test_files_go_before_a_prepared_folder(root):
    (root / "mrpc").mkdir()
    (root / "mrpc" / "train.tsv").write_text("label\tsentence1\tsentence2\n1\tfrom file\tB\n")
    assert load_text("mrpc", "train", root).first == ("from file",)


def test_a_bad_prepared_example_is_named(tmp_path):
    prepare(tmp_path, "array_record", {"train": [("A", " ", 1)], "validation": [("A", "B", -1)]})
    message = r"glue/mrpc/2\.0\.0, example 0: expected "
    with pytest.raises(data.CorruptDataError, match=message + "a text, got an empty one"):
        load_text("mrpc", "train", tmp_path)
    with pytest.raises(data.CorruptDataError, match=message + "the label .* got '-1'"):
        load_text("mrpc", "validation", tmp_path)


def test_a_damaged_prepared_folder_is_named(root):
    folder = root / "glue" / "mrpc" / "2.0.0"
    shard = next(folder.glob("*train*"))
    content = shard.read_bytes()
    shard.write_bytes(content[: len(content) // 2])
    with pytest.raises(data.CorruptDataError, match=r"2\.0\.0: .*train.*prepare it again"):
        load_text("mrpc", "train", root)
    info = json.loads((folder / "dataset_info.json").read_text())
    info["splits"] = [split for split in info["splits"] if split["name"] == "train"]
    (folder / "dataset_info.json").write_text(json.dumps(info))
    with pytest.raises(data.CorruptDataError, match="a split called validation, got train"):
        load_text("mrpc", "validation", root)


def test_a_missing_package_makes_the_prepared_folder_unusable(root, monkeypatch):
    from jaxsens.data.text import prepared as text_reader

    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(UnusableSourceError, match="needs a package"):
        text_reader.read_prepared(root, "train", text_spec("mrpc"))


# ------------------------------------------------------------------------------------- real files


@pytest.mark.skipif(not REAL, reason="JAXSENS_DATA is not set")
@pytest.mark.parametrize(
    ("name", "sizes", "positive"),
    [
        ("mrpc", (3_668, 408), (0.674, 0.684)),
        ("qqp", (20_000, 2_000), (0.5, 0.5)),
        ("imdb", (2_000, 1_000), (0.5, 0.5)),
    ],
)
def test_real_files(name, sizes, positive):
    if not (Path(REAL) / name).is_dir():
        pytest.skip(f"JAXSENS_DATA has no {name}")
    for split, size, share in zip(TEXT_SPLITS, sizes, positive, strict=True):
        texts = load_text(name, split, REAL)
        if name != "mrpc" and len(texts) != size:
            pytest.skip(f"JAXSENS_DATA has another subset of {name}")
        assert len(texts) == size
        assert abs(texts.labels.mean() - share) < 1e-3
        assert all(texts.strings())
