"""What a prepared folder holds, looked at before TensorFlow Datasets opens it.

TFDS makes features from the names of Python classes in the folder's JSON files, and imports the
module of a name that it does not know: a folder from elsewhere could run any module that Python
finds. So names that are not those of TFDS's own features are refused.
"""

import json
import os
from pathlib import Path
from typing import Any

from jaxsens.data.errors import CorruptDataError
from jaxsens.data.sources import files

_OWN_FEATURES = "tensorflow_datasets.core.features."
_CLASS_KEYS = ("pythonClassName", "python_class_name")
_DESCRIPTIONS = ("dataset_info.json", "features.json")
#: What describes the data takes some kilobytes; the data is in files called `…-00000-of-00001`.
_MAX_DESCRIPTION = 1 << 24
_SHARD = "-of-"


def check_prepared(folder: Path) -> None:
    """Returns if TFDS may open the folder.

    Raises:
      CorruptDataError: something in it is not a file, a description is missing or damaged, or it
        names a class that is not TFDS's own.
    """
    for path in files.listed(folder):
        if path.name in _DESCRIPTIONS or not os.path.isdir(path):
            size = files.size_of(path)
            if size > _MAX_DESCRIPTION and _SHARD not in path.name:
                raise CorruptDataError(
                    f"{path}: expected at most {_MAX_DESCRIPTION} bytes, got {size}"
                )
    for name in _DESCRIPTIONS:
        path = folder / name
        if not files.is_there(path):
            raise CorruptDataError(f"{folder}: expected {name}, got none; prepare it again")
        try:
            _check(json.loads(files.read_bytes(path, _MAX_DESCRIPTION), object_pairs_hook=_Pairs))
        except _ForeignClassError as error:
            raise CorruptDataError(
                f"{path}: expected features of TensorFlow Datasets' own, got {str(error)[:80]!r}, "
                f"for which it would run a Python module; use another copy of the dataset"
            ) from None
        except RecursionError:
            raise CorruptDataError(f"{path}: expected JSON, got one nested too deeply") from None
        except ValueError as error:
            raise CorruptDataError(f"{path}: expected JSON, got something else ({error})") from None


def check_shard(path: Path, folder: Path) -> None:
    """Returns if a file of examples is an ordinary file in the folder.

    Raises:
      DatasetNotFoundError: it is not there.
      CorruptDataError: it lies elsewhere, or is something else than a file.
    """
    if path.parent != folder:
        raise CorruptDataError(f"{folder}: expected its examples in it, got {path}")
    files.size_of(path)


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with all its keys, also those that stand twice."""


class _ForeignClassError(Exception):
    """The name of a class that is not TFDS's own."""


def _check(value: Any) -> None:
    """Looks at every name of a class, also in JSON that stands in a string of the JSON."""
    if isinstance(value, _Pairs):
        keys = [key for key, _ in value]
        for key, item in value:
            # An older layout has the class under "type", beside "content".
            is_class = key in _CLASS_KEYS or (key == "type" and "content" in keys)
            if is_class and isinstance(item, str) and not item.startswith(_OWN_FEATURES):
                raise _ForeignClassError(item)
            _check(item)
    elif isinstance(value, list):
        for item in value:
            _check(item)
    elif isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            inner = json.loads(value, object_pairs_hook=_Pairs)
        except ValueError:
            return  # a text that begins with a bracket
        _check(inner)
