"""A dataset that TensorFlow Datasets has prepared on disk, read without TensorFlow.

A prepared folder is `<root>/<name>/<version>/` with `dataset_info.json`, `features.json` and shards
in one of three formats. TFDS reads array_record and parquet by itself. It reads tfrecord, its
default, only with TensorFlow; that format is a list of framed records, so we take the frames apart
here and let TFDS decode the records. TFDS has shuffled the examples when it prepared them: the
order is fixed, but it is not that of the official files.
"""

import contextlib
import io
import logging
import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from jaxtyping import UInt8

from jaxsens.data.dataset import DatasetSpec, LabelledImages, bad_labels
from jaxsens.data.errors import CorruptDataError, DatasetNotFoundError, UnusableSourceError
from jaxsens.data.sources import files, pictures, tfds_folder

_VERSION = re.compile(r"\d{1,9}\.\d{1,9}\.\d{1,9}", re.ASCII)
_logger = logging.getLogger("jaxsens")


def read_prepared(root: PurePath, split: str, spec: DatasetSpec) -> LabelledImages | None:
    """Returns the split's images and labels, None if the root has no such prepared folder.

    Args:
      root: the folder TFDS calls `data_dir`. Of several versions the highest is read.
      split: "train" or "test".
      spec: the image shape and the number of classes that the folder is checked against. The size
        is checked against the folder's own `dataset_info.json`.

    Raises:
      CorruptDataError: the folder does not hold what its `dataset_info.json` promises.
      UnusableSourceError: a package that reads the folder's format is not installed.
    """
    folder = newest_version(root / spec.tfds_name) if spec.tfds_name else None
    if folder is None:
        return None
    try:
        with quiet(), files.folder_on_disk(folder) as on_disk:
            images, labels = _read_folder(on_disk, split, spec)
    except (CorruptDataError, DatasetNotFoundError, UnusableSourceError):
        raise
    except ImportError as error:
        raise UnusableSourceError(f"{folder} needs a package that is missing: {error}") from None
    except Exception as error:  # whatever TFDS, PIL, array_record or pyarrow make of damaged files
        raise CorruptDataError(
            f"{folder}: expected a folder that TensorFlow Datasets has prepared, but reading the "
            f"{split} split failed ({type(error).__name__}: {first_line(error)}); prepare it again"
        ) from error
    if problem := bad_labels(labels, spec.num_classes):
        raise CorruptDataError(f"{folder}: {problem}")
    _logger.info("%s %s: %d examples prepared by TFDS in %s", spec.name, split, len(labels), folder)
    return images, labels


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps the bars, prints and warnings of TFDS and of what it calls off the screen."""
    loggers = [logging.getLogger(name) for name in ("absl", "urllib3")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def first_line(error: Exception, max_length: int = 200) -> str:
    """Returns the start of an error's text, for TFDS puts whole examples and tracebacks into it."""
    return (str(error).strip().splitlines() or ["no message"])[0][:max_length]


def newest_version(folder: PurePath) -> PurePath | None:
    """Returns the prepared version with the highest number, None if there is none."""

    def version(path: PurePath) -> tuple[int, ...]:
        return tuple(int(part) for part in path.name.split("."))

    numbered = (path for path in files.listed(folder, "*.*.*") if _VERSION.fullmatch(path.name))
    prepared = (path for path in numbered if files.is_there(path / "dataset_info.json"))
    return max(prepared, key=version, default=None)


def open_prepared(folder: Path, split: str) -> Any:
    """Returns TFDS's builder of a prepared folder that has the split, after a look at its files.

    Raises:
      DatasetNotFoundError: a file of the split is missing.
      CorruptDataError: a file is not what it should be, or there is no such split.
      Exception: what TFDS raises for a damaged folder.
    """
    tfds_folder.check_prepared(folder)
    import tensorflow_datasets as tfds  # two seconds of import, and nothing else here needs it

    builder = tfds.builder_from_directory(folder)
    if split not in builder.info.splits:
        raise CorruptDataError(
            f"{folder}: expected a split called {split}, got {', '.join(builder.info.splits)}"
        )
    for path in builder.info.splits[split].filepaths:
        tfds_folder.check_shard(Path(path), folder)
    return builder


def _read_folder(folder: Path, split: str, spec: DatasetSpec) -> LabelledImages:
    builder = open_prepared(folder, split)
    num_examples = builder.info.splits[split].num_examples
    if not 0 < num_examples <= spec.num_examples(split):
        raise CorruptDataError(
            f"{folder}: expected one to {spec.num_examples(split)} {split} examples, "
            f"got {num_examples} in dataset_info.json; prepare it again"
        )
    images = np.empty((num_examples, *spec.image_shape), np.uint8)
    labels = np.empty(num_examples, np.int64)
    num_read = 0
    for example in read_examples(builder, split, encoded=("image",)):
        if num_read < num_examples:
            images[num_read] = _image(folder, example["image"], spec)
            labels[num_read] = example["label"]
        num_read += 1
    if num_read != num_examples:
        raise CorruptDataError(
            f"{folder}: expected {num_examples} {split} examples as dataset_info.json says, "
            f"got {num_read}; prepare it again"
        )
    return images, labels


def _image(folder: PurePath, content: bytes, spec: DatasetSpec) -> UInt8[np.ndarray, "H W C"]:
    """Decodes an image of the right size; of another not even its pixels are made."""
    image = pictures.open_picture(content)
    dtype, shape = pictures.dtype_and_shape(image)
    if dtype != "uint8" or shape != spec.image_shape:
        raise CorruptDataError(
            f"{folder}: expected uint8 images of shape {spec.image_shape}, "
            f"got {dtype} of shape {shape}"
        )
    return pictures.pixels(image, shape[-1])


def read_examples(
    builder: Any, split: str, encoded: tuple[str, ...] = ()
) -> Iterable[dict[str, Any]]:
    """Returns a split's examples, in any of the formats, without TensorFlow.

    Args:
      builder: of `open_prepared`.
      split: one of its splits.
      encoded: features to leave as the bytes that are stored.
    """
    import tensorflow_datasets as tfds

    decoders = {name: tfds.decode.SkipDecoding() for name in encoded} or None
    if builder.info.file_format.value != "tfrecord":
        return builder.as_data_source(split=split, decoders=decoders)
    return (
        builder.info.features.deserialize_example_np(record, decoders=decoders)
        for path in builder.info.splits[split].filepaths
        for record in tfrecords(Path(path))
    )


def tfrecords(path: PurePath) -> Iterator[bytes]:
    """Yields the records of a tfrecord file.

    A record is its length (little-endian, 8 bytes), a checksum of that (4), the bytes, and a
    checksum of those (4). The checksums are not verified: they are CRC-32C, which the standard
    library lacks, and a damaged image does not decode anyway.

    Raises:
      CorruptDataError: the file ends inside a record.
    """
    size = files.size_of(path)
    start = 0
    with files.opened(path) as file:
        while start < size:
            header = file.read(12)
            if len(header) < 12:
                raise CorruptDataError(
                    f"{path}: expected 12 bytes of record header at byte {start}, got {len(header)}"
                )
            (length,) = struct.unpack_from("<Q", header)
            end = start + 12 + length + 4
            if end > size:
                raise CorruptDataError(
                    f"{path}: expected the record at byte {start} to end at byte {end}, "
                    f"got a file of {size} bytes"
                )
            yield file.read(length + 4)[:-4]
            start = end
