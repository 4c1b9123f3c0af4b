"""Numeric arrays in a MATLAB 5 file (`.mat`, what `save -v6` and `-v7` write).

A file is a header of 128 bytes and then elements, each a type, a number of bytes and the bytes.
An array is an element of type 14, alone or compressed inside one of type 15, which holds elements
itself: flags, dimensions, name, numbers. MathWorks' "MAT-File Format" has the definition.

Why not `scipy.io.loadmat`: it looks up the type of a damaged element in a table without checking
that it is in there, and the process ends (SIGSEGV or SIGBUS, SciPy 1.17). Here every type, size and
dimension is checked against what the file can hold, and numbers are read only when asked for.
"""

import dataclasses
import io
import math
import struct
import zlib
from collections.abc import Callable, Iterator

import numpy as np

from jaxsens.data.sources.files import ByteStream, read_array

_HEADER_SIZE = 128
_VERSION = 0x0100
_ORDERS = {b"IM": "<", b"MI": ">"}
_MATRIX, _COMPRESSED = 14, 15
_UINT32 = 6
_INTEGERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 12: "i8", 13: "u8"}
_DTYPES = _INTEGERS | {7: "f4", 9: "f8"}
_NUMERIC_CLASSES = range(6, 16)  # double, single and eight integers; others are text, cells, ...
_COMPLEX = 0x0800
_CHUNK = 1 << 16
#: Dimensions and names are short; more is damage.
_MAX_SMALL = 256
_MAX_ELEMENTS = 100


@dataclasses.dataclass(frozen=True)
class Variable:
    """An array that has not been read yet.

    Attributes:
      name: what MATLAB calls it.
      dtype: as which its numbers are stored; MATLAB stores whole doubles as bytes, for example.
      shape: its axes.
      read: returns the array; only before the next variable is asked for.
    """

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]


def variables(file: io.BufferedIOBase, size: int) -> Iterator[Variable]:
    """Yields the real numeric arrays of a file, one after the other; others are skipped.

    Args:
      file: open at its start.
      size: its bytes.

    Raises:
      ValueError: the file is damaged, or of another version.
      zlib.error: a compressed part is damaged.
    """
    header = file.read(_HEADER_SIZE)
    byte_order = _ORDERS.get(header[126:])
    if byte_order is None:
        raise ValueError("expected the byte order IM or MI at byte 126 of a MATLAB 5 header")
    (version,) = struct.unpack(byte_order + "H", header[124:126])
    if version != _VERSION:
        raise ValueError(f"expected version {_VERSION:#x}, got {version:#x}; save it with -v7")
    for _ in range(_MAX_ELEMENTS):
        start = file.tell()
        if start >= size:
            return
        element_type, num_bytes = struct.unpack(byte_order + "II", _exactly(file, 8))
        end = start + 8 + num_bytes
        if end > size:
            raise ValueError(f"the element at byte {start} should end at byte {end} of {size}")
        variable = None
        if element_type == _COMPRESSED:
            variable = _compressed(_Inflated(file, num_bytes), byte_order)
        elif element_type == _MATRIX:
            variable = _matrix(file, byte_order, num_bytes)
        if variable is not None:
            yield variable
        file.seek(end)
    raise ValueError(f"expected at most {_MAX_ELEMENTS} elements, got more")


class _Inflated:
    """The decompressed bytes of the next `num_bytes` of a file."""

    def __init__(self, file: io.BufferedIOBase, num_bytes: int) -> None:
        self._file, self._left = file, num_bytes
        self._inflate = zlib.decompressobj()

    def read(self, size: int, /) -> bytes:
        while not self._inflate.eof:
            source = self._inflate.unconsumed_tail
            if not source:
                source = self._file.read(min(_CHUNK, self._left))
                self._left -= len(source)
            piece = self._inflate.decompress(source, size)
            if piece or not source:
                return piece
        return b""

    def finish(self) -> None:
        """Reads the padding and zlib's checksum of everything before."""
        if len(self.read(8)) == 8 or self.read(1) or not self._inflate.eof:
            raise ValueError("expected a compressed array to end after its numbers")


def _compressed(stream: _Inflated, byte_order: str) -> Variable | None:
    element_type, num_bytes = struct.unpack(byte_order + "II", _exactly(stream, 8))
    if element_type != _MATRIX:
        raise ValueError(f"expected a compressed array (type {_MATRIX}), got type {element_type}")
    variable = _matrix(stream, byte_order, num_bytes)
    if variable is None:
        return None
    read = variable.read

    def read_to_the_end() -> np.ndarray:
        array = read()
        stream.finish()
        return array

    return dataclasses.replace(variable, read=read_to_the_end)


def _matrix(stream: ByteStream, byte_order: str, size: int) -> Variable | None:
    flags = _small(stream, byte_order, "flags", (_UINT32,))
    if len(flags) != 8:
        raise ValueError(f"expected 8 bytes of flags, got {len(flags)}")
    (flag,) = struct.unpack_from(byte_order + "I", flags)
    if (flag & 0xFF) not in _NUMERIC_CLASSES or flag & _COMPLEX:
        return None
    dimensions = _small(stream, byte_order, "dimensions", (5, _UINT32))
    num_axes = len(dimensions) // 4
    shape = struct.unpack(f"{byte_order}{num_axes}i", dimensions[: 4 * num_axes])
    name = _small(stream, byte_order, "name", (1, 2, 16)).decode("latin-1")
    element_type, num_bytes, content = _tag(stream, byte_order)
    if element_type not in _DTYPES:
        raise ValueError(f"expected numbers in {name[:40]!r}, got type {element_type}")
    dtype = np.dtype(byte_order + _DTYPES[element_type])
    is_whole = num_bytes <= size and math.prod(shape) * dtype.itemsize == num_bytes
    if min(shape, default=-1) < 0 or not is_whole:
        raise ValueError(f"expected {name[:40]!r} of shape {shape}, got {num_bytes} bytes of it")

    def read() -> np.ndarray:
        stored = content if content is not None else read_array(stream, num_bytes)
        numbers = np.frombuffer(stored, dtype).astype(dtype.newbyteorder("="), copy=False)
        return numbers.reshape(shape, order="F")

    return Variable(name, dtype.newbyteorder("="), shape, read)


def _small(stream: ByteStream, byte_order: str, what: str, allowed_types: tuple[int, ...]) -> bytes:
    """The content of a short element, and the padding after it."""
    element_type, num_bytes, content = _tag(stream, byte_order)
    if element_type not in allowed_types or num_bytes > _MAX_SMALL:
        raise ValueError(
            f"expected an array's {what}, got {num_bytes} bytes of type {element_type}"
        )
    if content is not None:
        return content
    return _exactly(stream, -(-num_bytes // 8) * 8)[:num_bytes]


def _tag(stream: ByteStream, byte_order: str) -> tuple[int, int, bytes | None]:
    """An element's type and size, and its content if that is in the tag: four bytes at most."""
    tag = _exactly(stream, 8)
    element_type, num_bytes = struct.unpack(byte_order + "II", tag)
    if element_type >> 16 == 0:
        return element_type, num_bytes, None
    element_type, num_bytes = element_type & 0xFFFF, element_type >> 16
    if num_bytes > 4:
        raise ValueError(f"expected at most 4 bytes in a short element, got {num_bytes}")
    return element_type, num_bytes, tag[4 : 4 + num_bytes]


def _exactly(stream: ByteStream, num_bytes: int) -> bytes:
    return read_array(stream, num_bytes).tobytes()
