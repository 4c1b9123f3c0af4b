"""The images that an experiment trains on and tests with."""

from dataclasses import dataclass
from pathlib import PurePath

import numpy as np
from jaxtyping import Float, Int

from jaxsens import data
from jaxsens.core.fingerprint import fingerprint

from .._common.reuse import check_trained_on
from .._common.training import require_batch
from .config import ImageConfig


@dataclass(frozen=True)
class Images:
    """Train and test split."""

    x: Float[np.ndarray, "n H W C"]
    y: Int[np.ndarray, " n"]
    x_test: Float[np.ndarray, "m H W C"]
    y_test: Int[np.ndarray, " m"]


def load(config: ImageConfig, data_dir: PurePath | None) -> Images:
    """The images that the config asks for.

    Raises:
      ValueError: there are fewer than a batch, or more steps than can be counted.
    """
    x, y = data.load(config.dataset, "train", data_dir)
    x_test, y_test = data.load(config.dataset, "test", data_dir)
    if config.setting.binary:
        y, y_test = (labels.astype(np.int32) for labels in (y >= 5, y_test >= 5))
    images = Images(x[: config.num_train], y[: config.num_train], x_test, y_test)
    require_batch(config.batch_size or 1, len(images.x), config.epochs or 1)
    if config.reuse is not None:
        check_trained_on(config.reuse, fingerprint({"x": images.x, "y": images.y}))
    return images
