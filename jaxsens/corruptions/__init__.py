"""Corruptions in the style of CIFAR-10-C, as pure JAX functions `(key, image) -> image`.

    images = corruptions.corrupt(images, "fog", 2, key=jax.random.key(0))  # uint8 in and out
    one = corruptions.corruption("fog", 2)(key, image)                     # float32 in [0, 1]
    test = corruptions.load("fog", 2, clean=(images, labels), key=key)     # official if there

Assumption: severities are those of CIFAR-10-C, made for 32×32 images; they are much milder than
those of ImageNet-C.
"""

from jaxsens.corruptions.base import Corruption
from jaxsens.corruptions.frost import FrostTextures, load_frost
from jaxsens.corruptions.sets import OFFICIAL, REGENERATED, CorruptedSet, corrupt, load, to_uint8
from jaxsens.corruptions.severities import CONSTANTS, NAMES, SEVERITIES, corruption

__all__ = [
    "CONSTANTS",
    "NAMES",
    "OFFICIAL",
    "REGENERATED",
    "SEVERITIES",
    "CorruptedSet",
    "Corruption",
    "FrostTextures",
    "corrupt",
    "corruption",
    "load",
    "load_frost",
    "to_uint8",
]
