"""MATLAB 5 files: the same arrays as SciPy, and no byte of them can end the process."""

import io
import struct
import zlib

import numpy as np
import pytest
import scipy.io

from jaxsens.data.sources import matlab

RNG = np.random.default_rng(0)
ARRAYS = {
    "bytes": RNG.integers(0, 256, (4, 3, 2, 5), np.uint8),
    "small": np.array([[7, 8]], np.uint8),  # four bytes or fewer stand in the tag
    "floats": RNG.normal(size=(2, 3)).astype(np.float32),
    "doubles": RNG.normal(size=(3, 1)),
    "integers": RNG.integers(-(2**60), 2**60, (2, 2)),
    "empty": np.zeros((0, 4), np.int16),
    "a_name_longer_than_eight_bytes": np.array([[-5]], np.int8),
}
OTHERS = {"text": "abc", "cell": np.array([[1, "x"]], object), "complex": np.array([[1 + 2j]])}


def saved(content, zipped=False):
    buffer = io.BytesIO()
    scipy.io.savemat(buffer, content, do_compression=zipped)
    return buffer.getvalue()


def read(content):
    return {v.name: v.read() for v in matlab.variables(io.BytesIO(content), len(content))}


def element(kind, content):
    return struct.pack(">II", kind, len(content)) + content + bytes(-len(content) % 8)


@pytest.mark.parametrize("zipped", [False, True])
def test_the_arrays_are_scipys(zipped):
    content = saved(ARRAYS | OTHERS, zipped)
    expected, found = scipy.io.loadmat(io.BytesIO(content)), read(content)
    assert list(found) == list(ARRAYS)
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name])
        assert (array.dtype, array.shape) == (ARRAYS[name].dtype, ARRAYS[name].shape)


def test_the_other_byte_order():
    array = np.arange(6, dtype=">i4").reshape(2, 3)
    parts = (6, struct.pack(">II", 12, 0)), (5, struct.pack(">ii", 2, 3)), (1, b"x")
    matrix = b"".join(element(*part) for part in (*parts, (5, array.tobytes("F"))))
    content = bytes(124) + struct.pack(">H", 0x100) + b"MI" + element(14, matrix)
    np.testing.assert_array_equal(read(content)["x"], array)
    assert read(content)["x"].dtype == np.int32


def test_nothing_is_read_before_it_is_asked_for():
    content = saved({"X": np.zeros((8, 8), np.uint8), "y": np.ones((1, 9), np.uint8)}, zipped=True)
    variables = {v.name: v for v in matlab.variables(io.BytesIO(content), len(content))}
    assert {name: (v.dtype, v.shape) for name, v in variables.items()} == {
        "X": (np.uint8, (8, 8)),
        "y": (np.uint8, (1, 9)),
    }


def test_any_byte_before_the_numbers_may_be_anything():
    """SciPy ends the process where the type of an array's numbers is 19, 25, 60 or 200."""
    content = saved({"X": np.arange(24, dtype=np.uint8).reshape(4, 3, 2), "y": np.ones((2, 9))})
    num_right = 0
    for place in range(124, 192):
        for value in (0, 19, 60, 200, 255):
            damaged = content[:place] + bytes([value]) + content[place + 1 :]
            try:
                found = read(damaged)
            except (ValueError, zlib.error) as error:
                assert "\n" not in str(error)  # noqa: PT017
            else:
                num_right += 1
                assert all(array.size <= 24 for array in found.values())
    assert num_right > 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "byte order"),
        (bytes(200), "byte order"),
        (bytes(124) + b"\0\2IM" + bytes(8), "expected version 0x100, got 0x200; save it with -v7"),
        (saved({"X": np.zeros((9, 9))})[:-1], "the element at byte 128 should end at byte"),
        (saved({"X": np.zeros((9, 9))}) + b"abc", "it ends after 3 of 8 bytes"),
        (saved({"X": np.zeros((9, 9))})[:128] + element(9, b"") * 101, "at most 100 elements"),
        (saved({"X": np.zeros((9, 9))}, zipped=True)[:-9], "should end at byte"),
    ],
)
def test_other_files_are_named(content, message):
    with pytest.raises(ValueError, match=message):
        read(content)


def test_a_compressed_part_ends_where_its_numbers_end():
    whole = saved({"X": np.zeros((9, 9), np.uint8)})
    matrix = whole[128:]
    for inner, message in (
        (matrix + bytes(64), "to end after its numbers"),
        (matrix[:-40], "it ends after"),
        (struct.pack("<II", 9, 8) + matrix[8:], "expected a compressed array"),
    ):
        packed = zlib.compress(inner)
        with pytest.raises(ValueError, match=message):
            read(whole[:128] + struct.pack("<II", 15, len(packed)) + packed)
    packed = zlib.compress(matrix)[:-1] + b"\0"
    with pytest.raises(zlib.error, match="incorrect data check"):
        read(whole[:128] + struct.pack("<II", 15, len(packed)) + packed)
