"""oneDNN by its C interface, with ctypes.

The library is the file that the package onednn-cpu-gomp installs. It makes its kernels for the
machine at hand.

Assumption: version 3 of the interface, whose numbers stand below as its headers define them.
"""

import contextlib
import ctypes
import functools
import importlib.metadata
import importlib.util
import os
from collections.abc import Iterator, Sequence
from ctypes import byref, c_int, c_int64, c_void_p
from typing import Any

import jax
import jax.numpy as jnp

PACKAGE = "onednn-cpu-gomp"
FILE = "libdnnl.so.3"

ALLOCATE, NONE = c_void_p(-1), c_void_p(None)
_CPU, _FLOAT32, _ANY_FORMAT, _IN_ORDER = 1, 3, 1, 1
_MOST_AXES = 12
_FROM, _TO = 1, 17


class Argument(ctypes.Structure):
    """What a primitive is given: a number that says what it is, and a memory."""

    _fields_ = (("name", c_int), ("memory", c_void_p))


def is_available(*arrays: Any) -> bool:
    """Whether oneDNN is there and knows what to do with these arrays.

    Only on a CPU that is one device: XLA cannot cut a call of a library into shards.
    """
    known = all(a.dtype == jnp.float32 and a.size for a in arrays)
    return known and _is_alone() and _load() is not None


def version() -> str | None:
    """The version of the package, or None if `is_available` says that it is not used."""
    return importlib.metadata.version(PACKAGE) if is_available() else None


def _is_alone() -> bool:
    return jax.default_backend() == "cpu" and jax.device_count() == 1


@functools.cache
def _load() -> ctypes.CDLL | None:
    """The library, or None where a package or what it needs (libgomp) is missing."""
    if importlib.util.find_spec("llvmlite") is None:
        return None
    try:
        files = importlib.metadata.files(PACKAGE) or []
        path = next(str(file.locate()) for file in files if file.name == FILE)
        with _patient_threads():
            found = ctypes.CDLL(path)
    except (importlib.metadata.PackageNotFoundError, StopIteration, OSError):
        return None
    found.dnnl_primitive_desc_query_md.restype = c_void_p
    return found


@contextlib.contextmanager
def _patient_threads() -> Iterator[None]:
    """OpenMP reads this when it is loaded.

    Its threads would otherwise wait for their next work by spinning, on the cores that XLA needs.
    """
    name = "OMP_WAIT_POLICY"
    given = os.environ.get(name)
    os.environ[name] = given or "passive"
    try:
        yield
    finally:
        if given is None:
            del os.environ[name]


def loaded() -> ctypes.CDLL:
    """The library, which must be there."""
    library = _load()
    assert library is not None, f"{PACKAGE} or llvmlite is not installed"
    return library


def checked(function: str, *arguments: Any) -> None:
    """Calls a function by its name.

    Raises:
      RuntimeError: it failed.
    """
    status = getattr(loaded(), function)(*arguments)
    if status != 0:
        raise RuntimeError(f"oneDNN: {function} ended with status {status}")


def made(function: str, *arguments: Any) -> c_void_p:
    """What a function makes."""
    handle = c_void_p()
    checked(function, byref(handle), *arguments)
    return handle


@functools.cache
def engine() -> c_void_p:
    """The CPU."""
    return made("dnnl_engine_create", _CPU, ctypes.c_size_t(0))


@functools.cache
def stream() -> c_void_p:
    """Where primitives are executed."""
    return made("dnnl_stream_create", engine(), _IN_ORDER)


def dims(values: Sequence[int]) -> Any:
    """Sizes, strides or paddings of axes."""
    return (c_int64 * _MOST_AXES)(*values)


def layout(sizes: Sequence[int], strides: Sequence[int] | None) -> c_void_p:
    """Of a float32 array; oneDNN chooses the order of its entries if no strides are given."""
    if strides is None:
        return made(
            "dnnl_memory_desc_create_with_tag", len(sizes), dims(sizes), _FLOAT32, _ANY_FORMAT
        )
    return made(
        "dnnl_memory_desc_create_with_strides", len(sizes), dims(sizes), _FLOAT32, dims(strides)
    )


def chosen_layout(descriptor: c_void_p, role: int) -> c_void_p:
    """The layout that a primitive wants for one of its arrays."""
    return c_void_p(loaded().dnnl_primitive_desc_query_md(descriptor, role, 0))


def is_same(one: c_void_p, other: c_void_p) -> bool:
    """Whether two layouts are the same."""
    return bool(loaded().dnnl_memory_desc_equal(one, other))


def memory(layout: c_void_p, data: c_void_p = NONE) -> c_void_p:
    """An array at an address that is told later, or that oneDNN allocates."""
    return made("dnnl_memory_create", layout, engine(), data)


def primitive(descriptor: c_void_p) -> c_void_p:
    """What can be executed."""
    return made("dnnl_primitive_create", descriptor)


def arguments(pairs: Sequence[tuple[int, c_void_p]]) -> Any:
    """What to execute a primitive on: for each memory, what it is."""
    return (Argument * len(pairs))(*(Argument(name, memory) for name, memory in pairs))


def copy(layout: c_void_p, source: c_void_p, wanted: c_void_p, target: c_void_p) -> Any:
    """The primitive that brings an array from one layout to another, and its arguments."""
    descriptor = made(
        "dnnl_reorder_primitive_desc_create", layout, engine(), wanted, engine(), NONE
    )
    return primitive(descriptor), arguments([(_FROM, source), (_TO, target)])
