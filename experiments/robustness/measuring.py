"""Which test images a model recognises, clean and with every corruption.

Recognised is a Boolean table (rows, n): the clean images in the first row, then each corruption.
"""

import io
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool

from jaxsens.core.intervals import mean_interval
from jaxsens.reporting.cached import cached_file
from jaxsens.reporting.records import Record
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.training.trainer import correct

from .._common.equal_accuracy import Compared
from .._images.models import ModelSpec
from .._images.training import ExtraMeasurement
from .config import Config
from .loading import CorruptedImages, CorruptedSets

#: By the names of the models, for each seed: which images are recognised, clean and corrupted.
RecognisedBySeed = Mapping[str, Sequence[Bool[np.ndarray, "rows n"]]]
#: By the names of the models, for each seed: which corrupted images are not recognised.
ErrorsBySeed = Mapping[str, Sequence[Bool[np.ndarray, "corruptions n"]]]

#: What is compared at equal clean accuracy.
ERROR = Compared(
    measured=operator.itemgetter("corruption_error"),
    accuracy="clean",
    relation="has a smaller mean corruption error than",
    name="mean corruption error",
    accuracy_name="clean accuracy",
)


def corruption_test(
    config: Config, loaded: CorruptedImages, spec: ModelSpec, folder: RunFolder
) -> ExtraMeasurement:
    """Accuracy, clean and on every corruption, at every evaluation; by image at the last."""

    def test(epoch: int, variables: Any) -> Record:
        if epoch == config.epochs:
            found = final_recognised(loaded, spec, folder, variables)
        else:
            found = recognised(loaded, loaded.tests, spec, variables)
        clean, *accuracies = found.mean(axis=1).tolist()
        error = mean_interval(1 - found[1:].mean(axis=0), (0.0, 1.0))
        return {
            "clean": clean,
            "corrupted": dict(zip(loaded.tests, accuracies, strict=True)),
            "corruption_error": error._asdict(),
        }

    return test


def recognised(
    loaded: CorruptedImages, tests: CorruptedSets, spec: ModelSpec, variables: Any
) -> Bool[np.ndarray, "rows n"]:
    """Which images are recognised: clean in the first row, then each corruption."""
    corrupted = [(test.images, test.labels) for test in tests.values()]
    return np.stack(
        [
            correct(
                spec.model.apply,
                variables,
                images.astype(np.float32) / np.float32(127.5) - 1,
                labels.astype(np.int32),
            )
            for images, labels in (loaded.clean, *corrupted)
        ]
    )


def final_recognised(
    loaded: CorruptedImages,
    spec: ModelSpec,
    folder: RunFolder,
    variables: Any,
    severity: int | None = None,
) -> Bool[np.ndarray, "rows n"]:
    """The same at the end of training; a file of the run's folder keeps it.

    Args:
      loaded: the images.
      spec: the model.
      folder: the run's folder.
      variables: the model's weights.
      severity: one of the other severities; None for the main one.
    """
    tests = loaded.tests if severity is None else loaded.others[severity]

    def make() -> bytes:
        buffer = io.BytesIO()
        np.save(buffer, recognised(loaded, tests, spec, variables), allow_pickle=False)
        return buffer.getvalue()

    def parse(content: bytes) -> Bool[np.ndarray, "rows n"]:
        return np.load(io.BytesIO(content), allow_pickle=False)

    name = spec.name if severity is None else f"{spec.name}-severity-{severity}"
    return cached_file(folder, f"corrupted/{name}.npy", make, parse)
