"""scikit-learn's handwritten digits: 1,797 real 8×8 images that need no file and no network.

The split is ours, for the set has no official one: 1,437 train, 360 test, in a fixed random order.
It would silently change if the random stream did. Hence a stable sort of the raw 64-bit stream of
PCG64, which NumPy promises to keep (NEP 19), and not `Generator.permutation`, which it does not.
"""

import numpy as np
from jaxtyping import Int64

from jaxsens.data.dataset import DatasetSpec, LabelledImages

SPEC = DatasetSpec("digits", "Handwritten digits", (8, 8, 1), 10, 1_437, 360, max_value=16)

_SEED = 0


def split_order(num_examples: int) -> Int64[np.ndarray, " n"]:
    """Returns the fixed permutation of 0..num_examples-1 that the split is cut from."""
    return np.argsort(np.random.PCG64(_SEED).random_raw(num_examples), kind="stable")


def make(split: str, spec: DatasetSpec) -> LabelledImages:
    """Returns the split's images, uint8 in 0..16, and labels.

    Args:
      split: "train" is the first `spec.num_train` examples of the fixed order, "test" the rest.
      spec: the dataset's facts.
    """
    from sklearn.datasets import load_digits  # a second of import that only this dataset needs

    bunch = load_digits()
    chosen = split_order(len(bunch.target))
    chosen = chosen[: spec.num_train] if split == "train" else chosen[spec.num_train :]
    return bunch.images[chosen, :, :, None].astype(np.uint8), bunch.target[chosen]
