"""What is known of an image dataset before any file is opened.

The numbers are those of the official releases. They are what a reader checks files against, so a
wrong number here rejects good files. Readers take the spec as an argument, never from a global.
"""

import dataclasses
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

import numpy as np
from jaxtyping import Integer, UInt8

SPLITS = ("train", "test")

#: What every reader returns: images as stored, and labels 0, ..., num_classes - 1.
LabelledImages = tuple[UInt8[np.ndarray, "n height width channels"], Integer[np.ndarray, " n"]]


@dataclasses.dataclass(frozen=True)
class DatasetSpec:
    """The fixed facts of one image dataset.

    Attributes:
      name: the name `load` knows it by.
      title: the name to print.
      image_shape: (height, width, channels).
      num_classes: labels are 0, ..., num_classes - 1.
      num_train: examples in the official training split.
      num_test: examples in the official test split.
      max_value: the stored pixel value that becomes 1; 0 becomes -1.
      files: the official files in words, for the error message that says how to get them.
      folders: folders in which its files usually lie, relative to a data directory, by default one
        of its name. The data directory itself is looked into as well.
      tfds_name: its name in TensorFlow Datasets, None if it is not there: then a prepared folder is
        not looked for and nothing is downloaded.

    Example:
      >>> facts = DatasetSpec("leaves", "Leaves", (32, 32, 3), 10, num_train=800, num_test=200)
      >>> facts.num_examples("test"), facts.usual_folders()
      (200, ('leaves',))
    """

    name: str
    title: str
    image_shape: tuple[int, int, int]
    num_classes: int
    num_train: int
    num_test: int
    max_value: int = 255
    files: str = ""
    folders: tuple[str, ...] = ()
    tfds_name: str | None = None

    def num_examples(self, split: str) -> int:
        """Returns the size of the official split, "train" or "test"."""
        return {"train": self.num_train, "test": self.num_test}[split]

    def usual_folders(self) -> tuple[str, ...]:
        """Returns `folders`, or the dataset's name if none are given."""
        return self.folders or (self.name,)


#: `read(folder, split, spec)`: the split's images and labels, None if the folder has no file of
#: the dataset at all.
FileReader = Callable[[PurePath, str, DatasetSpec], LabelledImages | None]
#: `make(split, spec)`: the same for a dataset that needs no files.
Maker = Callable[[str, DatasetSpec], LabelledImages]


def bad_labels(labels: Integer[np.ndarray, "..."], num_classes: int) -> str | None:
    """Returns what is wrong with the labels in words, None if all lie in [0, num_classes)."""
    outside = (labels < 0) | (labels >= num_classes)
    if not outside.any():
        return None
    first: Any = np.flatnonzero(outside)[0]
    return (
        f"expected labels 0..{num_classes - 1}, got {labels[first]} at example {first} "
        f"({outside.sum()} of {labels.size} are out of range)"
    )
