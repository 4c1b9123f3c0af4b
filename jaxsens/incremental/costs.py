"""What reuse would cost, counted from traced functions: nothing is compiled or run.

Counts decide whether reuse is taken at all, and into how many groups positions are cut. They never
change a result: a wrong count costs time.
"""

import functools
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Literal

from jaxsens.core.jaxprs import bytes_of, output_bytes
from jaxsens.core.tracing import as_shapes
from jaxsens.incremental import flops
from jaxsens.incremental.program import (
    CleanValues,
    Program,
    count_whole_pass,
    in_position_groups,
    make_program,
)
from jaxsens.perturbations.grids import Grid

#: Into how many groups positions may be cut.
_NUM_GROUPS = (1, 4, 8)
#: More groups are taken only if they save this share: each is compiled by itself.
_WORTH_MORE_GROUPS = 0.07
#: And only if that saves more time than compiling them takes, over so many calls: a program is
#: compiled once and serves the checkpoints, seeds and noises that follow.
_CALLS = 30
#: Seconds to compile an equation of a group's edits: the 5,700 of GPT-2 in 8 groups
#: (benchmarks.models) took 12 s to trace, lower and compile, on two cores with jaxlib 0.10.
_SECONDS_PER_EQUATION = 2e-3
#: Operations per second: what a core multiplied there, and roundly what an accelerator reaches on
#: small products. Not those of the host at hand, so that every host decides alike.
_OPERATIONS_PER_SECOND = {"cpu": 1e11, "gpu": 1e13, "tpu": 1e13}
#: Incremental evaluation is taken if it needs less than this share of the operations: its own are
#: slower. Where it saved less it took longer (ConvMixer, DenseNet, a ViT of depth 8) or as long
#: (RoBERTa) as whole passes (docs/guides/exact_reuse.md).
_WORTHWHILE = 0.75


@dataclass(frozen=True)
class Costs:
    """What one edit costs, plainly and incrementally.

    Attributes:
      plain: operations of one forward pass.
      incremental: operations of one edit, its share of the clean pass included.
      num_position_groups: into how many groups positions are cut for that.
      bytes: of the widest intermediate of one edit.
      clean_bytes: of the clean values that edits of an example take.
      rounding: the relative rounding error of the coarsest numbers of the model.
      all_bytes: of all intermediates of one edit together, as its gradient keeps them.
      clean: operations of one clean pass with all that edits take from it.
      edit: operations of one edit without its share of that.
      equations: of the programs of all groups' edits, by which compiling them takes time.

    Example:
      >>> counted = {"rounding": 1.2e-7, "clean": 2e6, "edit": 4e5, "equations": 19}
      >>> sizes = {"num_position_groups": 1, "bytes": 800, "clean_bytes": 4000, "all_bytes": 3000}
      >>> [Costs(plain=1e6, incremental=each, **counted, **sizes).worthwhile for each in (7e5, 8e5)]
      [True, False]
    """

    plain: float
    incremental: float
    num_position_groups: int
    bytes: int
    clean_bytes: int
    rounding: float
    all_bytes: int
    clean: float
    edit: float
    equations: int

    @property
    def worthwhile(self) -> bool:
        """Whether incremental evaluation saves enough to be taken."""
        return self.incremental < _WORTHWHILE * self.plain


def count_costs(
    apply_fn: Callable, params: Any, x: Any, context: Any, grid: Grid, samples: int, platform: str,
    group_counts: tuple[int, ...] = _NUM_GROUPS, num_examples: int | None = None,
) -> Costs:  # fmt: skip
    """Counts operations, without compiling anything.

    Args:
      apply_fn: the model.
      params: its parameters, or their shapes.
      x: one example's shape.
      context: shapes of what else it takes, for one example.
      grid: where windows lie.
      samples: edits of each position, which share what depends on the position alone.
      platform: cpu, gpu or tpu.
      group_counts: into how many groups positions may be cut.
      num_examples: n, of one call; None for so many that compiling does not matter.

    Example:
      >>> from jaxsens import Tokens
      >>> weights, x = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((64, 10), (100, 64)))
      >>> model = lambda weights, x: (x @ weights).sum(axis=1)
      >>> costs = count_costs(model, weights, x, (), Tokens(), samples=5, platform="cpu")
      >>> costs.plain, costs.edit, costs.worthwhile
      (129000.0, 1860.6, True)
    """
    leaves, tree = jax.tree.flatten((as_shapes(params), x, context))
    traced: tuple[Any, ...] = apply_fn, tuple(leaves), tree, grid, platform
    num = _traced(*traced).num_edits(samples)
    best = _costs(*traced, samples, group_counts[0])

    def is_worth(saved: float, equations: int) -> bool:
        """Whether so many operations of an edit are worth compiling so many more equations."""
        if num_examples is None:
            return True
        operations = saved * num * num_examples * _CALLS
        speed = _OPERATIONS_PER_SECOND.get(platform, _OPERATIONS_PER_SECOND["gpu"])
        return operations / speed > equations * _SECONDS_PER_EQUATION

    for count in group_counts[1:]:
        more = best.equations * (count - best.num_position_groups) // best.num_position_groups
        # Asked before edits are traced, which takes long.
        if num < 4 * count * samples or not is_worth(best.edit, more):
            break
        # An order in time makes either end the cheapest group: more is not saved of any.
        ends = (_count_group(*traced, samples, count, number).operations for number in (0, -1))
        if best.edit - min(ends) / samples <= _WORTH_MORE_GROUPS * best.incremental:
            break
        other = _costs(*traced, samples, count)
        saved = best.incremental - other.incremental
        if saved <= _WORTH_MORE_GROUPS * best.incremental:
            break
        if is_worth(saved, other.equations - best.equations):
            best = other
    return best


class _Traced(NamedTuple):
    """What does not depend on the groups of positions.

    Attributes:
      program: the model, with all positions in one group.
      plain: operations of a whole pass.
      clean: operations of a clean pass with all that edits take from it.
      values: the shapes of what that gives.
    """

    program: Program
    plain: float
    clean: float
    values: CleanValues

    def num_edits(self, samples: int) -> int:
        """Edits of one example, at all positions."""
        return sum(len(group.positions) for group in self.program.position_groups) * samples


@functools.lru_cache(maxsize=64)
def _traced(apply_fn, leaves, tree, grid, platform) -> _Traced:
    params, x, context = jax.tree.unflatten(tree, leaves)
    program = make_program(apply_fn, params, x, context, grid, platform, 1)
    clean, values = jax.make_jaxpr(program.clean, return_shape=True)(params, x, context)
    plain = count_whole_pass(apply_fn, params, x, context, platform)
    return _Traced(program, plain, flops.count(clean.jaxpr), values)


@functools.lru_cache(maxsize=64)
def _in_groups(apply_fn, leaves, tree, grid, platform, num_position_groups) -> Program:
    _, x, _ = jax.tree.unflatten(tree, leaves)
    program = _traced(apply_fn, leaves, tree, grid, platform).program
    return in_position_groups(program, grid, x, num_position_groups)


class _GroupCosts(NamedTuple):
    """What the edits of one position of a group cost, all its samples together.

    Attributes:
      operations: that the samples do not share.
      sizes: bytes of all intermediates.
      kept: bytes of the clean values that they take.
    """

    operations: float
    sizes: tuple[int, ...]
    kept: int


@functools.lru_cache(maxsize=256)
def _count_group(
    apply_fn, leaves, tree, grid, platform, samples, num_position_groups, number
) -> _GroupCosts:
    _, x, _ = jax.tree.unflatten(tree, leaves)
    traced = _traced(apply_fn, leaves, tree, grid, platform)
    program = _in_groups(apply_fn, leaves, tree, grid, platform, num_position_groups)
    jaxpr = _edits_jaxpr(program, number, grid, samples, traced.values, x)
    return _GroupCosts(
        # The last two inputs are the position and its windows: the rest is done once per block.
        flops.count_from(jaxpr, jaxpr.invars[-2:]),
        tuple(output_bytes(jaxpr)),
        _taken_bytes(jaxpr, traced.values.values, program.shared),
    )


@functools.lru_cache(maxsize=256)
def _costs(apply_fn, leaves, tree, grid, platform, samples, num_position_groups) -> Costs:
    traced = _traced(apply_fn, leaves, tree, grid, platform)
    program = _in_groups(apply_fn, leaves, tree, grid, platform, num_position_groups)
    # The last one by -1, as in `count_costs`, so that it is counted once.
    numbers = [*range(num_position_groups - 1), -1]
    counts = [
        _count_group(apply_fn, leaves, tree, grid, platform, samples, num_position_groups, number)
        for number in numbers
    ]
    total = sum(
        len(group.positions) * each.operations
        for group, each in zip(program.position_groups, counts, strict=True)
    )
    edits = traced.num_edits(samples)
    widest = max(1, *(size for each in counts for size in each.sizes))
    together = max(1, *(sum(each.sizes) for each in counts))
    edit_bytes, all_bytes = (-(-size // samples) for size in (widest, together))
    return Costs(
        plain=traced.plain,
        incremental=(total + traced.clean) / edits,
        num_position_groups=num_position_groups,
        bytes=edit_bytes,
        clean_bytes=max(1, *(each.kept for each in counts)),
        rounding=program.rounding,
        all_bytes=all_bytes,
        clean=traced.clean,
        edit=total / edits,
        equations=sum(len(each.sizes) for each in counts),
    )


def _taken_bytes(jaxpr: Any, values: list[Any], shared: Set[int]) -> int:
    """Bytes of the clean values of an example that edits take, but for those all examples share."""
    owners = [number for number, value in enumerate(values) for _ in jax.tree.leaves(value)]
    taken = {atom for each in jaxpr.eqns for atom in each.invars if not isinstance(atom, Literal)}
    leaves = zip(owners, jaxpr.invars, strict=False)  # the last inputs are no values
    return sum(bytes_of(a.aval) for number, a in leaves if a in taken and number not in shared)


def _edits_jaxpr(
    program: Program, group: int, grid: Grid, samples: int, values: CleanValues, x: Any
) -> Any:
    """All edits of one position of a group, as a function of the clean values."""
    windows = jax.ShapeDtypeStruct((samples, *grid.window_shape(tuple(x.shape))), x.dtype)

    def edits(values, index, windows):
        return jax.vmap(lambda window: program.edit(values, group, index, window))(windows)

    index = jax.ShapeDtypeStruct((), jnp.int32)
    return jax.make_jaxpr(edits)(values, index, windows).jaxpr
