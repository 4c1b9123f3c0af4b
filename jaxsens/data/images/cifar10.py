"""The official binary version of CIFAR-10 (`cifar-10-batches-bin`).

A batch is rows of 3,073 bytes: one label, then 1,024 red, 1,024 green and 1,024 blue values, each
plane row by row. The pickled Python version is never opened, for unpickling runs code in the file.
Of the five training batches those present are loaded: fewer than 50,000 examples is not an error,
so whoever needs all of them must look at the number returned.
"""

import logging
import math
import warnings
import zlib
from pathlib import PurePath

import numpy as np
from jaxtyping import UInt8

from jaxsens.data.dataset import DatasetSpec, LabelledImages, bad_labels
from jaxsens.data.errors import CorruptDataError, DatasetNotFoundError, UnusableSourceError
from jaxsens.data.sources import files

SPEC = DatasetSpec(
    *("cifar10", "CIFAR-10", (32, 32, 3), 10, 50_000, 10_000),
    files="cifar-10-batches-bin/ from cifar-10-binary.tar.gz",
    folders=("cifar10", "CIFAR10", "cifar-10"),
    tfds_name="cifar10",
)

_BINARY_FOLDER = "cifar-10-batches-bin"
_PICKLE_FOLDER = "cifar-10-batches-py"
_TRAIN_BATCHES = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
_TEST_BATCH = "test_batch.bin"

# CRC-32 of official batches; those that are not here are taken for what their names say.
_CRC32 = {
    0xB3220C1F: "data_batch_1.bin",
    0xC439A348: "data_batch_2.bin",
    0x19777D49: "test_batch.bin",
}

_logger = logging.getLogger("jaxsens")


def read(folder: PurePath, split: str, spec: DatasetSpec) -> LabelledImages | None:
    """Returns the split's images and labels, None if the folder has no CIFAR-10 batch.

    Args:
      folder: the folder of the `.bin` files, or the one that `cifar-10-batches-bin` lies in.
      split: "train" (the batches found, in order) or "test".
      spec: the sizes that the files are checked against.

    Raises:
      DatasetNotFoundError: batches are there, but none of this split.
      CorruptDataError: a batch does not hold what it should.
      UnusableSourceError: only the pickled version is there.

    Warns:
      UserWarning: a batch is a copy of another one, such as the test batch among those to train on.
    """
    if files.is_there(folder / _BINARY_FOLDER):
        folder = folder / _BINARY_FOLDER
    if not _present(folder, (*_TRAIN_BATCHES, _TEST_BATCH)):
        if files.is_there(folder / _PICKLE_FOLDER):
            raise UnusableSourceError(
                f"{folder / _PICKLE_FOLDER} holds pickles, which are not opened; "
                f"expected the binary version, {_BINARY_FOLDER}"
            )
        return None

    wanted = _TRAIN_BATCHES if split == "train" else (_TEST_BATCH,)
    paths = _present(folder, wanted)
    if not paths:
        raise DatasetNotFoundError(
            f"{folder} has other batches of CIFAR-10, but none of the {split} split: "
            f"expected {' or '.join(wanted)}"
        )
    num_rows = spec.num_examples(split) // len(wanted)
    contents = [_read_rows(path, num_rows, spec) for path in paths]
    _warn_of_copies(paths, contents)
    batches = [_batch(*pair, spec) for pair in zip(paths, contents, strict=True)]
    images, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    _logger.info(
        "cifar10 %s: %d of %d batches in %s, %d examples",
        *(split, len(paths), len(wanted), folder, len(labels)),
    )
    return images, labels


def _present(folder: PurePath, names: tuple[str, ...]) -> list[PurePath]:
    return [folder / name for name in names if files.is_there(folder / name)]


def _read_rows(path: PurePath, num_rows: int, spec: DatasetSpec) -> UInt8[np.ndarray, "n row"]:
    row_size = 1 + math.prod(spec.image_shape)
    size = files.size_of(path)
    if size != num_rows * row_size:
        raise CorruptDataError(
            f"{path}: expected {num_rows * row_size} bytes ({num_rows} rows of {row_size}), "
            f"got {size}; get the file again"
        )
    with files.opened(path, size) as file:
        return np.frombuffer(file.read(size), np.uint8).reshape(num_rows, row_size)


def _warn_of_copies(paths: list[PurePath], contents: list[np.ndarray]) -> None:
    known = dict(_CRC32)
    for path, content in zip(paths, contents, strict=True):
        name = known.setdefault(zlib.crc32(content.data), path.name)
        if name != path.name:
            warnings.warn(
                f"{path}: expected a batch of its own, got a copy of {name}; get the file again",
                stacklevel=3,
            )


def _batch(path: PurePath, rows: UInt8[np.ndarray, "n row"], spec: DatasetSpec) -> LabelledImages:
    height, width, channels = spec.image_shape
    labels, planes = rows[:, 0], rows[:, 1:].reshape(len(rows), channels, height, width)
    if problem := bad_labels(labels, spec.num_classes):
        raise CorruptDataError(f"{path}: {problem}")
    return planes.transpose(0, 2, 3, 1), labels
