"""Examples that come in batches, from a generator or a data loader: measured as they come.

Batches are put together to blocks that are worth a call. An example has the number that it would
have in one array of all, so the draws, and the estimate, are those of that array.

Assumption: the iterable gives every example once, and the same ones in the same order if it is
iterated over again: an interrupted run that resumes does so.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any

import jax
import numpy as np

from jaxsens.core.scalars import one_line
from jaxsens.measurement.arguments import as_array
from jaxsens.measurement.estimate import SensitivityEstimate
from jaxsens.measurement.jobs import ProgressCallback
from jaxsens.measurement.merging import merged

#: Batches are put together until there are so many examples, or bytes.
BLOCK_EXAMPLES, BLOCK_BYTES = 256, 64 << 20

_PARTS = ("x", "context", "mask")


def is_batches(x: Any) -> bool:
    """Whether this is an iterable of batches: no array, and nothing that can be made one.

    >>> is_batches(iter([np.zeros((2, 3))])), is_batches([[1.0, 2.0]]), is_batches(np.zeros(3))
    (True, False, False)
    """
    is_other = isinstance(x, Set | Mapping) or any(
        hasattr(x, name) for name in ("__array__", "__getitem__", "shape")
    )
    return isinstance(x, Iterable) and not is_other


def measure_batches(
    batches: Iterable[Any],
    measure: Callable[..., SensitivityEstimate],
    progress: ProgressCallback | None,
) -> SensitivityEstimate:
    """The estimate over the examples of all batches.

    Args:
      batches: (b, …) arrays; or mappings with "x" and, if needed, "context" and "mask".
      measure: `sensitivity` of a block, given x, context, mask, example_ids and progress.
      progress: as given to `sensitivity`; how many examples there will be is not known.

    Raises:
      ValueError: a batch is no array, does not fit the others, or there is none.
    """
    parts: list[SensitivityEstimate] = []
    done, mean = 0, 0.0
    for block in _blocks(batches):
        first, num = done, len(block["x"])
        report = None
        if progress is not None:

            def report(i: int, of: int, running: float, first: int = first, mean: float = mean):
                progress(first + i, first + of, (first * mean + i * running) / (first + i))

        ids = np.arange(first, first + num, dtype=np.int32)
        parts.append(measure(**block, example_ids=ids, progress=report))
        mean = (first * mean + num * parts[-1].mean) / (first + num)
        done += num
    if not parts:
        raise ValueError("x has no examples: it is an iterable that gives no batch")
    return merged(parts)


def _blocks(batches: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Batches put together, each as the arguments of a measurement."""
    held: list[dict[str, Any]] = []
    expected: tuple[Any, ...] | None = None
    for number, batch in enumerate(batches):
        parts = _parts(batch, number)
        found = jax.tree.structure(parts), parts["x"].shape[1:], parts["x"].dtype
        expected = expected or found
        if found != expected:
            raise ValueError(
                f"batch {number} of x has examples of shape {found[1]} and dtype {found[2]}, "
                f"{sorted(parts)}; expected those of batch 0, shape {expected[1]} and dtype "
                f"{expected[2]}: give batches of one kind"
            )
        if not len(parts["x"]):
            continue
        held.append(parts)
        num_bytes = sum(each["x"].nbytes for each in held)
        if num_bytes >= BLOCK_BYTES or sum(len(each["x"]) for each in held) >= BLOCK_EXAMPLES:
            yield jax.tree.map(lambda *leaves: np.concatenate(leaves), *held)
            held = []
    if held:
        yield jax.tree.map(lambda *leaves: np.concatenate(leaves), *held)


def _parts(batch: Any, number: int) -> dict[str, Any]:
    """The examples x of a batch and, where it has them, its context and mask."""
    given = dict(batch) if isinstance(batch, Mapping) else {"x": batch}
    if "x" not in given or (strange := set(given) - set(_PARTS)):
        raise ValueError(
            f"batch {number} of x must be an array, or a mapping with x and, if needed, context "
            f"and mask; got {one_line(sorted(map(str, given)) if 'x' not in given else strange)}"
        )
    parts = {
        name: jax.tree.map(lambda leaf, name=name: as_array(name, leaf), value)
        for name, value in given.items()
        if value is not None
    }
    x = parts["x"]
    if not isinstance(x, np.ndarray) or not x.ndim:
        raise ValueError(
            f"batch {number} of x must be an array (b, …); got {one_line(batch)}: give x alone, or "
            'a mapping {"x": …, "context": …, "mask": …}'
        )
    return parts
