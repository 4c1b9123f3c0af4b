"""The examples of a command line: arrays in files, images in folders, datasets by name.

Arrays stay in their files, and images and texts are read when they are measured, so data may be
larger than memory.

Assumption: the first 64 rows of large data, spread evenly, stand for all of it when a run asks
whether its data is the one that it was begun with.
"""

import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from jaxsens import data as datasets
from jaxsens.cli.wording import nearest
from jaxsens.core.fingerprint import digest
from jaxsens.core.user_code import first_line
from jaxsens.data.sources import npy, npz
from jaxsens.measuring.config import Config
from jaxsens.measuring.pictures import PictureFolder, picture_files

#: Data that takes more is told from other data by some of its rows.
_LARGE, _NUM_ROWS = 256 << 20, 64


@dataclass(frozen=True)
class Examples:
    """What is measured.

    Attributes:
      x: (n, …) an array, a memmap, or what reads examples when they are asked for.
      context: what belongs to the examples beside it.
      mask: (n, T), true at the positions to measure.
      names: of the examples, if they have any.
      words: the tokens of each example, if it is a text.
      pictures: (n, H, W, C) or (n, C, H, W) what a report shows of each example.
    """

    x: Any
    context: Any = None
    mask: np.ndarray | None = None
    names: Sequence[str] | None = None
    words: Sequence[Sequence[str]] | None = None
    pictures: Any = field(default=None, repr=False)

    def sources(self) -> dict[str, Any]:
        """What tells this data from other data."""
        found = {"x": (rows_digest(self.x),)}
        if self.mask is not None:
            found["mask"] = (digest(self.mask),)
        return found


def rows_digest(x: Any) -> str:
    """The digest of an array or, if it is large or has to be read, of its shape and some rows."""
    size = int(np.prod(x.shape)) * np.dtype(x.dtype).itemsize
    if isinstance(x, np.ndarray) and size <= _LARGE:
        return digest(np.asarray(x))
    rows = np.unique(np.linspace(0, len(x) - 1, _NUM_ROWS).astype(int))
    return digest([list(x.shape), np.dtype(x.dtype).str, *(np.asarray(x[int(i)]) for i in rows)])


def load_examples(config: Config, data_dir: PurePath | None) -> Examples:
    """The examples that --data names.

    Raises:
      ValueError: there are none, or they cannot be read; the message is one line.
    """
    assert config.data is not None
    path = Path(config.data).expanduser()
    if path.is_dir():
        files = picture_files(path)[: config.num_examples]
        x: Any = PictureFolder(files, config.image_size)
        names = [file.relative_to(path).as_posix() for file in files]
        return Examples(x, names=names, pictures=x)
    if path.suffix in (".npy", ".npz"):
        arrays = stored_arrays(path)
    elif config.data in datasets.NAMES:
        arrays = {"x": datasets.load(config.data, config.split, data_dir)[0]}
    else:
        raise ValueError(
            f"--data {config.data} is no npy or npz file, no folder of images and no dataset"
            + nearest(config.data, datasets.NAMES)
        )
    cut = {name: array[: config.num_examples] for name, array in arrays.items()}
    x = cut[x_name(arrays, path)]
    return Examples(
        x,
        context=cut.get("context"),
        mask=cut.get("mask"),
        pictures=x if x.ndim == 4 else None,
    )


def x_name(arrays: dict[str, np.ndarray], path: Path) -> str:
    """Which of some arrays holds the examples: "x", or the only one."""
    if "x" in arrays:
        return "x"
    if len(arrays) == 1:
        return next(iter(arrays))
    raise ValueError(f"{path} has the arrays {', '.join(sorted(arrays))}; call the examples x")


def stored_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an npy or npz file, memory-mapped if they are not compressed.

    Raises:
      ValueError: there is no such file, or it does not hold arrays of numbers.
    """
    if not path.is_file():
        raise ValueError(f"{path} is not there; --data takes an npy or npz file")
    try:
        if path.suffix == ".npy":
            with path.open("rb") as file:
                return {"x": _mapped(path, npy.read_header(file), 0)}
        return dict(_members(path))
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} cannot be read: {first_line(error)}") from None


def _members(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    with path.open("rb") as file, npz.open_archive(file) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            header = npz.read_header(archive, name)
            if header is None:
                raise ValueError(f"expected arrays alone, got {member.filename!r}")
            if member.compress_type != zipfile.ZIP_STORED:
                yield name, npz.read(archive, name)
                continue
            # Before its content a member has its name again, and fields of any length.
            file.seek(member.header_offset + 26)
            lengths = np.frombuffer(file.read(4), "<u2")
            yield name, _mapped(path, header, member.header_offset + 30 + int(lengths.sum()))


def _mapped(path: Path, header: npy.Header, offset: int) -> np.ndarray:
    if not header.num_bytes:
        return np.zeros(header.shape, header.dtype)
    order: Any = "F" if header.fortran_order else "C"
    size = path.stat().st_size
    if offset + header.size + header.num_bytes > size:
        raise ValueError(f"it ends after {size} bytes; its header promises more")
    return np.memmap(path, header.dtype, "r", offset + header.size, header.shape, order)
