"""The IDX format of MNIST and Fashion-MNIST, plain or gzipped.

A file is two zero bytes, a type byte (8: unsigned byte), the number of axes, each axis length as a
big-endian 32-bit integer, then the values. http://yann.lecun.com/exdb/mnist gives the definition.
MNIST and Fashion-MNIST use the same file names and sizes, so one can be read as the other without
any error: the checksums of the official values tell them apart.
"""

import math
import warnings
import zlib
from pathlib import PurePath

import numpy as np
from jaxtyping import UInt8

from jaxsens.data.dataset import DatasetSpec, LabelledImages, bad_labels
from jaxsens.data.errors import CorruptDataError, DatasetNotFoundError
from jaxsens.data.sources import files

MNIST = DatasetSpec(
    *("mnist", "MNIST", (28, 28, 1), 10, 60_000, 10_000),
    files="the four files {train,t10k}-{images-idx3,labels-idx1}-ubyte.gz",
    folders=("mnist", "MNIST/raw", "MNIST"),
    tfds_name="mnist",
)
FASHION_MNIST = DatasetSpec(
    *("fashion_mnist", "Fashion-MNIST", (28, 28, 1), 10, 60_000, 10_000),
    files="the four files {train,t10k}-{images-idx3,labels-idx1}-ubyte.gz",
    folders=("fashion_mnist", "FashionMNIST/raw", "FashionMNIST", "fashion-mnist"),
    tfds_name="fashion_mnist",
)

_PREFIX = {"train": "train", "test": "t10k"}
_UNSIGNED_BYTE = 8
_NUM_AXES = {"images": 3, "labels": 1}

# CRC-32 of the values in the official files.
_LABELS_CRC32 = {
    0xBA07E8EF: "mnist",
    0xEE8604D9: "mnist",
    0x2ED6E46A: "fashion_mnist",
    0x242BC73F: "fashion_mnist",
}
_IMAGES_CRC32 = {
    0xF3639B56: "mnist",
    0xE4CA5F57: "mnist",
    0xAE65DCCD: "fashion_mnist",
    0x12728439: "fashion_mnist",
}


def read(folder: PurePath, split: str, spec: DatasetSpec) -> LabelledImages | None:
    """Returns the split's images and labels, None if the folder has no IDX file of this family.

    Args:
      folder: where the four official files lie, under either spelling, gzipped or not.
      split: "train" or "test".
      spec: the sizes that the files are checked against.

    Raises:
      DatasetNotFoundError: some of the family's files are there, but not those of the split.
      CorruptDataError: a file does not hold what it should, or holds another dataset's labels.

    Warns:
      UserWarning: the images are the official ones of another dataset. Files that are not official
        are taken for what their names say.
    """
    if not any(_find(folder, s, part) for s in _PREFIX for part in _NUM_AXES):
        return None
    images_path, labels_path = (_require(folder, split, part) for part in _NUM_AXES)
    num_examples = spec.num_examples(split)
    height, width, _ = spec.image_shape
    images = read_array(images_path, (num_examples, height, width))
    labels = read_array(labels_path, (num_examples,))
    if problem := bad_labels(labels, spec.num_classes):
        raise CorruptDataError(f"{labels_path}: {problem}")
    owner = _LABELS_CRC32.get(zlib.crc32(labels.tobytes()), spec.name)
    if owner != spec.name:
        raise CorruptDataError(
            f"{labels_path}: expected the labels of {spec.name}, got those of {owner}; "
            f"put each dataset into its own folder, named after it"
        )
    owner = _IMAGES_CRC32.get(zlib.crc32(images.data), spec.name)
    if owner != spec.name:
        warnings.warn(
            f"{images_path}: expected the images of {spec.name}, got those of {owner}, to which "
            f"the labels beside them do not belong; put each dataset into its own folder",
            stacklevel=2,
        )
    return images[..., None], labels


def read_array(path: PurePath, shape: tuple[int, ...]) -> UInt8[np.ndarray, "..."]:
    """Returns the array in an IDX file of unsigned bytes.

    Args:
      path: the file; a name ending in `.gz` is decompressed.
      shape: the shape the file must have.

    Raises:
      CorruptDataError: bad gzip, wrong magic, another shape, or too few or too many bytes.
    """
    header_size = 4 + 4 * len(shape)
    size = header_size + math.prod(shape)
    with files.unzipped(path, size) as stream:
        # One more than expected: it shows a longer file, and has gzip compare its checksum.
        content = stream.read(size + 1)
    magic, expected = content[:4], bytes([0, 0, _UNSIGNED_BYTE, len(shape)])
    if magic != expected:
        raise CorruptDataError(
            f"{path}: expected the IDX magic {expected.hex()}, got {magic.hex() or 'an empty file'}"
        )
    if len(content) < header_size:
        raise CorruptDataError(
            f"{path}: expected a header of {header_size} bytes, got {len(content)}"
        )
    got = tuple(np.frombuffer(content, ">i4", count=len(shape), offset=4).tolist())
    if got != shape:
        raise CorruptDataError(f"{path}: expected an array of shape {shape}, got {got}")
    if len(content) != size:
        more = " or more" if len(content) > size else ""
        raise CorruptDataError(
            f"{path}: expected {math.prod(shape)} bytes after the header, "
            f"got {len(content) - header_size}{more}; get the file again"
        )
    return np.frombuffer(content, np.uint8, offset=header_size).reshape(shape)


def _names(split: str, part: str) -> list[str]:
    stem, axes = f"{_PREFIX[split]}-{part}", _NUM_AXES[part]
    spellings = (f"{stem}-idx{axes}-ubyte", f"{stem}.idx{axes}-ubyte")
    return [spelling + suffix for spelling in spellings for suffix in ("", ".gz")]


def _find(folder: PurePath, split: str, part: str) -> PurePath | None:
    paths = (folder / name for name in _names(split, part))
    return next((path for path in paths if files.is_there(path)), None)


def _require(folder: PurePath, split: str, part: str) -> PurePath:
    path = _find(folder, split, part)
    if path is None:
        raise DatasetNotFoundError(
            f"{folder} has other files of the dataset, but not the {split} {part}: "
            f"expected {_names(split, part)[0]} or the same with .gz; add it or remove the others"
        )
    return path
