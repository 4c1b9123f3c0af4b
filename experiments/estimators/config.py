"""The flags of the experiment `estimators`."""

from dataclasses import dataclass
from typing import Literal

from .._images.config import ComparisonConfig


@dataclass(frozen=True)
class Config(ComparisonConfig):
    """Flags of the experiment; None means the paper's or the preset's value for the dataset."""

    dataset: Literal["digits", "shapes", "fashion_mnist", "cifar10", "svhn"] = "digits"
    """Images to train on."""

    def check(self) -> None:
        """Raises ValueError for what would leave nothing to compare."""
        super().check()
        if self.edit == "donor":
            raise ValueError("estimators compares ways to add noise: edit must be gaussian")
        if self.estimator != "patch-grid":
            raise ValueError("estimators compares all estimators: estimator must be patch-grid")
