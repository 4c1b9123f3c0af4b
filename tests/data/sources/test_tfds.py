"""Prepared folders, written by TFDS itself without TensorFlow and read through `load`."""

import importlib.util
import io
import json
import os
import shutil
import struct
import sys

import numpy as np
import pytest
from PIL import Image

import jaxsens.data as data
from jaxsens.data.errors import UnusableSourceError
from jaxsens.data.sources import tfds as reader

tfds = pytest.importorskip("tensorflow_datasets")
SIZES = {"train": 23, "test": 9}
FORMATS = [
    pytest.param(name, marks=pytest.mark.skipif(not found, reason=f"{name} needs a package"))
    for name, found in (
        ("array_record", importlib.util.find_spec("array_record")),
        ("parquet", importlib.util.find_spec("pyarrow")),
        ("tfrecord", importlib.util.find_spec("array_record")),
    )
]


def truth(split):
    """Returns images and labels; the first pixel is the example's number."""
    rng = np.random.default_rng(SIZES[split])
    images = rng.integers(0, 256, (SIZES[split], 28, 28), np.uint8)
    images[:, 0, 0] = np.arange(len(images))
    return images, rng.integers(0, 10, len(images))


def png(image):
    # TFDS encodes arrays with TensorFlow, but takes encoded files as they are.
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "png")
    return io.BytesIO(buffer.getvalue())


with tfds.core.registered.skip_registration():

    class Tiny(tfds.core.GeneratorBasedBuilder):
        """MNIST's features with a handful of examples."""

        name = "mnist"
        VERSION = tfds.core.Version("3.0.1")

        def _info(self):
            features = {
                "image": tfds.features.Image(shape=(28, 28, 1)),
                "label": tfds.features.ClassLabel(num_classes=10),
            }
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features)
            )

        def _split_generators(self, dl_manager):
            return {split: self._generate_examples(split) for split in SIZES}

        def _generate_examples(self, split):
            for i, (image, label) in enumerate(zip(*truth(split), strict=True)):
                yield i, {"image": png(image), "label": label}


def edit_info(folder, change):
    path = folder / "dataset_info.json"
    info = json.loads(path.read_text())
    change(info)
    path.write_text(json.dumps(info))


def prepare(root, file_format):
    if file_format == "tfrecord":
        return prepare_tfrecord(root)
    with reader.quiet():
        Tiny(data_dir=root, file_format=file_format).download_and_prepare()
    return root / "mnist" / "3.0.1"


def prepare_tfrecord(root):
    """Turns an array_record folder into what TFDS with TensorFlow would have written."""
    folder = prepare(root, "array_record")
    raw = tfds.decode.DeserializeMethod.RAW_BYTES
    builder = tfds.builder_from_directory(folder)
    for split in SIZES:
        source = builder.as_data_source(split=split, deserialize_method=raw)
        frames = [struct.pack("<QI", len(r), 0) + bytes(r) + bytes(4) for r in source]
        (folder / f"mnist-{split}.tfrecord-00000-of-00001").write_bytes(b"".join(frames))
    for path in folder.glob("*.array_record-*"):
        path.unlink()
    edit_info(folder, lambda info: info.update(fileFormat="tfrecord"))
    return folder


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("tfds"), "array_record").parents[1]


@pytest.fixture
def root(prepared, tmp_path):
    return shutil.copytree(prepared, tmp_path / "tfds")


@pytest.mark.parametrize("file_format", FORMATS)
def test_round_trip_through_load(tmp_path, file_format, capfd):
    prepare(tmp_path, file_format)
    for split in SIZES:
        x, y = data.load("mnist", split, data_dir=tmp_path)
        pixels = np.round((x[..., 0] + 1) * 127.5).astype(np.uint8)
        images, labels = truth(split)
        order = pixels[:, 0, 0]  # TFDS shuffles when it prepares
        np.testing.assert_array_equal(np.sort(order), np.arange(SIZES[split]))
        np.testing.assert_array_equal(pixels, images[order])
        np.testing.assert_array_equal(y, labels[order])
        assert (x.dtype, y.dtype) == ("f4", "i4")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("variable", ["JAXSENS_DATA", "TFDS_DATA_DIR", "HOME"])
def test_roots_from_the_environment(root, monkeypatch, variable):
    if variable == "HOME":
        root = root.rename(root.with_name("tensorflow_datasets")).parent
    monkeypatch.setenv(variable, str(root))
    assert len(data.load("mnist", "test")[1]) == SIZES["test"]


def test_the_newest_version_is_read(root):
    old = root / "mnist" / "2.10.0"
    shutil.copytree(root / "mnist" / "3.0.1", old)
    (old / "features.json").unlink()
    (root / "mnist" / "incomplete.AB_3.0.2").mkdir()
    assert reader.newest_version(root / "mnist") == root / "mnist" / "3.0.1"
    assert len(data.load("mnist", "test", data_dir=root)[1]) == SIZES["test"]


def test_a_size_other_than_promised_is_named(tmp_path):
    folder = prepare(tmp_path, "tfrecord")
    edit_info(folder, lambda info: info["splits"][0].update(shardLengths=["24"]))
    split = json.loads((folder / "dataset_info.json").read_text())["splits"][0]["name"]
    with pytest.raises(
        data.CorruptDataError, match=f"expected 24 {split} examples .* got {SIZES[split]}"
    ):
        data.load("mnist", split, data_dir=tmp_path)


def test_a_truncated_tfrecord_is_named(tmp_path):
    folder = prepare(tmp_path, "tfrecord")
    path = folder / "mnist-train.tfrecord-00000-of-00001"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(data.CorruptDataError, match=f"{path.name}: expected the record at byte"):
        data.load("mnist", "train", data_dir=tmp_path)
    path.write_bytes(b"12345")
    with pytest.raises(data.CorruptDataError, match="12 bytes of record header at byte 0, got 5"):
        data.load("mnist", "train", data_dir=tmp_path)


def test_damaged_shards_name_the_folder(root):
    shard = next((root / "mnist" / "3.0.1").glob("mnist-train*"))
    shard.write_bytes(shard.read_bytes()[: shard.stat().st_size // 2])
    with pytest.raises(data.CorruptDataError, match=r"mnist/3\.0\.1: .*train.*prepare it again"):
        data.load("mnist", "train", data_dir=root)


def test_a_missing_split_is_named(root):
    def drop_train(info):
        info["splits"] = [split for split in info["splits"] if split["name"] == "test"]

    edit_info(root / "mnist" / "3.0.1", drop_train)
    with pytest.raises(data.CorruptDataError, match="a split called train, got test"):
        data.load("mnist", "train", data_dir=root)


def test_another_image_shape_is_named(root):
    shutil.copytree(root / "mnist", root / "cifar10")
    with pytest.raises(data.CorruptDataError, match=r"\(32, 32, 3\), got uint8 .*\(28, 28, 1\)"):
        reader.read_prepared(root, "train", data.spec("cifar10"))


def test_a_missing_package_makes_the_source_unusable(root, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(UnusableSourceError, match="needs a package"):
        reader.read_prepared(root, "train", data.spec("mnist"))


def test_nothing_prepared_is_none(tmp_path):
    (tmp_path / "mnist" / "3.0.1").mkdir(parents=True)
    assert reader.read_prepared(tmp_path, "train", data.spec("mnist")) is None


# ------------------------------------------------------------------------- folders from elsewhere

EVIL = "jaxsens_evil_module.Feature"


def legacy(feature):
    """The layout of features.json up to TFDS 4.3."""
    return {"type": feature, "content": {}}


def foreign(change):
    """Returns what puts the name of a foreign class into features.json."""

    def damage(folder):
        path = folder / "features.json"
        features = json.loads(path.read_text())
        path.write_text(json.dumps(change(features)))

    return damage


def nested(name, value):
    def change(features):
        features["featuresDict"]["features"][name] = value
        return features

    return foreign(change)


def write_info(folder):
    edit_info(folder, lambda info: info.update(features={"pythonClassName": EVIL, "text": {}}))


@pytest.mark.parametrize(
    "damage",
    [
        foreign(lambda features: features | {"pythonClassName": EVIL}),
        nested("label", {"pythonClassName": EVIL, "classLabel": {"numClasses": "10"}}),
        nested("label", {"python_class_name": EVIL, "classLabel": {"numClasses": "10"}}),
        nested(
            "label",
            {
                "pythonClassName": "tensorflow_datasets.core.features.features_dict.FeaturesDict",
                "jsonFeature": {"json": json.dumps({"a": legacy(EVIL)})},
            },
        ),
        foreign(lambda features: legacy(EVIL)),
        foreign(
            lambda features: {
                "type": "tensorflow_datasets.core.features.features_dict.FeaturesDict",
                "content": {"label": legacy(EVIL)},
            }
        ),
        lambda folder: (folder / "features.json").write_text(
            f'{{"pythonClassName": "{EVIL}", "pythonClassName": '
            '"tensorflow_datasets.core.features.text_feature.Text", "text": {}}'
        ),
        write_info,
    ],
)
def test_a_module_that_the_folder_names_is_never_imported(root, tmp_path, monkeypatch, damage):
    (tmp_path / "jaxsens_evil_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    damage(root / "mnist" / "3.0.1")
    with pytest.raises(data.CorruptDataError, match=f"own, got '{EVIL}'.*use another copy") as e:
        data.load("mnist", "train", data_dir=root)
    assert "\n" not in str(e.value)
    assert "jaxsens_evil_module" not in sys.modules


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "expected JSON, got something else"),
        (b"[" * 50_000, "nested too deeply"),
        (b"\xff\xff", "expected JSON, got something else"),
        (None, "expected features.json, got none"),
    ],
)
def test_a_damaged_description_is_one_line(root, content, message):
    path = root / "mnist" / "3.0.1" / "features.json"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(data.CorruptDataError, match=message) as caught:
        data.load("mnist", "train", data_dir=root)
    assert str(caught.value).isprintable()


def test_examples_elsewhere_or_in_a_pipe_are_not_read(root):
    folder = root / "mnist" / "3.0.1"
    shard = next(folder.glob("mnist-train*"))
    shard.rename(shard.with_name("real"))
    with pytest.raises(data.DatasetNotFoundError, match=r"mnist-train.* is not there"):
        data.load("mnist", "train", data_dir=root)
    os.mkfifo(shard)
    with pytest.raises(data.CorruptDataError, match="expected a file, got a named pipe"):
        data.load("mnist", "train", data_dir=root)
    shard.unlink()

    def elsewhere(info):
        for split in info["splits"]:
            split["filepathTemplate"] = "../../../{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"

    edit_info(folder, elsewhere)
    with pytest.raises(data.CorruptDataError, match="expected its examples in it, got"):
        data.load("mnist", "train", data_dir=root)


@pytest.mark.parametrize("lengths", [["9" * 12], []])
def test_an_impossible_number_of_examples_is_named(root, lengths):
    edit_info(root / "mnist" / "3.0.1", lambda info: info["splits"][0].update(shardLengths=lengths))
    split = json.loads((root / "mnist" / "3.0.1" / "dataset_info.json").read_text())["splits"][0]
    got = sum(map(int, lengths))
    message = f"expected one to .*0000 {split['name']} examples, got {got}"
    with pytest.raises(data.CorruptDataError, match=message):
        data.load("mnist", split["name"], data_dir=root)


def test_an_image_of_another_size_is_not_decoded(root):
    with pytest.raises(data.CorruptDataError, match=r"\(28, 28, 1\), got uint8 .*\(900, 900, 1\)"):
        reader._image(root, png(np.zeros((900, 900), np.uint8)).getvalue(), data.spec("mnist"))
    with pytest.raises(data.CorruptDataError, match="got mode I;16 of shape"):
        reader._image(root, png(np.zeros((28, 28), np.uint16)).getvalue(), data.spec("mnist"))
