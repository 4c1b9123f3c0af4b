"""NumPy's `.npy` format, read so that a damaged file costs no memory and runs nothing.

The header is a Python literal that NumPy parses with Python's own parser, objects and nested types
included. Datasets need numbers only, so the few shapes that such a header has are matched here, and
the size it promises is compared with what is there before any of it is read.
"""

import dataclasses
import math
import re
import struct

import numpy as np

from jaxsens.data.sources.files import ByteStream, read_array

_MAGIC = b"\x93NUMPY"
_MAX_HEADER = 4096
_HEADER = re.compile(
    r"\{\s*'descr':\s*'(?P<descr>[^']{1,20})',\s*'fortran_order':\s*(?P<fortran>True|False),"
    r"\s*'shape':\s*\((?P<shape>[\d,\sL]{0,200})\),?\s*\}\s*"
)
_NUMBER = re.compile(r"[<>|=]?[biuf]\d{1,2}")


@dataclasses.dataclass(frozen=True)
class Header:
    """What an array is, before it is read.

    Attributes:
      dtype: of its numbers.
      shape: its axes.
      fortran_order: whether the first axis varies fastest.
      size: bytes that the header took.
    """

    dtype: np.dtype
    shape: tuple[int, ...]
    fortran_order: bool
    size: int

    @property
    def num_bytes(self) -> int:
        """What the array takes in the file."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(stream: ByteStream) -> Header:
    """Returns the header at the start of a stream.

    Raises:
      ValueError: it is not that of an array of plain numbers.
    """
    start = stream.read(8)
    if start[:6] != _MAGIC or len(start) < 8:
        raise ValueError(f"expected {_MAGIC!r} at the start, got {start[:6]!r}")
    size_format = "<H" if start[6] == 1 else "<I"
    num_prefix = struct.calcsize(size_format)
    prefix = stream.read(num_prefix)
    (num_text,) = struct.unpack(size_format, prefix) if len(prefix) == num_prefix else (0,)
    if not 0 < num_text <= _MAX_HEADER:
        raise ValueError(f"expected a header of 1 to {_MAX_HEADER} bytes, got {num_text}")
    text = stream.read(num_text).decode("latin-1")
    found = _HEADER.fullmatch(text)
    if found is None:
        raise ValueError(f"expected a header of dtype, order and shape, got {text[:60]!r}")
    axes = [axis.strip().removesuffix("L") for axis in found["shape"].split(",")]
    try:
        shape = tuple(int(axis) for axis in axes if axis)
    except ValueError:
        raise ValueError(f"expected a shape, got ({found['shape']})") from None
    size = len(start) + num_prefix + num_text
    return Header(_dtype(found["descr"]), shape, found["fortran"] == "True", size)


def read(stream: ByteStream, header: Header) -> np.ndarray:
    """Returns the array after its header.

    Raises:
      ValueError: the stream ends before.
    """
    numbers = read_array(stream, header.num_bytes).view(header.dtype)
    return numbers.reshape(header.shape, order="F" if header.fortran_order else "C")


def _dtype(descr: str) -> np.dtype:
    if "O" in descr:
        raise ValueError("it holds Python objects, which are never unpickled: allow_pickle=False")
    if _NUMBER.fullmatch(descr):
        try:
            return np.dtype(descr)
        except TypeError:
            pass
    raise ValueError(f"expected numbers, got the dtype {descr!r}")
