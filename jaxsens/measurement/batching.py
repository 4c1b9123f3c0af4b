"""How a measurement is cut to fit a byte budget.

A forward pass of the model on `rows` inputs at once has intermediates of at most rows × (bytes of
the widest one of one input). On a CPU the fastest choice is the largest number of rows whose
intermediates stay in the cache; on an accelerator, as many as fill it. Several are alive at a time,
so the widest gets a share of the budget, and clean values that are kept for reuse another.

Assumption: intermediates grow linearly with the number of inputs, which holds for any model that
treats its inputs independently.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from jaxsens.core.jaxprs import bytes_of, output_bytes
from jaxsens.core.scalars import as_whole, one_line

#: Bytes that the intermediates of one call may take together. On a CPU every core has a call under
#: way; with 3 MB each for the widest intermediate, the sixteenth part, the papers' models were
#: fastest, or within a fifth of it (1 to 16 MB tried).
DEFAULT_BYTES = {"cpu": 48 << 20, "gpu": 8 << 30, "tpu": 8 << 30}

#: Examples that one jitted call takes at the most: enough to hide the dispatch, few enough for a
#: progress bar that moves.
MAX_CHUNK = 256

#: Examples that go through the model together where they share what a position takes from it.
MAX_GROUP = 16

#: From this many groups on, padding the last one costs little.
_MANY_GROUPS = 4


@dataclass(frozen=True)
class Plan:
    """Static sizes of one jitted call on one device.

    Attributes:
      chunk: examples given to a call (the last call may use fewer of them).
      group: examples that go through the model together.
      block: what goes through the model together: (position, sample) pairs of an example or, with
        buckets, its positions with all their samples.
      buckets: into how many buckets positions are cut; 0 for whole forward passes.
      samples: with buckets, samples of a position that go through the model together.
    """

    chunk: int
    group: int
    block: int
    buckets: int = 0
    samples: int = 0


def make_plan(rows: int, num_pairs: int) -> Plan:
    """Cuts `num_pairs` edits per example into passes of at most `rows` inputs.

    >>> make_plan(rows=1000, num_pairs=245)
    Plan(chunk=256, group=4, block=245, buckets=0, samples=0)
    >>> make_plan(rows=100, num_pairs=245)
    Plan(chunk=256, group=1, block=82, buckets=0, samples=0)
    """
    if rows >= num_pairs:
        group = min(rows // num_pairs, MAX_CHUNK)
        return Plan(chunk=MAX_CHUNK // group * group, group=group, block=num_pairs)
    return Plan(chunk=MAX_CHUNK, group=1, block=_even(num_pairs, rows))


def make_reuse_plan(
    rows: int,
    num_positions: int,
    samples: int,
    buckets: int,
    num_examples: int,
    most_examples: int = MAX_GROUP,
) -> Plan:
    """Cuts the positions of a bucket, with all their samples, into passes of at most `rows` edits.

    Examples share what a position takes from the weights, so some of them go together. Where a call
    has few, they are cut evenly; where it has many, the plan does not depend on how many.

    >>> make_reuse_plan(rows=160, num_positions=49, samples=5, buckets=1, num_examples=1000)
    Plan(chunk=256, group=16, block=2, buckets=1, samples=5)
    >>> make_reuse_plan(rows=160, num_positions=49, samples=5, buckets=1, num_examples=20)
    Plan(chunk=256, group=10, block=3, buckets=1, samples=5)
    >>> make_reuse_plan(rows=160, num_positions=49, samples=400, buckets=1, num_examples=20)
    Plan(chunk=256, group=1, block=1, buckets=1, samples=134)
    >>> make_reuse_plan(160, 49, samples=5, buckets=1, num_examples=1000, most_examples=2)
    Plan(chunk=256, group=2, block=13, buckets=1, samples=5)
    """
    places = max(1, rows // samples)
    group = max(1, min(MAX_GROUP, most_examples, places))
    if num_examples < _MANY_GROUPS * group:
        group = _even(num_examples, group)
    block = _even(-(-num_positions // buckets), places // group)
    return Plan(MAX_CHUNK, group, block, buckets, _even(samples, rows))


def _even(num: int, most: int) -> int:
    """Blocks of equal length, at most `most`: the last one is padded by less than one per block."""
    return math.ceil(num / math.ceil(num / max(1, most)))


@dataclass(frozen=True)
class Budget:
    """Bytes of one call.

    Attributes:
      total: of all intermediates. XLA's own count of them (tests/measurement/test_memory.py) stays
        below it, unless one edit, or the clean values of one example, are too large by themselves.
    """

    total: int

    @property
    def widest(self) -> int:
        """Of the widest intermediate: a pass holds a few of them at a time."""
        return self.total // 16

    @property
    def clean(self) -> int:
        """Of the clean values that are kept for edits; with less, GPT-2 became slower."""
        return self.total // 2


def budget(num_bytes: Any, platform: str) -> Budget:
    """The given number of bytes, or the platform's own.

    >>> budget(None, "cpu").widest
    3145728
    """
    if num_bytes is None:
        return Budget(DEFAULT_BYTES.get(platform, DEFAULT_BYTES["gpu"]))
    whole = as_whole(num_bytes)
    if whole is None:
        raise ValueError(
            f"chunk_bytes must be a whole number of bytes, such as 1 << 30; got "
            f"{one_line(num_bytes)}"
        )
    if whole < 1:
        raise ValueError(f"chunk_bytes must be positive; got {whole}")
    return Budget(whole)


def rows_within(num_bytes: int, apply_fn: Callable, params: Any, example: Any) -> int:
    """How many inputs fit through the model at once, if its widest intermediate has that room.

    `example` is the shape of one input, or a tuple of all that `apply_fn` takes beside `params`.

    >>> example = jax.ShapeDtypeStruct((100,), "float32")
    >>> rows_within(4000, lambda params, x: x.sum(axis=1), (), example)
    10
    """
    inputs = example if isinstance(example, tuple) else (example,)
    leaves, treedef = jax.tree.flatten((jax.tree.map(jax.typeof, params), inputs))
    return max(1, num_bytes // _row_bytes(apply_fn, tuple(leaves), treedef))


@functools.lru_cache(maxsize=256)
def _row_bytes(apply_fn: Callable, leaves: tuple, treedef: Any) -> int:
    """Bytes of the widest intermediate that one more input costs.

    The difference between two traces leaves out what does not grow with the batch, such as a
    transposed weight matrix.
    """

    def widths(batch: int) -> list[int]:
        params, inputs = jax.tree.unflatten(treedef, leaves)
        inputs = jax.tree.map(lambda a: jax.ShapeDtypeStruct((batch, *a.shape), a.dtype), inputs)
        jaxpr = jax.make_jaxpr(apply_fn)(params, *inputs).jaxpr
        return [bytes_of(inputs[0]), *output_bytes(jaxpr)]

    one, two = widths(1), widths(2)
    return max(1, *(b - a for a, b in zip(one, two, strict=False)))
