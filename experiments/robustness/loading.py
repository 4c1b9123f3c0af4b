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

#: By the names of the corruptions.
CorruptedSets = dict[str, corruptions.CorruptedSet]


@dataclass(frozen=True)
class CorruptedImages:
    """What to train on, and the same test images clean (as bytes, with labels) and corrupted.

    Attributes:
      images: to train on.
      clean: test images and their labels.
      tests: each corruption of them.
      others: the same at other severities.
    """

    images: loading.Images
    clean: tuple[UInt8[np.ndarray, "n H W 3"], Int[np.ndarray, " n"]]
    tests: CorruptedSets
    others: dict[int, CorruptedSets]

    def sources(self) -> dict[str, Any]:
        """What was read, not computed (see `jaxsens.core.fingerprint.fingerprint`)."""
        others = {f"severity_{severity}": tests for severity, tests in self.others.items()}
        return {"images": self.images, "tests": _official(self.tests)} | {
            name: official for name, tests in others.items() if (official := _official(tests))
        }


def _official(tests: CorruptedSets) -> CorruptedSets:
    return {n: test for n, test in tests.items() if test.source != corruptions.REGENERATED}


def load(config: Config, data_dir: PurePath | None) -> CorruptedImages:
    """The clean images, and the corrupted test sets: read or made."""
    images = loading.load(config, data_dir)
    some = slice(config.num_corrupted)
    clean = (corruptions.to_uint8(images.x_test[some]), images.y_test[some])

    def tests(severity: int) -> CorruptedSets:
        keys = {
            name: jax.random.fold_in(jax.random.key(config.seed), KEY_ORDER.index(name))
            for name in config.corruptions
        }
        return {
            name: _corrupted(config, clean, name, severity, key, data_dir)
            for name, key in keys.items()
        }

    severities = [each for each in config.other_severities if each != config.severity]
    others = {severity: tests(severity) for severity in severities}
    return CorruptedImages(images, clean, tests(config.severity), others)


def _corrupted(
    config: Config,
    clean: tuple[Any, Any],
    name: str,
    severity: int,
    key: Any,
    data_dir: PurePath | None,
) -> corruptions.CorruptedSet:
    if config.dataset != "cifar10":
        # Official files hold CIFAR-10: they say nothing about another dataset.
        images = corruptions.corrupt(clean[0], name, severity, key=key)
        detail = "procedural frost textures" if name == "frost" else ""
        return corruptions.CorruptedSet(
            images, clean[1], name, severity, corruptions.REGENERATED, detail
        )
    found = corruptions.load(name, severity, clean=clean, key=key, data_dir=data_dir)
    some = slice(len(clean[1]))
    return dataclasses.replace(found, images=found.images[some], labels=found.labels[some])
