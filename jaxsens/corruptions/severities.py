"""The corruptions by name, with the constants of CIFAR-10-C for the severities 1 to 5.

The numbers are those of hendrycks/robustness, `make_cifar_c.py` (Hendrycks and Dietterich, 2019,
arXiv 1903.12261). They are much milder than those of ImageNet-C, which most libraries carry: with
these a 32×32 image would be unrecognisable.

A severity is a rank, not a distance. For five of the corruptions the change does not grow with it;
mean absolute change in grey levels for severities 1 to 5, on 2,000 CIFAR-10 test images:

    glass_blur         11.2  11.2  11.1  18.1  17.4    more blur takes back what the copies did
    motion_blur         6.9  10.4  13.1  13.0  15.3    from 3 to 4 only the cut-off tail changes
    frost              30.5  44.6  49.6  44.4  42.7    the image itself is dimmed more
    elastic_transform  21.8  20.0  18.0  16.3  13.5    the affine part shrinks
    saturate           11.7  15.1   8.0  20.3  29.5    1 and 2 take colour away, 3 to 5 add it
"""

import dataclasses

from jaxsens.corruptions import blur, color, digital, elastic, frost, motion, noise, weather
from jaxsens.corruptions.base import Corruption
from jaxsens.data.errors import require_known

#: The severities of CIFAR-10-C.
SEVERITIES = (1, 2, 3, 4, 5)

#: The arguments of each corruption, one row for each severity.
CONSTANTS: dict[str, tuple[tuple[float, ...], ...]] = {
    "gaussian_noise": ((0.04,), (0.06,), (0.08,), (0.09,), (0.10,)),
    "shot_noise": ((500,), (250,), (100,), (75,), (50,)),
    "impulse_noise": ((0.01,), (0.02,), (0.03,), (0.05,), (0.07,)),
    "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1)),
    "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    "motion_blur": ((6.0, 1.0), (6.0, 1.5), (6.0, 2.0), (8.0, 2.0), (9.0, 2.5)),
    "zoom_blur": (
        *((1.0, 1.06, 0.01), (1.0, 1.11, 0.01), (1.0, 1.16, 0.01)),
        *((1.0, 1.21, 0.01), (1.0, 1.26, 0.01)),
    ),
    "snow": (
        (0.1, 0.2, 1.0, 0.6, 8.0, 3.0, 0.95),
        (0.1, 0.2, 1.0, 0.5, 10.0, 4.0, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10.0, 4.0, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12.0, 6.0, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14.0, 12.0, 0.8),
    ),
    "frost": ((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
    "fog": ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75)),
    "brightness": ((0.05,), (0.1,), (0.15,), (0.2,), (0.3,)),
    "contrast": ((0.75,), (0.5,), (0.4,), (0.3,), (0.15,)),
    "elastic_transform": (
        *((0.0, 0.0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06)),
        *((0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    ),
    "pixelate": ((0.95,), (0.9,), (0.85,), (0.75,), (0.65,)),
    "jpeg_compression": ((80,), (65,), (58,), (50,), (40,)),
    "speckle_noise": ((0.06,), (0.1,), (0.12,), (0.16,), (0.2,)),
    "gaussian_blur": ((0.4,), (0.6,), (0.7,), (0.8,), (1.0,)),
    "saturate": ((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2)),
}
#: The corruptions by name.
NAMES = tuple(CONSTANTS)

_CLASSES: dict[str, type[Corruption]] = {
    "gaussian_noise": noise.GaussianNoise,
    "shot_noise": noise.ShotNoise,
    "impulse_noise": noise.ImpulseNoise,
    "defocus_blur": blur.DefocusBlur,
    "glass_blur": blur.GlassBlur,
    "motion_blur": motion.MotionBlur,
    "zoom_blur": blur.ZoomBlur,
    "snow": weather.Snow,
    "frost": frost.Frost,
    "fog": weather.Fog,
    "brightness": color.Brightness,
    "contrast": color.Contrast,
    "elastic_transform": elastic.ElasticTransform,
    "pixelate": digital.Pixelate,
    "jpeg_compression": digital.JpegCompression,
    "speckle_noise": noise.SpeckleNoise,
    "gaussian_blur": blur.GaussianBlur,
    "saturate": color.Saturate,
}


def corruption(
    name: str, severity: int, *, textures: frost.FrostTextures | None = None
) -> Corruption:
    """Returns one corruption as a frozen, hashable function `(key, image) -> image`.

    Args:
      name: one of `NAMES`.
      severity: 1 to 5.
      textures: for frost, see `load_frost`; procedural by default. The others do not look at it.

    Raises:
      ValueError: unknown name or severity.

    Example:
      >>> corruption("snow", 1)
      Snow(loc=0.1, scale=0.2, zoom=1.0, threshold=0.6, radius=8.0, sigma=3.0, mix=0.95)
    """
    require_known("corruption", name, NAMES)
    if severity not in SEVERITIES:
        raise ValueError(f"expected a severity of 1, 2, 3, 4 or 5; got {severity}")
    constants = CONSTANTS[name][severity - 1]
    made = _CLASSES[name](*constants)
    return dataclasses.replace(made, textures=textures) if isinstance(made, frost.Frost) else made
