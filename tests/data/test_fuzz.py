"""Damaged files of every format: arrays of the right shape or one line of error, nothing else.

A small valid file of each format is written, damaged at random under a fixed seed, and read. A
format with a checksum must give the very data that was written, or the error. The slow test does
the same thousands of times in a process of its own, for damage has ended processes, and bounds its
memory.
"""

import dataclasses
import functools
import gzip
import io
import json
import resource
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from PIL import Image

import jaxsens.data as data
from jaxsens import corruptions
from jaxsens.data.errors import UnusableSourceError
from jaxsens.data.images import cifar10, cifar10c, idx, svhn
from jaxsens.data.sources import tfds
from jaxsens.data.text import Texts, files, prepared, text_spec
from jaxsens.text import tokenization

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (4, 32, 32, 3), np.uint8)
LABELS = np.array([0, 7, 9, 3], np.uint8)
SENTENCES = ("A cat sat.", 'He said "no".', "Käse und Brot", "数学 is fun")
NUM_FAST = 40
MAX_GROWTH = 200 * 2**20


def small(name):
    return dataclasses.replace(data.spec(name), num_train=4, num_test=4)


@dataclasses.dataclass(frozen=True)
class Format:
    """How to write a valid copy into a folder, read it, and tell whether what was read is right."""

    write: Callable[[Path], None]
    read: Callable[[Path], object]
    check: Callable[[object], None]
    num_slow: int = 3000


# ---------------------------------------------------------------------------------------- images


def check_images(shape, exact):
    def check(found):
        images, labels = found
        assert (images.shape, images.dtype, labels.shape) == (shape, np.uint8, shape[:1])
        assert ((labels >= 0) & (labels < 10)).all()
        if exact:
            grey = IMAGES[:, :28, :28, :1]
            np.testing.assert_array_equal(images, IMAGES if shape == IMAGES.shape else grey)
            np.testing.assert_array_equal(labels, LABELS)

    return check


def write_idx(folder, zipped):
    for kind, array in (("images-idx3", IMAGES[:, :28, :28, 0]), ("labels-idx1", LABELS)):
        header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
        content = header + array.tobytes()
        name = f"train-{kind}-ubyte" + (".gz" if zipped else "")
        (folder / name).write_bytes(gzip.compress(content) if zipped else content)


def write_cifar10(folder):
    rows = [bytes([label]) + image.tobytes() for label, image in zip(LABELS, IMAGES, strict=True)]
    (folder / "test_batch.bin").write_bytes(b"".join(rows))


def write_cifar10c(folder):
    np.save(folder / "fog.npy", np.tile(IMAGES, (5, 1, 1, 1)))
    np.save(folder / "labels.npy", np.tile(LABELS, 5))


def read_cifar10c(folder):
    number, cifar10c.NUM_IMAGES = cifar10c.NUM_IMAGES, 4
    try:
        return cifar10c.read(folder, "fog", 2)
    finally:
        cifar10c.NUM_IMAGES = number


def write_mat(folder, zipped):
    content = {"X": np.moveaxis(IMAGES, 0, -1), "y": LABELS[:, None], "note": "text"}
    scipy.io.savemat(folder / "train_32x32.mat", content, do_compression=zipped)


def write_npz(folder):
    np.savez_compressed(folder / "svhn.npz", x_train=IMAGES, y_train=LABELS)


def picture(array, suffix):
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, suffix)
    return buffer.getvalue()


def write_frost(folder, suffix):
    photograph = np.tile(IMAGES[0], (6, 6, 1))
    (folder / f"frost1.{suffix}").write_bytes(picture(photograph, suffix))


def check_frost(found):
    assert found.pixels.dtype == np.uint8
    assert found.pixels.shape[0] == 1


# ----------------------------------------------------------------------------------------- texts


def check_texts(found):
    assert isinstance(found, Texts)
    assert len(found) >= 1
    assert all(text == text.strip() and text.encode() for text in found.strings())
    assert set(found.labels.tolist()) <= {0, 1}


def write_tsv(folder):
    rows = [f"{i}\t{text}\tB {i}\t{i % 2}" for i, text in enumerate(SENTENCES)]
    header = "id\tquestion1\tquestion2\tis_duplicate"
    (folder / "qqp_train.tsv").write_text("\n".join([header, *rows, ""]), encoding="utf-8")


def write_jsonl(folder):
    rows = [{"question": text, "passage": "P", "answer": True} for text in SENTENCES]
    (folder / "boolq_train.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")


def write_msr(folder):
    rows = [f"{i % 2}\t{i}\t{i + 9}\t{text}\tB" for i, text in enumerate(SENTENCES)]
    header = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String"
    path = folder / "msr_paraphrase_train.txt"
    path.write_text("\r\n".join([header, *rows, ""]), encoding="utf-8")
    (folder / "mrpc_dev_ids.tsv").write_text("0\t9\n")


def write_imdb(folder):
    for name, text in zip(("neg", "pos"), SENTENCES, strict=False):
        (folder / "train" / name).mkdir(parents=True)
        (folder / "train" / name / "0_1.txt").write_text(text, encoding="utf-8")


# ------------------------------------------------------------------------------------ tokenizers


def write_vocabulary(folder, special):
    alphabet = sorted(tokenization.tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokens = [*special[:4], *alphabet, "Ġa", "bc", "abc", *special[4:]]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\nĠ a\nb c\na bc\n", encoding="utf-8")


def write_tokenizer(folder):
    tokenizer = tokenization.train_bpe(["a cat", "a mat"], 265)
    tokenization.save_tokenizer(tokenizer, folder / "tokenizer.json")


def check_tokenizer(tokenizer):
    texts = Texts(("abc cat",), None, np.zeros(1, np.int32))
    [ids] = tokenization.encode(tokenizer, texts)
    assert ((ids >= 0) & (ids < tokenizer.get_vocab_size())).all()
    assert sorted(tokenizer.get_vocab().values()) == list(range(tokenizer.get_vocab_size()))


# ------------------------------------------------------------------------------ prepared by TFDS


def prepare(folder, dataset, version, columns, rows, file_format):
    library = pytest.importorskip("tensorflow_datasets")
    core = library.core
    with core.registered.skip_registration(), tfds.quiet():

        class Tiny(core.GeneratorBasedBuilder):
            """A handful of examples."""

            name = dataset
            VERSION = core.Version(version)

            def _info(self):
                features = library.features.FeaturesDict(columns(library.features))
                return core.DatasetInfo(builder=self, features=features)

            def _split_generators(self, dl_manager):
                return {"train": self._generate_examples()}

            def _generate_examples(self):
                yield from enumerate(rows)

        Tiny(data_dir=folder, file_format=file_format).download_and_prepare()


def write_prepared_images(folder, file_format):
    rows = [
        {"image": io.BytesIO(picture(image[:28, :28, 0], "png")), "label": int(label)}
        for image, label in zip(IMAGES, LABELS, strict=True)
    ]
    prepare(
        *(folder, "mnist", "3.0.1"),
        lambda known: {
            "image": known.Image(shape=(28, 28, 1)),
            "label": known.ClassLabel(num_classes=10),
        },
        *(rows, "array_record" if file_format == "tfrecord" else file_format),
    )
    if file_format == "tfrecord":  # TFDS writes it only with TensorFlow
        library = pytest.importorskip("tensorflow_datasets")
        path = folder / "mnist" / "3.0.1"
        raw = library.decode.DeserializeMethod.RAW_BYTES
        builder = library.builder_from_directory(path)
        source = builder.as_data_source(split="train", deserialize_method=raw)
        frames = [struct.pack("<QI", len(row), 0) + bytes(row) + bytes(4) for row in source]
        next(path.glob("*array_record*")).unlink()
        (path / "mnist-train.tfrecord-00000-of-00001").write_bytes(b"".join(frames))
        info = path / "dataset_info.json"
        info.write_text(info.read_text().replace("array_record", "tfrecord"))


def write_prepared_texts(folder):
    rows = [{"sentence1": text, "sentence2": "B", "label": 1} for text in SENTENCES]
    prepare(
        *(folder, "tiny", "2.0.0"),
        lambda known: {
            "sentence1": known.Text(),
            "sentence2": known.Text(),
            "label": known.ClassLabel(names=["no", "yes"]),
        },
        *(rows, "array_record"),
    )


# --------------------------------------------------------------------------------------- formats


def texts_of(name):
    return lambda folder: files.read(folder, "train", text_spec(name))


def images_of(module, name, split="train"):
    return lambda folder: module.read(folder, split, small(name))


MRPC = dataclasses.replace(text_spec("mrpc"), tfds_names=("tiny",))
ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
grey, colour = (functools.partial(check_images, shape) for shape in ((4, 28, 28, 1), IMAGES.shape))
given = functools.partial
FORMATS = {
    "idx": Format(given(write_idx, zipped=False), images_of(idx, "mnist"), grey(exact=False)),
    "idx.gz": Format(given(write_idx, zipped=True), images_of(idx, "mnist"), grey(exact=True)),
    "cifar10": Format(write_cifar10, images_of(cifar10, "cifar10", "test"), colour(exact=False)),
    "cifar10c": Format(write_cifar10c, read_cifar10c, colour(exact=False)),
    "mat": Format(
        *(given(write_mat, zipped=False), images_of(svhn, "svhn"), colour(exact=False)), 10_000
    ),
    "mat zipped": Format(
        *(given(write_mat, zipped=True), images_of(svhn, "svhn"), colour(exact=True)), 10_000
    ),
    "npz": Format(write_npz, images_of(svhn, "svhn"), colour(exact=True)),
    "frost png": Format(given(write_frost, suffix="png"), corruptions.load_frost, check_frost),
    "frost jpeg": Format(given(write_frost, suffix="jpeg"), corruptions.load_frost, check_frost),
    "tsv": Format(write_tsv, texts_of("qqp"), check_texts),
    "jsonl": Format(write_jsonl, texts_of("boolq"), check_texts),
    "original mrpc": Format(write_msr, texts_of("mrpc"), check_texts),
    "original imdb": Format(write_imdb, texts_of("imdb"), check_texts),
    "gpt2": Format(
        given(write_vocabulary, special=()), tokenization.load_vocabulary_files, check_tokenizer
    ),
    "roberta": Format(
        *(given(write_vocabulary, special=ROBERTA), tokenization.load_vocabulary_files),
        check_tokenizer,
    ),
    "tokenizer": Format(
        *(write_tokenizer, lambda folder: tokenization.load_tokenizer(folder / "tokenizer.json")),
        check_tokenizer,
    ),
    "prepared texts": Format(
        *(write_prepared_texts, lambda folder: prepared.read_prepared(folder, "train", MRPC)),
        check_texts,
    ),
} | {
    f"prepared {file_format}": Format(
        given(write_prepared_images, file_format=file_format),
        lambda folder: tfds.read_prepared(folder, "train", small("mnist")),
        grey(exact=False),
    )
    for file_format in ("array_record", "parquet", "tfrecord")
}


# ---------------------------------------------------------------------------------------- damage

EXTREME = [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFF, 0x100]
PIECES = [
    *(b"\0", b"\xff", b"\t", b"\n", b"\r", b'"', b" ", b"-", b"999999999999", b"\xed\xa0\x80"),
    *(b"[" * 5000, b'{"a":' * 3000, b"\xef\xbb\xbf", b"\\ud800", b"null", b"PK\5\6", b"1e999"),
]


def damaged(content, rng):
    """The content after one to three random accidents, most of them near its start or its end."""
    content = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        size = len(content)
        near = int(min(size, rng.choice([8, 64, 256, size + 1])))
        place = int(rng.integers(near + 1))
        if rng.random() < 0.3:
            place = size - place
        length = int(rng.choice([1, 2, 4, 30, size]))
        match rng.integers(9):
            case 0 | 1 | 2:
                for i in range(place, min(size, place + int(rng.integers(1, 3)))):
                    content[i] ^= 1 << int(rng.integers(8))
            case 3:
                content[place : place + 1] = rng.bytes(1)
            case 4:
                order = "little" if rng.random() < 0.5 else "big"
                content[place : place + 4] = int(rng.choice(EXTREME)).to_bytes(4, order)
            case 5:
                del content[place : place + length]
            case 6:
                content[place:place] = content[:length]
            case 7:
                content[place : place + length] = bytes(min(length, size - place))
            case _:
                content[place:place] = PIECES[rng.integers(len(PIECES))]
    return bytes(content)


def fuzz(name, folder, seeds):
    """Reads damaged copies, and returns how many were refused and how many gave right data."""
    form = FORMATS[name]
    form.write(folder)
    whole = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    form.check(form.read(folder))
    counts = {"refused": 0, "right": 0}
    for seed in seeds:
        rng = np.random.default_rng(seed)
        path = list(whole)[rng.integers(len(whole))]
        path.write_bytes(damaged(whole[path], rng))
        try:
            form.check(form.read(folder))
            counts["right"] += 1
        except (data.CorruptDataError, data.DatasetNotFoundError, UnusableSourceError) as error:
            if not str(error).isprintable() or len(str(error)) > 1000:
                pytest.fail(f"{name}, seed {seed}: not one line: {str(error)[:2000]!r}")
            counts["refused"] += 1
        except BaseException as error:
            error.add_note(f"{name}, seed {seed}, {path.name}")
            raise
        path.write_bytes(whole[path])
    return counts


@pytest.mark.parametrize("name", FORMATS)
def test_damage_is_one_line_or_harmless(tmp_path, name):
    counts = fuzz(name, tmp_path, range(NUM_FAST))
    assert counts["refused"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_thousands_of_damaged_files_end_no_process_and_fill_no_memory(name):
    command = [sys.executable, "-W", "error", __file__, name, str(FORMATS[name].num_slow)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert result.returncode == 0, result.stderr[-2000:]
    counts = json.loads(result.stdout)
    assert counts["refused"] + counts["right"] == FORMATS[name].num_slow
    assert counts["growth"] < MAX_GROWTH


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        fuzz(sys.argv[1], Path(first), range(10))  # imports
        before = peak()
        counts = fuzz(sys.argv[1], Path(second), range(int(sys.argv[2])))
        print(json.dumps({**counts, "growth": peak() - before}))
