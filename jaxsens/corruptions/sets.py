"""Whole corrupted test sets: the official files where they are, regenerated ones otherwise.

A regenerated set has the official operations and constants but other random numbers, so it is of
the same distribution, not the same images: `CorruptedSet.source` says which it is.

The 10,000 test images of CIFAR-10 at severity 2, on 2 busy CPU cores: 0.1 to 1.8 s per corruption,
shot noise 3.3 s, all eighteen 14 s; and 0.2 to 2.7 s each, once, to compile.
"""

import functools
import os
from dataclasses import dataclass
from pathlib import PurePath

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer, PRNGKeyArray, UInt8

from jaxsens.corruptions.base import Corruption, floor_levels
from jaxsens.corruptions.frost import FrostTextures, load_frost
from jaxsens.corruptions.severities import corruption
from jaxsens.data.errors import CorruptDataError, DatasetNotFoundError
from jaxsens.data.images import cifar10c
from jaxsens.data.sources import files
from jaxsens.data.sources.folders import expanded

#: Where a set came from: the official files.
OFFICIAL = "CIFAR-10-C"
#: Where a set came from: made here.
REGENERATED = "CIFAR-10-C style, regenerated"

_CHUNK = 250
#: A corruption that is not made here.
_ONLY_OFFICIAL = "spatter"
_FROST_FOLDERS = ("frost", "corruptions/frost")


@dataclass(frozen=True, eq=False)
class CorruptedSet:
    """A corrupted test set, and where it comes from.

    Attributes:
      images: uint8 (n, 32, 32, 3).
      labels: (n,).
      name: of the corruption.
      severity: 1 to 5.
      source: `OFFICIAL` or `REGENERATED`.
      detail: the folder of the official files; for regenerated frost, where its textures are from.

    Example:
      >>> images, labels = np.zeros((2, 32, 32, 3), np.uint8), np.array([3, 8])
      >>> made = CorruptedSet(images, labels, "fog", 5, OFFICIAL)
      >>> made.source, len(made.images)
      ('CIFAR-10-C', 2)
    """

    images: UInt8[np.ndarray, "n H W 3"]
    labels: Integer[np.ndarray, " n"]
    name: str
    severity: int
    source: str
    detail: str = ""


def load(
    name: str,
    severity: int,
    *,
    clean: tuple[np.ndarray, np.ndarray] | None = None,
    key: PRNGKeyArray | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    textures: FrostTextures | None = None,
) -> CorruptedSet:
    """Returns the official set if its folder is there, else corrupts the clean images.

    The official set has the 10,000 test images in order, whatever `clean` holds: to compare with a
    part of the test set take the same first part of both.

    Args:
      name: one of `NAMES`; with the official files also "spatter".
      severity: 1 to 5.
      clean: images as bytes and labels, in the order of the test set, used if there are no official
        files; if there are, labels must agree. `to_uint8` makes bytes of the images that
        `jaxsens.data.load` returns.
      key: for the draws, used if there are no official files.
      data_dir: where to look for `CIFAR-10-C/` or `cifar10c/`. Default: the environment variable
        `JAXSENS_DATA`.
      textures: for regenerated frost. Default: photographs in `frost/` or `corruptions/frost/` of
        the same directory, else procedural ones.

    Raises:
      ValueError: unknown name or severity, or images that are not bytes (n, H, W, 3).
      DatasetNotFoundError: neither official files nor clean images; or a file is missing in the
        official folder, for a half-present copy is never skipped.
      CorruptDataError: an official file is damaged, or its labels are not the clean images'.
    """
    if name != _ONLY_OFFICIAL:
        corruption(name, severity)
    given = data_dir or os.environ.get("JAXSENS_DATA")
    root = expanded(given) if given else None
    folder = cifar10c.find(root) if root else None
    if folder is not None:
        images, labels = cifar10c.read(folder, name, severity)
        if clean is not None:
            _check_labels(folder, labels, clean[1])
        return CorruptedSet(images, labels, name, severity, OFFICIAL, str(folder))
    if clean is None or key is None:
        raise DatasetNotFoundError(
            f"no {' or '.join(cifar10c.FOLDERS)} folder in {root or 'data_dir or JAXSENS_DATA'}, "
            "and no clean= images with a key= to corrupt; give either"
        )
    detail = ""
    if name == "frost":
        textures, detail = _frost_textures(root, textures)
    images, labels = clean
    corrupted = corrupt(images, name, severity, key=key, textures=textures)
    return CorruptedSet(corrupted, labels, name, severity, REGENERATED, detail)


def corrupt(
    images: np.ndarray,
    name: str,
    severity: int,
    *,
    key: PRNGKeyArray,
    textures: FrostTextures | None = None,
    chunk: int = _CHUNK,
) -> UInt8[np.ndarray, "n H W 3"]:
    """Corrupts a set of images, stored as bytes like the official files.

    Image i draws from `fold_in(key, i)`, so the result does not depend on `chunk`.

    Args:
      images: uint8 (n, H, W, 3).
      name: one of `NAMES`.
      severity: 1 to 5.
      key: for all draws.
      textures: for frost, see `load_frost`; procedural by default.
      chunk: images that one jitted call takes: memory grows with it, at most 1 MB per image.

    Raises:
      ValueError: unknown name or severity, or images that are not bytes (n, H, W, 3).

    Example:
      >>> images = np.full((2, 32, 32, 3), 100, np.uint8)
      >>> corrupt(images, "contrast", 5, key=jax.random.key(0))[1, 0, 0]
      array([100, 100, 100], dtype=uint8)
    """
    corrupt_one = corruption(name, severity, textures=textures)
    images = np.asarray(images)
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3:
        raise ValueError(
            f"expected images as uint8 (n, H, W, 3), got {images.dtype} {images.shape}; "
            "corruptions.to_uint8 converts images in [-1, 1]"
        )
    if chunk < 1:
        raise ValueError(f"expected chunk >= 1, got {chunk}")
    chunk = min(chunk, max(1, len(images)))
    output = np.empty_like(images)
    for start in range(0, len(images), chunk):
        part = images[start : start + chunk]
        padding = [(0, chunk - len(part)), (0, 0), (0, 0), (0, 0)]
        result = _corrupt_chunk(corrupt_one, _keys(key, start, chunk), np.pad(part, padding))
        output[start : start + len(part)] = np.asarray(result)[: len(part)]
    return output


def to_uint8(x: Float[np.ndarray, "n H W C"]) -> UInt8[np.ndarray, "n H W C"]:
    """Bytes of images in [-1, 1]: the inverse of what `jaxsens.data.load` does.

    >>> to_uint8(np.array([-1.0, 0.0, 1.0], np.float32).reshape(3, 1, 1, 1)).ravel()
    array([  0, 128, 255], dtype=uint8)
    """
    low, high = (float(x.min()), float(x.max())) if x.size else (0.0, 0.0)
    if not (low >= -1 and high <= 1):
        raise ValueError(f"expected images in [-1, 1], got values from {low:.6g} to {high:.6g}")
    return np.floor((x + 1) * 127.5 + 0.5).astype(np.uint8)


# By itself, so that it is compiled once for all corruptions.
@functools.partial(jax.jit, static_argnames="num")
def _keys(key: PRNGKeyArray, start: Array, num: int) -> Array:
    return jax.vmap(functools.partial(jax.random.fold_in, key))(start + jnp.arange(num))


@functools.partial(jax.jit, static_argnames="corrupt_one")
def _corrupt_chunk(corrupt_one: Corruption, keys: Array, images: Array) -> Array:
    corrupted = jax.vmap(corrupt_one)(keys, images.astype(jnp.float32) / 255)
    return floor_levels(corrupted).astype(jnp.uint8)


def _check_labels(folder: PurePath, official: np.ndarray, clean: np.ndarray) -> None:
    n = min(len(official), len(clean))
    wrong = int((official[:n] != clean[:n]).sum())
    if wrong:
        raise CorruptDataError(
            f"{folder}: {wrong} of the first {n} labels are not those of the clean images; "
            "expected the test images of CIFAR-10 in their order in both"
        )


def _frost_textures(
    root: PurePath | None, textures: FrostTextures | None
) -> tuple[FrostTextures | None, str]:
    if textures is not None:
        return textures, "frost textures as given"
    for folder in [root / name for name in _FROST_FOLDERS] if root else ():
        if files.is_there(folder):
            return load_frost(folder), f"frost photographs of {folder}"
    return None, "procedural frost textures"
