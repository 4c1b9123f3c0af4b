"""A text dataset that TensorFlow Datasets has prepared on disk, read without TensorFlow."""

import itertools
import logging
from pathlib import Path, PurePath
from typing import Any

from jaxsens.data.errors import CorruptDataError, DatasetNotFoundError, UnusableSourceError
from jaxsens.data.sources import files, tfds
from jaxsens.data.text.files import from_features
from jaxsens.data.text.rows import collect
from jaxsens.data.text.spec import TextSpec
from jaxsens.data.text.texts import Texts

_logger = logging.getLogger("jaxsens")


def read_prepared(
    root: PurePath, split: str, spec: TextSpec, *, skip_bad_rows: bool = False
) -> Texts | None:
    """Returns the split, None if the root has no such prepared folder.

    Args:
      root: the folder TFDS calls `data_dir`, with `glue/mrpc/2.0.0` and the like in it. Of several
        versions the highest is read.
      split: "train" or "validation".
      spec: the dataset's facts.
      skip_bad_rows: leave bad examples out and warn, instead of an error.

    Raises:
      CorruptDataError: the folder does not hold what its `dataset_info.json` promises.
      UnusableSourceError: a package that reads the folder's format is not installed.
    """
    candidates = (tfds.newest_version(root / name) for name in spec.tfds_names)
    folder = next((found for found in candidates if found), None)
    if folder is None:
        return None
    name = split if split == "train" else spec.tfds_split
    try:
        with tfds.quiet(), files.folder_on_disk(folder) as on_disk:
            rows = _rows(on_disk, name)
    except (CorruptDataError, DatasetNotFoundError, UnusableSourceError):
        raise
    except ImportError as error:
        raise UnusableSourceError(f"{folder} needs a package that is missing: {error}") from None
    except Exception as error:  # whatever TFDS, array_record or pyarrow make of damaged files
        raise CorruptDataError(
            f"{folder}: expected texts that TensorFlow Datasets has prepared, but reading the "
            f"{name} split failed ({type(error).__name__}: {tfds.first_line(error)}); prepare it "
            f"again"
        ) from error
    places = ((f"example {number}", row) for number, row in enumerate(rows))
    texts = collect(
        folder, places, lambda row: from_features(row, spec), skip_bad_rows=skip_bad_rows
    )
    _logger.info("%s %s: %d examples prepared by TFDS in %s", spec.name, split, len(texts), folder)
    return texts


def _rows(folder: Path, split: str) -> list[dict[str, Any]]:
    builder = tfds.open_prepared(folder, split)
    promised = builder.info.splits[split].num_examples
    rows = list(itertools.islice(tfds.read_examples(builder, split), promised + 1))
    if len(rows) != promised:
        raise CorruptDataError(
            f"{folder}: dataset_info.json promises {promised} {split} examples, got "
            f"{len(rows)}{' or more' if len(rows) > promised else ''}; prepare it again"
        )
    # From a damaged shard TFDS decodes records that lack their features.
    if any(value is None for row in rows for value in row.values()):
        raise CorruptDataError(
            f"{folder}: expected {split} examples with all features, got some without; "
            f"prepare it again"
        )
    return rows
