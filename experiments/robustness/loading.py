"""The images of the experiment `robustness`: clean, and the same test images corrupted."""

import dataclasses
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import jax
import numpy as np
from jaxtyping import Int, UInt8

from jaxsens import corruptions

from .._images import loading
from .config import KEY_ORDER, Config


@dataclass(frozen=True)
class CorruptedImages:
    """What to train on, and the same test images clean (as bytes, with labels) and corrupted."""

    images: loading.Images
    clean: tuple[UInt8[np.ndarray, "n H W 3"], Int[np.ndarray, " n"]]
    tests: dict[str, corruptions.CorruptedSet]

    def sources(self) -> dict[str, Any]:
        """What was read, not computed (see `jaxsens.core.fingerprint.fingerprint`)."""
        tests = self.tests.items()
        official = {n: test for n, test in tests if test.source != corruptions.REGENERATED}
        return {"images": self.images, "tests": official}


def load(config: Config, data_dir: PurePath | None) -> CorruptedImages:
    """The clean images, and the corrupted test sets: read or made."""
    images = loading.load(config, data_dir)
    some = slice(config.num_corrupted)
    clean = (corruptions.to_uint8(images.x_test[some]), images.y_test[some])
    tests = {}
    for name in config.corruptions:
        key = jax.random.fold_in(jax.random.key(config.seed), KEY_ORDER.index(name))
        tests[name] = _corrupted(config, clean, name, key, data_dir)
    return CorruptedImages(images, clean, tests)


def _corrupted(
    config: Config, clean: tuple[Any, Any], name: str, key: Any, data_dir: PurePath | None
) -> corruptions.CorruptedSet:
    if config.dataset != "cifar10":
        # Official files hold CIFAR-10: they say nothing about another dataset.
        images = corruptions.corrupt(clean[0], name, config.severity, key=key)
        detail = "procedural frost textures" if name == "frost" else ""
        return corruptions.CorruptedSet(
            images, clean[1], name, config.severity, corruptions.REGENERATED, detail
        )
    found = corruptions.load(name, config.severity, clean=clean, key=key, data_dir=data_dir)
    some = slice(len(clean[1]))
    return dataclasses.replace(found, images=found.images[some], labels=found.labels[some])
