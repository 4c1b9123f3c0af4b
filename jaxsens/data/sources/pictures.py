"""PNG and JPEG images in bytes: what they are is known before they are decoded."""

import io
import warnings
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import UInt8

if TYPE_CHECKING:
    from PIL import Image

_FORMATS = ("PNG", "JPEG")  # Pillow opens forty others, some by starting other programs
_BYTE_MODES = {"L": 1, "P": 3, "RGB": 3, "LA": 2, "RGBA": 4}


def open_picture(content: bytes) -> "Image.Image":
    """Returns an image of which only the header has been read.

    Raises:
      ValueError: it is not a PNG or JPEG image; the message says what Pillow thinks of it.
    """
    from PIL import Image  # no dataset needs it but photographs and what TFDS has prepared

    try:
        with warnings.catch_warnings():
            # Pillow's own bound on the number of pixels; ours are lower.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            return Image.open(io.BytesIO(content), formats=_FORMATS)
    except Exception as error:  # OSError, SyntaxError, ValueError and Pillow's own
        raise ValueError(type(error).__name__) from None


def dtype_and_shape(image: "Image.Image") -> tuple[str, tuple[int, int, int]]:
    """Returns "uint8" or what else the pixels are, and (height, width, channels) of an image."""
    channels = _BYTE_MODES.get(image.mode, len(image.getbands()))
    name = "uint8" if image.mode in _BYTE_MODES else f"mode {image.mode}"
    return name, (image.height, image.width, channels)


def pixels(image: "Image.Image", channels: int) -> UInt8[np.ndarray, "height width channels"]:
    """Returns the decoded image, as grey for one channel and as red, green, blue for three.

    Raises:
      ValueError: it is damaged.
    """
    try:
        decoded = np.asarray(image.convert({1: "L", 3: "RGB"}[channels]))
    except Exception as error:  # OSError, SyntaxError, ValueError and Pillow's own
        raise ValueError(type(error).__name__) from None
    return decoded.reshape(image.height, image.width, channels)
