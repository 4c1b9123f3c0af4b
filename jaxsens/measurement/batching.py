"""How a measurement is cut into batches that fit a byte budget.

A forward pass of the model on b inputs has intermediates of at most b × (bytes of the widest one
for one input). On a CPU the fastest b is the largest whose intermediates stay in the cache; on an
accelerator, the largest that fits into memory. Several intermediates are alive at the same time, so
the widest gets one share of the budget, and the clean values that edits reuse another.

Assumption: intermediates grow linearly with the number of inputs, which holds for any model that
treats its inputs independently.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh

from jaxsens.core import runtime
from jaxsens.core.constants import holds_large, unfolded
from jaxsens.core.jaxprs import bytes_of, output_bytes
from jaxsens.core.scalars import as_whole, one_line
from jaxsens.core.tracing import as_shapes

#: The memory of the smallest devices in use, for those that do not say theirs: a T4 has 16 GiB, a
#: TPU v5e 16 GB.
_SMALLEST_MEMORY = 16 << 30

#: An accelerator's memory, without that of the parameters, over what intermediates of one call may
#: take of it. The other half is for what a call holds beside them: its chunk of examples, that of
#: the next call, which is sent while it runs, the pool of an edit that borrows from other examples,
#: and what the allocator cannot give away in one piece.
_MEMORY_OVER_BUDGET = 2

#: Bytes that the intermediates of one call may take together. On a CPU every core runs one call;
#: with 3 MB for the widest intermediate, a sixteenth of the budget, the papers' models were at most
#: a fifth slower than with the best of 1 to 16 MB. On an accelerator what counts is that they fit:
#: from some hundred inputs on a product reads its weights once for more operations than it takes to
#: read them (benchmarks/accelerator.md), and larger batches only save calls.
DEFAULT_BYTES = {
    "cpu": 48 << 20,
    "gpu": _SMALLEST_MEMORY // _MEMORY_OVER_BUDGET,
    "tpu": _SMALLEST_MEMORY // _MEMORY_OVER_BUDGET,
}

#: The most examples of one jitted call: enough to hide the cost of calling it, few enough for a
#: progress bar that moves.
MAX_CHUNK = 256

#: The most examples that go through the model together by reuse, where they share what a position
#: needs of the weights.
MAX_GROUP = 16

#: By reuse, draws of one example that go through the model together, at random positions.
DRAWS_AT_ONCE = 4

#: The most draws of an example that share one clean pass.
MAX_DRAWS = 64

#: By whole passes, examples whose clean outputs are computed together before their draws, and the
#: most draws of one pass: the last pass of a call is padded to as many.
_CLEAN_GROUP, _DRAWS_OF_A_PASS = 32, 512

#: From this many groups on, padding the last one costs little.
_MANY_GROUPS = 4


@dataclass(frozen=True)
class BatchPlan:
    """Static sizes of one jitted call on one device.

    Attributes:
      chunk: examples given to a call (the last call may use fewer of them).
      group: examples that go through the model together.
      block: how many edits of each of them go through the model together: (position, sample)
        pairs, and the example itself as one more; with reuse, positions with all their samples.
      num_position_groups: into how many groups of consecutive positions reuse cuts an example; 0
        for whole forward passes.
      samples: with reuse, samples of a position that go through the model together.
    """

    chunk: int
    group: int
    block: int
    num_position_groups: int = 0
    samples: int = 0


def make_plan(max_batch: int, num_pairs: int) -> BatchPlan:
    """Cuts `num_pairs` edits per example into passes of at most `max_batch` inputs.

    >>> make_plan(max_batch=1000, num_pairs=245)
    BatchPlan(chunk=256, group=4, block=245, num_position_groups=0, samples=0)
    >>> make_plan(max_batch=100, num_pairs=245)
    BatchPlan(chunk=256, group=1, block=82, num_position_groups=0, samples=0)
    """
    if max_batch >= num_pairs:
        group = min(max_batch // num_pairs, MAX_CHUNK)
        return BatchPlan(chunk=MAX_CHUNK // group * group, group=group, block=num_pairs)
    return BatchPlan(chunk=MAX_CHUNK, group=1, block=_even(num_pairs, max_batch))


def make_reuse_plan(
    max_batch: int,
    num_positions: int,
    samples: int,
    num_position_groups: int,
    num_examples: int,
    max_examples: int = MAX_GROUP,
) -> BatchPlan:
    """Cuts the positions of a position group, with all their samples, into passes by reuse.

    Examples share what a position needs of the weights, so some of them go together. Where a call
    has few examples, they are grouped evenly; where it has many, the plan does not depend on their
    number, so that a model is not compiled again for another number.

    Args:
      max_batch: the most edits in one pass.
      num_positions: T.
      samples: S.
      num_position_groups: into how many groups the positions are cut.
      num_examples: examples of one call.
      max_examples: the most examples that may go together.

    >>> make_reuse_plan(160, 49, samples=5, num_position_groups=1, num_examples=1000)
    BatchPlan(chunk=256, group=16, block=2, num_position_groups=1, samples=5)
    >>> make_reuse_plan(160, 49, samples=5, num_position_groups=1, num_examples=20)
    BatchPlan(chunk=256, group=10, block=3, num_position_groups=1, samples=5)
    >>> make_reuse_plan(160, 49, samples=400, num_position_groups=1, num_examples=20)
    BatchPlan(chunk=256, group=1, block=1, num_position_groups=1, samples=134)
    >>> make_reuse_plan(160, 49, 5, num_position_groups=1, num_examples=1000, max_examples=2)
    BatchPlan(chunk=256, group=2, block=13, num_position_groups=1, samples=5)
    """
    num_cells = max(1, max_batch // samples)
    group = max(1, min(MAX_GROUP, max_examples, num_cells))
    if num_examples < _MANY_GROUPS * group:
        group = _even(num_examples, group)
    block = _even(-(-num_positions // num_position_groups), num_cells // group)
    return BatchPlan(MAX_CHUNK, group, block, num_position_groups, _even(samples, max_batch))


def make_draw_plan(max_batch: int, max_examples: int | None = None) -> BatchPlan:
    """Cuts draws at random positions into passes; the plan does not depend on their number.

    Args:
      max_batch: the most edits in one pass.
      max_examples: the most examples whose clean values are reused at once; None for whole passes.

    Returns:
      A plan whose block is, by whole passes, the draws of one pass, whichever examples they are of;
      by reuse, the draws of each example of a group.

    >>> make_draw_plan(100)
    BatchPlan(chunk=256, group=32, block=100, num_position_groups=0, samples=0)
    >>> make_draw_plan(100, max_examples=10)
    BatchPlan(chunk=256, group=10, block=4, num_position_groups=1, samples=1)
    """
    if max_examples is None:
        group, block = min(_CLEAN_GROUP, max_batch), min(_DRAWS_OF_A_PASS, max_batch)
        return BatchPlan(MAX_CHUNK, group, block)
    block = min(DRAWS_AT_ONCE, max_batch)
    group = max(1, min(MAX_GROUP, max_examples, max_batch // block))
    return BatchPlan(MAX_CHUNK, group, block, num_position_groups=1, samples=1)


def make_search_plan(max_batch: int, num_starts: int, num_cells: int) -> BatchPlan:
    """Cuts searches, each of `num_starts` windows at one position, into calls.

    A search takes hundreds of passes, so a call is one group of them. Where there are few, they are
    grouped evenly; where there are many, the plan does not depend on their number.

    Args:
      max_batch: the most windows in one pass.
      num_starts: windows of a search, which move together.
      num_cells: searches of one device, of those that run at the same time.

    Returns:
      A plan whose chunk and group are searches, and whose block is starts.

    >>> make_search_plan(100, num_starts=8, num_cells=1000)
    BatchPlan(chunk=12, group=12, block=8, num_position_groups=0, samples=0)
    >>> make_search_plan(100, num_starts=8, num_cells=14)
    BatchPlan(chunk=7, group=7, block=8, num_position_groups=0, samples=0)
    >>> make_search_plan(3, num_starts=8, num_cells=1000)
    BatchPlan(chunk=1, group=1, block=3, num_position_groups=0, samples=0)
    """
    group = max(1, min(MAX_CHUNK, max_batch // num_starts))
    if num_cells < _MANY_GROUPS * group:
        group = _even(num_cells, group)
    return BatchPlan(chunk=group, group=group, block=_even(num_starts, max_batch))


def with_smaller_chunk(plan: BatchPlan, num_bytes: int, example_bytes: int) -> BatchPlan:
    """The plan with no more examples in a call than take `num_bytes`, but at least one group.

    >>> plan = make_plan(max_batch=1000, num_pairs=245)
    >>> with_smaller_chunk(plan, num_bytes=64 << 20, example_bytes=600_000).chunk
    108
    """
    most = max(1, num_bytes // max(1, example_bytes) // plan.group)
    return replace(plan, chunk=min(plan.chunk, most * plan.group))


def _even(num: int, most: int) -> int:
    """The length of blocks of equal length, at most `most`, that hold `num` with least padding."""
    return math.ceil(num / math.ceil(num / max(1, most)))


@dataclass(frozen=True)
class ByteBudget:
    """How many bytes the arrays of one call may take.

    Attributes:
      total: bytes of all intermediates. XLA's own count of them (tests/measurement/test_memory.py)
        stays below it, unless a single edit, or the clean values of a single example, exceed it.
    """

    total: int

    @property
    def widest(self) -> int:
        """Bytes of the widest intermediate: a pass holds a few of them at the same time."""
        return self.total // 16

    @property
    def clean(self) -> int:
        """Bytes of the clean values that edits reuse; with less, GPT-2 became slower."""
        return self.total // 2

    def gradient_batch(self, widest: int, total: int) -> int:
        """How many inputs, or edits, go through the model and back at once; at least 1.

        Args:
          widest: bytes of the widest intermediate of one of them.
          total: bytes of all its intermediates, which wait for their gradients.
        """
        return max(1, min(self.widest // max(1, widest), self.total // 2 // max(1, total)))


def byte_budget(num_bytes: Any, platform: str, memory: int | None = None) -> ByteBudget:
    """The budget of so many bytes, by default that of the platform.

    Args:
      num_bytes: what the user asks for, if anything.
      platform: cpu, gpu or tpu.
      memory: of an accelerator, beside the model's parameters; None if that is not known.

    >>> byte_budget(None, "cpu").widest
    3145728
    >>> byte_budget(None, "gpu", memory=60 << 30).total >> 30
    30
    """
    if num_bytes is None and memory is not None and platform != "cpu":
        return ByteBudget(max(memory // _MEMORY_OVER_BUDGET, 1))
    if num_bytes is None:
        return ByteBudget(DEFAULT_BYTES.get(platform, DEFAULT_BYTES["gpu"]))
    whole = as_whole(num_bytes)
    if whole is None:
        raise ValueError(
            f"chunk_bytes must be a whole number of bytes, such as 1 << 30; got "
            f"{one_line(num_bytes)}"
        )
    if whole < 1:
        raise ValueError(f"chunk_bytes must be positive; got {whole}")
    return ByteBudget(whole)


def device_budget(num_bytes: Any, mesh: Mesh, params: Any) -> ByteBudget:
    """The budget of a call on one device of a mesh, by default by the memory that it has.

    Args:
      num_bytes: what the user asks for, if anything.
      mesh: the devices.
      params: the model's parameters, of which every device has a copy.
    """
    platform = runtime.platform(mesh)
    if platform == "cpu":
        return byte_budget(num_bytes, platform)
    memory = runtime.accelerator_bytes(mesh)
    if memory is not None:
        memory -= sum(bytes_of(jax.typeof(leaf)) for leaf in jax.tree.leaves(params))
    return byte_budget(num_bytes, platform, memory)


def max_batch_within(num_bytes: int, apply_fn: Callable, params: Any, example: Any) -> int:
    """How many inputs fit through the model at once, if its widest intermediate has that budget.

    `example` is the shape of one input, or a tuple of all that `apply_fn` takes beside `params`.

    >>> example = jax.ShapeDtypeStruct((100,), "float32")
    >>> max_batch_within(4000, lambda params, x: x.sum(axis=1), (), example)
    10
    """
    return max(1, num_bytes // _traits(apply_fn, params, example).widest)


def max_gradient_batch(budget: ByteBudget, apply_fn: Callable, params: Any, example: Any) -> int:
    """How many inputs fit through the model and back at once: a gradient keeps all intermediates.

    >>> example = jax.ShapeDtypeStruct((100,), "float32")
    >>> model = lambda params, x: abs(abs(x)).sum(axis=1)
    >>> max_gradient_batch(ByteBudget(64_000), model, (), example)
    10
    """
    traits = _traits(apply_fn, params, example)
    return budget.gradient_batch(traits.widest, traits.total)


def to_compile(apply_fn: Callable, params: Any, example: Any) -> Callable:
    """The model as it is to be compiled: `unfolded` if it closes over large arrays.

    The arguments are those of `max_batch_within`, and the model is traced once for both.
    """
    is_large = _traits(apply_fn, params, example).holds_large_constants
    return unfolded(apply_fn) if is_large else apply_fn


class _Traits(NamedTuple):
    """What traces of a model tell.

    Attributes:
      widest: by how many bytes one more input widens the widest intermediate.
      total: and all of them together.
      holds_large_constants: whether the model closes over large arrays.
    """

    widest: int
    total: int
    holds_large_constants: bool


def _traits(apply_fn: Callable, params: Any, example: Any) -> _Traits:
    inputs = example if isinstance(example, tuple) else (example,)
    leaves, treedef = jax.tree.flatten((as_shapes(params), inputs))
    return _traits_of_shapes(apply_fn, tuple(leaves), treedef)


@functools.lru_cache(maxsize=256)
def _traits_of_shapes(apply_fn: Callable, leaves: tuple, treedef: Any) -> _Traits:
    """By the difference between two traces, which leaves out what does not grow with the batch."""

    def traced(batch: int) -> tuple[list[int], bool]:
        params, inputs = jax.tree.unflatten(treedef, leaves)
        inputs = jax.tree.map(lambda a: jax.ShapeDtypeStruct((batch, *a.shape), a.dtype), inputs)
        closed = jax.make_jaxpr(apply_fn)(params, *inputs)
        return [bytes_of(inputs[0]), *output_bytes(closed.jaxpr)], holds_large(closed)

    (one, is_large), (two, _) = traced(1), traced(2)
    growth = [max(0, b - a) for a, b in zip(one, two, strict=False)]
    return _Traits(max(1, *growth), max(1, sum(growth)), is_large)
