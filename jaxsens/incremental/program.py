"""A model ready to be asked about edits: clean values once per example, then edit after edit.

Positions are cut into groups, each with windows of its own shape: where the order of positions is
an order in time, later ones leave more of the work clean.

Assumption: the model maps each example of a batch by itself. It is traced for a batch of one.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from jaxsens.core.tracing import as_shapes
from jaxsens.incremental import flops
from jaxsens.incremental.attention_operation import is_marked
from jaxsens.incremental.edited_position import EditedPosition
from jaxsens.incremental.folded_attention import is_folded
from jaxsens.incremental.jumps import Jump, find_jumps, sized_values
from jaxsens.incremental.layout import Layout, contiguous_table, make_layout
from jaxsens.incremental.nearness import entry_size, near_jumps
from jaxsens.incremental.needed import without_unneeded
from jaxsens.incremental.propagate import prepare, propagate
from jaxsens.incremental.recognition.recognise import recognise
from jaxsens.incremental.trace import Prepare, Trace, equations_of, flatten, value_of
from jaxsens.incremental.unrolling import unroll_layers
from jaxsens.incremental.values import Value
from jaxsens.perturbations.grids import Grid


class PositionGroup(NamedTuple):
    """Positions that one compiled program serves.

    Attributes:
      positions: which they are.
      layout: where their windows lie in the input, one row for each.
    """

    positions: Int[np.ndarray, " _"]
    layout: Layout


@dataclass(frozen=True, eq=False)
class Program:
    """A traced model and where the windows of its input lie.

    Attributes:
      trace: the model as a function of flat arguments, for a batch of one example.
      edited_input: the number of the input that is edited.
      position_groups: all positions, in groups.
      shared: the numbers of values that all examples share: parameters, those of single layers that
        stand in a stack, and large constants.

    Example:
      >>> from jaxsens import Bits
      >>> weights, x = jnp.array([[1.0], [10.0], [100.0]]), jnp.ones(3)
      >>> program = make_program(lambda weights, x: x @ weights, weights, x, (), Bits(), "cpu", 1)
      >>> @jax.jit
      ... def both(weights, x, position, entry):
      ...     clean = program.clean(weights, x, ())
      ...     return program.output(clean), program.edit(clean, 0, position, entry)
      >>> output, (edited, in_doubt) = both(weights, x, jnp.int32(1), jnp.array([-1.0]))
      >>> float(output[0]), float(edited[0]), bool(in_doubt)
      (111.0, 91.0, False)
    """

    trace: Trace
    edited_input: int
    position_groups: tuple[PositionGroup, ...]
    shared: frozenset[int]

    def clean(self, params: Any, x: Array, context: Any) -> "CleanValues":
        """All values of the model for one unedited example, and what rules prepare of them."""
        values = self._values(params, x, context, prepare)
        return CleanValues(
            values,
            [
                _is_finite(value) if number in self._reachable_values else None
                for number, value in enumerate(values)
            ],
            {number: entry_size(values[number]) for number in sized_values(self.trace, self.jumps)},
        )

    def forward(self, params: Any, x: Array, context: Any) -> Array:
        """The clean output of a pass that prepares nothing for edits."""
        return self._output(self._values(params, x, context, lambda *_: None))

    def _values(self, params: Any, x: Array, context: Any, prepare: Prepare) -> list[Any]:
        one = jax.tree.map(lambda a: a[None], (x, context))
        return self.trace.values(jax.tree.leaves((params, *one)), prepare)

    def output(self, clean: "CleanValues") -> Array:
        """The clean output."""
        return self._output(clean.values)

    def _output(self, values: list[Any]) -> Array:
        (output,) = self.trace.outputs
        return jnp.asarray(value_of(values, output))[0]

    @functools.cached_property
    def _reachable_values(self) -> set[int]:
        """The numbers of the values that depend on what is edited."""
        return self.trace.dependents([self.edited_input])

    @functools.cached_property
    def jumps(self) -> tuple[Jump, ...]:
        """The operations at which rounding may decide."""
        return find_jumps(self.trace, self._reachable_values)

    @functools.cached_property
    def rounding(self) -> float:
        """The relative rounding error of the coarsest floating-point numbers of the model."""
        floats = [a.dtype for a in self.trace.avals.values() if _is_inexact(a)]
        return max((float(jnp.finfo(dtype).eps) for dtype in floats), default=0.0)

    def edit(
        self, clean: "CleanValues", group: int, index: Int[Array, ""], window: Array
    ) -> tuple[Array, Bool[Array, ""]]:
        """The output with new entries in the window of one position.

        Args:
          clean: what the model computes of the unedited example.
          group: the number of the position's group.
          index: of the position in its group.
          window: the new entries.

        Returns:
          The output, and whether it is in doubt: the difference of two infinities, the small rest
          of two large numbers, or a jump that rounding decides, somewhere on the way. Only a whole
          pass can tell then.
        """
        out, doubt, _ = self.edit_and_values(clean, group, index, window)
        return out, doubt

    def edit_and_values(
        self, clean: "CleanValues", group: int, index: Int[Array, ""], window: Array
    ) -> tuple[Array, Bool[Array, ""], dict[int, Value]]:
        """What `edit` gives, and the values that the edit reaches, by their numbers."""
        layout, position = self.position_groups[group].layout, EditedPosition(index)
        out, reached = propagate(
            self.trace, clean.values, self.edited_input, layout, window[None], position
        )
        position.doubts.extend(
            near_jumps(self.trace, self.jumps, reached, clean.values, clean.sizes, position)
        )
        numbers = {id(value): number for number, value in enumerate(clean.values)}
        doubt = jnp.asarray(False)
        for value in {id(value): value for value in position.relied_on}.values():
            number = numbers.get(id(value))
            finite = jnp.isfinite(value).all() if number is None else clean.finite[number]
            doubt |= ~finite
        for each in position.doubts:
            doubt |= each
        return out[0], doubt, reached


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CleanValues:
    """What a model computes of an unedited example.

    Attributes:
      values: all values of its trace, and what rules want to know besides, by their numbers.
      finite: for floating-point values that edits can reach, whether all entries are finite; None
        for others.
      sizes: how large the entries of a value are, for operands of operations that jump, by numbers.
    """

    values: list[Any]
    finite: list[Any]
    sizes: dict[int, Any]


def _is_inexact(value: Any) -> bool:
    return hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jnp.inexact)


def _is_finite(value: Any) -> Array | None:
    return jnp.isfinite(value).all() if _is_inexact(value) else None


def make_program(
    apply_fn: Callable,
    params: Any,
    x: Any,
    context: Any,
    grid: Grid,
    platform: str,
    num_position_groups: int,
) -> Program:
    """Traces a model for one example.

    Args:
      apply_fn: `apply_fn(params, x, *context)`.
      params: its parameters, or their shapes.
      x: one example, or its shape.
      context: a tuple of what else it takes, for one example.
      grid: where windows lie.
      platform: cpu, gpu or tpu.
      num_position_groups: into how many groups to cut positions.

    Example:
      >>> from jaxsens import Tokens
      >>> weights, x = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((2, 2), (5, 2)))
      >>> model = lambda weights, x: (x @ weights).sum(axis=1)
      >>> program = make_program(model, weights, x, (), Tokens(), "cpu", num_position_groups=1)
      >>> [operation.name for operation in program.trace.operations]
      ['dot_general', 'reduce_sum']
    """
    flat, leaves = _of_one(apply_fn, params, x, context)
    num_params = len(jax.tree.leaves(params))
    closed = equations_of(flat, *leaves)
    written_out = unroll_layers(closed, num_params, is_marked)
    traced = recognise(flatten(without_unneeded(written_out), platform=platform, is_mark=is_marked))
    shared = {*traced.inputs[:num_params], *traced.constants}
    if written_out is not closed:
        reached = traced.dependents(traced.inputs[num_params:])
        made = {number for each in traced.operations for number in each.outputs}
        shared |= made - reached
    groups = _position_groups(grid, x, num_position_groups)
    return Program(traced, traced.inputs[num_params], groups, frozenset(shared))


def in_position_groups(program: Program, grid: Grid, x: Any, num: int) -> Program:
    """The same model with its positions cut into another number of groups.

    Args:
      program: the model.
      grid: where windows lie.
      x: one example, or its shape.
      num: of groups.
    """
    return replace(program, position_groups=_position_groups(grid, x, num))


def _position_groups(grid: Grid, x: Any, num: int) -> tuple[PositionGroup, ...]:
    layout = _input_layout(grid, tuple(x.shape))
    parts = np.array_split(np.arange(layout.num_positions), num)
    return tuple(PositionGroup(part, _of_positions(layout, part)) for part in parts)


def count_whole_pass(apply_fn: Callable, params: Any, x: Any, context: Any, platform: str) -> float:
    """Operations of one forward pass of what is needed, but for those on parameters alone.

    The arguments are those of `make_program`.
    """
    flat, leaves = _of_one(apply_fn, params, x, context)
    needed = without_unneeded(equations_of(flat, *leaves))
    traced = flatten(needed, platform=platform, is_mark=is_folded)
    (output,) = traced.outputs

    def forward(*arguments: Array) -> Array:
        return value_of(traced.values(arguments, lambda *_: None), output)

    jaxpr = jax.make_jaxpr(forward)(*leaves).jaxpr
    return flops.count_from(jaxpr, jaxpr.invars[len(jax.tree.leaves(params)) :])


def _of_one(apply_fn: Callable, params: Any, x: Any, context: Any) -> tuple[Callable, list[Any]]:
    """A model as a function of flat arguments for a batch of one, and their shapes."""
    one = jax.tree.map(lambda a: jax.ShapeDtypeStruct((1, *a.shape), a.dtype), (x, context))
    leaves, tree = jax.tree.flatten((as_shapes(params), *one))

    def flat(*arguments: Array) -> Array:
        params, x, context = jax.tree.unflatten(tree, arguments)
        return apply_fn(params, x, *context)

    return flat, leaves


def _of_positions(layout: Layout, positions: np.ndarray) -> Layout:
    tables = tuple(None if table is None else table[positions] for table in layout.tables)
    return Layout(layout.shape, tables, layout.reachable[positions])


def _input_layout(grid: Grid, shape: tuple[int, ...]) -> Layout:
    """The windows of a grid on a batch of one example."""
    window, num = grid.window_shape(shape), math.prod(grid.layout(shape))
    # A grid may look its starts up in an array of its own, and this may run while JAX traces.
    with jax.ensure_compile_time_eval():
        starts = np.array([[int(s) for s in grid.start(t, shape)] for t in range(num)])
    starts = starts.reshape(num, len(shape))
    # As `lax.dynamic_slice` has it, a negative start counts from the end, and a window that would
    # hang over the edge is moved inside.
    starts = np.where(starts < 0, starts + np.array(shape), starts)
    starts = np.clip(starts, 0, np.subtract(shape, window))
    reachable = np.ones((num, 1), bool)
    for axis, (n, width) in enumerate(zip(shape, window, strict=True)):
        slots = np.arange(1 if width == n else n) - starts[:, axis, None]
        inside = (slots >= 0) & (slots < width)
        reachable = reachable[..., None] & inside.reshape(num, *(1,) * (axis + 1), inside.shape[1])
    tables = [contiguous_table(starts[:, axis], width) for axis, width in enumerate(window)]
    return make_layout((1, *shape), [None, *tables], reachable)


def table_size(grid: Grid, shape: tuple[int, ...]) -> int:
    """Entries of the table that says what each position reaches: T times the windowed axes.

    Example:
      >>> from jaxsens import Patches
      >>> table_size(Patches(4), (28, 28, 1))  # 49 positions, 28 rows, 28 columns
      38416
    """
    window = grid.window_shape(shape)
    windowed = (n for n, width in zip(shape, window, strict=True) if width < n)
    return math.prod((*grid.layout(shape), *windowed))
