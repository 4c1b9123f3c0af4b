"""Weights from a file: safetensors, npz, or a folder of orbax. Nothing is ever unpickled.

Names with slashes or dots become dicts in dicts: "params/Dense_0/kernel" is what Flax calls
params["Dense_0"]["kernel"].
"""

import importlib
import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxsens.core.user_code import first_line

#: Formats that run code when they are read.
_PICKLED = {".pkl", ".pickle", ".pt", ".pth", ".bin", ".ckpt", ".joblib"}


def read_weights(path: Path, *, nested: bool = True) -> Any:
    """The weights in a file, or in a folder of orbax, as dicts of arrays.

    Args:
      path: the file or folder.
      nested: whether names are taken apart; else one dict is returned as it is stored.

    Raises:
      ValueError: there is nothing, or nothing that can be read.
    """
    if path.suffix in _PICKLED:
        raise ValueError(
            f"{path}: {path.suffix} files are pickles, which run code when they are read; save the "
            "weights as safetensors (safetensors.torch.save_file) or npz"
        )
    if not path.exists():
        raise ValueError(f"{path} is not there; --params takes safetensors, npz or an orbax folder")
    if path.is_dir():
        return _read_orbax(path)
    readers = {".safetensors": _read_safetensors, ".npz": _read_npz}
    if path.suffix not in readers:
        raise ValueError(f"{path}: expected .safetensors, .npz or an orbax folder")
    flat = readers[path.suffix](path)
    return _nested(flat) if nested else flat


def _read_safetensors(path: Path) -> dict[str, Any]:
    try:
        # JAX's reader knows bfloat16, NumPy's does not.
        safetensors = importlib.import_module("safetensors.flax")
    except ImportError:
        raise ValueError(
            f"{path} needs the package safetensors: pip install 'jaxsens[measure]'"
        ) from None
    try:
        return safetensors.load_file(path)
    except Exception as error:  # safetensors has an error of its own
        raise ValueError(f"{path} is no safetensors file: {first_line(error)}") from None


def _read_npz(path: Path) -> dict[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is no npz file of numbers: {first_line(error)}") from None


def _read_orbax(path: Path) -> Any:
    import orbax.checkpoint as ocp  # a second, which other formats do not need

    # A step of orbax's manager, and of a run of jaxsens, has the tree one folder below.
    below = path / "default"
    folder = (below if below.is_dir() else path).resolve()
    try:
        with ocp.PyTreeCheckpointer() as checkpointer:
            stored = checkpointer.metadata(folder).item_metadata.tree
            as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), stored)
            return checkpointer.restore(folder, args=ocp.args.PyTreeRestore(restore_args=as_numpy))
    except Exception as error:  # orbax and tensorstore raise whatever they like
        raise ValueError(
            f"{path} is no folder of orbax: {type(error).__name__}: {first_line(error)}"
        ) from None


def _nested(flat: dict[str, Any]) -> Any:
    """Dicts in dicts, if names have slashes or, else, dots."""
    separator = next((sign for sign in "/." if any(sign in name for name in flat)), None)
    if separator is None:
        return flat
    tree: dict[str, Any] = {}
    for name, array in flat.items():
        *folders, last = name.split(separator)
        place = tree
        for folder in folders:
            place = place.setdefault(folder, {})
            if not isinstance(place, dict):
                raise ValueError(
                    f"weights are called {folder!r} and {name!r}; use --params-keys flat"
                )
        if isinstance(place.get(last), dict):
            raise ValueError(f"weights have {name!r} and more below; use --params-keys flat")
        place[last] = array
    return tree
