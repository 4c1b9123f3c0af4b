"""The datasets by name, and the order in which their sources are tried.

Sources: (1) inside a package, or generated; (2) official files; (3) a folder prepared by TensorFlow
Datasets; (4) a download. The first that has the dataset is used, so a complete copy in a later
source does not replace an incomplete one in an earlier (CIFAR-10 with two batches, a subset of
SVHN): look at the number of examples. A damaged or half-present copy is an error, never skipped.

To add an image dataset: a `DatasetSpec` below and a reader `(folder, split, spec) -> Raw | None`.
Text and generated tasks are not images in [-1, 1]: they get their own file and function beside it.
"""

import difflib
import functools
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int32, UInt8

from jaxsens.data.dataset import SPLITS, DatasetSpec, Raw
from jaxsens.data.errors import DatasetNotFoundError, UnusableSourceError
from jaxsens.data.generated import shapes
from jaxsens.data.images import cifar10, digits, idx, svhn
from jaxsens.data.sources import download, tfds

_SPECS = {
    spec.name: spec
    for spec in (
        DatasetSpec("digits", "Handwritten digits", (8, 8, 1), 10, 1_437, 360, max_value=16),
        DatasetSpec("shapes", "Generated shapes", (32, 32, 3), 10, 2_000, 500),
        DatasetSpec(
            *("mnist", "MNIST", (28, 28, 1), 10, 60_000, 10_000),
            files="the four files {train,t10k}-{images-idx3,labels-idx1}-ubyte.gz",
            folders=("mnist", "MNIST/raw", "MNIST"),
            tfds_name="mnist",
        ),
        DatasetSpec(
            *("fashion_mnist", "Fashion-MNIST", (28, 28, 1), 10, 60_000, 10_000),
            files="the four files {train,t10k}-{images-idx3,labels-idx1}-ubyte.gz",
            folders=("fashion_mnist", "FashionMNIST/raw", "FashionMNIST", "fashion-mnist"),
            tfds_name="fashion_mnist",
        ),
        DatasetSpec(
            *("cifar10", "CIFAR-10", (32, 32, 3), 10, 50_000, 10_000),
            files="cifar-10-batches-bin/ from cifar-10-binary.tar.gz",
            folders=("cifar10", "CIFAR10", "cifar-10"),
            tfds_name="cifar10",
        ),
        DatasetSpec(
            *("svhn", "SVHN", (32, 32, 3), 10, 73_257, 26_032),
            files="train_32x32.mat and test_32x32.mat",
            folders=("svhn", "SVHN"),
            tfds_name="svhn_cropped",
        ),
    )
}
NAMES = tuple(_SPECS)

_IN_A_PACKAGE: dict[str, Callable[[str, DatasetSpec], Raw]] = {
    "digits": digits.read,
    "shapes": shapes.read,
}
_OFFICIAL: dict[str, Callable[[Path, str, DatasetSpec], Raw | None]] = {
    "mnist": idx.read,
    "fashion_mnist": idx.read,
    "cifar10": cifar10.read,
    "svhn": svhn.read,
}


def spec(name: str) -> DatasetSpec:
    """Returns the fixed facts of a dataset.

    Raises:
      ValueError: there is no dataset of that name.

    Example:
      >>> spec("cifar10").image_shape
      (32, 32, 3)
    """
    require_known("dataset", name, NAMES)
    return _SPECS[name]


def load(
    name: str, split: str, data_dir: str | os.PathLike[str] | None = None
) -> tuple[Float32[np.ndarray, "n height width channels"], Int32[np.ndarray, " n"]]:
    """Returns a split as images in [-1, 1] and labels.

    A stored pixel v of 0..255 becomes v / 127.5 - 1, which is what mean 0.5 and standard deviation
    0.5 make of v / 255.

    Args:
      name: one of `NAMES`.
      split: "train" or "test".
      data_dir: where to look first, and where to put a download. Default: the environment variable
        `JAXSENS_DATA`, and for a download the folder of TensorFlow Datasets (`TFDS_DATA_DIR` or
        `~/tensorflow_datasets`), which is looked at in any case.

    Returns:
      x, float32 (n, height, width, channels), and y, int32 (n,).

    Raises:
      ValueError: unknown name or split.
      DatasetNotFoundError: no source has it; the message says where it looked and how to get it.
      CorruptDataError: a file is there but damaged.

    Example:
      >>> x, y = load("digits", "train")
      >>> x.shape, x.min(), x.max(), y.shape
      ((1437, 8, 8, 1), np.float32(-1.0), np.float32(1.0), (1437,))
    """
    facts = spec(name)
    require_known("split", split, SPLITS)
    images, labels = _read(facts, split, data_dir)
    return to_unit_range(images, facts.max_value), labels.astype(np.int32)


def to_unit_range(
    images: UInt8[np.ndarray, "*shape"], max_value: int
) -> Float32[np.ndarray, "*shape"]:
    """Maps 0..max_value to [-1, 1] linearly, in a new C-contiguous float32 array.

    Example:
      >>> to_unit_range(np.array([0, 255], np.uint8), 255)
      array([-1.,  1.], dtype=float32)
    """
    x = images.astype(np.float32, order="C")
    x /= max_value / 2
    x -= 1
    return x


def _read(facts: DatasetSpec, split: str, data_dir: str | os.PathLike[str] | None) -> Raw:
    if facts.name in _IN_A_PACKAGE:
        return _IN_A_PACKAGE[facts.name](split, facts)

    roots = search_paths([data_dir or os.environ.get("JAXSENS_DATA"), *tfds.shared_roots()])
    folders = [root / folder for root in roots for folder in (*facts.folders, ".")]
    read_official = _OFFICIAL[facts.name]

    def downloaded(root: Path) -> Raw | None:
        return read_official(download.download(root, facts), split, facts)

    sources: list[Callable[[], Raw | None]] = [
        *(functools.partial(read_official, folder, split, facts) for folder in folders),
        *(functools.partial(tfds.read_prepared, root, split, facts) for root in roots),
        *(functools.partial(downloaded, root) for root in download_roots(data_dir)),
    ]
    reasons = []
    for source in sources:
        try:
            found = source()
        except UnusableSourceError as error:
            reasons.append(str(error))
        else:
            if found is not None:
                return found
    raise DatasetNotFoundError(_how_to_get(facts, roots, reasons))


def search_paths(names: Iterable[str | os.PathLike[str] | None]) -> list[Path]:
    """Returns the folders that are named, each once and in order; None and "" name none.

    Raises:
      ValueError: a name begins with `~`, and there is no such home folder.
    """
    return list(dict.fromkeys(expanded(name) for name in names if name))


def download_roots(data_dir: str | os.PathLike[str] | None) -> list[Path]:
    """Returns where to put a download: one folder, or none if nothing is named and no home is."""
    return search_paths([data_dir, *tfds.shared_roots()])[:1]


def expanded(name: str | os.PathLike[str]) -> Path:
    """Returns the path with a leading `~` written out.

    Raises:
      ValueError: there is no such home folder.
    """
    try:
        return Path(name).expanduser()
    except RuntimeError:
        raise ValueError(
            f"expected a folder, got {os.fspath(name)!r}: there is no such home folder; write the "
            f"path in full"
        ) from None


def _how_to_get(facts: DatasetSpec, roots: list[Path], reasons: list[str]) -> str:
    looked = ", ".join(str(root) for root in roots)
    return (
        f"{facts.title} ({facts.name!r}) was not found in {looked} "
        f"(official files in {', '.join(facts.folders)} or the folder itself, or a prepared TFDS "
        f"folder {facts.tfds_name}){''.join(f'; {reason}' for reason in reasons)}. "
        f"Two ways to get it: put {facts.files} into DIR/{facts.name} and pass --data-dir DIR or "
        "set JAXSENS_DATA=DIR; or load it once on a machine with a network, or copy a folder that "
        "TensorFlow Datasets prepared, and point the same option at it"
    )


def require_known(what: str, value: str, known: tuple[str, ...]) -> None:
    """Raises ValueError, with the nearest name, unless `value` is known."""
    if value in known:
        return
    nearest = difflib.get_close_matches(value, known, n=1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    raise ValueError(f"unknown {what} {value!r}: expected one of {', '.join(known)}{hint}")
