"""Examples that stay on the disk: read, converted and checked when they are asked for.

A `numpy.memmap`, or whatever has a shape, a dtype of NumPy and an index (a dataset of h5py or
zarr), may be larger than memory. A measurement asks for some hundred examples at a time, so it
never holds more of them than that.

Assumption: the file does not change while it is measured.
"""

import math
import mmap
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, Shaped

#: What is looked at when examples are read: the values, and which examples they are.
Check = Callable[[np.ndarray, np.ndarray], None]


def is_stored(x: Any) -> bool:
    """Whether examples are read from `x` one by one, because they may not fit into memory.

    >>> is_stored(np.zeros((3, 2))), is_stored([[1.0, 2.0]])
    (False, False)
    """
    if isinstance(x, np.ndarray | np.generic | jax.Array):
        return isinstance(x, np.memmap)
    # The index of a table of pandas is its labels, not the number of a row.
    has_index = hasattr(x, "__getitem__") and hasattr(x, "__len__") and not hasattr(x, "iloc")
    return has_index and hasattr(x, "shape") and isinstance(getattr(x, "dtype", None), np.dtype)


class StoredExamples:
    """(n, …) examples in a file, of which an index gives some as an ordinary array.

    Attributes:
      shape: (n, …).
      dtype: that JAX gives them.
      check: is called with the examples that were read, and their numbers; raises for bad ones.

    Args:
      source: where they are.
      convert: makes an array of JAX's dtype of what was read.

    Raises:
      ValueError: these are no examples.
    """

    def __init__(self, source: Any, convert: Callable[[Any], np.ndarray]) -> None:
        shape = tuple(int(side) for side in source.shape)
        if not shape or not shape[0]:
            raise ValueError(f"x has no examples: its shape is {shape}")
        self._source, self._convert = source, convert
        self.shape, self.dtype = shape, convert(np.asarray(source[:1])).dtype
        self.check: Check | None = None

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def example_bytes(self) -> int:
        """What one example takes in memory."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: slice | Int[np.ndarray, " k"]) -> Shaped[np.ndarray, "k ..."]:
        """The examples of a slice, or of numbers, in memory.

        Raises:
          ValueError: one of them is not finite, or `check` refuses it.
        """
        if isinstance(index, slice):
            index = np.arange(*index.indices(len(self)))
        # In their order and each once, as files are read fastest and h5py reads them at all.
        numbers, places = np.unique(index, return_inverse=True)
        values = self._convert(self._read(numbers))
        check_finite_inputs(values, numbers, len(self))
        if self.check is not None:
            self.check(values, numbers)
        in_order = len(numbers) == len(index) and (places[1:] > places[:-1]).all()
        return values if in_order else values[places]

    def _read(self, numbers: np.ndarray) -> np.ndarray:
        first, last = int(numbers[0]), int(numbers[-1])
        is_run = last - first + 1 == len(numbers)
        values = np.array(self._source[slice(first, last + 1) if is_run else numbers])
        if isinstance(self._source, np.memmap):
            _forget_pages(self._source)
        return values


def check_finite_inputs(
    values: Shaped[np.ndarray, "k ..."], numbers: Int[np.ndarray, " k"] | None, n: int
) -> None:
    """Raises ValueError, which names the first, if examples have numbers that are not finite.

    Args:
      values: some or all examples.
      numbers: which of all n they are; None for all.
      n: how many there are.
    """
    if not jnp.issubdtype(values.dtype, jnp.inexact):
        return
    finite = np.isfinite(values).reshape(len(values), -1).all(axis=1)
    if finite.all():
        return
    first = int(np.argmin(finite))
    raise ValueError(
        f"x has non-finite values in {(~finite).sum()} of {n if numbers is None else len(values)} "
        f"examples{'' if numbers is None else ' that were read'}, first in example "
        f"{first if numbers is None else int(numbers[first])}"
    )


def _forget_pages(array: np.memmap) -> None:
    """Gives back the memory of what was read; the system has it in its cache still.

    Not of a map that is private to this process (mode "c"), whose changes would be lost.
    """
    base: Any = array
    while base is not None and not isinstance(base, mmap.mmap):
        base = getattr(base, "base", None)
    if base is not None and array.mode != "c" and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)
