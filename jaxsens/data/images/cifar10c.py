"""The official files of CIFAR-10-C: one `.npy` of bytes for each corruption, and `labels.npy`.

Each file holds the 10,000 test images of CIFAR-10 five times, (50000, 32, 32, 3): severity s is in
the rows (s - 1)·10000 to s·10000 - 1. Nothing is unpickled, and only one severity is read.
They come from https://zenodo.org/records/2535967.
"""

import dataclasses
import os
from pathlib import PurePath

import numpy as np
from jaxtyping import Int32, UInt8

from jaxsens.data.dataset import bad_labels
from jaxsens.data.errors import CorruptDataError, DatasetNotFoundError
from jaxsens.data.sources import files, npy

#: Folder names under a data directory where the files usually lie.
FOLDERS = ("CIFAR-10-C", "cifar10c")
NUM_IMAGES = 10_000
_IMAGE_SHAPE = (32, 32, 3)
_NUM_SEVERITIES = 5
_NUM_CLASSES = 10
_LABELS = "labels.npy"
_GET = "get CIFAR-10-C.tar from https://zenodo.org/records/2535967 and unpack it"


def find(root: PurePath) -> PurePath | None:
    """Returns the folder of the official files: the root itself or one of `FOLDERS` in it."""
    candidates = [root / name for name in FOLDERS]
    if root.name in FOLDERS:
        candidates.append(root)
    return next((folder for folder in candidates if files.is_there(folder)), None)


def read(
    folder: PurePath, name: str, severity: int
) -> tuple[UInt8[np.ndarray, "n 32 32 3"], Int32[np.ndarray, " n"]]:
    """Returns the images of one corruption and severity, as stored, and their labels.

    Args:
      folder: where the `.npy` files lie.
      name: the file's name without `.npy`, such as "gaussian_noise".
      severity: 1 to 5.

    Returns:
      Images (10000, 32, 32, 3) and labels (10000,).

    Raises:
      ValueError: unknown severity.
      DatasetNotFoundError: a file is not there.
      CorruptDataError: a file does not hold what it should.
    """
    if severity not in range(1, _NUM_SEVERITIES + 1):
        raise ValueError(f"expected a severity of 1, 2, 3, 4 or 5; got {severity}")
    rows = slice((severity - 1) * NUM_IMAGES, severity * NUM_IMAGES)
    total = _NUM_SEVERITIES * NUM_IMAGES

    images_path, labels_path = folder / f"{name}.npy", folder / _LABELS
    images = _read(images_path, (total, *_IMAGE_SHAPE), rows)
    labels = _read(labels_path, (total,), slice(total))
    if problem := bad_labels(labels, _NUM_CLASSES):
        raise CorruptDataError(f"{labels_path}: {problem}")
    return images, labels[rows].astype(np.int32)


def _read(path: PurePath, shape: tuple[int, ...], rows: slice) -> np.ndarray:
    """Some rows of the array in a `.npy` file, which must have this shape."""
    if not files.is_there(path):
        there = ", ".join(file.name for file in files.listed(path.parent, "*.npy")) or "none"
        raise DatasetNotFoundError(
            f"{path} is not there; {_GET} (.npy files in this folder: {there})"
        )
    size = files.size_of(path)
    with files.opened(path) as file:
        try:
            header = npy.read_header(file)
            _check(path, header, shape)
            if size != header.size + header.num_bytes:
                raise ValueError(f"expected {header.size + header.num_bytes} bytes")
            if header.fortran_order:
                return npy.read(file, header)[rows]
            start, stop, _ = rows.indices(shape[0])
            file.seek(start * header.num_bytes // shape[0], os.SEEK_CUR)
            return npy.read(file, dataclasses.replace(header, shape=(stop - start, *shape[1:])))
        except CorruptDataError:
            raise
        except ValueError as error:
            raise CorruptDataError(
                f"{path}: expected a .npy file of plain numbers, got {size} bytes that do not load "
                f"({error}); {_GET} again"
            ) from None


def _check(path: PurePath, header: npy.Header, shape: tuple[int, ...]) -> None:
    if header.shape != shape:
        raise CorruptDataError(
            f"{path}: expected an array of shape {shape}, got {header.shape}; {_GET} again"
        )
    if path.name == _LABELS:
        is_right, expected = header.dtype.kind in "iu", "integers"
    else:
        is_right, expected = header.dtype == np.uint8, "uint8"
    if not is_right:
        raise CorruptDataError(f"{path}: expected {expected}, got {header.dtype}; {_GET} again")
