"""Which test images a model recognises, clean and with every corruption.

Recognised is a Boolean table (rows, n): the clean images in the first row, then each corruption.
"""

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool

from jaxsens.reporting.cached import cached_file
from jaxsens.reporting.records import Record
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.training.trainer import correct

from .._images.models import ModelSpec
from .._images.training import ExtraMeasurement
from .config import Config
from .loading import CorruptedImages

#: By the names of the models: which images are recognised, clean and corrupted.
RecognisedByModel = Mapping[str, Bool[np.ndarray, "rows n"]]
#: By the names of the models: which corrupted images are not recognised.
ErrorsByModel = Mapping[str, Bool[np.ndarray, "corruptions n"]]


def corruption_test(
    config: Config, loaded: CorruptedImages, spec: ModelSpec, folder: RunFolder
) -> ExtraMeasurement:
    """Accuracy, clean and on every corruption, at every evaluation; by image at the last."""

    def test(epoch: int, variables: Any) -> Record:
        if epoch == config.epochs:
            found = final_recognised(loaded, spec, folder, variables)
        else:
            found = recognised(loaded, spec, variables)
        clean, *accuracies = found.mean(axis=1).tolist()
        return {"clean": clean, "corrupted": dict(zip(loaded.tests, accuracies, strict=True))}

    return test


def recognised(
    loaded: CorruptedImages, spec: ModelSpec, variables: Any
) -> Bool[np.ndarray, "rows n"]:
    """Which images are recognised: clean in the first row, then each corruption."""
    tests = [(test.images, test.labels) for test in loaded.tests.values()]
    return np.stack(
        [
            correct(
                spec.model.apply,
                variables,
                images.astype(np.float32) / np.float32(127.5) - 1,
                labels.astype(np.int32),
            )
            for images, labels in (loaded.clean, *tests)
        ]
    )


def final_recognised(
    loaded: CorruptedImages, spec: ModelSpec, folder: RunFolder, variables: Any
) -> Bool[np.ndarray, "rows n"]:
    """The same at the end of training; a file of the run's folder keeps it."""

    def make() -> bytes:
        buffer = io.BytesIO()
        np.save(buffer, recognised(loaded, spec, variables), allow_pickle=False)
        return buffer.getvalue()

    def parse(content: bytes) -> Bool[np.ndarray, "rows n"]:
        return np.load(io.BytesIO(content), allow_pickle=False)

    return cached_file(folder, f"corrupted/{spec.name}.npy", make, parse)
