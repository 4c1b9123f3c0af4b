"""NumPy's `.npz` format: a zip file with one `.npy` file for each array."""

import io
import os
import zipfile

import numpy as np

from jaxsens.data.sources import npy

_END, _LARGE = b"PK\5\6", b"PK\6\7"
_END_SIZE, _LARGE_SIZE = 22, 20
#: What the list of members may take; NumPy needs some 60 bytes for each.
_MAX_LIST = 1 << 16


def open_archive(file: io.BufferedIOBase) -> zipfile.ZipFile:
    """Returns the archive in an open file, whose list of members is short.

    Raises:
      ValueError: the list is so long that Python would need far more memory than the file.
      zipfile.BadZipFile: it is not a zip file.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _END_SIZE - 0xFFFF))  # after the list there is room for a comment
    tail = file.read()
    place = max(0, tail.rfind(_END))
    num_bytes = int.from_bytes(tail[place + 12 : place + 16], "little")
    # Where the sizes of an archive beyond 4 GiB stand, which are then used instead of these.
    is_large = tail[max(0, place - _LARGE_SIZE) : place].startswith(_LARGE)
    if tail[place:].startswith(_END) and (is_large or num_bytes > _MAX_LIST):
        raise ValueError(f"expected a list of members of at most {_MAX_LIST} bytes, got more")
    return zipfile.ZipFile(file)


def read_header(archive: zipfile.ZipFile, key: str) -> npy.Header | None:
    """Returns what the array of that name is, None if there is none.

    Raises:
      ValueError: it is not an array of plain numbers, or takes another size than it promises.
      Exception: what zipfile and zlib raise for a damaged archive.
    """
    name = f"{key}.npy"
    if name not in archive.namelist():
        return None
    member = archive.getinfo(name)
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{key} is compressed in a way that NumPy does not use")
    with archive.open(member) as stream:
        header = npy.read_header(stream)
    if member.file_size != header.size + header.num_bytes:
        raise ValueError(
            f"expected {header.size + header.num_bytes} bytes of {key}, got {member.file_size}"
        )
    return header


def read(archive: zipfile.ZipFile, key: str) -> np.ndarray:
    """Returns the array of that name.

    Call `read_header` first: it says whether the array is there, and how much memory it takes.

    Raises:
      ValueError: it is longer or shorter than it promises.
      Exception: what zipfile and zlib raise for a damaged archive.
    """
    with archive.open(f"{key}.npy") as stream:
        array = npy.read(stream, npy.read_header(stream))
        if stream.read(1):  # at the end, which zipfile needs to see to compare its checksum
            raise ValueError(f"{key} goes on after its numbers")
    return array
