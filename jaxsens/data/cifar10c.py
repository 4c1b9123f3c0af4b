"""The official files of CIFAR-10-C: one `.npy` of bytes for each corruption, and `labels.npy`.

Each file holds the 10,000 test images of CIFAR-10 five times, (50000, 32, 32, 3): severity s is in
the rows (s - 1)·10000 to s·10000 - 1. Nothing is unpickled, and only one severity is read.
They come from https://zenodo.org/records/2535967.
"""

from pathlib import Path

import numpy as np
from jaxtyping import Int32, UInt8

from jaxsens.data.dataset import bad_labels
from jaxsens.data.errors import CorruptDataError, DatasetNotFoundError

#: Folder names under a data directory where the files usually lie.
FOLDERS = ("CIFAR-10-C", "cifar10c")
NUM_IMAGES = 10_000
_IMAGE_SHAPE = (32, 32, 3)
_NUM_SEVERITIES = 5
_NUM_CLASSES = 10
_LABELS = "labels.npy"
_GET = "get CIFAR-10-C.tar from https://zenodo.org/records/2535967 and unpack it"


def find(root: Path) -> Path | None:
    """Returns the folder of the official files: the root itself or one of `FOLDERS` in it."""
    candidates = [root / name for name in FOLDERS]
    if root.name in FOLDERS:
        candidates.append(root)
    return next((folder for folder in candidates if folder.is_dir()), None)


def read(
    folder: Path, name: str, severity: int
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
    images = _open(images_path, (total, *_IMAGE_SHAPE))
    labels = _open(labels_path, (total,))
    if images.dtype != np.uint8:
        raise CorruptDataError(f"{images_path}: expected uint8, got {images.dtype}; {_GET} again")
    if labels.dtype.kind not in "iu":
        raise CorruptDataError(
            f"{labels_path}: expected integers, got {labels.dtype}; {_GET} again"
        )
    if problem := bad_labels(np.asarray(labels), _NUM_CLASSES):
        raise CorruptDataError(f"{labels_path}: {problem}")
    return np.array(images[rows]), np.array(labels[rows], np.int32)


def _open(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """The array of a `.npy` file, mapped into memory, of this shape."""
    if not path.is_file():
        there = ", ".join(sorted(file.name for file in path.parent.glob("*.npy"))) or "none"
        raise DatasetNotFoundError(
            f"{path} is not there; {_GET} (.npy files in this folder: {there})"
        )
    try:
        # Unlike `numpy.load` it opens nothing but the .npy format, and that never with a pickle.
        array = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # ValueError, OSError or EOFError, by the kind of damage
        reason = str(error).splitlines()[0] if str(error) else "no reason given"
        raise CorruptDataError(
            f"{path}: expected a .npy file of plain numbers, got {path.stat().st_size} bytes that "
            f"do not load ({type(error).__name__}: {reason}); {_GET} again"
        ) from None
    if array.shape != shape:
        raise CorruptDataError(
            f"{path}: expected an array of shape {shape}, got {array.shape}; {_GET} again"
        )
    return array
