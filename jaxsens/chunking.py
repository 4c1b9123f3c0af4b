"""How a measurement is cut to fit a byte budget.

A forward pass of the model on `rows` inputs at once holds about rows × (bytes of the widest
intermediate of one input). On a CPU the fastest choice is the largest number of rows whose
intermediates stay in the cache; on an accelerator, as many as fill it.

Assumption: intermediates grow linearly with the number of inputs, which holds for any model that
treats its inputs independently.
"""

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax

#: Bytes that the widest intermediate of one forward pass may take.
DEFAULT_BYTES = {"cpu": 4 << 20, "gpu": 512 << 20, "tpu": 512 << 20}

#: Examples that one jitted call takes at the most: enough to hide the dispatch, few enough for a
#: progress bar that moves.
MAX_CHUNK = 256


@dataclass(frozen=True)
class Plan:
    """Static sizes of one jitted call on one device.

    Attributes:
      chunk: examples given to a call (the last call may use fewer of them).
      group: examples that go through the model together.
      block: what goes through the model together: (position, sample) pairs of an example or, with
        buckets, its positions with all their samples.
      buckets: into how many buckets positions are cut; 0 for whole forward passes.
    """

    chunk: int
    group: int
    block: int
    buckets: int = 0


def make_plan(rows: int, num_pairs: int, buckets: int = 0) -> Plan:
    """Cuts `num_pairs` edits per example into passes of at most `rows` inputs.

    With buckets, both count positions, each with all its samples, and `num_pairs` is a bucket's.

    >>> make_plan(rows=1000, num_pairs=245)
    Plan(chunk=256, group=4, block=245, buckets=0)
    >>> make_plan(rows=100, num_pairs=245)
    Plan(chunk=256, group=1, block=82, buckets=0)
    """
    if rows >= num_pairs:
        group = min(rows // num_pairs, MAX_CHUNK)
        return Plan(MAX_CHUNK // group * group, group, num_pairs, buckets)
    num_blocks = math.ceil(num_pairs / rows)
    # Blocks of equal length: the last one is padded by less than one row a block.
    return Plan(MAX_CHUNK, 1, math.ceil(num_pairs / num_blocks), buckets)


def rows_within(
    num_bytes: int | None,
    apply_fn: Callable,
    params: Any,
    example: Any,
    platform: str | None = None,
) -> int:
    """How many inputs fit through the model at once, by default in the platform's own budget.

    `example` is the shape of one input, or a tuple of all that `apply_fn` takes beside `params`.

    >>> example = jax.ShapeDtypeStruct((100,), "float32")
    >>> rows_within(4000, lambda params, x: x.sum(axis=1), (), example)
    10
    """
    num_bytes = budget(num_bytes, platform)
    inputs = example if isinstance(example, tuple) else (example,)
    leaves, treedef = jax.tree.flatten((jax.tree.map(jax.typeof, params), inputs))
    return max(1, num_bytes // _row_bytes(apply_fn, tuple(leaves), treedef))


def budget(num_bytes: int | None, platform: str | None = None) -> int:
    """The byte budget: the given one, or the platform's own."""
    if num_bytes is None:
        return DEFAULT_BYTES.get(platform or jax.default_backend(), DEFAULT_BYTES["gpu"])
    if num_bytes < 1:
        raise ValueError(f"chunk_bytes must be positive; got {num_bytes}")
    return num_bytes


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
        return [_num_bytes(inputs[0]), *output_bytes(jaxpr)]

    one, two = widths(1), widths(2)
    return max(1, *(b - a for a, b in zip(one, two, strict=False)))


def output_bytes(jaxpr: Any) -> Iterator[int]:
    """Bytes of what each equation of a function gives, those it calls included."""
    for equation in jaxpr.eqns:
        yield sum(_num_bytes(out.aval) for out in equation.outvars)
        for value in jax.tree.leaves(list(equation.params.values())):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from output_bytes(inner)


def _num_bytes(aval: Any) -> int:
    shape, dtype = getattr(aval, "shape", ()), getattr(aval, "dtype", None)
    return math.prod(shape) * getattr(dtype, "itemsize", 0)
