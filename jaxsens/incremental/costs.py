"""What reuse would cost, counted from traced functions: nothing is compiled or run.

Counts decide whether reuse is taken at all, and into how many groups positions are cut. They never
change a result: a wrong count costs time.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Literal

from jaxsens.core.jaxprs import bytes_of, output_bytes
from jaxsens.incremental import flops
from jaxsens.incremental.program import (
    CleanValues,
    Program,
    as_shapes,
    count_whole_pass,
    make_program,
)
from jaxsens.perturbations.grids import Grid

#: Into how many groups positions may be cut.
_NUM_GROUPS = (1, 4, 8)
#: More groups are taken only if they save this share: each is compiled by itself.
_WORTH_MORE_GROUPS = 0.07
#: Incremental evaluation is taken if it needs less than this share of the operations: its own are
#: slower, and where it saves less (ConvMixer, DenseNet, deep ViTs) it gained nothing or lost.
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

    @property
    def worthwhile(self) -> bool:
        """Whether incremental evaluation saves enough to be taken."""
        return self.incremental < _WORTHWHILE * self.plain


def count_costs(
    apply_fn: Callable, params: Any, x: Any, context: Any, grid: Grid, samples: int, platform: str,
    group_counts: tuple[int, ...] = _NUM_GROUPS,
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
    """
    leaves, tree = jax.tree.flatten((as_shapes(params), x, context))
    shapes = tuple(leaves)
    return _costs(apply_fn, shapes, tree, grid, samples, platform, group_counts)  # type: ignore[arg-type]


@functools.lru_cache(maxsize=64)
def _costs(apply_fn, leaves, tree, grid, samples, platform, group_counts) -> Costs:
    params, x, context = jax.tree.unflatten(tree, leaves)
    found: list[Costs] = []
    num = 0
    plain = count_whole_pass(apply_fn, params, x, context, platform)
    for num_position_groups in group_counts:
        # Asked before the model is traced, which takes long.
        if num_position_groups > 1 and num < 4 * num_position_groups:
            continue
        program = make_program(apply_fn, params, x, context, grid, platform, num_position_groups)
        num = sum(len(group.positions) for group in program.position_groups)
        clean = jax.make_jaxpr(program.clean)(params, x, context)
        values = jax.eval_shape(program.clean, params, x, context)
        total, widest, together, kept = 0.0, 1, 1, 1
        for number, group in enumerate(program.position_groups):
            jaxpr = _edits_jaxpr(program, number, grid, samples, values, x)
            # The last two inputs are the position and its windows: the rest is done once per block.
            total += len(group.positions) * flops.count_from(jaxpr, jaxpr.invars[-2:])
            sizes = list(output_bytes(jaxpr))
            widest, together = max(widest, *sizes), max(together, sum(sizes))
            num_params = len(jax.tree.leaves(params))
            shared = {*program.trace.inputs[:num_params], *program.trace.constants}
            kept = max(kept, _taken_bytes(jaxpr, values.values, shared))
        edits = num * samples
        once = flops.count(clean.jaxpr)
        each = (total + once) / edits
        edit_bytes, all_bytes = (-(-size // samples) for size in (widest, together))
        found.append(
            Costs(
                plain,
                each,
                num_position_groups,
                edit_bytes,
                kept,
                program.rounding,
                all_bytes,
                clean=once,
                edit=total / edits,
            )
        )
    best = found[0]
    for other in found[1:]:
        if other.incremental < (1 - _WORTH_MORE_GROUPS) * best.incremental:
            best = other
    return best


def _taken_bytes(jaxpr: Any, values: list[Any], shared: set[int]) -> int:
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
