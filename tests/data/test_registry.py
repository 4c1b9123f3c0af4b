"""Names, scaling, the order of the sources, and what is said when none has the data."""

import gzip
import subprocess
import sys

import numpy as np
import pytest

import jaxsens.data as data
from jaxsens.data.registry import to_unit_range


def write_mnist_test(folder, pixel):
    """Writes the 10,000 test images in full size, every pixel and label the same."""
    folder.mkdir(parents=True)
    for kind, shape, value in (
        ("images-idx3", (10_000, 28, 28), pixel),
        ("labels-idx1", (10_000,), 7),
    ):
        header = bytes([0, 0, 8, len(shape)]) + np.array(shape, ">i4").tobytes()
        content = header + np.full(shape, value, np.uint8).tobytes()
        (folder / f"t10k-{kind}-ubyte.gz").write_bytes(gzip.compress(content, 1))


def test_the_names_and_their_official_sizes():
    sizes = {name: (data.spec(name).num_train, data.spec(name).num_test) for name in data.NAMES}
    assert sizes == {
        "digits": (1_437, 360),
        "shapes": (2_000, 500),
        "mnist": (60_000, 10_000),
        "fashion_mnist": (60_000, 10_000),
        "cifar10": (50_000, 10_000),
        "svhn": (73_257, 26_032),
    }


def test_scaling_is_mean_and_deviation_one_half():
    v = np.arange(256, dtype=np.uint8)
    x = to_unit_range(v, 255)
    np.testing.assert_allclose(x, (v / 255 - 0.5) / 0.5, atol=1e-6)
    assert (x[0], x[-1]) == (-1, 1)


def test_scaling_leaves_a_contiguous_array():
    planes = np.zeros((2, 3, 4, 5), np.uint8).transpose(0, 2, 3, 1)
    assert to_unit_range(planes, 255).flags.c_contiguous


@pytest.mark.parametrize(
    ("name", "split", "message"),
    [
        ("minst", "train", "unknown dataset 'minst': .*did you mean 'mnist'"),
        ("cifar", "train", "did you mean 'cifar10'"),
        (
            "digits",
            "tset",
            "unknown split 'tset': expected one of train, test; did you mean 'test'",
        ),
        ("zzzzz", "train", "expected one of digits, shapes, mnist, fashion_mnist, cifar10, svhn$"),
    ],
)
def test_a_typo_gets_one_line_with_the_nearest_name(name, split, message):
    with pytest.raises(ValueError, match=message) as caught:
        data.load(name, split)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("folder", ["mnist", "MNIST/raw", "."])
def test_official_files_are_found_in_the_usual_folders(tmp_path, folder):
    write_mnist_test(tmp_path / "data" / folder, pixel=255)
    x, y = data.load("mnist", "test", data_dir=tmp_path / "data")
    assert (x.shape, x.dtype, y.shape, y.dtype) == ((10_000, 28, 28, 1), "f4", (10_000,), "i4")
    assert (x == 1).all()
    assert (y == 7).all()


def test_data_dir_goes_before_the_environment(tmp_path, monkeypatch):
    write_mnist_test(tmp_path / "a" / "mnist", pixel=0)
    write_mnist_test(tmp_path / "b" / "mnist", pixel=255)
    monkeypatch.setenv("JAXSENS_DATA", str(tmp_path / "b"))
    assert data.load("mnist", "test")[0].max() == 1
    assert data.load("mnist", "test", data_dir=str(tmp_path / "a"))[0].max() == -1


@pytest.mark.parametrize("name", [name for name in data.NAMES if data.spec(name).files])
def test_without_data_and_network_one_message_says_it_all(tmp_path, name):
    with pytest.raises(data.DatasetNotFoundError) as caught:
        data.load(name, "train", data_dir=tmp_path)
    message = str(caught.value)
    for part in (
        data.spec(name).title,
        str(tmp_path),
        f"prepared TFDS folder {data.spec(name).tfds_name}",
        "/tensorflow_datasets",
        "needs a network",
        data.spec(name).files,
        "--data-dir",
        "JAXSENS_DATA",
    ):
        assert part in message
    assert "\n" not in message
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert list(tmp_path.iterdir()) == []


def test_a_source_that_cannot_be_used_is_quoted(tmp_path):
    (tmp_path / "cifar10" / "cifar-10-batches-py").mkdir(parents=True)
    with pytest.raises(data.DatasetNotFoundError, match="cifar-10-batches-py holds pickles"):
        data.load("cifar10", "train", data_dir=tmp_path)


def test_importing_the_library_imports_no_tensorflow():
    code = "import sys, jaxsens.data; print([m for m in sys.modules if m.startswith('tensorflow')])"
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
