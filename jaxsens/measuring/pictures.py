"""Images in a folder, decoded when they are asked for."""

import abc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxsens.data.registry import to_unit_range
from jaxsens.data.sources import files, pictures

_SUFFIXES = (".png", ".jpg", ".jpeg")
#: A picture of a camera takes less.
_MOST_BYTES = 64 << 20

#: Pillow's number for it, which is not to be imported before an image is read.
_BILINEAR = 2

#: From pixels (H, W, C) of 0 to 255 to what a model takes.
Prepare = Callable[[np.ndarray], np.ndarray]


def picture_files(folder: Path) -> list[Path]:
    """The images below a folder, in the order of their names.

    Raises:
      ValueError: there are none.
    """
    found = sorted(p for p in folder.rglob("*") if p.suffix.lower() in _SUFFIXES and p.is_file())
    if not found:
        raise ValueError(f"{folder} has no image that ends in {', '.join(_SUFFIXES)}")
    return found


def unit_range(image: np.ndarray) -> np.ndarray:
    """Pixels of 0 to 255 as float32 in [-1, 1], as `jaxsens.data.load` gives them."""
    return to_unit_range(image, 255)


class _Pictures(abc.ABC):
    """(n, …) images, of which an index gives some: what a measurement takes in place of an array.

    All are as the first one: grey or in colours, and of its size unless they are scaled.

    Args:
      num: how many there are.
      size: pixels of a side that the square in the middle of each is scaled to; None if they have
        one size.
      prepare: what is made of the pixels.
      channels: 1 for grey, 3 for colours; None for what the first one has.

    Raises:
      ValueError: the first image cannot be read.
    """

    def __init__(
        self, num: int, size: int | None, prepare: Prepare = unit_range, channels: int | None = None
    ) -> None:
        self._num, self._size, self._prepare = num, size, prepare
        found = pictures.dtype_and_shape(self._opened(0))[1][2]
        self._channels = channels or (1 if found < 3 else 3)
        self._pixels_shape: tuple[int, ...] | None = None
        self._pixels_shape = self.pixels(0).shape
        first = prepare(self.pixels(0))
        self.shape, self.dtype = (num, *first.shape), first.dtype

    @abc.abstractmethod
    def _opened(self, number: int) -> Any:
        """An image of Pillow."""

    @abc.abstractmethod
    def _name(self, number: int) -> str:
        """How an error names it."""

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __len__(self) -> int:
        return self._num

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: int | slice | np.ndarray) -> np.ndarray:
        """One image, or those of a slice or of some numbers."""
        if isinstance(index, int | np.integer):
            return self._prepare(self.pixels(int(index)))
        numbers = np.arange(len(self))[index]
        return np.stack([self._prepare(self.pixels(int(number))) for number in numbers])

    def pixels(self, number: int) -> np.ndarray:
        """(H, W, C) of 0 to 255.

        Raises:
          ValueError: it cannot be read, or has another size than the first.
        """
        image = self._opened(number)
        try:
            if self._size is not None:
                image = image.convert("L" if self._channels == 1 else "RGB")
                image = _middle(image).resize((self._size, self._size), resample=_BILINEAR)
            found = pictures.pixels(image, self._channels)
        except (ValueError, OSError, SyntaxError) as error:
            raise ValueError(f"{self._name(number)} is a damaged image ({error})") from None
        if self._pixels_shape is not None and found.shape != self._pixels_shape:
            height, width, _ = self._pixels_shape
            raise ValueError(
                f"{self._name(number)} has {found.shape[0]}×{found.shape[1]} pixels, "
                f"{self._name(0)} {height}×{width}; --image-size scales all to one size"
            )
        return found


class PictureFolder(_Pictures):
    """The images of some files, decoded when they are asked for.

    Args:
      paths: the files.
      size: as for all.
      prepare: as for all.
      channels: as for all.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        size: int | None,
        prepare: Prepare = unit_range,
        channels: int | None = None,
    ) -> None:
        self._paths = paths
        super().__init__(len(paths), size, prepare, channels)

    def _opened(self, number: int) -> Any:
        path = self._paths[number]
        try:
            return pictures.open_picture(files.read_bytes(path, _MOST_BYTES))
        except ValueError as error:
            raise ValueError(f"{path} is no PNG or JPEG image ({error})") from None

    def _name(self, number: int) -> str:
        return self._paths[number].name


class PictureArray(_Pictures):
    """Images in memory, scaled and prepared when they are asked for.

    Args:
      images: (n, H, W, C) of 0 to 255.
      size: as for all.
      prepare: as for all.
      channels: as for all.
    """

    def __init__(
        self,
        images: np.ndarray,
        size: int | None,
        prepare: Prepare = unit_range,
        channels: int | None = None,
    ) -> None:
        self._images = images
        super().__init__(len(images), size, prepare, channels)

    def _opened(self, number: int) -> Any:
        from PIL import Image

        pixels = self._images[number]
        return Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)

    def _name(self, number: int) -> str:
        return f"image {number}"


def _middle(image: Any) -> Any:
    """The largest square in the middle of an image."""
    side = min(image.size)
    left, top = ((length - side) // 2 for length in image.size)
    return image.crop((left, top, left + side, top + side))
