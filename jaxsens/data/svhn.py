"""SVHN, cropped digits: the official MATLAB files, or a subset in one `.npz` file.

Official: `train_32x32.mat` and `test_32x32.mat` with X (32, 32, 3, n) and y (n, 1), where the label
10 stands for the digit 0. Subset: x_train, y_train, x_test, y_test of any size, all uint8, images
(n, 32, 32, 3). A subset may be cut from the official test split, so the two are never mixed: in a
folder with a `.mat` file a subset is not looked at.
"""

import logging
from pathlib import Path
from typing import Any

import numpy as np

from jaxsens.data.dataset import SPLITS, DatasetSpec, Raw, bad_labels
from jaxsens.data.errors import CorruptDataError, DatasetNotFoundError

_logger = logging.getLogger("jaxsens")


def read(folder: Path, split: str, spec: DatasetSpec) -> Raw | None:
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
    if any((folder / f"{s}_32x32.mat").is_file() for s in SPLITS):
        return read_mat(folder / f"{split}_32x32.mat", split, spec)
    subsets = sorted(folder.glob("*.npz" if folder.name.lower() == "svhn" else "svhn*.npz"))
    if not subsets:
        return None
    if len(subsets) > 1:
        names = ", ".join(path.name for path in subsets)
        raise CorruptDataError(f"{folder}: expected one .npz file, got {names}; keep one of them")
    return read_npz(subsets[0], split, spec)


def read_mat(path: Path, split: str, spec: DatasetSpec) -> Raw:
    """Returns the images and labels of an official MATLAB file, which must hold the whole split."""
    import scipy.io  # not needed by any other dataset

    if not path.is_file():
        raise DatasetNotFoundError(
            f"{path.parent} has the other split of SVHN, but not {path.name}; add it"
        )
    try:
        content = scipy.io.loadmat(path, variable_names=["X", "y"])
    except Exception as error:  # a damaged file raises any of a dozen types
        raise CorruptDataError(
            f"{path}: expected a MATLAB 5 file, got {path.stat().st_size} bytes that do not parse "
            f"({type(error).__name__}: {error}); get the file again"
        ) from None
    x, y = (_array(content, key, path) for key in ("X", "y"))
    num_examples = spec.num_examples(split)
    _expect(path, "X", x, (*spec.image_shape, num_examples))
    _expect(path, "y", y, (num_examples, 1))
    return np.moveaxis(x, -1, 0), _digits(y[:, 0], path, spec)


def read_npz(path: Path, split: str, spec: DatasetSpec) -> Raw:
    """Returns the images and labels of a subset; nothing in it is unpickled."""
    try:
        # Opened here, for NumPy leaves a file that it cannot parse open.
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            content = {key: file[key] for key in (f"x_{split}", f"y_{split}") if key in file}
    except Exception as error:  # zipfile, zlib and NumPy each have their own
        raise CorruptDataError(
            f"{path}: expected an .npz file of plain arrays, got {path.stat().st_size} bytes that "
            f"do not load ({type(error).__name__}: {error})"
        ) from None
    x, y = (_array(content, f"{key}_{split}", path) for key in ("x", "y"))
    num_examples = len(x) if x.ndim else 0
    if num_examples == 0:
        raise CorruptDataError(f"{path}: expected at least one image in x_{split}, got none")
    _expect(path, f"x_{split}", x, (num_examples, *spec.image_shape))
    _expect(path, f"y_{split}", y, (num_examples,))
    _logger.info(
        "svhn %s: subset of %d of %d examples in %s",
        *(split, num_examples, spec.num_examples(split), path),
    )
    return x, _digits(y, path, spec)


def _array(content: dict[str, Any], key: str, path: Path) -> np.ndarray:
    if key not in content:
        raise CorruptDataError(f"{path}: expected an array called {key}, got none")
    return content[key]


def _expect(path: Path, key: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    if array.dtype != np.uint8 or array.shape != shape:
        raise CorruptDataError(
            f"{path}: expected {key} as uint8 of shape {shape}, "
            f"got {array.dtype} of shape {array.shape}"
        )


def _digits(y: np.ndarray, path: Path, spec: DatasetSpec) -> np.ndarray:
    labels = np.where(y == 10, 0, y)
    if problem := bad_labels(labels, spec.num_classes):
        raise CorruptDataError(f"{path}: {problem}")
    return labels
