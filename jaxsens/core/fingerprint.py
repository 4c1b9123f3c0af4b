"""Digests that tell whether two runs have the same data, model and surroundings.

A digest is a function of content: of arrays their dtype, shape and bytes, of texts their
characters, of a dataclass its name and those fields that differ from their defaults, of a function
its name. So it outlives a new process, a move of the code and a new field with a default; it does
not see the code behind a name.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.metadata
import platform
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from jaxsens.core import runtime

PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy")


def digest(value: Any) -> str:
    """Sixteen hexadecimal digits that are equal for values of equal content.

    Args:
      value: arrays, texts, numbers, functions, dataclasses (Flax modules too), and tuples, lists
        and dicts of such.

    Example:
      >>> digest(("a", "b")) == digest(["a", "b"]), digest("ab") == digest(("a", "b"))
      (True, False)
    """
    found = hashlib.sha256()
    for part in _parts(value):
        # The length keeps neighbours apart.
        found.update(b"%d:" % len(part))
        found.update(part)
    return found.hexdigest()[:16]


def fingerprint(data: Any) -> dict[str, str]:
    """The digests of what an experiment loaded, by dotted name.

    Args:
      data: a dataclass of arrays and sequences of texts, also nested, or None. If parts of it
        are computed, whose last bits depend on the machine, its method `sources` gives the
        others by name. A single text or number says where data is from, and is left out.

    Example:
      >>> sorted(fingerprint({"x": np.zeros((2, 3)), "from": "a file"}))
      ['x']
    """
    return {name: digest(leaf) for name, leaf in _named(data, "")}


def surroundings() -> dict[str, Any]:
    """What decides the bits of a run beside its data: versions, random generator, device, cores."""
    from jaxsens import __version__  # here, because jaxsens/__init__.py may import this module

    return {
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in PACKAGES},
        "jaxsens": __version__,
        "prng": str(jax.random.key_impl(jax.random.key(0))),
        "device": jax.devices()[0].device_kind,
        "cores": runtime.num_cores(),
    }


def _named(data: Any, name: str) -> Iterator[tuple[str, Any]]:
    if hasattr(data, "sources"):
        data = data.sources()
    if dataclasses.is_dataclass(data):
        data = {field.name: getattr(data, field.name) for field in dataclasses.fields(data)}
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _named(value, f"{name}.{key}" if name else str(key))
    elif isinstance(data, np.ndarray | jax.Array | tuple | list):
        yield name, data


def _parts(value: Any) -> Iterator[bytes | memoryview]:
    """The value as bytes, in pieces, each kind with a mark of its own."""
    if isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        yield str(jax.random.key_impl(value)).encode()
        value = jax.random.key_data(value)
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        array = np.ascontiguousarray(value)
        yield f"array {array.dtype} {np.shape(value)}".encode()
        yield array.reshape(-1).view(np.uint8).data
    elif isinstance(value, str | bytes | bool | int | float | None):
        yield type(value).__name__.encode()
        yield value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
    elif isinstance(value, tuple | list):
        yield b"sequence %d" % len(value)
        for item in value:
            yield from _parts(item)
    elif isinstance(value, Mapping):
        yield b"mapping %d" % len(value)
        for key in sorted(value, key=repr):
            yield from _parts((key, value[key]))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield f"dataclass {type(value).__name__}".encode()
        yield from _parts(dict(_given(value)))
    elif isinstance(value, functools.partial):
        yield from _parts(("partial", value.func, value.args, value.keywords))
    else:
        # Functions, also jitted ones, types and dtypes; never a repr, which may hold an address.
        name = getattr(value, "__name__", None) or getattr(value, "name", None)
        yield f"name {name or type(value).__name__}".encode()


def _given(value: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a dataclass that differ from their defaults."""
    for field in dataclasses.fields(value):
        # Flax marks a module's parent in this way: it is no part of the module.
        if not field.repr:
            continue
        given, default = getattr(value, field.name), field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if default is dataclasses.MISSING or list(_parts(given)) != list(_parts(default)):
            yield field.name, given
