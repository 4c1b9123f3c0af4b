"""Fetches a text dataset's official files with the addresses and checksums of TFDS.

The files are put where `load_text` looks first next time. GLUE's archives hold the two tsv files
that are kept; MRPC comes as Microsoft's file and GLUE's list of the pairs held out.
"""

import importlib
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from jaxsens.data.errors import UnusableSourceError
from jaxsens.data.sources import download
from jaxsens.data.sources.tfds import quiet
from jaxsens.data.text.files import MAX_FILE
from jaxsens.data.text.spec import TextSpec

# TFDS has the file at Firebase, whose addresses answered 403 (tensorflow/datasets issue 2926); this
# is the same file by size and SHA-256, which are checked.
_MOVED = {"data_mrpc_dev_ids.tsv": "https://dl.fbaipublicfiles.com/glue/data/mrpc_dev_ids.tsv"}
_KEPT = ("train.tsv", "dev.tsv")


def fetch_text(root: Path, spec: TextSpec) -> Path:
    """Downloads the official files into `<root>/<name>/` and returns that folder.

    Raises:
      UnusableSourceError: there is no network, the folder cannot be written, or the checksum of a
        file is not the official one.
    """
    folder = root / spec.name
    with download.unusable_if_it_fails():
        url_infos = addresses(spec)
        download.fetch(url_infos, folder)
        for name in spec.archive_files:
            if name.endswith(".zip"):
                _unzip(folder / name)
    return folder


def addresses(spec: TextSpec) -> Mapping[str, Any]:
    """Returns for each address of the dataset's files its size, checksum and name as TFDS has them.

    Raises:
      UnusableSourceError: TFDS does not know one of the files.
    """
    with quiet():
        import tensorflow_datasets as tfds

        if spec.archive == "glue":
            # TFDS lists this builder only when TensorFlow is installed, but does not need it.
            importlib.import_module("tensorflow_datasets.text.glue")
        known = tfds.builder_cls(spec.archive).url_infos
    moved = {}
    for url, info in known.items():
        address = _MOVED.get(info.filename, url)
        name = PurePosixPath(address).name if address != url else info.filename
        moved[address] = type(info)(size=info.size, checksum=info.checksum, filename=name)
    wanted = {url: info for url, info in moved.items() if info.filename in spec.archive_files}
    if len(wanted) != len(spec.archive_files):
        raise UnusableSourceError(
            f"TensorFlow Datasets knows {len(wanted)} of the files {', '.join(spec.archive_files)}"
        )
    return wanted


def _unzip(path: Path) -> None:
    with (
        tempfile.TemporaryDirectory(dir=path.parent, prefix=".unzip-") as temporary,
        zipfile.ZipFile(path) as archive,
    ):
        for member in archive.namelist():
            name = PurePosixPath(member)
            if name.name in _KEPT and "__MACOSX" not in name.parts:
                with archive.open(member) as stream:
                    content = stream.read(MAX_FILE + 1)
                if len(content) > MAX_FILE:
                    raise ValueError(f"{member}: expected at most {MAX_FILE} bytes, got more")
                (Path(temporary) / name.name).write_bytes(content)
        for entry in Path(temporary).iterdir():
            os.replace(entry, path.parent / entry.name)
    path.unlink()
