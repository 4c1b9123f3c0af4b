"""The image datasets by name.

Sources are tried in this order: (1) made without files, inside a package or generated; (2) official
files; (3) a folder prepared by TensorFlow Datasets; (4) a download. The first that has the dataset
is used, so a complete copy in a later source does not replace an incomplete one in an earlier
(CIFAR-10 with two batches, a part of SVHN): look at the number of examples. A damaged or
half-present copy is an error, never skipped.

How to add one: docs/developers/add_a_dataset.md.
"""

import functools
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int32, UInt8

from jaxsens.data.dataset import (
    SPLITS,
    DatasetSpec,
    FileReader,
    LabelledImages,
    Maker,
    bad_labels,
)
from jaxsens.data.errors import CorruptDataError, require_known
from jaxsens.data.generated import shapes
from jaxsens.data.images import cifar10, digits, idx, svhn
from jaxsens.data.sources import download, tfds
from jaxsens.data.sources.folders import download_roots, first_found, not_found, search_roots

_DataDir = str | os.PathLike[str] | None
_SPECS: dict[str, DatasetSpec] = {}
#: For each dataset `get(split, data_dir)`.
_GETTERS: dict[str, Callable[[str, _DataDir], LabelledImages]] = {}


def spec(name: str) -> DatasetSpec:
    """Returns the fixed facts of a dataset.

    Raises:
      ValueError: there is no dataset of that name.

    Example:
      >>> spec("cifar10").image_shape
      (32, 32, 3)
    """
    require_known("dataset", name, _SPECS)
    return _SPECS[name]


def load(
    name: str, split: str, data_dir: _DataDir = None
) -> tuple[Float32[np.ndarray, "n height width channels"], Int32[np.ndarray, " n"]]:
    """Returns a split as images in [-1, 1] and labels.

    A stored pixel v of 0..255 becomes v / 127.5 - 1, which is what mean 0.5 and standard deviation
    0.5 make of v / 255.

    Args:
      name: one of `NAMES`, or what `register` was given.
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
    images, labels = _GETTERS[name](split, data_dir)
    _check(facts, split, images, labels)
    return to_unit_range(images, facts.max_value), labels.astype(np.int32)


def register(
    spec: DatasetSpec, *, read: FileReader | None = None, make: Maker | None = None
) -> None:
    """Makes an image dataset known to `load` and `spec` under its name.

    Registered again with the same facts, as when a notebook's cell is run again, it gets the new
    reader.

    Args:
      spec: what is known of the dataset before any file is opened.
      read: `read(folder, split, spec)` returns the images, uint8 (n, height, width, channels), and
        the labels of a split whose files lie in a folder; None if the folder has no file of the
        dataset at all. It must check a file's size before it reads it (`jaxsens.data.sources.files`
        does), for a data folder may hold anything.
      make: `make(split, spec)` instead, for a dataset that needs no files.

    Raises:
      ValueError: not exactly one of `read` and `make` is given, or another dataset has the name.

    Example:
      >>> register(spec("digits"))
      Traceback (most recent call last):
      ValueError: digits: expected read= (from files) or make= (without files), got neither
    """
    if _SPECS.get(spec.name, spec) != spec:
        raise ValueError(f"there is another dataset {spec.name!r} already; choose another name")
    if read is not None and make is None:
        _GETTERS[spec.name] = functools.partial(_search, spec, read)
    elif make is not None and read is None:
        _GETTERS[spec.name] = functools.partial(_made, spec, make)
    else:
        got = "neither" if read is None else "both"
        raise ValueError(
            f"{spec.name}: expected read= (from files) or make= (without files), got {got}"
        )
    _SPECS[spec.name] = spec


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


def _made(facts: DatasetSpec, make: Maker, split: str, data_dir: _DataDir) -> LabelledImages:
    return make(split, facts)


def _search(facts: DatasetSpec, read: FileReader, split: str, data_dir: _DataDir) -> LabelledImages:
    roots, folders = search_roots(data_dir), facts.usual_folders()

    def downloaded(root: Path) -> LabelledImages | None:
        return read(download.download(root, facts), split, facts)

    sources: list[Callable[[], LabelledImages | None]] = [
        functools.partial(read, root / folder, split, facts)
        for root in roots
        for folder in (*folders, ".")
    ]
    if facts.tfds_name is not None:
        sources += [functools.partial(tfds.read_prepared, root, split, facts) for root in roots]
        sources += [functools.partial(downloaded, root) for root in download_roots(data_dir)]
    found, reasons = first_found(sources)
    if found is None:
        prepared = f", or a prepared TFDS folder {facts.tfds_name}" if facts.tfds_name else ""
        raise not_found(
            f"{facts.title} ({facts.name!r})",
            f"official files in {', '.join(folders)} or the folder itself{prepared}",
            roots,
            reasons,
            f"{facts.files} into DIR/{folders[0]}",
            can_download=facts.tfds_name is not None,
        )
    return found


def _check(facts: DatasetSpec, split: str, images: np.ndarray, labels: np.ndarray) -> None:
    """Raises an error if a reader returned something else than its dataset's facts promise."""
    expected = (len(labels), *facts.image_shape)
    # Images in [0, 1] would pass for nearly black ones.
    if images.dtype != np.uint8 or images.shape != expected:
        raise ValueError(
            f"{facts.name}: expected its reader to return uint8 images of shape {expected}, one "
            f"for each label, got {images.dtype} of shape {images.shape}"
        )
    if problem := bad_labels(labels, facts.num_classes):
        raise CorruptDataError(f"{facts.name} {split}: {problem}")


register(digits.SPEC, make=digits.make)
register(shapes.SPEC, make=shapes.make)
register(idx.MNIST, read=idx.read)
register(idx.FASHION_MNIST, read=idx.read)
register(cifar10.SPEC, read=cifar10.read)
register(svhn.SPEC, read=svhn.read)

#: The image datasets that come with jaxsens; `register` adds others.
NAMES = tuple(_SPECS)
