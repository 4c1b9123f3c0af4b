"""Which folders are looked into for a dataset, and in which order its sources are tried."""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePath
from typing import TypeVar

from jaxsens.core import storage
from jaxsens.data.errors import DatasetNotFoundError, UnusableSourceError

FoundT = TypeVar("FoundT")


def search_roots(data_dir: str | os.PathLike[str] | None) -> list[PurePath]:
    """Returns the folders to look into, in order: the one given, or else `JAXSENS_DATA`; TFDS's.

    Raises:
      ValueError: one begins with `~`, and there is no such home folder.
    """
    return _distinct([data_dir or os.environ.get("JAXSENS_DATA"), *_tfds_roots()])


def download_roots(data_dir: str | os.PathLike[str] | None) -> list[Path]:
    """Returns where to put a download: one folder, or none if none is given and there is no home.

    Not `JAXSENS_DATA`, which may be shared and is only read, nor one in an object store.
    """
    names = [name for name in (data_dir, *_tfds_roots()) if name]
    on_disk = [name for name in names if not storage.is_remote(os.fspath(name))]
    return [root for root in _distinct(on_disk) if isinstance(root, Path)][:1]


def expanded(name: str | os.PathLike[str]) -> PurePath:
    """Returns the path with a leading `~` written out; one that is no `Path` is in an object store.

    Raises:
      ValueError: there is no such home folder, or the store cannot be used.
    """
    if storage.is_remote(os.fspath(name)):
        return storage.located(os.fspath(name))
    try:
        return Path(name).expanduser()
    except RuntimeError:
        raise ValueError(
            f"expected a folder, got {os.fspath(name)!r}: there is no such home folder; write the "
            f"path in full"
        ) from None


def first_found(
    sources: Iterable[Callable[[], FoundT | None]],
) -> tuple[FoundT | None, list[str]]:
    """Asks one source after the other until one has the dataset.

    Args:
      sources: each returns the dataset, None if it has nothing of it, or raises
        `UnusableSourceError` if it has something that it cannot serve. Other errors are not caught:
        a damaged copy is never passed over for another one.

    Returns:
      What the first source that has the dataset returned, None if none has it; and for each source
      that could not be used, why.
    """
    reasons: list[str] = []
    for source in sources:
        try:
            if (found := source()) is not None:
                return found, reasons
        except UnusableSourceError as error:
            reasons.append(str(error))
    return None, reasons


def not_found(
    dataset: str,
    looked_for: str,
    roots: Sequence[PurePath],
    reasons: Sequence[str],
    files: str,
    *,
    can_download: bool,
) -> DatasetNotFoundError:
    """Returns the error that says where a dataset was looked for and how to get it.

    Args:
      dataset: its title and name.
      looked_for: which files and folders would have been read.
      roots: the folders that were looked into.
      reasons: why sources that had something could not be used.
      files: which files to put where, with DIR for a data directory.
      can_download: whether `load` fetches it where there is a network.
    """
    put = f"put {files} and pass --data-dir DIR or set JAXSENS_DATA=DIR"
    ways = (
        f"Two ways to get it: {put}; or load it once on a machine with a network, or copy a folder "
        "that TensorFlow Datasets prepared, and point the same option at it"
    )
    return DatasetNotFoundError(
        f"{dataset} was not found in {', '.join(map(str, roots))} ({looked_for})"
        f"{''.join(f'; {reason}' for reason in reasons)}. {ways if can_download else put}"
    )


def _tfds_roots() -> list[str]:
    """The folders that TFDS uses if none is given: that of the environment, that at home."""
    home = os.path.expanduser("~")  # stays "~" where a process has no home, as in some containers
    at_home = f"{home}/tensorflow_datasets" if home != "~" else ""
    return [root for root in (os.environ.get("TFDS_DATA_DIR"), at_home) if root]


def _distinct(names: Iterable[str | os.PathLike[str] | None]) -> list[PurePath]:
    return list(dict.fromkeys(expanded(name) for name in names if name))
