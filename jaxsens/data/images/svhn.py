"""SVHN, house numbers cropped to single digits: http://ufldl.stanford.edu/housenumbers.

73,257 training and 26,032 test images of 32×32 in `train_32x32.mat` and `test_32x32.mat`, each with
X (32, 32, 3, n) and y (n, 1), where the label 10 stands for the digit 0. The third official file,
`extra_32x32.mat`, is not read.

A part of the dataset may be kept in one `.npz` file: x_train, y_train, x_test, y_test, all uint8,
images (n, 32, 32, 3), any n. Which images a part holds is not known, and its training images may be
official test images, so the two are never mixed: in a folder with a `.mat` file, a `.npz` file is
not looked at.
"""

import logging
import math
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import PurePath
from typing import TypeVar

import numpy as np

from jaxsens.data.dataset import SPLITS, DatasetSpec, LabelledImages, bad_labels
from jaxsens.data.errors import CorruptDataError, DatasetNotFoundError
from jaxsens.data.sources import files, matlab, npz

SPEC = DatasetSpec(
    *("svhn", "SVHN", (32, 32, 3), 10, 73_257, 26_032),
    files="train_32x32.mat and test_32x32.mat",
    folders=("svhn", "SVHN"),
    tfds_name="svhn_cropped",
)

#: What a file may take beyond its numbers.
_SLACK = 1 << 20

T = TypeVar("T")
_logger = logging.getLogger("jaxsens")


def read(folder: PurePath, split: str, spec: DatasetSpec) -> LabelledImages | None:
    """Returns the split's images and labels, None if the folder has no SVHN file.

    Args:
      folder: where the files lie. A `.npz` file must be called `svhn*.npz`, or lie in a folder
        called `svhn`.
      split: "train" or "test".
      spec: the facts that the files are checked against.

    Raises:
      DatasetNotFoundError: one `.mat` file is there, but not that of this split.
      CorruptDataError: a file does not hold what it should, or there are several subsets.
    """
    if any(files.is_there(folder / f"{s}_32x32.mat") for s in SPLITS):
        return read_mat(folder / f"{split}_32x32.mat", split, spec)
    pattern = "*.npz" if folder.name.lower() == "svhn" else "svhn*.npz"
    subsets = files.listed(folder, pattern)
    if not subsets:
        return None
    if len(subsets) > 1:
        names = ", ".join(path.name for path in subsets)
        raise CorruptDataError(f"{folder}: expected one .npz file, got {names}; keep one of them")
    return read_npz(subsets[0], split, spec)


def read_mat(path: PurePath, split: str, spec: DatasetSpec) -> LabelledImages:
    """Returns the images and labels of an official MATLAB file, which must hold the whole split."""
    if not files.is_there(path):
        raise DatasetNotFoundError(
            f"{path.parent} has the other split of SVHN, but not {path.name}; add it"
        )
    num_examples = spec.num_examples(split)
    shapes = {"X": (*spec.image_shape, num_examples), "y": (num_examples, 1)}
    size = files.size_of(path)
    found: dict[str, np.ndarray] = {}
    with files.opened(path, 2 * _num_bytes(num_examples, spec) + _SLACK) as file:
        try:
            for variable in matlab.variables(file, size):
                if variable.name in shapes:
                    shape = shapes[variable.name]
                    _expect(path, variable.name, variable.dtype, variable.shape, shape)
                    found[variable.name] = variable.read()
        except CorruptDataError:
            raise
        except (ValueError, zlib.error) as error:
            raise CorruptDataError(
                f"{path}: expected a MATLAB 5 file, got {size} bytes that do not parse ({error}); "
                f"get the file again"
            ) from None
    x, y = (_required(found, key, path) for key in shapes)
    return np.moveaxis(x, -1, 0), _digits(y[:, 0], path, spec)


def read_npz(path: PurePath, split: str, spec: DatasetSpec) -> LabelledImages:
    """Returns the images and labels of a subset; nothing in it is unpickled."""
    # A subset may be cut in another way than the official splits, but is not larger than both.
    max_size = _num_bytes(spec.num_train + spec.num_test, spec)
    size = files.size_of(path)
    with files.opened(path, max_size + _SLACK) as file:
        try:
            with npz.open_archive(file) as archive:
                keys = _check_subset(archive, split, path, spec)
                x, y = (npz.read(archive, key) for key in keys)
        except CorruptDataError:
            raise
        except Exception as error:  # zipfile and zlib each have their own
            raise CorruptDataError(
                f"{path}: expected an .npz file of plain arrays, got {size} bytes that do not load "
                f"({type(error).__name__}: {error})"
            ) from None
    _logger.info(
        "svhn %s: subset of %d of %d examples in %s",
        *(split, len(x), spec.num_examples(split), path),
    )
    return x, _digits(y, path, spec)


def _check_subset(
    archive: zipfile.ZipFile, split: str, path: PurePath, spec: DatasetSpec
) -> tuple[str, str]:
    """The names of the images and labels, if they are of shapes that belong together."""
    headers = {key: npz.read_header(archive, key) for key in (f"x_{split}", f"y_{split}")}
    (images, x), (labels, y) = ((key, _required(headers, key, path)) for key in headers)
    num_examples = x.shape[0] if x.shape else 0
    most = spec.num_train + spec.num_test
    if not 0 < num_examples <= most:
        raise CorruptDataError(
            f"{path}: expected at least one image in {images} and at most {most}, "
            f"got {num_examples or 'none'}"
        )
    _expect(path, images, x.dtype, x.shape, (num_examples, *spec.image_shape))
    _expect(path, labels, y.dtype, y.shape, (num_examples,))
    return images, labels


def _num_bytes(num_examples: int, spec: DatasetSpec) -> int:
    return num_examples * (math.prod(spec.image_shape) + 1)


def _required(content: Mapping[str, T | None], key: str, path: PurePath) -> T:
    value = content.get(key)
    if value is None:
        raise CorruptDataError(f"{path}: expected an array called {key}, got none")
    return value


def _expect(
    path: PurePath, key: str, dtype: np.dtype, got: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    if dtype != np.uint8 or got != shape:
        raise CorruptDataError(
            f"{path}: expected {key} as uint8 of shape {shape}, got {dtype} of shape {got}"
        )


def _digits(y: np.ndarray, path: PurePath, spec: DatasetSpec) -> np.ndarray:
    labels = np.where(y == 10, 0, y)
    if problem := bad_labels(labels, spec.num_classes):
        raise CorruptDataError(f"{path}: {problem}")
    return labels
