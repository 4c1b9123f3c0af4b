"""Fetches a dataset's official files with the downloader, addresses and checksums of TFDS.

Why not `download_and_prepare`: without TensorFlow it gets as far as encoding the first image and
fails (`tf.image.encode_png`), for every dataset here. So TFDS fetches and verifies the official
files, and the readers of this package read them. They are put where `load` looks first next time.
"""

import contextlib
import logging
import os
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jaxsens.data.dataset import DatasetSpec
from jaxsens.data.errors import UnusableSourceError
from jaxsens.data.sources.tfds import first_line, quiet

_logger = logging.getLogger("jaxsens")
_TIMEOUT_SECONDS = 5
_NOT_NEEDED = ("extra_32x32.mat",)  # SVHN's third split, 1.2 GiB


def download(root: Path, spec: DatasetSpec) -> Path:
    """Downloads the official files into `<root>/<name>/` and returns that folder.

    Raises:
      UnusableSourceError: TFDS does not have the dataset, there is no network, the folder cannot
        be written, or the checksum of a file is not the official one.
    """
    with unusable_if_it_fails():
        with quiet():
            import tensorflow_datasets as tfds

            url_infos = tfds.builder_cls(spec.tfds_name).url_infos
        wanted = {u: info for u, info in url_infos.items() if info.filename not in _NOT_NEEDED}
        fetch(wanted, root / spec.name)
    return root / spec.name


@contextlib.contextmanager
def unusable_if_it_fails() -> Iterator[None]:
    """A download: whatever goes wrong in it is an `UnusableSourceError`."""
    try:
        yield
    except UnusableSourceError:
        raise
    except Exception as error:  # network, disk, checksum, archive: to the caller all the same
        raise UnusableSourceError(
            f"the download failed ({type(error).__name__}: {first_line(error)})"
        ) from None


def fetch(url_infos: Mapping[str, Any], folder: Path) -> None:
    """Downloads files, checks size and SHA-256, unpacks tar archives, and puts all into a folder.

    Args:
      url_infos: for each address what TFDS knows of the file: size, checksum, filename.
      folder: gets the files under these names. It sees only whole files: they are moved into it
        after all have been checked.

    Raises:
      UnusableSourceError: the first address cannot be reached.
      Exception: what TFDS or the file system raises.
    """
    _require_network(next(iter(url_infos)))
    folder.mkdir(parents=True, exist_ok=True)
    _logger.info("downloading %s into %s", ", ".join(url_infos), folder)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as temporary, quiet():
        import tensorflow_datasets as tfds

        manager = tfds.download.DownloadManager(
            download_dir=Path(temporary) / "files",
            url_infos=dict(url_infos),
            force_checksums_validation=True,
        )
        paths = manager.download({url: url for url in url_infos})
        staged = Path(temporary) / "staged"
        staged.mkdir()
        for url, path in paths.items():
            name = url_infos[url].filename
            if name.endswith(".tar.gz"):
                with tarfile.open(path) as archive:
                    archive.extractall(staged, filter="data")
            else:
                os.replace(path, staged / name)
        for entry in staged.iterdir():
            os.replace(entry, folder / entry.name)


def _require_network(url: str) -> None:
    # TFDS retries a dead connection for more than three minutes (measured: 204 s without network).
    import requests

    try:
        requests.head(url, timeout=_TIMEOUT_SECONDS)
    except requests.RequestException as error:
        raise UnusableSourceError(
            f"the download needs a network, and {urlsplit(url).hostname} cannot be reached "
            f"({type(error).__name__})"
        ) from None
