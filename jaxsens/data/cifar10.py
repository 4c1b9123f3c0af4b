"""The official binary version of CIFAR-10 (`cifar-10-batches-bin`).

A batch is rows of 3,073 bytes: one label, then 1,024 red, 1,024 green and 1,024 blue values, each
plane row by row. The pickled Python version is never opened, for unpickling runs code in the file.
Of the five training batches those present are loaded: fewer than 50,000 examples is not an error,
so whoever needs all of them must look at the number returned.
"""

import logging
from pathlib import Path

import numpy as np

from jaxsens.data.dataset import DatasetSpec, Raw, bad_labels
from jaxsens.data.errors import CorruptDataError, DatasetNotFoundError, UnusableSourceError

_BINARY_FOLDER = "cifar-10-batches-bin"
_PICKLE_FOLDER = "cifar-10-batches-py"
_TRAIN_BATCHES = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
_TEST_BATCH = "test_batch.bin"

_logger = logging.getLogger("jaxsens")


def read(folder: Path, split: str, spec: DatasetSpec) -> Raw | None:
    """Returns the split's images and labels, None if the folder has no CIFAR-10 batch.

    Args:
      folder: the folder of the `.bin` files, or the one that `cifar-10-batches-bin` lies in.
      split: "train" (the batches found, in order) or "test".
      spec: the sizes that the files are checked against.

    Raises:
      DatasetNotFoundError: batches are there, but none of this split.
      CorruptDataError: a batch does not hold what it should.
      UnusableSourceError: only the pickled version is there.
    """
    if (folder / _BINARY_FOLDER).is_dir():
        folder = folder / _BINARY_FOLDER
    if not _present(folder, (*_TRAIN_BATCHES, _TEST_BATCH)):
        if (folder / _PICKLE_FOLDER).is_dir():
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
    batches = [_read_batch(path, num_rows, spec) for path in paths]
    images, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    _logger.info(
        "cifar10 %s: %d of %d batches in %s, %d examples",
        *(split, len(paths), len(wanted), folder, len(labels)),
    )
    return images, labels


def _present(folder: Path, names: tuple[str, ...]) -> list[Path]:
    return [folder / name for name in names if (folder / name).is_file()]


def _read_batch(path: Path, num_rows: int, spec: DatasetSpec) -> Raw:
    height, width, channels = spec.image_shape
    row_size = 1 + height * width * channels
    content = np.fromfile(path, np.uint8)
    if content.size != num_rows * row_size:
        raise CorruptDataError(
            f"{path}: expected {num_rows * row_size} bytes ({num_rows} rows of {row_size}), "
            f"got {content.size}; get the file again"
        )
    rows = content.reshape(num_rows, row_size)
    labels, planes = rows[:, 0], rows[:, 1:].reshape(num_rows, channels, height, width)
    if problem := bad_labels(labels, spec.num_classes):
        raise CorruptDataError(f"{path}: {problem}")
    return planes.transpose(0, 2, 3, 1), labels
