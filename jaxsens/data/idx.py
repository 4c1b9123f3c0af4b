"""The IDX format of MNIST and Fashion-MNIST, plain or gzipped.

A file is two zero bytes, a type byte (8: unsigned byte), the number of axes, each axis length as a
big-endian 32-bit integer, then the values. http://yann.lecun.com/exdb/mnist gives the definition.
MNIST and Fashion-MNIST use the same file names and sizes, so one can be read as the other without
any error: the checksum of the labels tells them apart.
"""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from jaxsens.data.dataset import DatasetSpec, Raw, bad_labels
from jaxsens.data.errors import CorruptDataError, DatasetNotFoundError

_PREFIX = {"train": "train", "test": "t10k"}
_UNSIGNED_BYTE = 8
_KIND = {"images": 3, "labels": 1}  # number of axes

# CRC-32 of the label values in the official files.
_LABELS_CRC32 = {
    0xBA07E8EF: "mnist",
    0xEE8604D9: "mnist",
    0x2ED6E46A: "fashion_mnist",
    0x242BC73F: "fashion_mnist",
}


def read(folder: Path, split: str, spec: DatasetSpec) -> Raw | None:
    """Returns the split's images and labels, None if the folder has no IDX file of this family.

    Args:
      folder: where the four official files lie, under either spelling, gzipped or not.
      split: "train" or "test".
      spec: the sizes that the files are checked against.

    Raises:
      DatasetNotFoundError: some of the family's files are there, but not those of the split.
      CorruptDataError: a file does not hold what it should.
    """
    if not any(_find(folder, s, kind) for s in _PREFIX for kind in _KIND):
        return None
    images_path, labels_path = (_require(folder, split, kind) for kind in _KIND)
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
    return images[..., None], labels


def read_array(path: Path, shape: tuple[int, ...]) -> UInt8[np.ndarray, "..."]:
    """Returns the array in an IDX file of unsigned bytes.

    Args:
      path: the file; a name ending in `.gz` is decompressed.
      shape: the shape the file must have.

    Raises:
      CorruptDataError: bad gzip, wrong magic, another shape, or too few or too many bytes.
    """
    content = _decompressed(path)
    magic, expected = content[:4], bytes([0, 0, _UNSIGNED_BYTE, len(shape)])
    if magic != expected:
        raise CorruptDataError(
            f"{path}: expected the IDX magic {expected.hex()}, got {magic.hex() or 'an empty file'}"
        )
    header_size = 4 + 4 * len(shape)
    if len(content) < header_size:
        raise CorruptDataError(
            f"{path}: expected a header of {header_size} bytes, got {len(content)}"
        )
    got = tuple(np.frombuffer(content, ">i4", count=len(shape), offset=4).tolist())
    if got != shape:
        raise CorruptDataError(f"{path}: expected an array of shape {shape}, got {got}")
    payload = len(content) - header_size
    if payload != math.prod(shape):
        raise CorruptDataError(
            f"{path}: expected {math.prod(shape)} bytes after the header, got {payload}; "
            f"get the file again"
        )
    return np.frombuffer(content, np.uint8, offset=header_size).reshape(shape)


def _decompressed(path: Path) -> bytes:
    if path.suffix != ".gz":
        return path.read_bytes()
    try:
        with gzip.open(path) as file:
            return file.read()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CorruptDataError(
            f"{path}: expected a whole gzip file, got {path.stat().st_size} bytes that do not "
            f"decompress ({error}); get the file again"
        ) from None


def _names(split: str, kind: str) -> list[str]:
    stem, axes = f"{_PREFIX[split]}-{kind}", _KIND[kind]
    spellings = (f"{stem}-idx{axes}-ubyte", f"{stem}.idx{axes}-ubyte")
    return [spelling + suffix for spelling in spellings for suffix in ("", ".gz")]


def _find(folder: Path, split: str, kind: str) -> Path | None:
    paths = (folder / name for name in _names(split, kind))
    return next((path for path in paths if path.is_file()), None)


def _require(folder: Path, split: str, kind: str) -> Path:
    path = _find(folder, split, kind)
    if path is None:
        raise DatasetNotFoundError(
            f"{folder} has other files of the dataset, but not the {split} {kind}: "
            f"expected {_names(split, kind)[0]} or the same with .gz; add it or remove the others"
        )
    return path
