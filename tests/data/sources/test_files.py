"""Names that are no files and files that are far too large: one line, at once, in little memory."""

import gzip
import os
import socket
import struct
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest
from PIL import Image

import jaxsens.data as data
from jaxsens import corruptions
from jaxsens.data.errors import one_line
from jaxsens.data.images import cifar10, cifar10c, idx, svhn
from jaxsens.data.sources import files, npy, npz, strict_json
from jaxsens.data.text import files as text_files
from jaxsens.data.text import text_spec
from jaxsens.text import tokenization


def images_of(module, name, split="test"):
    return lambda folder: module.read(folder, split, data.spec(name))


def texts_of(name, split="train"):
    return lambda folder: text_files.read(folder, split, text_spec(name))


#: For every reader a file that it opens first.
READERS = {
    "t10k-images-idx3-ubyte": images_of(idx, "mnist"),
    "t10k-images.idx3-ubyte.gz": images_of(idx, "fashion_mnist"),
    "test_batch.bin": images_of(cifar10, "cifar10"),
    "fog.npy": lambda folder: cifar10c.read(folder, "fog", 1),
    "test_32x32.mat": images_of(svhn, "svhn"),
    "svhn_small.npz": images_of(svhn, "svhn"),
    "qqp_train.tsv": texts_of("qqp"),
    "qqp_train_20.tsv": texts_of("qqp"),
    "boolq_dev.jsonl": texts_of("boolq", "validation"),
    "msr_paraphrase_train.txt": texts_of("mrpc"),
    "train/pos/0_9.txt": texts_of("imdb"),
    "vocab.json": tokenization.load_vocabulary_files,
    "tokenizer.json": lambda folder: tokenization.load_tokenizer(folder / "tokenizer.json"),
    "frost1.png": corruptions.load_frost,
}


def place(folder, name):
    """Returns the path with everything around it that its reader asks for."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    (folder / "t10k-labels-idx1-ubyte").write_bytes(b"")
    (folder / "merges.txt").write_bytes(b"")
    (folder / "mrpc_dev_ids.tsv").write_bytes(b"1\t2\n")
    return path


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        # The path of a socket has room for a hundred bytes only.
        before = os.getcwd()
        os.chdir(path.parent)
        try:
            server.bind(path.name)
        finally:
            os.chdir(before)


KINDS = {
    "a folder": lambda path: path.mkdir(),
    "a named pipe": os.mkfifo,
    "a socket": make_socket,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "Too many levels of symbolic links": lambda path: path.symlink_to(path.name),
    "a link to what is not there": lambda path: path.symlink_to("nowhere"),
}


@pytest.mark.parametrize("name", READERS)
def test_what_is_no_file_is_named_and_not_waited_for(tmp_path, name):
    for number, (kind, make) in enumerate(KINDS.items()):
        folder = tmp_path / str(number)
        path = place(folder, name)
        make(path)
        with pytest.raises(data.CorruptDataError, match=f"expected .*got .*{kind}") as caught:
            READERS[name](folder)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", READERS)
def test_a_sparse_file_of_three_gibibytes_is_not_read(tmp_path, name):
    path = place(tmp_path, name)
    path.touch()
    os.truncate(path, 3 << 30)
    with bounded(24 << 20), pytest.raises(data.CorruptDataError, match="expected"):
        READERS[name](tmp_path)


class bounded:
    """Fails if what runs inside holds more memory than this at any time."""

    def __init__(self, num_bytes):
        self.num_bytes = num_bytes

    def __enter__(self):
        tracemalloc.start()

    def __exit__(self, *_):
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < self.num_bytes


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_named(tmp_path):
    path = place(tmp_path / "a", "test_batch.bin")
    path.touch(0)
    with pytest.raises(data.CorruptDataError, match=r"test_batch\.bin: .*Permission denied"):
        files.read_bytes(path, 10)
    path.parent.chmod(0)
    try:
        for look in (files.is_there, files.listed, READERS["test_batch.bin"]):
            with pytest.raises(data.CorruptDataError, match="Permission denied"):
                look(path.parent if look is not files.is_there else path)
    finally:
        path.parent.chmod(0o700)


def test_a_folder_that_is_a_link_to_itself_holds_nothing_to_read(tmp_path):
    (tmp_path / "mrpc").symlink_to("mrpc")
    with pytest.raises(data.CorruptDataError, match="Too many levels of symbolic links"):
        data.load_text("mrpc", "train", tmp_path)
    assert files.listed(tmp_path / "nothing") == []
    assert files.listed(tmp_path, "m*") == [tmp_path / "mrpc"]


# --------------------------------------------------------------------------------- decompression


def test_a_gzip_file_of_a_gigabyte_of_zeros_stays_small(tmp_path):
    # Sixteen members of 64 MiB: gzip takes them for one file.
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(64 << 20), 1) * 16)
    (tmp_path / "t10k-labels-idx1-ubyte").touch()
    with bounded(24 << 20), pytest.raises(data.CorruptDataError, match="magic 00000803, got 000"):
        idx.read(tmp_path, "test", data.spec("mnist"))


def write_member(path, key, content, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "a", compression, compresslevel=1) as archive:
        archive.writestr(f"{key}.npy", content)


def header(shape, descr="|u1", tail=""):
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}{tail}\n".encode()
    return b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text


ZEROS = bytes(2 * 3072)
LABELS = header("(2,)") + bytes(2)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (header("(2, 32, 32, 3)") + bytes(64 << 20), r"expected 6\d\d\d bytes of x_test, got 67"),
        (header("(9000000000, 32, 32, 3)") + ZEROS, "expected 27648000000"),
        (header("(90000, 32, 32, 3)") + ZEROS, "expected 2764800"),
        (header("(2, 32, 32, 3)") + ZEROS[:-1], r"expected 6\d\d\d bytes of x_test, got 6"),
        (header("(2, 32, 32, 3)", "|O") + ZEROS, "allow_pickle=False"),
        (header("(2, 32, 32, 3)", "|V999999999"), r"the dtype '\|V999999999'"),
        (header("(-2, 32)"), "a header of dtype, order and shape"),
        (header("(" * 3000), "a header of dtype, order and shape"),
        (header("(2,)", tail=" " * 9000), "a header of 1 to 4096 bytes"),
        (b"\x93NUMPY\2\0\xff\xff\xff\xff", "a header of 1 to 4096 bytes, got 4294967295"),
        (b"", "at the start, got b''"),
    ],
)
def test_an_npz_that_promises_too_much_stays_small(tmp_path, images, message):
    path = tmp_path / "svhn.npz"
    write_member(path, "x_test", images)
    write_member(path, "y_test", LABELS)
    with bounded(8 << 20), pytest.raises(data.CorruptDataError, match=message):
        svhn.read(tmp_path, "test", data.spec("svhn"))


def test_a_member_that_grows_beyond_its_own_promise_is_refused(tmp_path):
    path = tmp_path / "svhn.npz"
    write_member(path, "x_test", header("(2, 32, 32, 3)") + ZEROS + bytes(5000))
    write_member(path, "y_test", LABELS)
    content = bytearray(path.read_bytes())
    # Both copies of the uncompressed size: in front of the member and in the list of members.
    real = len(header("(2, 32, 32, 3)") + ZEROS) + 5000
    honest, lie = (number.to_bytes(4, "little") for number in (real, real - 5000))
    assert content.count(honest) == 2
    path.write_bytes(content.replace(honest, lie))
    with pytest.raises(data.CorruptDataError, match="Bad CRC-32"):
        svhn.read(tmp_path, "test", data.spec("svhn"))


def test_other_zip_files_are_refused(tmp_path):
    path = tmp_path / "svhn.npz"
    write_member(path, "x_test", header("(2, 32, 32, 3)") + ZEROS, zipfile.ZIP_BZIP2)
    with pytest.raises(data.CorruptDataError, match="in a way that NumPy does not use"):
        svhn.read(tmp_path, "test", data.spec("svhn"))
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(2000):
            archive.writestr(f"{number}.npy", b"")
    with path.open("rb") as file, pytest.raises(ValueError, match="a list of members of at most"):
        npz.open_archive(file)


def test_arrays_in_fortran_order_and_of_old_numpy_are_read(tmp_path):
    array = np.arange(24, dtype=">i2").reshape(2, 3, 4)
    path = tmp_path / "a.npy"
    np.save(path, np.asfortranarray(array))
    with path.open("rb") as file:
        np.testing.assert_array_equal(npy.read(file, npy.read_header(file)), array)
    path.write_bytes(header("(2L, 3L, 4L)", ">i2") + array.tobytes())
    with path.open("rb") as file:
        np.testing.assert_array_equal(npy.read(file, npy.read_header(file)), array)


@pytest.mark.parametrize("side", [6_000, 12_000, 2**31 - 1])
def test_an_image_of_too_many_pixels_is_not_decoded(tmp_path, side):
    path = tmp_path / "frost1.png"
    Image.new("L", (1, 1)).save(path)
    content = path.read_bytes()
    # The first chunk is IHDR: its name, width and height, five more bytes and their checksum.
    chunk = b"IHDR" + struct.pack(">II", side, side) + content[24:29]
    path.write_bytes(content[:12] + chunk + struct.pack(">I", zlib.crc32(chunk)) + content[33:])
    with bounded(1 << 20), pytest.raises(data.CorruptDataError, match=r"frost1\.png: expected"):
        corruptions.load_frost(tmp_path)


def test_other_kinds_of_images_are_not_opened(tmp_path):
    Image.new("RGB", (200, 200)).save(tmp_path / "frost1.png", "ppm")
    with pytest.raises(data.CorruptDataError, match="expected a PNG or JPEG"):
        corruptions.load_frost(tmp_path)


# -------------------------------------------------------------------------------- JSON, messages


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' * 100_000, "nested too deeply"),
        (b'{"a": 1, "b": {"c": 2, "c": 3}}', "the key 'c' twice"),
        (b"\xff{}", "not UTF-8"),
        (b"{", "Expecting property name"),
        (b"", "Expecting value"),
        (b"1" * 10_000, "4300"),
    ],
)
def test_bad_json_is_one_short_line(content, message):
    with pytest.raises(ValueError, match=message) as caught:
        strict_json.parse(content)
    assert len(str(caught.value)) < 200
    assert str(caught.value).isprintable()


def test_messages_are_one_printable_line():
    error = data.CorruptDataError("a\nb\x1b[2J\ud800 " + "x" * 10_000 + "; get it again")
    assert str(error).startswith("a\\nb\\x1b[2J\\ud800 xxx")
    assert str(error).endswith("xxx; get it again")
    assert len(str(error)) < 1000
    assert one_line("naïve 数") == "naïve 数"


# ------------------------------------------------------------------------------------------ home


@pytest.mark.parametrize(
    "use",
    [
        lambda folder: data.load("mnist", "test", folder),
        lambda folder: data.load_text("mrpc", "train", folder),
        lambda folder: corruptions.load("fog", 1, data_dir=folder),
        corruptions.load_frost,
    ],
)
def test_an_unknown_home_is_named(use):
    with pytest.raises(ValueError, match=r"got '~nobody_here/x': there is no such home") as caught:
        use("~nobody_here/x")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("load", [data.load, data.load_text])
def test_a_process_without_a_home_looks_elsewhere(tmp_path, monkeypatch, load):
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # what Python does without one
    name, split = ("mnist", "test") if load is data.load else ("mrpc", "train")
    with pytest.raises(data.DatasetNotFoundError, match="was not found in"):
        load(name, split)
    assert not os.path.exists("~")
